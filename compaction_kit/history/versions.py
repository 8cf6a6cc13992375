"""The versions in the log: their commits, live files and storage, and until when they can be read."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit import plots
from compaction_kit.files import Files
from compaction_kit.handle import Handle
from compaction_kit.history.content import find_same_content, row_counts
from compaction_kit.history.readable import (
    LOG_GONE,
    YES,
    FilesByVersion,
    latest_by_path,
    read_files_by_version,
)
from compaction_kit.log.listing import Kind, LogFile, complete_checkpoints
from compaction_kit.retention import GUARD, LOG_PROPERTY, parse_retention
from compaction_kit.text import format_size
from compaction_kit.times import millis, session_zone, show_time

_STAMP = pa.timestamp("ms", "UTC")
_NEVER = np.iinfo(np.int64).max
_DAY_MILLIS, _MILLI = 86_400_000, timedelta(milliseconds=1)
# Columns of the log's commits that `read_versions` repeats.
_OF_COMMITS = ("num_added", "num_removed", "bytes_added", "bytes_removed", "data_change")
# The kinds of files that a cleanup of the log deletes.
_CLEANED = (Kind.COMMIT, Kind.CHECKSUM, Kind.CHECKPOINT, Kind.CHECKPOINT_PART, Kind.V2_CHECKPOINT)
_EXPIRY = pa.schema({
    "name": pa.string(), "kind": pa.string(), "version": pa.int64(),
    "expires": _STAMP, "checkpoint": pa.int64(), "goes": pa.bool_(),
})  # fmt: skip


@dataclass(frozen=True)
class Storage:
    """The bytes of a table's data files at each version in the log.

    `versions` has one row per version whose state the log has: version, live_bytes, tombstoned_bytes (files
    of earlier versions that are on disk now), gone_bytes (files of earlier versions that aren't).
    `orphaned_bytes` is the size of the files on disk that no version needs.
    """

    versions: pa.Table
    orphaned_bytes: int

    def __repr__(self) -> str:
        (latest,) = self.versions[-1:].to_pylist()
        live, removed = map(format_size, (latest["live_bytes"], latest["tombstoned_bytes"]))
        orphaned = format_size(self.orphaned_bytes)
        return f"Storage(version {latest['version']}: {live} live, {removed} tombstoned, {orphaned} orphaned)"

    def plot(self, versions: pa.Table) -> "plots.Chart":
        """Draw the bytes at each version, and which can be read; `versions` is from `Table.versions()`."""
        return plots.storage(self.versions, self.orphaned_bytes, versions)


@dataclass(frozen=True)
class Resolved:
    """The version that time travel picks.

    `timestamp` is its commit time in the session's time zone. `in_commit` says whether that is the in-commit
    timestamp; if not, it is the modification time of the commit's file, which copying the table may change.
    `superseded_at` is the commit time of the next version; None for the latest.
    """

    version: int
    timestamp: datetime
    in_commit: bool
    superseded_at: datetime | None

    def __repr__(self) -> str:
        by = "by its in-commit timestamp" if self.in_commit else "by the time of its file"
        until = self.superseded_at and f"superseded {show_time(self.superseded_at, 'milliseconds')}"
        at = show_time(self.timestamp, "milliseconds")
        return f"version {self.version}: committed {at} {by}, {until or 'the latest'}"


def resolve(handle: Handle, timestamp: datetime | str) -> Resolved:
    """Return the last commit at or before a time.

    Raises:
        InvalidArgumentError: The value is not a time, or is before the earliest commit or after the latest
            one, as for TIMESTAMP AS OF.
    """
    log, zone = handle.log.listed(), session_zone(handle.session)
    picked = log.version_at(handle.instant(timestamp, "timestamp"))
    position = log.commits()["version"].to_pylist().index(picked)
    times = log.commit_times()[position : position + 2].to_pylist()
    at, *after = (time.astimezone(zone) for time in times)
    return Resolved(picked, at, log.has_in_commit_timestamp(picked), after[0] if after else None)


def read_history(handle: Handle) -> pa.Table:
    """Return the commits, oldest first, with the live files after each.

    Returns:
        The columns of `log.commits()`, the timestamp as in DESCRIBE HISTORY, and: num_files, size_bytes,
        num_small_files (by the table's current target size, see `Files.stats`) of the live files, null if the
        version can't be read from the log.
    """
    needs = read_files_by_version(handle)
    commits = needs.commits.set_column(1, needs.commits.field("timestamp"), needs.log.commit_times())
    row = pc.index_in(commits["version"], value_set=pa.array(needs.versions))
    sizes = needs.lifetimes["size_bytes"].to_numpy()
    is_small = (sizes < Files(needs.log.snapshot()).small_file_size()).astype(np.int64)
    columns = {"num_files": np.ones(len(sizes), np.int64), "size_bytes": sizes, "num_small_files": is_small}
    for name, weights in columns.items():
        totals = pa.array(needs.totals(needs.lifetimes, weights))
        commits = commits.append_column(name, totals.take(row))
    return commits


def read_log_expiry(handle: Handle, at: datetime | str | None = None) -> pa.Table:
    """Return the commits, checkpoints and checksums of the log, and which of them a cleanup deletes.

    When Delta has written a checkpoint it deletes older log files, unless the table property
    delta.enableExpiredLogCleanup is false (MetadataCleanup.cleanUpExpiredLogs): all files before a checkpoint
    at once, when the last of them is older than delta.logRetentionDuration. Delta 3.3 deletes them one by
    one. If a table has the feature checkpointProtection and lacks commits, Delta may keep more.
    `at` is the time of the cleanup, in the session's time zone if it has none; None for now.

    Returns:
        name (string), kind (string), version (int64); expires (timestamp, when the file's retention ends, in
        whole UTC days; times are adjusted to increase with versions, as for time travel); checkpoint (int64,
        the checkpoint before which the file is deleted; null if there is none yet, and for parts of a
        checkpoint that Delta treats as incomplete, which stay); goes (bool, whether the cleanup deletes it).
    """
    log = handle.log.listed()
    configuration, moment = log.snapshot().metadata.configuration, millis(handle.instant(at))
    kept = parse_retention(configuration.get(LOG_PROPERTY, "interval 30 days"), LOG_PROPERTY) // _MILLI
    files = [file for file in log.list_files() if file.kind in _CLEANED]
    newest, groups = max(complete_checkpoints(files), default=0), _deleted_together(files)
    is_enabled = configuration.get("delta.enableExpiredLogCleanup", "true").lower() == "true"
    goes, rows = True, []
    for number, (group, following) in enumerate(zip_longest(groups, groups[1:])):
        checkpoint = following and following[0].version
        # Delta counts whole UTC days (truncateDay).
        expires = [-(-file.modification_time // _DAY_MILLIS) * _DAY_MILLIS + kept for file in group]
        is_before = checkpoint is not None and (group[-1].version or 0) < newest
        # Delta stops at a group that stays; only after the first group does it ask for files once more.
        goes = is_enabled and is_before and expires[-1] <= moment and (goes or number == 1)
        for file, until in zip(group, expires, strict=True):
            rows.append((file.name, file.kind.value, file.version, until, checkpoint, goes))
    return pa.table([*map(list, zip(*rows, strict=True))], schema=_EXPIRY).sort_by("name")


def _deleted_together(files: Sequence[LogFile]) -> list[list[LogFile]]:
    """Group files as a cleanup deletes them: each group ends before a checkpoint, the last one stays.

    As in DeltaHistoryManager.BufferingLogDeletionIterator, times are adjusted to increase with versions; a
    checkpoint with an adjusted time ends no group, and the parts of an incomplete checkpoint stay.
    """
    groups, parts, last = [list(files[:1])], defaultdict[Any, list[LogFile]](list), files[0]
    for file in files[1:]:
        key = file.version, file.num_parts
        if last.version != file.version and last.modification_time >= file.modification_time:
            file = file._replace(modification_time=last.modification_time + 1)
            groups[-1].append(file)
        elif file.kind in (Kind.COMMIT, Kind.CHECKSUM) or not file.size_bytes:
            groups[-1].append(file)
        else:
            parts[key].append(file)
            if len(parts[key]) == (file.num_parts or 1):
                groups.append(parts.pop(key))
        last = file
    groups[-1] += chain.from_iterable(parts.values())
    return groups


def read_storage(handle: Handle) -> Storage:
    """Return the bytes that each version stores, by the log and the folder, without hidden files."""
    needs = read_files_by_version(handle)
    lifetimes, totals = needs.lifetimes, needs.totals
    paths = lifetimes["path"].combine_chunks()
    sizes = pc.fill_null(lifetimes["size_bytes"], 0).to_numpy()
    gone = pc.is_in(paths, value_set=needs.missing)
    gone_sizes = sizes * gone.to_numpy(zero_copy_only=False)
    # A file that was added again, or with another deletion vector, exists since it was first added.
    _, begins = np.unique(paths.dictionary_encode().indices.to_numpy(), return_index=True)
    ever = pa.table({"added": lifetimes["added"].take(begins), "removed": pa.nulls(len(begins), pa.int64())})
    live = totals(lifetimes, sizes)
    gone_bytes = totals(ever, gone_sizes[begins]) - totals(lifetimes, gone_sizes)
    on_disk = needs.folder.files
    others = on_disk.filter(pc.invert(pc.is_in(on_disk["path"], value_set=needs.files["path"])))
    # A checkpoint keeps the tombstones of files that were removed before the log's first version.
    is_known = pc.is_in(others["path"], value_set=needs.tombstones["path"])
    early, orphaned = (
        pc.sum(others.filter(mask)["size_bytes"]).as_py() or 0 for mask in (is_known, pc.invert(is_known))
    )
    tombstoned = totals(ever, sizes[begins]) - live - gone_bytes + early
    columns = {"live_bytes": live, "tombstoned_bytes": tombstoned, "gone_bytes": gone_bytes}
    return Storage(pa.table({"version": needs.versions, **columns}), orphaned)


def read_versions(handle: Handle) -> pa.Table:
    """Return the versions in the log, oldest first, and whether each can be read.

    Returns:
        version (int64), timestamp (the commit time for time travel) and operation (string), null without a
        commit. readable (string) is "yes", "blocked" (by Delta's guard, though its files are there), "missing
        files" or "log gone" (the log lacks commits); num_missing (int64) counts the needed files that aren't
        on disk. readable_until (timestamp) is when VACUUM may delete the first needed file, or when the guard
        blocks the version; null if neither happens, or the version can't be read. same_content_as (int64) is
        the lowest other version known to have the same rows and columns, same_content_by (string) how that is
        known: "identical files"; "proved", because a run of this kit left the fingerprint of the rows in the
        commit, or this Table ran OPTIMIZE in one commit and compared the rows; "row counts agree", for other
        commits by OPTIMIZE, REORG or this kit. read_instead (int64) is the latest readable version with the
        same content, if the version can't be read. num_added, num_removed, bytes_added, bytes_removed (int64)
        and data_change (bool) are of the commit; records_change (int64) is the commit's change of the number
        of rows, null without statistics or if the log lacks the version before. num_files (int64) counts the
        live files, null if the version can't be read from the log.
    """
    needs = read_files_by_version(handle)
    commits, statuses, until = needs.commits, needs.statuses(), _readable_until(needs)
    content = find_same_content(needs)
    live = needs.totals(needs.lifetimes, np.ones(len(needs.lifetimes), np.int64))
    others, instead = _alternatives(needs.versions, content.groups, statuses == YES)
    pairs = zip(needs.versions.tolist(), others, strict=True)
    evidence = [None if other is None else content.evidence(version, other) for version, other in pairs]
    versions = pa.array(np.union1d(commits["version"].to_numpy(), needs.versions))
    # The row of each version in the commits and in `needs`: some versions are in only one of the two.
    commit = pc.index_in(versions, value_set=commits["version"])
    row = pc.index_in(versions, value_set=pa.array(needs.versions))
    return pa.table(
        {
            "version": versions,
            "timestamp": needs.log.commit_times().take(commit),
            "operation": commits["operation"].take(commit),
            "readable": pc.fill_null(pa.array(statuses, pa.string()).take(row), LOG_GONE),
            "num_missing": pa.array(needs.count(needs.missing)).take(row),
            "readable_until": pa.array(until, _STAMP, mask=(until == _NEVER) | (statuses != YES)).take(row),
            "same_content_as": pa.array(others, pa.int64()).take(row),
            "same_content_by": pa.array(evidence, pa.string()).take(row),
            "read_instead": pa.array(instead, pa.int64()).take(row),
            **{name: commits[name].take(commit) for name in _OF_COMMITS},
            "records_change": _records_change(needs).take(row),
            "num_files": pa.array(live).take(row),
        }
    )


def _readable_until(needs: FilesByVersion) -> np.ndarray:
    """Return `readable_until` in ms since 1970.

    VACUUM keeps live files, files with a tombstone younger than the retention, and files that were written
    within the retention.
    """
    paths, kept = pc.unique(needs.files["path"]), needs.retention // _MILLI
    modified = latest_by_path(paths, needs.folder.files, "modification_time")
    removed = latest_by_path(paths, needs.tombstones, "time")
    # Files that aren't listed are outside of the table or hidden: VACUUM never deletes them.
    stays = pc.or_(pc.is_in(paths, value_set=needs.live["path"]), modified.is_null())
    expiry = pc.if_else(stays, _NEVER, pc.add(pc.max_element_wise(removed, modified), kept))
    at = expiry.take(pc.index_in(needs.files["path"], value_set=paths))
    added, removed = (needs.files[name].to_numpy() - needs.first for name in ("added", "removed"))
    # Two ranges of the greatest power of 2 cover a span; the halves of a range then get its minimum.
    powers, until = np.frexp(removed - added)[1] - 1, np.full(len(needs.versions), _NEVER)
    for power in reversed(range(len(until).bit_length())):
        until[1 << power :] = np.minimum(until[1 << power :], until[: -1 << power])
        of = powers == power
        for start in (added[of], removed[of] - (1 << power)):
            np.minimum.at(until, start, at.to_numpy()[of])
    if needs.handle.goes_by(GUARD):
        until[:-1] = np.minimum(until[:-1], needs.times[:-1] + kept)
    return until


def _records_change(needs: FilesByVersion) -> pa.Array:
    """Return by how many rows each of `versions` differs from the version before; null if unknown."""
    counts = row_counts(needs)
    changes = [None if added is None or removed is None else added - removed for added, removed in counts]
    has_none_before = (needs.versions == needs.first) & (needs.first > 0)
    return pa.array(changes, pa.int64(), mask=has_none_before)


def _alternatives(
    versions: np.ndarray, groups: np.ndarray, readable: np.ndarray
) -> tuple[list[int | None], list[int | None]]:
    """Return each version's same_content_as and read_instead."""
    rows = list(zip(versions.tolist(), groups.tolist(), readable.tolist(), strict=True))
    # A group has the number of its first version.
    second = {group: version for version, group, _ in reversed(rows) if version != group}
    latest = {group: version for version, group, can in rows if can}
    others = [group if group != version else second.get(group) for version, group, _ in rows]
    return others, [None if can else latest.get(group) for _, group, can in rows]
