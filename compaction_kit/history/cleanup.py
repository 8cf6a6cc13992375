"""Which files of the log the next cleanup deletes, and why."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.compat import cleans_up_as_planned
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
    """What a cleanup of the log would delete; Delta itself runs it after it has written a checkpoint.

    Attributes:
        at: The time of the cleanup.
        retention: How long the table keeps its log.
        cutoff: Files up to this time have expired: `at` minus the retention, rounded down to midnight (UTC).
        checkpoint: The version of the checkpoint that Delta writes next, just before the cleanup; it is
            later than the latest version.
        enabled: Whether the table property delta.enableExpiredLogCleanup allows a cleanup.
        files: One row per commit, checkpoint, checksum and sidecar: name, kind, version, size_bytes,
            modification_time, expires (the first time at which a cleanup may delete the file, by its age),
            goes (whether this cleanup deletes it), reason.
        is_exact: Whether Delta deletes just these files; before 4.0 it may delete more.
    """

    at: datetime
    retention: timedelta
    cutoff: datetime
    checkpoint: int
    enabled: bool
    files: pa.Table
    is_exact: bool

    @cached_property
    def going(self) -> pa.Table:
        """The rows of `files` that the cleanup deletes."""
        return self.files.filter(self.files["goes"])

    @property
    def size_bytes(self) -> int:
        """The size in bytes of the deleted files."""
        return pc.sum(self.going["size_bytes"]).as_py() or 0

    @property
    def versions_lost(self) -> list[int]:
        """The versions whose commits are deleted: history and time travel lose them."""
        commits = self.going.filter(pc.equal(self.going["kind"], Kind.COMMIT.value))
        return commits["version"].to_pylist()

    def explain(self) -> str:
        """Explain what the cleanup deletes and why, in a few sentences."""
        if not self.enabled:
            return f"A cleanup would delete nothing: the table property {_ENABLED} is false."
        number, lost = len(self.going), self.versions_lost
        deleted = f"{format_count(number, 'file')} of the log ({format_size(self.size_bytes)})"
        commits = f", with the commits of versions {lost[0]} to {lost[-1]}" if lost else ""
        why = (
            "Delta deletes only files before a later checkpoint, and all files before it together, so that "
            "every remaining version can be read."
        )
        return (
            f"A cleanup at {show_time(self.at)}, after Delta's next checkpoint (version {self.checkpoint}), "
            f"would delete {deleted if number else 'nothing'}{commits}. "
            f"{LOG_PROPERTY} keeps the log for {self.retention / timedelta(days=1):g} days, in whole UTC "
            f"days: files written up to {show_time(self.cutoff)} have expired. "
            f"{why if number else self._why_nothing()}"
            f"{'' if self.is_exact else ' Delta before 4.0, as in this session, may delete more.'}"
        )

    def facts(self) -> dict[str, str]:
        """Return the cleanup for people: name and value."""
        lost = self.versions_lost
        return {
            "cleanup": f"{show_time(self.at)}, after Delta's next checkpoint (version {self.checkpoint})",
            "takes": f"{format_count(len(self.going), 'file')}, {format_size(self.size_bytes)}",
            "versions lost": f"{lost[0]} to {lost[-1]}" if lost else "none",
            "why": self.explain(),
        }

    def _why_nothing(self) -> str:
        expired = self.files.filter(pc.less_equal(self.files["modification_time"], self.cutoff))
        if not len(expired):
            first = pc.min(self.files["expires"]).as_py().astimezone(self.at.tzinfo)
            return f"No file has expired: the oldest expires at {show_time(first)}."
        return (
            "The expired files are still needed: later versions are read from them until all files before a "
            "later checkpoint have expired."
        )


def plan_log_cleanup(handle: Handle, at: datetime | str | None = None) -> LogCleanup:
    """Return which files of the log the cleanup after Delta's next checkpoint deletes.

    Delta writes a checkpoint after each commit whose version is a multiple of the table property
    delta.checkpointInterval, 10 by default, and then cleans up (CheckpointHook, MetadataCleanup.
    cleanUpExpiredLogs). The commits still to come before it are assumed to have the time of the cleanup.

    Args:
        handle: The table.
        at: The time of the cleanup; None for now. Without a zone it is in the session's time zone.

    Raises:
        InvalidArgumentError: `at` is not a time.

    Examples:
        >>> cleanup = ck.open_table("data/flights").plan_log_cleanup(at="2100-01-01")
        >>> cleanup.explain()
        "A cleanup at 2100-01-01 00:00+00:00, after Delta's next checkpoint (version 370), would delete ..."
        >>> cleanup.files.schema
        name: string
        kind: string
        version: int64
        size_bytes: int64
        modification_time: timestamp[ms, tz=UTC]
        expires: timestamp[ms, tz=UTC]
        goes: bool
        reason: string
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
    is_exact = cleans_up_as_planned(handle.session)
    return LogCleanup(moment, retention, cutoff, checkpoint, enabled, table, is_exact)


def log_expiry(modified: np.ndarray, retention: timedelta) -> np.ndarray:
    """Return when a cleanup may delete each file of the log, in ms since 1970.

    A cleanup counts in whole UTC days (MetadataCleanup.truncateDay).

    Args:
        modified: The files' modification times, in ms since 1970.
        retention: How long the table keeps its log.
    """
    return -(-modified // _DAY_MILLIS) * _DAY_MILLIS + to_millis(retention)


def _next_checkpoint(latest: int, metadata: Metadata) -> int:
    text = metadata.configuration.get(_INTERVAL, "")
    interval = max(int(text), 1) if text.isdecimal() and len(text) < 10 else _DEFAULT_INTERVAL
    return (latest // interval + 1) * interval


def _expired(files: Sequence[LogFile], cutoff: int, last: int) -> list[LogFile]:
    """Return the commits, checkpoints and checksums, sorted by name, that a cleanup deletes.

    A checkpoint and the files up to the next complete checkpoint are deleted together, if the last of
    them has expired; otherwise the cleanup ends there. A file that is not younger than the one before
    counts as 1 ms younger (DeltaHistoryManager.BufferingLogDeletionIterator). `last` is the last version
    that may be deleted.
    """
    deleted: list[LogFile] = []
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
                deleted += waiting
                waiting = list(whole)
                whole.clear()
        else:
            waiting.append(file)
        before = file
    return deleted


def _to_come(latest: int, checkpoint: int, at: datetime) -> list[LogFile]:
    """Return the checkpoint to come before the cleanup, and the first commit to come before it."""
    names = [f"{checkpoint:020d}.checkpoint.parquet"]
    if checkpoint > latest + 1:
        names.append(f"{latest + 1:020d}.json")
    return [log_file(name, 1, millis(at)) for name in names]


def _unused_sidecars(
    store: Store, files: Sequence[LogFile], going: set[str], cutoff: int, newest: Sequence[LogFile]
) -> set[str]:
    """Return the sidecars to delete: expired, and named by no remaining checkpoint.

    Those of the newest checkpoint remain: the cleanup writes a copy of it under a classic name, which
    names them too (createSinglePartCheckpointForBackwardCompat).
    """
    if not any(file.kind in _CHECKPOINTS and file.name in going for file in files):
        return set()
    staying = [file for file in files if file.kind is Kind.V2_CHECKPOINT and file.name not in going]
    used: set[str] = set().union(*(sidecar_names(store, [file]) for file in (*staying, *newest)))
    sidecars = (file for file in files if file.kind is Kind.SIDECAR)
    return {file.name for file in sidecars if file.name not in used and file.modification_time < cutoff}


def _file_table(files: Sequence[LogFile], going: set[str], cutoff: int, retention: timedelta) -> pa.Table:
    """Make `LogCleanup.files`."""
    listed = [file for file in files if file.kind in (*_SWEPT, Kind.SIDECAR)]
    columns = {name: [getattr(file, name) for file in listed] for name in _FILE_COLUMNS.names}
    table = pa.table(columns, _FILE_COLUMNS)
    modified = table["modification_time"].cast(pa.int64())
    goes = pc.is_in(table["name"], value_set=pa.array(sorted(going), pa.string()))
    is_sidecar = pc.equal(table["kind"], Kind.SIDECAR.value)
    taken = pc.if_else(is_sidecar, "no checkpoint names it", "expired, before a later checkpoint")
    is_young = pc.greater(modified, cutoff)
    kept = pc.if_else(is_young, "younger than the retention", "needed by remaining versions")
    table = table.append_column("expires", pa.array(log_expiry(modified.to_numpy(), retention), _STAMP))
    return table.append_column("goes", goes).append_column("reason", pc.if_else(goes, taken, kept))
