"""Which files of the log its next cleanup takes, and why."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.handle import Handle
from compaction_kit.log.listing import Kind, LogFile, list_log, log_file
from compaction_kit.log.metadata import Metadata
from compaction_kit.log.sources import sidecar_names
from compaction_kit.records import Record
from compaction_kit.retention import LOG_PROPERTY, log_retention, to_millis
from compaction_kit.storage import Store
from compaction_kit.text import format_count, format_size
from compaction_kit.times import earlier, millis, show_time

_ENABLED = "delta.enableExpiredLogCleanup"
_POLICY = "delta.checkpointPolicy"
_INTERVAL, _DEFAULT_INTERVAL = "delta.checkpointInterval", 10
_CHECKPOINTS = (Kind.CHECKPOINT, Kind.CHECKPOINT_PART, Kind.V2_CHECKPOINT)
_SWEPT = (*_CHECKPOINTS, Kind.COMMIT, Kind.CHECKSUM)
_DAY_MILLIS = 86_400_000
_STAMP = pa.timestamp("ms", "UTC")
_FILE_COLUMNS = pa.schema(
    [
        ("name", pa.string()),
        ("kind", pa.string()),
        ("version", pa.int64()),
        ("size_bytes", pa.int64()),
        ("modification_time", _STAMP),
    ]
)


@dataclass(frozen=True, repr=False)
class LogCleanup(Record):
    """What a cleanup of the log would take at a time; Delta itself does it, after it wrote a checkpoint.

    Attributes:
        at: The time.
        retention: How long the table keeps its log.
        cutoff: Files of the log that are older have expired: the retention before `at`, back to the
            midnight before (UTC).
        checkpoint: The version whose checkpoint comes before the cleanup: the next one that Delta
            writes, later than the latest version.
        enabled: Whether the table's property delta.enableExpiredLogCleanup lets it happen.
        files: One row a commit, checkpoint, checksum or sidecar: name, kind (string), version, size_bytes
            (int64), modification_time (UTC), expires (UTC: from when on its age allows a cleanup to take
            it), goes (bool), reason (string).
    """

    at: datetime
    retention: timedelta
    cutoff: datetime
    checkpoint: int
    enabled: bool
    files: pa.Table

    @cached_property
    def going(self) -> pa.Table:
        """The files that go."""
        return self.files.filter(self.files["goes"])

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return pc.sum(self.going["size_bytes"]).as_py() or 0

    @property
    def versions_lost(self) -> list[int]:
        """The versions whose commits go: neither history nor time travel knows them any more."""
        commits = self.going.filter(pc.equal(self.going["kind"], Kind.COMMIT.value))
        return commits["version"].to_pylist()

    def explain(self) -> str:
        """What goes and why, in a few sentences."""
        if not self.enabled:
            return f"No cleanup takes anything: the table's property {_ENABLED} is false."
        number, lost = len(self.going), self.versions_lost
        takes = f"{format_count(number, 'file')} of the log ({format_size(self.size_bytes)})"
        commits = f", with the commits of versions {lost[0]} to {lost[-1]}" if lost else ""
        why = (
            "Only what is before a later checkpoint goes, up to that checkpoint at once, so that every "
            "version that stays can be read."
        )
        return (
            f"A cleanup at {show_time(self.at)}, after Delta's next checkpoint, of version "
            f"{self.checkpoint}, would take {takes if number else 'nothing'}{commits}. "
            f"{LOG_PROPERTY} keeps the log for {self.retention / timedelta(days=1):g} days, by whole days of "
            "UTC: what was written by "
            f"{show_time(self.cutoff)} has expired. {why if number else self._why_nothing()}"
        )

    def facts(self) -> dict[str, str]:
        """The cleanup for people: name and value."""
        lost = self.versions_lost
        return {
            "cleanup": f"{show_time(self.at)}, after Delta's next checkpoint, of version {self.checkpoint}",
            "takes": f"{format_count(len(self.going), 'file')}, {format_size(self.size_bytes)}",
            "versions lost": f"{lost[0]} to {lost[-1]}" if lost else "none",
            "why": self.explain(),
        }

    def _why_nothing(self) -> str:
        expired = self.files.filter(pc.less_equal(self.files["modification_time"], self.cutoff))
        if not len(expired):
            first = pc.min(self.files["expires"]).as_py()
            return f"The oldest file has not: it does at {show_time(first.astimezone(self.at.tzinfo))}."
        return (
            "What has expired is needed: the versions after it are read from it until a checkpoint that has "
            "expired as well, or whose predecessors all have, takes its place."
        )


def plan_log_cleanup(handle: Handle, at: datetime | str | None = None) -> LogCleanup:
    """Tell which files of the log the cleanup takes that follows Delta's next checkpoint.

    Delta writes one after each commit whose version is a multiple of the table's property
    delta.checkpointInterval, 10 by default, and cleans up then (CheckpointHook, MetadataCleanup.
    cleanUpExpiredLogs). The commits that come before that are taken to be of the time of the cleanup.

    Args:
        handle: The table.
        at: When; None for now. Without a zone it is in the session's.

    Raises:
        InvalidArgumentError: It is no time.
    """
    moment, metadata = handle.instant(at), handle.log.snapshot().metadata
    retention = log_retention(metadata)
    cutoff = earlier(moment.astimezone(UTC), retention).replace(hour=0, minute=0, second=0, microsecond=0)
    files, segment = list_log(handle.store), handle.log.segment()
    checkpoint = _next_checkpoint(segment.version, metadata)
    enabled = metadata.configuration.get(_ENABLED, "true").lower() == "true"
    going: set[str] = set()
    if enabled:
        swept = [file for file in files if file.kind in _SWEPT]
        swept += _to_come(segment.version, checkpoint, moment)
        expired = _expired(sorted(swept, key=lambda file: file.name), millis(cutoff), checkpoint - 1)
        going = {file.name for file in expired}
    if metadata.configuration.get(_POLICY) == "v2":
        going |= _unused_sidecars(handle.store, files, going, millis(cutoff), segment.checkpoint)
    table = _file_table(files, going, millis(cutoff), retention)
    return LogCleanup(moment, retention, cutoff, checkpoint, enabled, table)


def log_expiry(modified: np.ndarray, retention: timedelta) -> np.ndarray:
    """When a cleanup of the log may take a file of it: it goes by days of UTC (MetadataCleanup.truncateDay).

    Args:
        modified: The files' times, ms since 1970.
        retention: How long the table keeps its log.
    """
    return -(-modified // _DAY_MILLIS) * _DAY_MILLIS + to_millis(retention)


def _next_checkpoint(latest: int, metadata: Metadata) -> int:
    text = metadata.configuration.get(_INTERVAL, "")
    interval = max(int(text), 1) if text.isdecimal() and len(text) < 10 else _DEFAULT_INTERVAL
    return (latest // interval + 1) * interval


def _expired(files: Sequence[LogFile], cutoff: int, last: int) -> list[LogFile]:
    """The commits, checkpoints and checksums, given by name, that a cleanup takes.

    What lies between two complete checkpoints goes together, with the first of the two, if the last
    file of it has expired; at the first that hasn't, the cleanup ends. A file that is no younger than
    the one before counts as a moment younger (DeltaHistoryManager.BufferingLogDeletionIterator).
    `last` is the last version that may go.
    """
    gone: list[LogFile] = []
    waiting, before = [files[0]], files[0]
    parts: dict[tuple[int | None, int | None], list[LogFile]] = defaultdict(list)
    for file in files[1:]:
        if (before.version or 0) < (file.version or 0) and before.modification_time >= file.modification_time:
            file = replace(file, modification_time=before.modification_time + 1)
            waiting.append(file)
        elif file.kind in _CHECKPOINTS and file.size_bytes:
            whole = parts[file.version, file.num_parts]
            whole.append(file)
            if len(whole) == (file.num_parts or 1):
                newest = waiting[-1] if waiting else None
                if newest is None or newest.modification_time > cutoff or (newest.version or 0) > last:
                    break
                gone += waiting
                waiting = list(whole)
                whole.clear()
        else:
            waiting.append(file)
        before = file
    return gone


def _to_come(latest: int, checkpoint: int, at: datetime) -> list[LogFile]:
    """The checkpoint that comes before the cleanup, and the first of the commits before it."""
    names = [f"{checkpoint:020d}.checkpoint.parquet"]
    if checkpoint > latest + 1:
        names.append(f"{latest + 1:020d}.json")
    return [log_file(name, 1, millis(at)) for name in names]


def _unused_sidecars(
    store: Store, files: Sequence[LogFile], going: set[str], cutoff: int, newest: Sequence[LogFile]
) -> set[str]:
    """Sidecars go with the last checkpoint that names them, if they have expired.

    Those of the newest checkpoint so far stay once more: the cleanup leaves a copy of it under a
    classic name, which names them (createSinglePartCheckpointForBackwardCompat).
    """
    if not any(file.kind in _CHECKPOINTS and file.name in going for file in files):
        return set()
    staying = [file for file in files if file.kind is Kind.V2_CHECKPOINT and file.name not in going]
    used: set[str] = set().union(*(sidecar_names(store, [file]) for file in (*staying, *newest)))
    sidecars = (file for file in files if file.kind is Kind.SIDECAR)
    return {file.name for file in sidecars if file.name not in used and file.modification_time < cutoff}


def _file_table(files: Sequence[LogFile], going: set[str], cutoff: int, retention: timedelta) -> pa.Table:
    """See `LogCleanup.files`."""
    listed = [file for file in files if file.kind in (*_SWEPT, Kind.SIDECAR)]
    columns = {name: [getattr(file, name) for file in listed] for name in _FILE_COLUMNS.names}
    table = pa.table(columns, _FILE_COLUMNS)
    modified = table["modification_time"].cast(pa.int64())
    goes = pc.is_in(table["name"], value_set=pa.array(sorted(going), pa.string()))
    is_sidecar = pc.equal(table["kind"], Kind.SIDECAR.value)
    taken = pc.if_else(is_sidecar, "no checkpoint names it", "expired, before a later checkpoint")
    is_young = pc.greater(modified, cutoff)
    kept = pc.if_else(is_young, "younger than the retention", "needed to read what stays")
    table = table.append_column("expires", pa.array(log_expiry(modified.to_numpy(), retention), _STAMP))
    return table.append_column("goes", goes).append_column("reason", pc.if_else(goes, taken, kept))
