"""What VACUUM would delete, and which versions that costs."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.folder import list_folder
from compaction_kit.history.needs import Needs, file_names, read_needs
from compaction_kit.log import TransactionLog
from compaction_kit.log.paths import decode_paths
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
    needed = pa.chunked_array([*_names(snapshot.live, table).chunks, *_names(young, table).chunks])
    needs = read_needs(table, log)
    on_disk = list_folder(table, snapshot.metadata.partition_columns)
    old = on_disk.filter(pc.less(on_disk["modification_time"], cutoff))
    going = old.filter(pc.invert(pc.is_in(old["path"], value_set=needed))).sort_by("path")
    known = pa.chunked_array([*needs.files["path"].chunks, *_names(tombstones, table).chunks])
    reasons = pc.if_else(pc.is_in(going["path"], value_set=known), "tombstone", "orphan")
    files = going.select(["path", "size_bytes"]).append_column("reason", reasons)
    readable = _readable_versions(log, needs, configured, on_disk["path"])
    lost = needs.versions[readable & needs.versions_without(going["path"])]
    return VacuumPlan(snapshot.version, moment, chosen, files, lost.tolist())


def _names(actions: pa.Table, table: Path) -> pa.ChunkedArray:
    """The data files and deletion vector files of some actions, relative to the table."""
    decoded = pa.table({"path": decode_paths(actions["path"])})
    return file_names(decoded.append_column("deletion_vector_id", actions["deletion_vector_id"]), table)


def _readable_versions(
    log: TransactionLog, needs: Needs, retention: timedelta, on_disk: pa.ChunkedArray
) -> np.ndarray:
    """Which versions Spark would read now: bool, as long as `needs.versions`."""
    paths = needs.files["path"]
    elsewhere = pc.starts_with(paths, "/")
    missing = paths.filter(pc.invert(pc.or_(elsewhere, pc.is_in(paths, value_set=on_disk))))
    # From 4.1 on Delta refuses versions older than the retention, files or no files.
    commits = log.commits()
    times = commits["timestamp"].cast(pa.int64()).to_numpy()
    refused = commits["version"].to_numpy()[times < _millis(datetime.now(UTC) - retention)]
    blocked = np.isin(needs.versions, refused) & (needs.versions != needs.latest)
    return ~needs.versions_without(missing) & ~blocked


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
