"""Read what commits did and when: one row per commit or per action."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import CorruptLogError, show_value
from compaction_kit.log.actions import column, count_records, is_kind
from compaction_kit.log.lines import commit_info, json_text, reading
from compaction_kit.log.listing import LogFile
from compaction_kit.log.protocol import Metadata
from compaction_kit.log.sources import JsonSource
from compaction_kit.storage.store import Answer, Item, Store

_INT, _TEXT, _BOOL, _TEXTS = pa.int64(), pa.string(), pa.bool_(), pa.map_(pa.string(), pa.string())
STAMP = pa.timestamp("ms", "UTC")
_COUNTS = ("num_added", "num_removed", "bytes_added", "bytes_removed", "records_added", "records_removed")
COMMIT_COLUMNS = pa.schema({
    "version": _INT, "timestamp": STAMP, "operation": _TEXT, "parameters": _TEXTS,
    **dict.fromkeys(_COUNTS, _INT), "data_change": _BOOL, "files_removed_at": STAMP,
    "isolation_level": _TEXT, "metrics": _TEXTS, "user_metadata": _TEXT, "engine": _TEXT,
    "read_version": _INT, "is_blind_append": _BOOL, "schema": _TEXT,
})  # fmt: skip
ACTION_COLUMNS = pa.schema({
    "action": _TEXT, "path": _TEXT, "size_bytes": _INT, "num_records": _INT, "data_change": _BOOL,
    "partition_values": _TEXTS, "stats": _TEXT, "fields": _TEXT,
})  # fmt: skip
# Columns that hold fields of commitInfo unchanged.
_INFO_FIELDS = {
    "operation": "operation", "isolation_level": "isolationLevel", "user_metadata": "userMetadata",
    "engine": "engineInfo", "read_version": "readVersion", "is_blind_append": "isBlindAppend",
}  # fmt: skip
_SUMS = pa.schema([COMMIT_COLUMNS.field(name) for name in (*_COUNTS, "data_change", "files_removed_at")])
# How many commits are requested from a store at once, and held in memory.
_AT_ONCE = 64
# The end of the year 9998, so that adding a retention doesn't exceed Python's last year.
_LAST_MILLIS = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp() * 1000) - 1


def commit_table(sources: Sequence[JsonSource]) -> pa.Table:
    """Return one row per commit, oldest first, with the columns `COMMIT_COLUMNS`."""
    rows: list[dict[str, Any]] = []
    for source in sources:
        info_of, metadata_of = source.first_of("commitInfo"), source.first_of("metaData")
        for number, file in enumerate(source.files):
            info = info_of.get(number, {})
            time = _in_commit_time(info)
            row = {
                "version": file.version,
                "timestamp": file.modification_time if time is None else time,
                "parameters": _texts(info.get("operationParameters")),
                "metrics": _texts(info.get("operationMetrics")),
                "schema": metadata_of.get(number, {}).get("schemaString"),
            }
            rows.append(row | {name: info.get(field) for name, field in _INFO_FIELDS.items()})
    sums = pa.concat_tables([_SUMS.empty_table(), *map(_sums, sources)])
    columns = [
        sums[field.name]
        if field.name in _SUMS.names
        else _fitting([row[field.name] for row in rows], field.type)
        for field in COMMIT_COLUMNS
    ]
    return pa.table(columns, COMMIT_COLUMNS)


def _sums(source: JsonSource) -> pa.Table:
    names = ("size_bytes", "data_change", "deletion_timestamp")
    raw, length = source.rows(names), len(source.files)
    columns: dict[str, Any] = {}
    changes, latest = np.zeros(length, dtype=bool), np.zeros(length, dtype=np.int64)
    for kind, done in (("add", "added"), ("remove", "removed")):
        rows = is_kind(raw, kind)
        commits = source.file_of[_numpy(rows)]
        found = (column(raw, kind, name).filter(rows).cast(pa.int64()) for name in names)
        sizes, changing, times = (_numpy(pc.fill_null(values, 0)) for values in found)
        records = source.num_records(kind).filter(rows)
        columns[f"num_{done}"] = np.bincount(commits, minlength=length)
        columns[f"bytes_{done}"] = np.zeros(length, dtype=np.int64)
        np.add.at(columns[f"bytes_{done}"], commits, sizes)
        counts = np.zeros(length, dtype=np.int64)
        np.add.at(counts, commits, _numpy(pc.fill_null(records, 0)))
        unknown = np.bincount(commits[_numpy(records.is_null())], minlength=length) > 0
        columns[f"records_{done}"] = pa.array(counts, mask=unknown)
        changes[commits[changing > 0]] = True
        np.maximum.at(latest, commits, times)
    columns["data_change"] = changes
    columns["files_removed_at"] = pa.array(latest, mask=(latest == 0) | (latest > _LAST_MILLIS)).cast(STAMP)
    return pa.table({name: columns[name] for name in _SUMS.names}, _SUMS)


def _numpy(values: pa.Array) -> np.ndarray:
    found: np.ndarray = values.to_numpy(zero_copy_only=False)
    return found


def action_table(actions: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return one row per action, with the columns `ACTION_COLUMNS`."""
    rows = []
    for name, value in chain.from_iterable(action.items() for action in actions):
        fields = value if isinstance(value, dict) else {}
        stats, parsed = fields.get("stats"), fields.get("stats_parsed")
        values = fields.get("partitionValues")
        row = {
            "action": name,
            "path": fields.get("path"),
            "size_bytes": fields.get("size", fields.get("sizeInBytes")),
            "data_change": fields.get("dataChange"),
            "partition_values": values if isinstance(values, dict) else None,
            "stats": json_text(parsed) if stats is None and parsed is not None else stats,
            "fields": json_text({name: value}),
        }
        rows.append(row)
    texts = pa.schema([field for field in ACTION_COLUMNS if field.name != "num_records"])
    columns = {field.name: _fitting([row[field.name] for row in rows], field.type) for field in texts}
    columns["num_records"] = count_records(columns["stats"])
    return pa.table(columns).select(ACTION_COLUMNS.names)


def _fitting(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Convert values to a column, with null for values of another type."""
    try:
        return pa.array(values, data_type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        if len(values) == 1:
            return pa.nulls(1, data_type)
        half = len(values) // 2
        return pa.concat_arrays([_fitting(part, data_type) for part in (values[:half], values[half:])])


def _texts(values: Any) -> dict[str, str | None] | None:
    """Convert values as DESCRIBE HISTORY does: text and null unchanged, anything else to JSON."""
    if not isinstance(values, dict):
        return None
    return {key: v if v is None or isinstance(v, str) else json.dumps(v) for key, v in values.items()}


def in_turn(store: Store, ask: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
    """Yield the answer for each item, in order; only `_AT_ONCE` items are requested ahead."""
    for start in range(0, len(items), _AT_ONCE):
        yield from store.at_once(ask, items[start : start + _AT_ONCE])


def last_operation(store: Store, commits: Sequence[LogFile], operation: str, most: int) -> int | None:
    """Return the position of a commit; see `TransactionLog.last_operation`."""

    def read_info(i: int) -> dict[str, Any]:
        with reading(commits[i].name):
            # Delta writes commitInfo first, other writers anywhere.
            lines = (line for line in store.lines(commits[i].place) if b'"commitInfo"' in line)
            return commit_info(map(json.loads, lines))

    newest = range(len(commits) - 1, max(len(commits) - most, 0) - 1, -1)
    infos = zip(newest, in_turn(store, read_info, newest), strict=True)
    return next((i for i, info in infos if info.get("operation") == operation), None)


def commit_times(store: Store, commits: Sequence[LogFile], metadata: Metadata) -> np.ndarray:
    """Return the time of each commit as Delta's time travel uses it, in ms since 1970.

    From the version on that enabled in-commit timestamps according to the latest metadata, times are these
    timestamps. Earlier times are those of the commits' files, adjusted so that they increase
    (DeltaHistoryManager.getCommitsWithNonIctTimestamps). The files of a copied table may be newer than its
    in-commit timestamps.
    """
    since = in_commit_since(metadata)
    times = np.empty(len(commits), dtype=np.int64)

    def stamp(file: LogFile) -> int:
        # With in-commit timestamps, commitInfo is the first action (protocol, "In-Commit Timestamps").
        with reading(file.name):
            first = json.loads(next(iter(store.lines(file.place)), b""))
            time = _in_commit_time(commit_info([first]))
        if time is None:
            raise CorruptLogError(
                f"The log file {file.name} has no in-commit timestamp, which the table requires since "
                f"version {since}: restore it from a backup."
            )
        return time

    num_unstamped = sum(since is None or (file.version or 0) < since for file in commits)
    for i, file in enumerate(commits[:num_unstamped]):
        times[i] = max(file.modification_time, times[i - 1] + 1 if i else file.modification_time)
    times[num_unstamped:] = list(store.at_once(stamp, commits[num_unstamped:]))
    return times


def in_commit_since(metadata: Metadata) -> int | None:
    """Return the first version with in-commit timestamps; None if they aren't enabled."""
    name = "delta.inCommitTimestampEnablementVersion"
    since = metadata.configuration.get(name, "0")
    try:
        is_enabled = metadata.configuration.get("delta.enableInCommitTimestamps", "").lower() == "true"
        return int(since) if is_enabled else None
    except ValueError:
        raise CorruptLogError(
            f"The table property {name} is {show_value(since)}, which is not a version: restore the "
            "log from a backup."
        ) from None


def _in_commit_time(info: Mapping[str, Any]) -> int | None:
    """Return the in-commit timestamp of a commitInfo, if a datetime can hold it."""
    time = info.get("inCommitTimestamp")
    is_time = isinstance(time, int) and not isinstance(time, bool) and 0 <= time <= _LAST_MILLIS
    return time if is_time else None
