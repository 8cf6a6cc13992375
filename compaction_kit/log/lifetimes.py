"""The range of versions in which each data file was live."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.log.actions import CORE, column, file_actions
from compaction_kit.log.listing import LogFile, commits_by_version, find_segment, version_ranges
from compaction_kit.log.paths import one_array, places
from compaction_kit.log.snapshot import Snapshot, file_keys, read_snapshot, without
from compaction_kit.log.sources import commit_sources
from compaction_kit.storage import Store

_CARDINALITY = "deletion_vector_cardinality"


def file_lifetimes(store: Store, files: Sequence[LogFile]) -> tuple[Snapshot, pa.Table]:
    """Replay every commit since the earliest version that can be read; see `TransactionLog.lifetimes`.

    Where the log lacks commits, what they added and removed counts as done by the next version that can be
    read.
    """
    ranges = version_ranges(files)
    first, *later = (read_snapshot(store, find_segment(files, versions.start)) for versions in ranges)
    actions = [_done_by(first.live, first.version, row=pa.array(np.arange(len(first.live))))]
    for before, snapshot in zip(ranges, later, strict=False):
        last = read_snapshot(store, find_segment(files, before.stop - 1))
        gone = without(last.live, file_keys(snapshot.live))
        gone = gone.set_column(0, "is_add", pa.repeat(False, len(gone)))
        actions += [_done_by(files, snapshot.version) for files in (gone, snapshot.live)]
    # What commits outside of these ranges changed is unknown, and their first versions are snapshots.
    known = pa.array(np.concatenate([np.array(versions[1:], np.int64) for versions in ranges]))
    for source in commit_sources(store, [*commits_by_version(files).values()]):
        raw = source.rows([*CORE, _CARDINALITY])
        found = file_actions(raw, 0)
        rows = one_array(found["row"])
        versions = np.array([file.version or 0 for file in source.files], np.int64)[source.file_of[rows]]
        deleted = pc.fill_null(column(raw, "add", _CARDINALITY), 0)
        part = _done_by(found, versions, pc.subtract(source.num_records(), deleted).take(rows))
        actions.append(part.filter(pc.is_in(part["version"], value_set=known)))
    return first, _lives(pa.concat_tables(actions), store)


def _done_by(
    actions: pa.Table, version: int | np.ndarray, records: pa.Array | None = None, row: pa.Array | None = None
) -> pa.Table:
    """Return file actions with the version that did them, for `_lives`."""
    unknown = pa.nulls(len(actions), pa.int64())
    columns = {name: actions[name] for name in ("is_add", "path", "deletion_vector_id", "size_bytes")}
    columns["version"] = pa.array(np.broadcast_to(version, len(actions)), pa.int64())
    columns["num_records"] = unknown if records is None else records
    columns["row"] = unknown if row is None else row
    return pa.table(columns)


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
    columns = {name: one_array(lives[name]) for name in ("deletion_vector_id", "size_bytes")}
    columns |= {"added": one_array(lives["version"])}
    columns |= {"removed": pa.array(versions[order[changes[ends]]], mask=~ended)}
    columns |= {name: one_array(lives[name]) for name in ("num_records", "row")}
    table = pa.table({"path": places(lives["path"], store), **columns})
    return table.sort_by([("added", "ascending"), ("path", "ascending")])
