"""Whether a plan is still true of its table."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import StalePlanError
from compaction_kit.folder import Folder, look_through
from compaction_kit.log import TransactionLog
from compaction_kit.text import format_count
from compaction_kit.vacuum.plan import VacuumPlan

_MOST_NAMED = 3


def check_fresh(table: Path, log: TransactionLog, plan: VacuumPlan) -> pa.Table:
    """Compare the table and its folder with what a plan was made for.

    Returns:
        The files that are in the folder now; see `Folder.files`.

    Raises:
        StalePlanError: The table has another version, or was made anew; a planned file is gone or
            another one by size or time; a planned folder is gone or isn't empty.
    """
    latest = log.segment().version
    if latest != plan.version:
        raise _stale(f"The plan was made at version {plan.version} and the table is at {latest}")
    metadata = log.snapshot().metadata
    if metadata.id != plan.table_id:
        raise _stale(f"The table was made anew since the plan was made, and version {latest} is another now")
    folder = look_through(table, metadata.partition_columns)
    _check_files(plan, folder.files)
    _check_directories(plan, folder)
    return folder.files


def _check_files(plan: VacuumPlan, on_disk: pa.Table) -> None:
    planned = plan.files["path"]
    rows = pc.index_in(planned, value_set=on_disk["path"])
    gone = planned.filter(rows.is_null())
    if len(gone):
        raise _stale(f"{_named(gone)} gone since the plan was made")
    now = on_disk.take(rows)
    same_time = pc.equal(plan.files["modification_time"].cast(pa.int64()), now["modification_time"])
    same = pc.and_(same_time, pc.equal(plan.files["size_bytes"], now["size_bytes"]))
    changed = planned.filter(pc.invert(same))
    if len(changed):
        raise _stale(f"{_named(changed)} not the same as when the plan was made")


def _check_directories(plan: VacuumPlan, folder: Folder) -> None:
    planned = plan.empty_directories
    left = {path: folder.directories.get(path) for path in planned}
    for path in planned:
        outer = path.rpartition("/")[0]
        held = left.get(outer)
        if held:
            left[outer] = held - 1
    for path, entries in left.items():
        if entries is None:
            raise _stale(f"The folder {path} is gone since the plan was made")
        if entries:
            raise _stale(f"The folder {path} is not empty any more")


def _named(paths: pa.ChunkedArray) -> str:
    """Some files, with the first of their paths and the verb."""
    more = ", …" if len(paths) > _MOST_NAMED else ""
    first = f"{', '.join(paths[:_MOST_NAMED].to_pylist())}{more}"
    return f"{format_count(len(paths), 'planned file')} ({first}) {'is' if len(paths) == 1 else 'are'}"


def _stale(what: str) -> StalePlanError:
    return StalePlanError(f"{what}: make a new plan; nothing was deleted.")
