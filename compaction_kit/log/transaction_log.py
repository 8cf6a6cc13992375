"""The log of one table, opened up: its files, its commits, one commit, the state of a version."""

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log.commit_times import (
    commit_times,
    in_commit_since,
    in_commit_timestamp,
    last_commit_time,
    version_at,
)
from compaction_kit.log.crc import compare_checksum
from compaction_kit.log.json_source import JsonSource, commit_blocks
from compaction_kit.log.ledger import action_table, commit_ledger, last_operation
from compaction_kit.log.lifetimes import earliest_version, file_lifetimes
from compaction_kit.log.listing import (
    Kind,
    LogFile,
    Segment,
    complete_checkpoints,
    explain_files,
    extend_segment,
    find_segment,
    list_log,
)
from compaction_kit.log.metadata import Metadata
from compaction_kit.log.reading import commit_actions, read_log_file, reading
from compaction_kit.log.snapshot import Snapshot, read_snapshot
from compaction_kit.log.sources import checkpoint_actions, sidecar_names
from compaction_kit.storage import Store, open_store
from compaction_kit.times import to_instant

# Of commits that are kept read, some megabytes of the log each.
_MOST_BLOCKS = 64


class _Recent:
    """The snapshots read last, a few for the whole process: large tables' take memory."""

    _MOST = 8

    def __init__(self) -> None:
        self._snapshots: list[Snapshot] = []
        self._lock = threading.Lock()

    def of(self, store: Store) -> list[Snapshot]:
        """Those of a table."""
        with self._lock:
            return [snapshot for snapshot in self._snapshots if snapshot.store == store]

    def add(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, as the one used last."""
        with self._lock:
            others = [kept for kept in self._snapshots if kept is not snapshot]
            self._snapshots = [*others, snapshot][-self._MOST :]


_RECENT = _Recent()


class TransactionLog:
    """Reads the `_delta_log` of a table; never writes to it."""

    def __init__(self, table: Store | Path):
        """`table` is its folder, or the store of it."""
        self._store = store = open_store(str(table)) if isinstance(table, Path) else table
        self._read_block = lru_cache(maxsize=_MOST_BLOCKS)(lambda files: JsonSource(store, files))
        self._read_ledger = lru_cache(maxsize=1)(lambda files: commit_ledger(files, self._sources(files)))
        self._read_lifetimes = lru_cache(maxsize=1)(
            lambda files: file_lifetimes(store, files, self._sources(_commits_of(files)))
        )

    def listing(self) -> pa.Table:
        """Every file of the log.

        Returns:
            name, kind ("commit", "checkpoint", …), version, size_bytes, modification_time
            (timestamp, UTC), holds (what is in it, in words), needed (a reader of the latest
            version reads it); by name.
        """
        files = list_log(self._store)
        segment = find_segment(files)
        return explain_files(files, segment, sidecar_names(self._store, segment.checkpoint))

    def commits(self) -> pa.Table:
        """The ledger: one row a commit that is still in the log, oldest first.

        Returns:
            version, timestamp (UTC; the in-commit timestamp if there is one, else the file's
            time), operation, parameters, num_added, num_removed, bytes_added, bytes_removed,
            records_added, records_removed (null where a file's stats don't say), data_change
            (whether any file action changes data), files_removed_at (the latest time in its
            tombstones; null without any), isolation_level, metrics, user_metadata, engine,
            read_version, is_blind_append (as the commit tells of itself), schema (the one that its
            metaData action sets, as JSON text; null without one).
        """
        return self._read_ledger(tuple(self._commit_files()))

    def commit_times(self) -> pa.Array:
        """When each of `commits()` was committed, as Delta tells for time travel; timestamp, UTC."""
        commits = self._commit_files()
        times = commit_times(self._store, commits, self.snapshot().metadata)
        return pa.array(times, pa.timestamp("ms", "UTC"))

    def commit_file_times(self) -> np.ndarray:
        """The times of the files of `commits()`: int64, ms since 1970."""
        return np.array([file.modification_time for file in self._commit_files()], dtype=np.int64)

    def actions(self, version: int, checkpoint: bool = False) -> pa.Table:
        """One commit opened up, or one checkpoint: one row an action, in the order of the file.

        Args:
            version: The version of the commit or checkpoint.
            checkpoint: Open the checkpoint, with its parts or sidecars.

        Returns:
            action ("add", "remove", "commitInfo", …), path, size_bytes, num_records, data_change,
            partition_values, stats (JSON text, also where a checkpoint has them parsed), fields
            (the whole action as JSON text).

        Raises:
            InvalidArgumentError: The log holds no commit, or no complete checkpoint, of that
                version.
        """
        files = list_log(self._store)
        if checkpoint:
            checkpoints = complete_checkpoints(files)
            if version not in checkpoints:
                known = ", ".join(map(str, sorted(checkpoints))) or "none"
                raise InvalidArgumentError(
                    f"version={version} has no complete checkpoint in the log; those that have one: {known}."
                )
            return action_table(checkpoint_actions(self._store, checkpoints[version]))
        file = next((f for f in files if f.kind is Kind.COMMIT and f.version == version), None)
        if file is None:
            raise InvalidArgumentError(
                f"version={version} has no commit in the log; see commits() for those it has."
            )
        return action_table(commit_actions(self._store, file))

    def crc(self, version: int | None = None) -> pa.Table:
        """Delta's checksum file of a version beside the state that the log gives, field by field.

        Args:
            version: None for the latest.

        Returns:
            See `crc.compare_checksum`.

        Raises:
            InvalidArgumentError: There is no checksum file of that version.
            CorruptLogError: It is damaged.
        """
        snapshot = self.snapshot(version)
        of_version = {f.kind: f for f in list_log(self._store) if f.version == snapshot.version}
        file, commit = of_version.get(Kind.CHECKSUM), of_version.get(Kind.COMMIT)
        if file is None:
            raise InvalidArgumentError(
                f"version={snapshot.version} has no .crc file in the log: not every writer leaves one."
            )
        time = None if commit is None else in_commit_timestamp(self._store, commit)
        with reading(file.name):
            return compare_checksum(snapshot, json.loads(read_log_file(self._store, file)), time)

    def version_at(self, timestamp: datetime | str) -> int:
        """The last version committed at or before a time.

        Args:
            timestamp: A datetime or text; see `times.to_instant` of the package.

        Raises:
            InvalidArgumentError: It is no time, or no version is that of it.
        """
        moment = to_instant(timestamp, "timestamp")
        files = list_log(self._store)
        earliest = earliest_version(files)
        commits = [f for f in files if f.kind is Kind.COMMIT and (f.version or 0) >= earliest]
        if not commits:
            raise InvalidArgumentError(
                f'timestamp="{timestamp}" can\'t be told: the log holds no commit; choose version={earliest}.'
            )
        times = commit_times(self._store, commits, self.snapshot().metadata)
        return version_at(commits, times, moment)

    def has_in_commit_timestamp(self, version: int) -> bool:
        """Whether time travel goes by what the commit of a version says of its time; else by its file's."""
        since = in_commit_since(self.snapshot().metadata)
        return since is not None and version >= since

    def last_operation(
        self, operation: str, most: int = 1_000, metadata: Metadata | None = None
    ) -> tuple[int, datetime] | None:
        """The newest commit of an operation, looked for from the newest commit backwards.

        Args:
            operation: As the log names it, such as "OPTIMIZE".
            most: How many commits to look into.
            metadata: The latest version's, if it has been read already.

        Returns:
            Its version and its time (UTC, as DESCRIBE HISTORY has it); None if those commits
            hold none.

        Raises:
            CorruptLogError: A commit on the way is damaged.
        """
        commits = self._commit_files()
        position = last_operation(self._store, commits, operation, most)
        if position is None:
            return None
        known = metadata or self.snapshot().metadata
        millis = last_commit_time(self._store, commits[: position + 1], known)
        return commits[position].version or 0, datetime.fromtimestamp(millis / 1000, UTC)

    def segment(self, version: int | None = None) -> Segment:
        """The files that a version (None: the latest) is read from."""
        return find_segment(list_log(self._store), version)

    def snapshot(self, version: int | None = None, keep: bool = True) -> Snapshot:
        """The state of a version; None for the latest as of now.

        What has been read before, by whomever in this process, isn't read again: a later version
        costs the commits since then.

        Args:
            version: None for the latest.
            keep: Keep it in memory for later calls.
        """
        files = list_log(self._store)
        # Even what is known is told only while the log itself still tells it.
        fresh = find_segment(files, version)
        for base in sorted(_RECENT.of(self._store), key=lambda snapshot: -snapshot.version):
            segment = extend_segment(base.segment, files, fresh.version)
            if segment is not None and all(source.is_there() for source in base.sources):
                snapshot = base if segment == base.segment else read_snapshot(self._store, segment, base)
                break
        else:
            snapshot = read_snapshot(self._store, fresh)
        if keep:
            _RECENT.add(snapshot)
        return snapshot

    def lifetimes(self) -> tuple[Snapshot, pa.Table]:
        """When each file was live; see `lifetimes.file_lifetimes`."""
        return self._read_lifetimes(tuple(list_log(self._store)))

    def _commit_files(self) -> list[LogFile]:
        return _commits_of(list_log(self._store))

    def _sources(self, commits: Sequence[LogFile]) -> list[JsonSource]:
        """The lines of commits; a block of them that was read before isn't read again."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(self._read_block, map(tuple, commit_blocks(commits))))


def _commits_of(files: Sequence[LogFile]) -> list[LogFile]:
    return [file for file in files if file.kind is Kind.COMMIT]
