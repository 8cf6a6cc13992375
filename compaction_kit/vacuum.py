"""What VACUUM would delete, and which versions that costs."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log import TransactionLog
from compaction_kit.log.metadata import Metadata
from compaction_kit.log.paths import decode_paths, deletion_vector_file, relative_to_table
from compaction_kit.retention import PROPERTY, parse_retention, table_retention
from compaction_kit.sizes import format_size


@dataclass(frozen=True)
class VacuumPlan:
    """What VACUUM would delete at a time; it deletes nothing.

    `files` has a row a file: path (relative to the table, decoded), size_bytes, reason
    ("tombstone": a version needed it; "orphan": none that the log tells of).
    """

    version: int
    at: datetime
    retention: timedelta
    files: pa.Table
    versions_lost: list[int]

    @cached_property
    def size_bytes(self) -> int:
        """Bytes that would be freed."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def num_files(self) -> int:
        """How many files would go."""
        return self.files.num_rows

    def explain(self) -> str:
        """What would go and what it costs, in two sentences."""
        day = f"{self.at:%Y-%m-%d %H:%M} UTC"
        kept = f"files removed less than {self.retention.total_seconds() / 3600:g} hours before are kept"
        if self.num_files == 0:
            return f"VACUUM on {day} would delete nothing: {kept}."
        lost = f"{len(self.versions_lost):,} versions that can be read now would be lost"
        return (
            f"VACUUM on {day} would delete {self.num_files:,} files "
            f"({format_size(self.size_bytes)}); {kept}.\n"
            f"{lost if self.versions_lost else 'No version that can be read now would be lost'}"
            f"{_ranges(self.versions_lost)}."
        )

    def __repr__(self) -> str:
        return f"VacuumPlan({self.num_files:,} files, {format_size(self.size_bytes)})"


def plan_vacuum(
    table: Path, log: TransactionLog, retention: str | None = None, at: datetime | None = None
) -> VacuumPlan:
    """Preview VACUUM (FULL): by the log, the folder and the clock, as VacuumCommand decides.

    A file goes if no live file and no tombstone younger than the retention names it, and it
    was itself written before that. Hidden files and folders stay.

    Args:
        table: The table's folder.
        log: Its log.
        retention: How long removed files are kept: "168 hours", "7 days". None: the table's
            property delta.deletedFileRetentionDuration, or a week.
        at: When VACUUM would run; None for now.

    Raises:
        InvalidArgumentError: The retention can't be read, or is shorter than the table's.
    """
    snapshot = log.snapshot()
    configured = table_retention(snapshot.metadata)
    chosen = configured if retention is None else parse_retention(retention)
    if chosen < configured:
        raise InvalidArgumentError(
            f'retention="{retention}" is shorter than the {configured.total_seconds() / 3600:g} hours '
            "that the table keeps removed files for: choose that or longer, or change its property "
            f"{PROPERTY}."
        )
    moment = datetime.now(UTC) if at is None else at.astimezone(UTC)
    cutoff = _millis(moment - chosen)
    tombstones = snapshot.tombstones
    young = tombstones.filter(pc.greater_equal(pc.fill_null(tombstones["deletion_timestamp"], 0), cutoff))
    needed = _names(snapshot.live_files, table) | _names(young, table)
    _, lifetimes = log.lifetimes()
    known = _names(lifetimes, table) | _names(tombstones, table)
    on_disk = list(_data_files(table, snapshot.metadata))
    rows = [
        {"path": path, "size_bytes": size, "reason": "tombstone" if path in known else "orphan"}
        for path, size, mtime in on_disk
        if mtime < cutoff and path not in needed
    ]
    schema = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("reason", pa.string())])
    files = pa.Table.from_pylist(sorted(rows, key=lambda row: str(row["path"])), schema=schema)
    going = set(files["path"].to_pylist())
    readable = _readable_versions(log, configured, {path for path, _, _ in on_disk}, table)
    lost = readable & _versions_that_need(going, lifetimes, snapshot.version, table)
    return VacuumPlan(snapshot.version, moment, chosen, files, sorted(lost))


def _names(actions: pa.Table, table: Path) -> set[str]:
    """The data files and deletion vector files of some actions, relative to the table."""
    names = {relative_to_table(path, table) for path in decode_paths(actions["path"]).to_pylist()}
    vectors = (deletion_vector_file(v, table) for v in actions["deletion_vector_id"].drop_null().to_pylist())
    return names | {name for name in vectors if name is not None}


def _data_files(table: Path, metadata: Metadata) -> Iterator[tuple[str, int, int]]:
    """Every file that VACUUM looks at: its path in the table, bytes, and time in ms since 1970."""
    shown = ("_delta_index", "_change_data", *(f"{column}=" for column in metadata.partition_columns))

    def hidden(name: str) -> bool:
        # DeltaTableUtils.isHiddenDirectory, and the same for files.
        return name.startswith((".", "_")) and not name.startswith(shown)

    for folder, subfolders, names in os.walk(table):
        subfolders[:] = [name for name in subfolders if not hidden(name)]
        for name in names:
            if not hidden(name):
                file = Path(folder, name)
                status = file.stat()
                yield str(file.relative_to(table)), status.st_size, status.st_mtime_ns // 1_000_000


def _versions_that_need(paths: set[str], lifetimes: pa.Table, latest: int, table: Path) -> set[int]:
    """The versions in which some of these files were live."""
    versions: set[int] = set()
    for life in lifetimes.to_pylist():
        needs = {
            relative_to_table(life["path"], table),
            deletion_vector_file(life["deletion_vector_id"], table),
        }
        if needs & paths:
            end = latest + 1 if life["removed"] is None else life["removed"]
            versions.update(range(life["added"], end))
    return versions


def _readable_versions(log: TransactionLog, retention: timedelta, on_disk: set[str], table: Path) -> set[int]:
    """The versions that Spark would read now."""
    first, lifetimes = log.lifetimes()
    latest = log.segment().version
    missing = {path for path in _names(lifetimes, table) if path not in on_disk and not path.startswith("/")}
    broken = _versions_that_need(missing, lifetimes, latest, table)
    # From 4.1 on Delta refuses versions older than the retention, files or no files.
    commits = log.commits()
    oldest = _millis(datetime.now(UTC) - retention)
    times = commits["timestamp"].cast(pa.int64()).to_numpy()
    blocked = set(commits["version"].to_numpy()[times < oldest].tolist()) - {latest}
    return set(range(first.version, latest + 1)) - broken - blocked


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _ranges(versions: list[int]) -> str:
    """Versions for people: ": 0 to 3, 7"; nothing for none."""
    if not versions:
        return ""
    array = np.array(versions)
    runs = np.split(array, np.flatnonzero(np.diff(array) != 1) + 1)
    shown = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return ": " + ", ".join(shown)
