"""What each commit did, in sums and action by action."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.names import LOG_FOLDER, LogFile
from compaction_kit.log.stats import count_records
from compaction_kit.log.text import commit_actions, damaged

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
        ("isolation_level", pa.string()),
        ("metrics", _TEXT_MAP),
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


def commit_row(table: Path, file: LogFile) -> dict[str, Any]:
    """What one commit did: a row of `COMMIT_COLUMNS`."""
    actions = commit_actions(table, file)
    row: dict[str, Any] = {"version": file.version, "timestamp": file.modification_time}
    for name, kind in _KINDS.items():
        fields = [action[name] for action in actions if name in action]
        counts = count_records(pa.array([one.get("stats") for one in fields], pa.string())).to_pylist()
        row[f"num_{kind}"] = len(fields)
        row[f"bytes_{kind}"] = sum(one.get("size") or 0 for one in fields)
        # One file that doesn't say leaves the sum unknown.
        row[f"records_{kind}"] = None if None in counts else sum(counts)
    files = [action[name] for action in actions for name in _KINDS if name in action]
    row["data_change"] = any(one.get("dataChange") for one in files)
    info: dict[str, Any] = next((one["commitInfo"] for one in actions if one.get("commitInfo")), {})
    return row | {
        "timestamp": info.get("inCommitTimestamp", file.modification_time),
        "operation": info.get("operation"),
        "parameters": _texts(info.get("operationParameters")),
        "isolation_level": info.get("isolationLevel"),
        "metrics": _texts(info.get("operationMetrics")),
    }


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


def _texts(values: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Values as Delta's history shows them: text as it is, anything else as JSON."""
    if values is None:
        return None
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
