"""A plan's tables: what goes and why, what stays, what is stored."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.folder import Folder, count_files
from compaction_kit.history.readable import Readability
from compaction_kit.log.listing import Kind, list_log
from compaction_kit.vacuum.lite import changed_paths
from compaction_kit.vacuum.references import References

KEPT = pa.schema([("reason", pa.string()), ("num_files", pa.int64()), ("size_bytes", pa.int64())])
_STAMP = pa.timestamp("ms", "UTC")
_NO_NUMBER = pa.scalar(None, pa.int64())
_CHANGE_DATA = "_change_data/"


def files_table(going: pa.Table, table: Path, references: References, state: Readability) -> pa.Table:
    """The files that go; see `VacuumPlan.files`."""
    paths = going["path"].combine_chunks()
    needs, removed = state.needs, references.removed
    since = _latest(paths, needs.files["path"], needs.files["removed"])
    told = _latest(paths, removed["path"], removed["time"])
    # Its tombstone may be gone, or not say when; then the commit tells.
    told = pc.if_else(pc.equal(told, 0), _NO_NUMBER, told)
    removed_at = pc.coalesce(told, _picked(state.times, pc.subtract(since, needs.first)))
    known = pc.or_(since.is_valid(), pc.is_in(paths, value_set=removed["path"]))
    is_change = pc.is_in(paths, value_set=_change_data(table, paths))
    return pa.table(
        {
            "path": paths,
            "size_bytes": going["size_bytes"],
            "reason": pc.if_else(known, "tombstone", pc.if_else(is_change, "change data", "orphan")),
            "since_version": since,
            "removed_at": removed_at.cast(_STAMP),
            "modification_time": going["modification_time"].cast(_STAMP),
        }
    )


def kept_table(table: Path, folder: Folder, stays: pa.Table) -> pa.Table:
    """What stays and why; see `VacuumPlan.kept`."""
    groups = stays.group_by("reason").aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    groups = groups.select(["reason", "size_bytes_count", "size_bytes_sum"]).rename_columns(KEPT.names)
    number, size_bytes = count_files(table, folder.hidden)
    hidden = [{"reason": "hidden, the log among it", "num_files": number, "size_bytes": size_bytes}]
    both = [groups.cast(KEPT), pa.Table.from_pylist(hidden if number else [], KEPT)]
    return pa.concat_tables(both).sort_by([("size_bytes", "descending"), ("reason", "ascending")])


def storage_table(folder: Folder, references: References, state: Readability, going: pa.Array) -> pa.Table:
    """Bytes by kind, before and after; see `VacuumPlan.storage`."""
    paths, sizes = folder.files["path"].combine_chunks(), folder.files["size_bytes"].to_numpy()
    live = _among(paths, references.live)
    known = _among(paths, state.needs.files["path"]) | _among(paths, references.removed["path"])
    stays = ~_among(paths, going)
    kinds = {"live": live, "tombstoned": ~live & known, "orphaned": ~live & ~known}
    return pa.table(
        {
            "kind": list(kinds),
            "size_bytes": [int(sizes[mask].sum()) for mask in kinds.values()],
            "size_bytes_after": [int(sizes[mask & stays].sum()) for mask in kinds.values()],
        }
    )


def _change_data(table: Path, paths: pa.Array) -> pa.Array:
    """The change data files that the log names, if there can be any among some paths."""
    if not pc.any(pc.starts_with(paths, _CHANGE_DATA)).as_py():
        return pa.array([], pa.string())
    return changed_paths(table, [file for file in list_log(table) if file.kind is Kind.COMMIT])


def _latest(wanted: pa.Array, paths: pa.ChunkedArray, numbers: pa.ChunkedArray) -> pa.Array:
    """The greatest of the numbers of each path; null for none."""
    most = pa.table({"path": paths, "number": numbers})
    most = (
        most.filter(pc.is_in(most["path"], value_set=wanted)).group_by("path").aggregate([("number", "max")])
    )
    return most["number_max"].combine_chunks().take(pc.index_in(wanted, value_set=most["path"]))


def _picked(values: np.ndarray, positions: pa.Array) -> pa.Array:
    """The values at some positions; null where there is none."""
    return pa.array(values).take(pc.if_else(pc.less(positions, len(values)), positions, _NO_NUMBER))


def _among(paths: pa.Array, others: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.is_in(paths, value_set=others).to_numpy(zero_copy_only=False))
