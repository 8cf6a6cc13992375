"""Which files of the log its next cleanup takes, and why."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.history.expiry import log_expiry
from compaction_kit.log import TransactionLog
from compaction_kit.log.listing import Kind, LogFile, list_log, log_file
from compaction_kit.log.metadata import Metadata
from compaction_kit.log.sources import sidecar_names
from compaction_kit.retention import LOG_PROPERTY, log_retention
from compaction_kit.text import as_text, format_count, format_size, shown
from compaction_kit.times import earlier, show_time

_ENABLED = "delta.enableExpiredLogCleanup"
_POLICY = "delta.checkpointPolicy"
_INTERVAL, _DEFAULT_INTERVAL = "delta.checkpointInterval", 10
_CHECKPOINTS = (Kind.CHECKPOINT, Kind.CHECKPOINT_PART, Kind.V2_CHECKPOINT)
_SWEPT = (*_CHECKPOINTS, Kind.COMMIT, Kind.CHECKSUM)


@dataclass(frozen=True)
class LogCleanup:
    """What a cleanup of the log would take at a time; Delta itself does it, after it wrote a checkpoint.

    Attributes:
        at: The time.
        retention: How long the table keeps its log.
        cutoff: Files of the log that are older have expired: the retention before `at`, back to the
            midnight before (UTC).
        checkpoint: The version whose checkpoint comes before the cleanup: the next one that Delta
            writes, later than the latest version.
        enabled: Whether the table's property delta.enableExpiredLogCleanup lets it happen.
        files: One row a commit, checkpoint, checksum or sidecar: name, kind, version, size_bytes,
            modification_time (UTC), expires (UTC: from when on its age allows a cleanup to take it),
            goes (bool), reason.
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
        when = show_time(self.at)
        if not self.enabled:
            return f"No cleanup takes anything: the table's property {_ENABLED} is false."
        days = f"{self.retention / timedelta(days=1):g} days"
        rule = (
            f"{LOG_PROPERTY} keeps the log for {days}, by whole days of UTC: what was written by "
            f"{show_time(self.cutoff)} has expired."
        )
        if not len(self.going):
            return (
                f"A cleanup at {when}, after Delta's next checkpoint, of version {self.checkpoint}, would "
                f"take nothing. {rule} {self._why_nothing()}"
            )
        lost = self.versions_lost
        return (
            f"A cleanup at {when}, after Delta's next checkpoint, of version {self.checkpoint}, would take "
            f"{format_count(len(self.going), 'file')} of the log ({format_size(self.size_bytes)}), with the "
            f"commits of versions {lost[0]} to {lost[-1]}. {rule} Only what is before a later checkpoint "
            "goes, up to that checkpoint at once, so that every version that stays can be read."
            if lost
            else f"A cleanup at {when} would take {format_count(len(self.going), 'file')}. {rule}"
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

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return f"LogCleanup(\n{as_text(self.facts())}\n)"


def plan_log_cleanup(table: Path, log: TransactionLog, at: datetime) -> LogCleanup:
    """Tell which files of the log the cleanup takes that follows Delta's next checkpoint.

    Delta writes one after each commit whose version is a multiple of the table's property
    delta.checkpointInterval, 10 by default, and cleans up then (CheckpointHook, MetadataCleanup.
    cleanUpExpiredLogs). The commits that come before that are taken to be of the time of the cleanup.

    Args:
        table: The table's folder.
        log: Its log.
        at: When, with its zone.
    """
    metadata = log.snapshot().metadata
    retention = log_retention(metadata)
    cutoff = earlier(at.astimezone(UTC), retention).replace(hour=0, minute=0, second=0, microsecond=0)
    files, latest = list_log(table), log.segment().version
    checkpoint = next_checkpoint(latest, metadata)
    enabled = metadata.configuration.get(_ENABLED, "true").lower() == "true"
    going: set[str] = set()
    if enabled:
        swept = [file for file in files if file.kind in _SWEPT] + _to_come(latest, checkpoint, at)
        expired = expired_files(sorted(swept, key=lambda file: file.name), cutoff, checkpoint - 1)
        going = {file.name for file in expired}
    if metadata.configuration.get(_POLICY) == "v2":
        going |= _unused_sidecars(table, files, going, cutoff, log.segment().checkpoint)
    shown = [file for file in files if file.kind in (*_SWEPT, Kind.SIDECAR)]
    rows = _file_table(shown, going, cutoff, retention)
    return LogCleanup(at, retention, cutoff, checkpoint, enabled, rows)


def next_checkpoint(latest: int, metadata: Metadata) -> int:
    """The version that Delta writes its next checkpoint of."""
    told = metadata.configuration.get(_INTERVAL, "")
    interval = max(int(told), 1) if told.isdecimal() and len(told) < 10 else _DEFAULT_INTERVAL
    return (latest // interval + 1) * interval


def expired_files(files: Sequence[LogFile], cutoff: datetime, last: int) -> list[LogFile]:
    """The commits, checkpoints and checksums that a cleanup takes.

    What lies between two complete checkpoints goes together, with the first of the two, if the last
    file of it has expired; at the first that hasn't, the cleanup ends. A file that is no younger than
    the one before counts as a moment younger (DeltaHistoryManager.BufferingLogDeletionIterator).

    Args:
        files: By name.
        cutoff: What was written by then has expired.
        last: The last version that may go.
    """
    limit = int(cutoff.timestamp() * 1000)
    gone: list[LogFile] = []
    waiting: list[LogFile] = []
    parts: dict[tuple[int | None, int | None], list[LogFile]] = defaultdict(list)
    before: LogFile | None = None
    for file in files:
        if before is None:
            waiting, before = [file], file
            continue
        if (before.version or 0) < (file.version or 0) and before.modification_time >= file.modification_time:
            file = replace(file, modification_time=before.modification_time + 1)
            waiting.append(file)
        elif file.kind in _CHECKPOINTS and file.size_bytes:
            whole = parts[file.version, file.num_parts]
            whole.append(file)
            if len(whole) == (file.num_parts or 1):
                newest = waiting[-1] if waiting else None
                if newest is None or newest.modification_time > limit or (newest.version or 0) > last:
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
    return [log_file(name, 1, int(at.timestamp() * 1000)) for name in names]


def _unused_sidecars(
    table: Path, files: Sequence[LogFile], going: set[str], cutoff: datetime, newest: Sequence[LogFile]
) -> set[str]:
    """Sidecars go with the last checkpoint that names them, if they have expired.

    Those of the newest checkpoint so far stay once more: the cleanup leaves a copy of it under a
    classic name, which names them (createSinglePartCheckpointForBackwardCompat).
    """
    if not any(file.kind in _CHECKPOINTS and file.name in going for file in files):
        return set()
    staying = [file for file in files if file.kind is Kind.V2_CHECKPOINT and file.name not in going]
    used: set[str] = set().union(*(sidecar_names(table, [file]) for file in (*staying, *newest)))
    limit = int(cutoff.timestamp() * 1000)
    sidecars = (file for file in files if file.kind is Kind.SIDECAR)
    return {file.name for file in sidecars if file.name not in used and file.modification_time < limit}


def _file_table(
    files: Sequence[LogFile], going: set[str], cutoff: datetime, retention: timedelta
) -> pa.Table:
    modified = np.array([file.modification_time for file in files], dtype=np.int64)
    utc = pa.timestamp("ms", "UTC")
    return pa.table(
        {
            "name": pa.array([file.name for file in files], pa.string()),
            "kind": pa.array([file.kind.value for file in files], pa.string()),
            "version": pa.array([file.version for file in files], pa.int64()),
            "size_bytes": pa.array([file.size_bytes for file in files], pa.int64()),
            "modification_time": pa.array(modified, utc),
            "expires": pa.array(log_expiry(modified, retention), utc),
            "goes": pa.array([file.name in going for file in files], pa.bool_()),
            "reason": pa.array([_reason(file, file.name in going, cutoff) for file in files], pa.string()),
        }
    )


def _reason(file: LogFile, goes: bool, cutoff: datetime) -> str:
    if goes:
        return "no checkpoint names it" if file.kind is Kind.SIDECAR else "expired, before a later checkpoint"
    young = file.modification_time > cutoff.timestamp() * 1000
    return "younger than the retention" if young else "needed to read what stays"
