"""When versions were committed, and which version a table had at a time."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from compaction_kit.errors import CorruptLogError, InvalidArgumentError, show_value
from compaction_kit.log.listing import LogFile
from compaction_kit.log.metadata import Metadata
from compaction_kit.log.reading import reading
from compaction_kit.storage import Store
from compaction_kit.times import millis, show_time

_ENABLED = "delta.enableInCommitTimestamps"
_SINCE = "delta.inCommitTimestampEnablementVersion"
# The end of the year 9998, so that a retention can be added.
LAST_MILLIS = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp() * 1000) - 1


def commit_times(store: Store, commits: Sequence[LogFile], metadata: Metadata) -> np.ndarray:
    """Return when each version was committed, as for Delta's time travel: ms since 1970, increasing.

    From the version that enabled in-commit timestamps on, these are used. Before it, the times of the
    commits' files are used, changed so that they increase
    (DeltaHistoryManager.getCommitsWithNonIctTimestamps).

    Args:
        store: The table's files.
        commits: The commits, oldest first.
        metadata: The metadata of the latest version.
    """
    since = in_commit_since(metadata)
    times = np.empty(len(commits), dtype=np.int64)
    start = since if since is not None else math.inf
    read = (file for file in commits if (file.version or 0) >= start)
    stamps = store.at_once(lambda file: _required_timestamp(store, file, since), read)
    for i, file in enumerate(commits):
        if (file.version or 0) >= start:
            times[i] = next(stamps)
        else:
            times[i] = max(file.modification_time, times[i - 1] + 1 if i else 0)
    return times


def last_commit_time(store: Store, commits: Sequence[LogFile], metadata: Metadata) -> int:
    """Return the last of `commit_times`; with in-commit timestamps, only that commit is read."""
    since, last = in_commit_since(metadata), commits[-1]
    if since is not None and (last.version or 0) >= since:
        return _required_timestamp(store, last, since)
    return int(commit_times(store, commits, metadata)[-1])


def version_at(commits: Sequence[LogFile], times: np.ndarray, moment: datetime) -> int:
    """Return the last version that was committed at or before a time.

    Args:
        commits: The commits, oldest first, from the earliest version that can be read.
        times: When they were committed; see `commit_times`.
        moment: The time, with its zone.

    Raises:
        InvalidArgumentError: The time is before the earliest version or, as in Delta, after the latest.
    """
    wanted = millis(moment)
    position = int(np.searchsorted(times, wanted, side="right")) - 1
    if position < 0:
        raise InvalidArgumentError(
            f"timestamp={_shown(moment)} is before the earliest version that can be read, "
            f"{commits[0].version} of {_committed(times[0], moment)}: choose that time or a later one."
        )
    if wanted > times[-1]:
        raise InvalidArgumentError(
            f"timestamp={_shown(moment)} is after the latest version, {commits[-1].version} of "
            f"{_committed(times[-1], moment)}: choose that time or an earlier one, or leave the timestamp "
            "out."
        )
    return commits[position].version or 0


def in_commit_timestamp(store: Store, file: LogFile) -> int | None:
    """Return the in-commit timestamp of a commit, in ms since 1970; None if it has none.

    Raises:
        CorruptLogError: The commit's first line is damaged.
    """
    # With in-commit timestamps, commitInfo is the first action (protocol, "In-Commit Timestamps").
    with reading(file.name):
        info = json.loads(next(store.lines(file.place), b"")).get("commitInfo")
    time = info.get("inCommitTimestamp") if isinstance(info, dict) else None
    return time if is_time(time) else None


def is_time(millis: Any) -> bool:
    """Return whether a value is a time in ms since 1970 that a datetime can hold."""
    return isinstance(millis, int) and not isinstance(millis, bool) and 0 <= millis <= LAST_MILLIS


def in_commit_since(metadata: Metadata) -> int | None:
    """Return the first version with in-commit timestamps; None if they aren't enabled."""
    enabled = metadata.configuration.get(_ENABLED, "").lower() == "true"
    since = metadata.configuration.get(_SINCE, "0")
    try:
        return int(since) if enabled else None
    except ValueError:
        raise CorruptLogError(
            f"The table property {_SINCE} is {show_value(since)}, which is not a version: restore the "
            "log from a backup."
        ) from None


def _required_timestamp(store: Store, file: LogFile, since: int | None) -> int:
    time = in_commit_timestamp(store, file)
    if time is None:
        raise CorruptLogError(
            f"The log file {file.name} has no in-commit timestamp, which the table requires since "
            f"version {since}: restore it from a backup."
        )
    return time


def _committed(time: int, moment: datetime) -> str:
    """Format a commit's time in the zone of another time."""
    return _shown(datetime.fromtimestamp(int(time) / 1000, UTC).astimezone(moment.tzinfo))


def _shown(moment: datetime) -> str:
    return f'"{show_time(moment, "milliseconds")}"'
