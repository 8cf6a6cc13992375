"""What each commit did, in sums and action by action."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.actions import column
from compaction_kit.log.json_source import JsonSource
from compaction_kit.log.names import LOG_FOLDER, LogFile
from compaction_kit.log.stats import count_records
from compaction_kit.log.text import damaged

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
_KINDS = {"add": "added", "remove": "removed"}
_SUMMED = ("size_bytes", "data_change", "deletion_timestamp")
_SUMS = pa.schema([*COMMIT_COLUMNS][4:12])


def commit_ledger(files: Sequence[LogFile], sources: Sequence[JsonSource]) -> pa.Table:
    """What each commit did: the columns are `COMMIT_COLUMNS`.

    Args:
        files: The commits, oldest first.
        sources: Their lines, read.
    """
    sums = pa.concat_tables([_SUMS.empty_table(), *(_sums(source) for source in sources)])
    infos = _told(sources, "commitInfo")
    schemas = _told(sources, "metaData")
    rows = [
        {
            **sum_,
            "version": file.version,
            "timestamp": info.get("inCommitTimestamp", file.modification_time),
            "operation": info.get("operation"),
            "parameters": _texts(info.get("operationParameters")),
            "isolation_level": info.get("isolationLevel"),
            "metrics": _texts(info.get("operationMetrics")),
            "user_metadata": info.get("userMetadata"),
            "engine": info.get("engineInfo"),
            "read_version": info.get("readVersion"),
            "is_blind_append": info.get("isBlindAppend"),
            "schema": schemas.get(file.version, {}).get("schemaString"),
        }
        for file, sum_ in zip(files, sums.to_pylist(), strict=True)
        for info in [infos.get(file.version, {})]
    ]
    return pa.Table.from_pylist(rows, schema=COMMIT_COLUMNS)


def _sums(source: JsonSource) -> pa.Table:
    """What the file actions of each commit of a source come to."""
    raw = source.rows(_SUMMED)
    commits, length = source.commit_numbers(), source.num_commits
    columns: dict[str, pa.Array] = {}
    changes = np.zeros(length, dtype=bool)
    for name, kind in _KINDS.items():
        rows = raw[name].combine_chunks().is_valid()
        of_commit = commits[rows.to_numpy(zero_copy_only=False)]
        sizes, changing, removed = (column(raw, name, field).filter(rows) for field in _SUMMED)
        records = source.num_records() if name == "add" else source.num_removed_records()
        columns[f"num_{kind}"] = _summed(of_commit, pa.repeat(1, len(of_commit)), length)
        columns[f"bytes_{kind}"] = _summed(of_commit, pc.fill_null(sizes, 0), length)
        # One file that doesn't say leaves the sum unknown.
        columns[f"records_{kind}"] = _summed(of_commit, records.filter(rows), length)
        changes[of_commit[pc.fill_null(changing, False).to_numpy(zero_copy_only=False)]] = True
    latest = np.zeros(length, dtype=np.int64)
    np.maximum.at(latest, of_commit, pc.fill_null(removed, 0).to_numpy(zero_copy_only=False))
    columns["files_removed_at"] = pa.array(latest, mask=latest == 0).cast(pa.timestamp("ms", "UTC"))
    return pa.table({**columns, "data_change": pa.array(changes)}).select(_SUMS.names)


def _summed(groups: np.ndarray, values: pa.Array, length: int) -> pa.Array:
    """The sum of the values of each group; null where one of them is."""
    sums = np.zeros(length, dtype=np.int64)
    np.add.at(sums, groups, pc.fill_null(values, 0).to_numpy(zero_copy_only=False))
    unknown = np.zeros(length, dtype=bool)
    unknown[groups[values.is_null().to_numpy(zero_copy_only=False)]] = True
    return pa.array(sums, mask=unknown)


def _told(sources: Sequence[JsonSource], kind: str) -> dict[int | None, dict[str, Any]]:
    return {version: action for source in sources for version, action in source.told(kind).items()}


def last_operation(table: Path, commits: Sequence[LogFile], operation: str, most: int) -> int | None:
    """Find the newest commit of an operation; of each commit no more is read than tells its operation.

    Args:
        table: The table's folder.
        commits: The commits, oldest first.
        operation: Such as "OPTIMIZE".
        most: How many commits to look into, from the newest on.

    Returns:
        Its position in `commits`; None if there is none among those.

    Raises:
        CorruptLogError: A commit on the way is damaged.
    """
    newest_first = range(len(commits) - 1, max(len(commits) - most, 0) - 1, -1)
    return next((i for i in newest_first if _operation(table, commits[i]) == operation), None)


def action_table(actions: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Actions as the log writes them, a row an action; the columns are `ACTION_COLUMNS`."""
    rows = [
        {
            "action": name,
            "path": fields.get("path"),
            "size_bytes": fields.get("size", fields.get("sizeInBytes")),
            "data_change": fields.get("dataChange"),
            "partition_values": fields.get("partitionValues"),
            "stats": _stats(fields),
            "fields": json.dumps({name: fields}, default=str),
        }
        for action in actions
        for name, fields in action.items()
    ]
    table = pa.Table.from_pylist(rows, schema=ACTION_COLUMNS)
    position = table.schema.get_field_index("num_records")
    counts = count_records(table["stats"].combine_chunks())
    return table.set_column(position, ACTION_COLUMNS.field(position), counts)


def _operation(table: Path, file: LogFile) -> str | None:
    try:
        with (table / LOG_FOLDER / file.name).open("rb") as lines:
            # Delta writes it first, other writers anywhere.
            actions = (json.loads(line) for line in lines if b'"commitInfo"' in line)
            info: dict[str, Any] = next(
                (action["commitInfo"] for action in actions if action.get("commitInfo")), {}
            )
            return info.get("operation")
    except OSError as error:
        raise CorruptLogError(f"The log file {file.name} can't be read: {error.strerror}.") from error
    except (ValueError, AttributeError) as error:
        raise damaged(file, error) from error


def _stats(fields: Mapping[str, Any]) -> str | None:
    """The stats of a file as JSON text, whichever way the log has them."""
    parsed = fields.get("stats_parsed")
    stats: str | None = fields.get("stats")
    return json.dumps(parsed, default=str) if stats is None and parsed is not None else stats


def _texts(values: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    """Values as Delta's history shows them: text and null as they are, anything else as JSON."""
    if values is None:
        return None
    return {
        key: value if value is None or isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }
