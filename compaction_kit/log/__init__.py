"""Read the log of one table: its files, its commits and their actions, and snapshots of its versions."""

from collections.abc import Callable, Iterator
from copy import copy
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log.commits import (
    STAMP,
    action_table,
    commit_table,
    commit_times,
    in_commit_since,
    in_turn,
    last_operation,
)
from compaction_kit.log.lifetimes import file_lifetimes, file_removals
from compaction_kit.log.lines import Action, commit_actions
from compaction_kit.log.listing import (
    LogFile,
    Segment,
    commits_by_version,
    complete_checkpoints,
    find_segment,
    list_log,
    readable_range,
)
from compaction_kit.log.protocol import Metadata
from compaction_kit.log.snapshot import Snapshot, read_snapshot
from compaction_kit.log.sources import checkpoint_sources, commit_sources
from compaction_kit.storage import Store, open_store
from compaction_kit.text import parse_count
from compaction_kit.times import millis, show_time, to_instant

__all__ = ["TransactionLog"]

# How many snapshots stay in memory, over all tables.
_MOST_SNAPSHOTS = 8
_recent: list[Snapshot] = []


class TransactionLog:
    """Reads the `_delta_log` of a table; never writes to it."""

    def __init__(self, table: Store | Path):
        """`table` is the table's folder or store."""
        self._store = store = open_store(table) if isinstance(table, Path) else table
        self.list_files: Callable[[], list[LogFile]] = partial(list_log, store)
        self._read_commits = lru_cache(1)(lambda files: commit_table(commit_sources(store, files)))
        self._read_lifetimes = lru_cache(1)(lambda files: file_lifetimes(store, files))

    def listed(self) -> "TransactionLog":
        """Return a copy of this log with a fixed list of its files, which later commits don't change."""
        one, files = copy(self), self.list_files()
        one.list_files = lambda: files
        return one

    def listing(self) -> pa.Table:
        """Return one row per file of the log, sorted by name.

        Returns:
            name and kind (string; "commit", "checkpoint" and so on), version and size_bytes (int64),
            modification_time (timestamp), needed (bool; whether readers of the latest version read the file).
        """
        segment = find_segment(files := self.list_files())
        sources = checkpoint_sources(self._store, segment.checkpoint)
        needed = {file.name for file in segment.commits}.union(*(source.names for source in sources))
        return pa.table(
            {
                "name": pa.array([file.name for file in files], pa.string()),
                "kind": pa.array([file.kind.value for file in files], pa.string()),
                "version": pa.array([file.version for file in files], pa.int64()),
                "size_bytes": pa.array([file.size_bytes for file in files], pa.int64()),
                "modification_time": pa.array([file.modification_time for file in files], STAMP),
                "needed": pa.array([file.name in needed for file in files], pa.bool_()),
            }
        )

    def commits(self) -> pa.Table:
        """Return one row per commit in the log, oldest first.

        Returns:
            version, num_added, num_removed, bytes_added, bytes_removed, records_added and records_removed
            (int64; records are null if a file has no stats), timestamp (the in-commit timestamp, else the
            time of the file), files_removed_at (timestamp; the latest deletion time of the commit's
            tombstones), data_change (bool; whether any file action changes data), schema (JSON if the commit
            sets one). From commitInfo: operation, isolation_level, user_metadata and engine (string),
            read_version (int64), is_blind_append (bool), parameters and metrics (map<string, string>).

        Examples:
            >>> commits = ck.open_table("data/flights").log.commits()
            >>> commits.select(["version", "operation", "num_added", "data_change"]).to_pylist()[-1]
            {'version': 365, 'operation': 'WRITE', 'num_added': 3, 'data_change': True}
        """
        return self._read_commits(tuple(self._commit_files()))

    def commit_times(self) -> pa.Array:
        """Return the time of each of `commits()`, as Delta's time travel uses it (timestamp, UTC)."""
        log, store = self.listed(), self._store
        return pa.array(commit_times(store, log._commit_files(), log.snapshot().metadata), STAMP)

    def actions(self, version: int, checkpoint: bool = False) -> pa.Table:
        """Return one row per action of a version's commit, or checkpoint, in the order of the file.

        Returns:
            action (string; "add", "remove", "commitInfo" and so on), path (string), size_bytes and
            num_records (int64), data_change (bool), partition_values (map<string, string>), stats (JSON
            text, even if a checkpoint has parsed stats), fields (the whole action as JSON text).

        Raises:
            InvalidArgumentError: The log has no commit, or no complete checkpoint, of that version.

        Examples:
            >>> actions = ck.open_table("data/flights").log.actions(12)
            >>> actions.select(["action", "path", "num_records"]).to_pylist()[1]
            {'action': 'add', 'path': 'origin=EWR/flights-2013-01-12.parquet', 'num_records': 234}
        """
        files, version = self.list_files(), parse_count(version, "version", 0)
        if checkpoint:
            checkpoints = complete_checkpoints(files)
            if version not in checkpoints:
                known = ", ".join(map(str, sorted(checkpoints))) or "none"
                raise InvalidArgumentError(
                    f"version={version!r} has no complete checkpoint in the log; those with one: {known}."
                )
            sources = checkpoint_sources(self._store, checkpoints[version])
            return action_table(action for source in sources for action in source.actions())
        file = commits_by_version(files).get(version)
        if file is None:
            raise InvalidArgumentError(
                f"version={version!r} has no commit in the log; see commits() for those it has."
            )
        return action_table(commit_actions(self._store, file))

    def raw_commits(self, since: int) -> Iterator[tuple[int, list[Action]]]:
        """Iterate over the commits from version `since` on: their versions, and actions as in the log."""
        files = [file for file in self._commit_files() if (file.version or 0) >= since]
        actions = in_turn(self._store, partial(commit_actions, self._store), files)
        return zip((file.version or 0 for file in files), actions, strict=True)

    def version_at(self, timestamp: datetime | str) -> int:
        """Return the last version committed at or before a time; see `compaction_kit.times.to_instant`.

        Raises:
            InvalidArgumentError: The value is not a time, or is before the earliest commit or after the
                latest one, as for TIMESTAMP AS OF.
        """
        moment = to_instant(timestamp, "timestamp")
        log = self.listed()
        files = log.list_files()
        earliest = readable_range(files).start
        commits = {v: file for v, file in commits_by_version(files).items() if v >= earliest}
        if not commits:
            raise InvalidArgumentError(
                f'timestamp="{timestamp}" can\'t be used: the log holds no commit; choose version={earliest}.'
            )
        versions = list(commits)
        metadata = log.snapshot().metadata
        times, since = commit_times(self._store, [*commits.values()], metadata), in_commit_since(metadata)
        # Delta searches the times of files only before the first in-commit timestamp.
        stamped = sum(since is None or version < since for version in versions)
        if stamped < len(versions) and max(millis(moment), times[0]) >= times[stamped]:
            versions, times, stamped = versions[stamped:], times[stamped:], len(versions)
        asked, first, last = (
            f'"{show_time(time.astimezone(moment.tzinfo), "milliseconds")}"'
            for time in (moment, *(datetime.fromtimestamp(int(times[i]) / 1000, UTC) for i in (0, -1)))
        )
        if millis(moment) < times[0]:
            raise InvalidArgumentError(
                f"timestamp={asked} is before version {versions[0]}, the earliest that can be read: choose "
                f"{first} or a later time."
            )
        if millis(moment) > times[-1]:
            raise InvalidArgumentError(
                f"timestamp={asked} is after version {versions[-1]}, the latest: choose {last} or an earlier "
                "time."
            )
        return versions[int(np.searchsorted(times[:stamped], millis(moment), side="right")) - 1]

    def has_in_commit_timestamp(self, version: int) -> bool:
        """Return whether time travel uses a version's in-commit timestamp, not the time of its file."""
        since = in_commit_since(self.snapshot().metadata)
        return since is not None and version >= since

    def last_operation(
        self, operation: str, most: int = 1_000, metadata: Metadata | None = None
    ) -> tuple[int, datetime] | None:
        """Find the newest commit of an operation.

        Args:
            operation: Its name in the log, such as "OPTIMIZE".
            most: How many commits to read.
            metadata: The metadata of the latest version, if it has been read.

        Returns:
            The version and the time of the commit (UTC, as in DESCRIBE HISTORY); None if none is found.
        """
        log = self.listed()
        commits = log._commit_files()
        position = last_operation(self._store, commits, operation, most)
        if position is None:
            return None
        version, known = commits[position].version or 0, metadata or log.snapshot().metadata
        since = in_commit_since(known)
        # Times of files depend on the commits before (see `commit_times`), in-commit timestamps don't.
        first = 0 if since is None or version < since else position
        time = int(commit_times(self._store, commits[first : position + 1], known)[-1])
        return version, datetime.fromtimestamp(time / 1000, UTC)

    def segment(self, version: int | None = None) -> Segment:
        """Return the files that a version is read from; None for the latest version."""
        return find_segment(self.list_files(), version)

    def snapshot(self, version: int | None = None, keep: bool = True) -> Snapshot:
        """Return the state of a version (None: the latest), and `keep` it in memory for later calls.

        If this process has read an earlier version after the same checkpoint, only later commits are read.

        Examples:
            >>> snapshot = ck.open_table("data/flights").log.snapshot(7)
            >>> len(snapshot.live), snapshot.metadata.partition_columns
            (21, ('origin',))
        """
        bases = sorted((one for one in _recent if one.store == self._store), key=lambda one: -one.version)
        files = self.list_files()
        # Raises the same errors as a first reading, even if the version is in memory.
        segment, listed = find_segment(files, version), {file.name for file in files}
        for base in bases:
            known = base.segment
            start = segment.checkpoint, segment.commits[: len(known.commits)]
            is_start = start == (known.checkpoint, known.commits)
            if is_start and all(source.names <= listed for source in base.sources):
                snapshot = base if known == segment else read_snapshot(self._store, segment, base)
                break
        else:
            snapshot = read_snapshot(self._store, segment)
        if keep:
            _recent[:] = [*(one for one in _recent if one is not snapshot), snapshot][-_MOST_SNAPSHOTS:]
        return snapshot

    def lifetimes(self) -> tuple[Snapshot, pa.Table]:
        """Return the versions in which each file was live, and the snapshot of the earliest version.

        Returns:
            One row for each range of versions in which a data file was live in a partition, sorted by added
            and path: path (string; see `paths.places`), deletion_vector_id (string), and int64 size_bytes,
            added (the first version; the snapshot's version for files that were live in it), removed (the
            first version without the file in that partition; null if it is live), num_records (without
            deleted rows; null without stats and for files of the snapshot) and row (the file's position in
            the snapshot's `live`; null for other files); partition (string; the partition values, joined).
        """
        return self._read_lifetimes(tuple(self.list_files()))

    def removals(self) -> list[pa.Table]:
        """Return the remove actions of all commits in the log, including commits before `readable_range`.

        Returns:
            Tables with a row per action: path and deletion_vector_id (string), deletion_timestamp (int64, ms
            since 1970).
        """
        return file_removals(self._store, self.list_files())

    def readable_range(self) -> range:
        """Return the versions whose state can be read from the log, up to the latest."""
        return readable_range(self.list_files())

    def _commit_files(self) -> list[LogFile]:
        return [*commits_by_version(self.list_files()).values()]
