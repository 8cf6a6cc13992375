"""Find the newest action on each file, which is the one that counts (protocol, "Action Reconciliation").

Most files have only one action in a log. Hashes of the keys show which may have several; the keys are
compared only for these, because that takes far longer.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.log.paths import equal_uris, one_array

_WORD_BYTES = 8
# Hashed from the end of a key, where the names of data files differ.
_NUM_WORDS = 6
_PIECE = 1 << 16
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def newest_actions(actions: pa.Table) -> pa.Table:
    """Return the newest action on each file and deletion vector.

    Args:
        actions: File actions, oldest first.

    Returns:
        Some of these actions, in the same order.
    """
    keys = file_keys(actions)
    numbers, repeated = _repeated(keys)
    if not len(repeated):
        return actions
    rows = _indices_in(numbers, repeated)
    encoded = keys.take(pa.array(rows)).dictionary_encode()
    newest = np.empty(len(encoded.dictionary), dtype=np.int64)
    # NumPy keeps the last of several assignments to the same index.
    newest[encoded.indices.to_numpy()] = rows
    counts = np.ones(len(keys), dtype=bool)
    counts[rows] = False
    counts[newest] = True
    return actions.filter(pa.array(counts)) if len(newest) < len(rows) else actions


def distinct_actions(actions: pa.Table) -> pa.Table:
    """Return the actions of a checkpoint, or the newest ones if it names a file several times.

    Paths are compared as they are written: a checkpoint has one writer, which writes a path in one way.
    """
    paths = one_array(actions["path"])
    return newest_actions(actions) if len(_repeated(paths)[1]) else actions


def without(actions: pa.Table, newer: pa.Table) -> pa.Table:
    """Return the actions on files that have no newer action."""
    if not len(newer) or not len(actions):
        return actions
    newer_keys = file_keys(newer)

    def kept(batch: pa.RecordBatch) -> pa.RecordBatch:
        replaced = pc.is_in(file_keys(pa.Table.from_batches([batch])), value_set=newer_keys)
        return batch.filter(pc.invert(replaced)) if pc.any(replaced).as_py() else batch

    return pa.Table.from_batches([kept(batch) for batch in actions.to_batches()], actions.schema)


def file_keys(actions: pa.Table) -> pa.Array:
    """Return the key that identifies each action's file: its path and the id of its deletion vector.

    Paths that are equal URIs name one file (protocol, "Action Reconciliation"; UniqueFileActionTuple). Delta
    itself may take two spellings for two files: it compares only paths whose hashes fall into the same of
    its `spark.databricks.delta.snapshotPartitions`.
    """
    keys = equal_uris(actions["path"])
    vectors = one_array(actions["deletion_vector_id"])
    if vectors.null_count == len(vectors):
        return keys
    # No path contains NUL, so different pairs have different keys.
    return pc.coalesce(pc.binary_join_element_wise(keys, vectors, "\0"), keys)


def _indices_in(numbers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    hits = pc.is_in(pa.array(numbers), value_set=pa.array(wanted))
    indices: np.ndarray = np.flatnonzero(hits.to_numpy(zero_copy_only=False))
    return indices


def _repeated(keys: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return a hash of each text, and the hashes that occur more than once."""
    # In pieces that stay in the processor's cache.
    pieces = (keys.slice(start, _PIECE) for start in range(0, len(keys), _PIECE))
    numbers = np.concatenate([_numbers(piece) for piece in pieces]) if len(keys) else _numbers(keys)
    ordered = np.sort(numbers)
    return numbers, np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def _numbers(keys: pa.Array) -> np.ndarray:
    """Return a hash (uint64) of each text."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    numbers = (ends - starts).astype(np.uint64)
    long = np.flatnonzero(ends - starts >= _WORD_BYTES)
    if not len(long):
        return numbers
    data = keys.buffers()[2]
    words = np.ndarray((data.size - _WORD_BYTES + 1,), np.uint64, data, strides=(1,))
    starts, ends, mixed = starts[long], ends[long], numbers[long]
    for k in range(1, _NUM_WORDS + 1):
        mixed ^= words[np.maximum(ends - k * _WORD_BYTES, starts)]
        mixed *= _FACTOR
        mixed ^= mixed >> _SHIFT
    numbers[long] = mixed
    return numbers
