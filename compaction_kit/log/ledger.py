"""What each commit did: one row per commit, or one row per action."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.log.actions import column, count_records, fitting
from compaction_kit.log.commit_times import LAST_MILLIS, is_time
from compaction_kit.log.json_source import JsonSource
from compaction_kit.log.listing import LogFile
from compaction_kit.log.paths import one_array
from compaction_kit.log.reading import reading
from compaction_kit.storage import Store

_TEXT_MAP = pa.map_(pa.string(), pa.string())
COMMIT_COLUMNS = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("parameters", _TEXT_MAP),
        ("num_added", pa.int64()),
        ("num_removed", pa.int64()),
        ("bytes_added", pa.int64()),
        ("bytes_removed", pa.int64()),
        ("records_added", pa.int64()),
        ("records_removed", pa.int64()),
        ("data_change", pa.bool_()),
        ("files_removed_at", pa.timestamp("ms", "UTC")),
        ("isolation_level", pa.string()),
        ("metrics", _TEXT_MAP),
        ("user_metadata", pa.string()),
        ("engine", pa.string()),
        ("read_version", pa.int64()),
        ("is_blind_append", pa.bool_()),
        ("schema", pa.string()),
    ]
)
ACTION_COLUMNS = pa.schema(
    [
        ("action", pa.string()),
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("num_records", pa.int64()),
        ("data_change", pa.bool_()),
        ("partition_values", _TEXT_MAP),
        ("stats", pa.string()),
        ("fields", pa.string()),
    ]
)
# Columns with fields of commitInfo as they are.
_INFO_FIELDS = {
    "operation": "operation",
    "isolation_level": "isolationLevel",
    "user_metadata": "userMetadata",
    "engine": "engineInfo",
    "read_version": "readVersion",
    "is_blind_append": "isBlindAppend",
}
_KINDS = {"add": "added", "remove": "removed"}
_SUMMED = ("size_bytes", "data_change", "deletion_timestamp")
_SUMS = pa.schema([*COMMIT_COLUMNS][4:12])
# Commits that a store is asked for at once, newest first, until the operation is found.
_INFOS = 64


def commit_ledger(files: Sequence[LogFile], sources: Sequence[JsonSource]) -> pa.Table:
    """Return one row per commit, with the columns `COMMIT_COLUMNS`.

    Args:
        files: The commits, oldest first.
        sources: Their lines.
    """
    sums = pa.concat_tables([_SUMS.empty_table(), *(_sums(source) for source in sources)])
    info_of = _first_actions(sources, "commitInfo")
    infos = [info_of.get(file.version, {}) for file in files]
    metadata_of = _first_actions(sources, "metaData")
    times = [info.get("inCommitTimestamp") for info in infos]
    columns: dict[str, list[Any]] = {
        "version": [file.version for file in files],
        "timestamp": [
            time if is_time(time) else file.modification_time for file, time in zip(files, times, strict=True)
        ],
        "parameters": [_texts(info.get("operationParameters")) for info in infos],
        "metrics": [_texts(info.get("operationMetrics")) for info in infos],
        "schema": [metadata_of.get(file.version, {}).get("schemaString") for file in files],
        **{name: [info.get(field) for info in infos] for name, field in _INFO_FIELDS.items()},
    }
    # commitInfo is not part of the table's state, so a value of another type becomes null.
    typed = {
        field.name: fitting(columns[field.name], field.type)
        for field in COMMIT_COLUMNS
        if field.name in columns
    }
    return pa.table(
        [typed[name] if name in typed else sums[name] for name in COMMIT_COLUMNS.names], COMMIT_COLUMNS
    )


def _sums(source: JsonSource) -> pa.Table:
    """Sum up the file actions of each commit of a source."""
    raw = source.rows(_SUMMED)
    commits, length = source.commit_numbers(), source.num_commits
    columns: dict[str, pa.Array] = {}
    changes = np.zeros(length, dtype=bool)
    for name, kind in _KINDS.items():
        rows = one_array(raw[name]).is_valid()
        of_commit = commits[rows.to_numpy(zero_copy_only=False)]
        sizes, changing, removed = (column(raw, name, field).filter(rows) for field in _SUMMED)
        records = source.num_records() if name == "add" else source.num_removed_records()
        columns[f"num_{kind}"] = _summed(of_commit, pa.repeat(1, len(of_commit)), length)
        columns[f"bytes_{kind}"] = _summed(of_commit, pc.fill_null(sizes, 0), length)
        # Null if one of the files has no number.
        columns[f"records_{kind}"] = _summed(of_commit, records.filter(rows), length)
        changes[of_commit[pc.fill_null(changing, False).to_numpy(zero_copy_only=False)]] = True
    latest = np.zeros(length, dtype=np.int64)
    np.maximum.at(latest, of_commit, pc.fill_null(removed, 0).to_numpy(zero_copy_only=False))
    columns["files_removed_at"] = pa.array(latest, mask=(latest == 0) | (latest > LAST_MILLIS)).cast(
        pa.timestamp("ms", "UTC")
    )
    return pa.table({**columns, "data_change": pa.array(changes)}).select(_SUMS.names)


def _summed(groups: np.ndarray, values: pa.Array, length: int) -> pa.Array:
    """Return the sum of each group's values; null if one of them is null."""
    sums = np.zeros(length, dtype=np.int64)
    np.add.at(sums, groups, pc.fill_null(values, 0).to_numpy(zero_copy_only=False))
    unknown = np.zeros(length, dtype=bool)
    unknown[groups[values.is_null().to_numpy(zero_copy_only=False)]] = True
    return pa.array(sums, mask=unknown)


def _first_actions(sources: Sequence[JsonSource], kind: str) -> dict[int | None, dict[str, Any]]:
    return {version: action for source in sources for version, action in source.first_actions(kind).items()}


def last_operation(store: Store, commits: Sequence[LogFile], operation: str, most: int) -> int | None:
    """Find the newest commit of an operation that no later RESTORE has undone.

    Each commit is read only up to its commitInfo.

    Args:
        store: The table's files.
        commits: The commits, oldest first.
        operation: The operation's name in commitInfo, such as "OPTIMIZE".
        most: How many commits to read, starting with the newest.

    Returns:
        Its position in `commits`; None if those commits have no such operation, or a RESTORE among them
        names a time instead of a version.

    Raises:
        CorruptLogError: A commit that was read is damaged.
    """
    kept = commits[-1].version or 0 if commits else 0
    newest = range(len(commits) - 1, max(len(commits) - most, 0) - 1, -1)
    chunks = (newest[start : start + _INFOS] for start in range(0, len(newest), _INFOS))
    infos = (store.at_once(lambda i: _commit_info(store, commits[i]), chunk) for chunk in chunks)
    for i, info in zip(newest, chain.from_iterable(infos), strict=True):
        if (commits[i].version or 0) > kept:
            continue
        if info.get("operation") == operation:
            return i
        if info.get("operation") == "RESTORE":
            # A number by Delta, text by delta-rs.
            version = str((_mapping(info.get("operationParameters")) or {}).get("version"))
            if not version.isdigit():
                return None
            kept = int(version)
    return None


def action_table(actions: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return one row per action, with the columns `ACTION_COLUMNS`."""
    rows = [
        (name, fields if isinstance(fields, dict) else {}, json.dumps({name: fields}, default=str))
        for action in actions
        for name, fields in action.items()
    ]
    columns: dict[str, list[Any]] = {
        "action": [name for name, _, _ in rows],
        "path": [fields.get("path") for _, fields, _ in rows],
        "size_bytes": [fields.get("size", fields.get("sizeInBytes")) for _, fields, _ in rows],
        "data_change": [fields.get("dataChange") for _, fields, _ in rows],
        "partition_values": [_mapping(fields.get("partitionValues")) for _, fields, _ in rows],
        "stats": [_stats(fields) for _, fields, _ in rows],
        "fields": [text for _, _, text in rows],
    }
    typed = {name: fitting(values, ACTION_COLUMNS.field(name).type) for name, values in columns.items()}
    typed["num_records"] = count_records(typed["stats"])
    return pa.table([typed[name] for name in ACTION_COLUMNS.names], ACTION_COLUMNS)


def _commit_info(store: Store, file: LogFile) -> dict[str, Any]:
    with reading(file.name):
        # Delta writes commitInfo first, other writers anywhere.
        actions = (json.loads(line) for line in store.lines(file.place) if b'"commitInfo"' in line)
        infos = (action.get("commitInfo") for action in actions)
        return next((info for info in infos if isinstance(info, dict)), {})


def _stats(fields: Mapping[str, Any]) -> str | None:
    """Return the stats of a file as JSON text, whether the log has them as text or parsed."""
    parsed = fields.get("stats_parsed")
    stats: str | None = fields.get("stats")
    return json.dumps(parsed, default=str) if stats is None and parsed is not None else stats


def _mapping(values: Any) -> dict[str, Any] | None:
    return values if isinstance(values, dict) else None


def _texts(values: Any) -> dict[str, str | None] | None:
    """Convert values as DESCRIBE HISTORY does: text and null unchanged, anything else to JSON."""
    if not isinstance(values, dict):
        return None
    return {
        key: value if value is None or isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }
