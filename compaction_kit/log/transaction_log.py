"""The log of one table, opened up: its files, its commits, one commit, the state of a version."""

import json
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log.lifetimes import file_lifetimes
from compaction_kit.log.names import Kind, LogFile, list_log
from compaction_kit.log.segment import Segment, extend_segment, find_segment
from compaction_kit.log.snapshot import Snapshot, read_snapshot
from compaction_kit.log.sources import commit_actions

_COMMIT_COLUMNS = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("num_added", pa.int64()),
        ("num_removed", pa.int64()),
        ("bytes_added", pa.int64()),
        ("bytes_removed", pa.int64()),
        ("data_change", pa.bool_()),
        ("isolation_level", pa.string()),
        ("metrics", pa.map_(pa.string(), pa.string())),
    ]
)
_ACTION_COLUMNS = pa.schema(
    [
        ("action", pa.string()),
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("data_change", pa.bool_()),
        ("partition_values", pa.map_(pa.string(), pa.string())),
        ("stats", pa.string()),
        ("fields", pa.string()),
    ]
)


class _Recent:
    """The snapshots read last, a few for the whole process: large tables' take memory."""

    _MOST = 8

    def __init__(self) -> None:
        self._snapshots: list[Snapshot] = []
        self._lock = threading.Lock()

    def of(self, table: Path) -> list[Snapshot]:
        """Those of a table."""
        with self._lock:
            return [snapshot for snapshot in self._snapshots if snapshot.table == table]

    def add(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, as the one used last."""
        with self._lock:
            others = [kept for kept in self._snapshots if kept is not snapshot]
            self._snapshots = [*others, snapshot][-self._MOST :]


_RECENT = _Recent()


class TransactionLog:
    """Reads the `_delta_log` of the table in a folder; never writes to it."""

    def __init__(self, table: Path):
        self._table = table
        self._read_lifetimes = lru_cache(maxsize=1)(lambda files: file_lifetimes(table, files))
        self._read_row = lru_cache(maxsize=None)(lambda file: _ledger_row(table, file))

    def listing(self) -> pa.Table:
        """Every file of the log.

        Returns:
            name, kind ("commit", "checkpoint", …), version, size_bytes, modification_time
            (timestamp, UTC), needed (a reader of the latest version reads it); by name.
        """
        files = list_log(self._table)
        segment = find_segment(files)
        needed = {file.name for file in segment.checkpoint + segment.commits}
        return pa.table(
            {
                "name": pa.array([f.name for f in files], pa.string()),
                "kind": pa.array([f.kind.value for f in files], pa.string()),
                "version": pa.array([f.version for f in files], pa.int64()),
                "size_bytes": pa.array([f.size_bytes for f in files], pa.int64()),
                "modification_time": pa.array(
                    [f.modification_time for f in files], pa.timestamp("ms", "UTC")
                ),
                "needed": pa.array([f.name in needed for f in files], pa.bool_()),
            }
        )

    def commits(self) -> pa.Table:
        """The ledger: one row a commit that is still in the log, oldest first.

        Returns:
            version, timestamp (UTC; the in-commit timestamp if there is one, else the file's
            time), operation, num_added, num_removed, bytes_added, bytes_removed, data_change
            (whether any file action changes data), isolation_level, metrics.
        """
        rows = [self._read_row(file) for file in self._commit_files()]
        return pa.Table.from_pylist(rows, schema=_COMMIT_COLUMNS)

    def actions(self, version: int) -> pa.Table:
        """One commit opened up: one row an action, as the commit orders them.

        Returns:
            action ("add", "remove", "commitInfo", …), path, size_bytes, data_change,
            partition_values, stats (JSON text), fields (the whole action as JSON text).

        Raises:
            InvalidArgumentError: The log holds no commit of that version.
        """
        file = next((f for f in self._commit_files() if f.version == version), None)
        if file is None:
            raise InvalidArgumentError(
                f"version={version} has no commit in the log; see commits() for those it has."
            )
        rows = []
        for action in commit_actions(self._table, file):
            for name, fields in action.items():
                rows.append(
                    {
                        "action": name,
                        "path": fields.get("path"),
                        "size_bytes": fields.get("size"),
                        "data_change": fields.get("dataChange"),
                        "partition_values": fields.get("partitionValues"),
                        "stats": fields.get("stats"),
                        "fields": json.dumps(action),
                    }
                )
        return pa.Table.from_pylist(rows, schema=_ACTION_COLUMNS)

    def segment(self, version: int | None = None) -> Segment:
        """The files that a version (None: the latest) is read from."""
        return find_segment(list_log(self._table), version)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The state of a version; None for the latest as of now.

        What has been read before, by whomever in this process, isn't read again: a later version
        costs the commits since then.
        """
        files = list_log(self._table)
        # Even what is known is told only while the log itself still tells it.
        fresh = find_segment(files, version)
        for base in sorted(_RECENT.of(self._table), key=lambda snapshot: -snapshot.version):
            segment = extend_segment(base.segment, files, fresh.version)
            if segment is not None and all(source.is_there() for source in base.sources):
                snapshot = base if segment == base.segment else read_snapshot(self._table, segment, base)
                break
        else:
            snapshot = read_snapshot(self._table, fresh)
        _RECENT.add(snapshot)
        return snapshot

    def lifetimes(self) -> tuple[Snapshot, pa.Table]:
        """When each file was live; see `lifetimes.file_lifetimes`."""
        return self._read_lifetimes(tuple(list_log(self._table)))

    def _commit_files(self) -> list[LogFile]:
        return [file for file in list_log(self._table) if file.kind is Kind.COMMIT]


def _ledger_row(table: Path, file: LogFile) -> dict[str, Any]:
    """What one commit did, in sums."""
    row: dict[str, Any] = {"version": file.version, "timestamp": file.modification_time}
    sums = {"num_added": 0, "num_removed": 0, "bytes_added": 0, "bytes_removed": 0}
    data_change = False
    for action in commit_actions(table, file):
        for name, kind in (("add", "added"), ("remove", "removed")):
            if name in action:
                sums[f"num_{kind}"] += 1
                sums[f"bytes_{kind}"] += action[name].get("size") or 0
                data_change |= bool(action[name].get("dataChange"))
        if info := action.get("commitInfo"):
            row["operation"] = info.get("operation")
            row["isolation_level"] = info.get("isolationLevel")
            row["metrics"] = {key: str(value) for key, value in (info.get("operationMetrics") or {}).items()}
            row["timestamp"] = info.get("inCommitTimestamp", row["timestamp"])
    return row | sums | {"data_change": data_change}
