"""The range of versions in which each data file was live."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.log.actions import CORE, column, file_actions
from compaction_kit.log.json_source import JsonSource
from compaction_kit.log.listing import LogFile, find_segment, version_ranges
from compaction_kit.log.paths import one_array, places
from compaction_kit.log.reconcile import file_keys, without
from compaction_kit.log.snapshot import Snapshot, read_snapshot
from compaction_kit.storage import Store

_CARDINALITY = "deletion_vector_cardinality"


def file_lifetimes(
    store: Store, files: Sequence[LogFile], commits: Sequence[JsonSource]
) -> tuple[Snapshot, pa.Table]:
    """Replay every commit since the earliest version that can be read.

    Where the log lacks commits, what they added and removed counts as done by the next version that can be
    read.

    Args:
        store: The table's files.
        files: The listing of its log.
        commits: Every commit of the log, oldest first.

    Returns:
        The snapshot of the earliest version, and one row for each range of versions in which a data
        file was live: path (see `paths.places`), deletion_vector_id, size_bytes, added (the first
        version; the snapshot's for files that were live then), removed (the first version without
        the file; null if it is live), num_records (without deleted rows; null without stats, and for
        files from a snapshot) and row (its position in the snapshot's `live`, else null).
    """
    ranges = version_ranges(files)
    first, *later = (read_snapshot(store, find_segment(files, versions.start)) for versions in ranges)
    actions = [_state(first.live, first.version, pa.array(np.arange(len(first.live))))]
    for before, snapshot in zip(ranges, later, strict=False):
        last = read_snapshot(store, find_segment(files, before.stop - 1))
        removed = without(last.live, snapshot.live)
        gone = removed.set_column(
            removed.schema.get_field_index("is_add"), "is_add", pa.repeat(False, len(removed))
        )
        actions += [_state(live, snapshot.version) for live in (gone, snapshot.live)]
    # Of commits outside of these ranges nothing is known that they changed, and checkpoints begin them.
    known = pa.array(np.concatenate([np.array(versions[1:], np.int64) for versions in ranges]))
    parts = map(_commit_actions, commits)
    actions += [part.filter(pc.is_in(part["version"], value_set=known)) for part in parts]
    return first, _lives(pa.concat_tables(actions), store)


def _state(live: pa.Table, version: int, rows: pa.Array | None = None) -> pa.Table:
    """Return file actions as if one version had done them; `rows` is as in `file_lifetimes`."""
    unread = pa.nulls(len(live), pa.int64())
    return _with_version(live, np.full(len(live), version), unread, unread if rows is None else rows)


def _commit_actions(source: JsonSource) -> pa.Table:
    raw = source.rows([*CORE, _CARDINALITY])
    actions = file_actions(raw, 0)
    live = pc.subtract(source.num_records(), pc.fill_null(column(raw, "add", _CARDINALITY), 0))
    rows = one_array(actions["row"])
    versions = source.versions()[rows.to_numpy()]
    return _with_version(actions, versions, live.take(rows), pa.nulls(len(rows), pa.int64()))


def _with_version(actions: pa.Table, versions: np.ndarray, records: pa.Array, rows: pa.Array) -> pa.Table:
    columns = actions.select(["is_add", "path", "deletion_vector_id", "size_bytes"])
    columns = columns.append_column("version", pa.array(versions, pa.int64()))
    return columns.append_column("num_records", records).append_column("row", rows)


def _lives(actions: pa.Table, store: Store) -> pa.Table:
    """Pair each add with the remove that ends the file's lifetime."""
    keys = file_keys(actions).dictionary_encode().indices.to_numpy()
    is_add = actions["is_add"].to_numpy()
    versions = actions["version"].to_numpy()
    # Within a commit, removes come first: a commit that replaces a file's deletion vector names the
    # same path twice, with two keys.
    order = np.lexsort((is_add, versions, keys))
    keys, is_add = keys[order], is_add[order]
    starts_key = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    was_live = np.append(False, is_add[:-1])[: len(keys)] & ~starts_key
    changes = np.flatnonzero(is_add != was_live)
    begins = np.flatnonzero(is_add[changes])
    # A key's adds and removes alternate here, so the next change of the same key ends the lifetime.
    ends = np.minimum(begins + 1, max(len(changes) - 1, 0))
    ended = (ends > begins) & (keys[changes[ends]] == keys[changes[begins]])
    lives = actions.take(pa.array(order[changes[begins]]))
    return pa.table(
        {
            "path": places(lives["path"], store),
            "deletion_vector_id": one_array(lives["deletion_vector_id"]),
            "size_bytes": one_array(lives["size_bytes"]),
            "added": one_array(lives["version"]),
            "removed": pa.array(versions[order[changes[ends]]], mask=~ended),
            "num_records": one_array(lives["num_records"]),
            "row": one_array(lives["row"]),
        }
    ).sort_by([("added", "ascending"), ("path", "ascending")])
