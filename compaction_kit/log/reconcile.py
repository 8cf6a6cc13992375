"""Which action on a file counts: the newest (protocol, "Action Reconciliation")."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.log.paths import decode_paths


def newest_actions(actions: pa.Table) -> pa.Table:
    """The newest action on each file and deletion vector.

    Args:
        actions: File actions, oldest first.

    Returns:
        Those that count, in the same order.
    """
    keys = action_keys(actions)
    encoded = keys.dictionary_encode()
    if len(encoded.dictionary) == len(keys):
        return actions
    newest = np.empty(len(encoded.dictionary), dtype=np.int64)
    # Of several assignments to one place the last is kept.
    newest[encoded.indices.to_numpy()] = np.arange(len(keys))
    return actions.take(pa.array(np.sort(newest)))


def without(actions: pa.Table, newer: pa.Table) -> pa.Table:
    """The actions on files that newer ones don't name."""
    if not len(newer) or not len(actions):
        return actions
    superseded = pc.is_in(action_keys(actions), value_set=action_keys(newer))
    return actions.filter(pc.invert(superseded)) if pc.any(superseded).as_py() else actions


def action_keys(actions: pa.Table) -> pa.Array:
    """What names a file: its decoded path, and the id of its deletion vector."""
    keys = decode_paths(actions["path"].combine_chunks())
    vectors = actions["deletion_vector_id"].combine_chunks()
    if vectors.null_count == len(vectors):
        return keys
    # No path holds a NUL, so that the two can't run into each other.
    return pc.coalesce(pc.binary_join_element_wise(keys, vectors, "\0"), keys)
