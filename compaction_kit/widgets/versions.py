"""What History writes of each version: its row in the list, a sentence, and the actions of its commit."""

from collections.abc import Callable
from datetime import tzinfo
from typing import Any

import pyarrow as pa

from compaction_kit.text import Html, element, format_count, format_size, shortened, visible
from compaction_kit.times import in_zone, millis, session_zone, show_time

COLUMNS = ("version", "time", "operation", "files ±", "bytes ±", "rows ±", "content")
CONTENT = (
    "Content, compared with the version before unless another is named: proved by a fingerprint of the rows, "
    "identical files, row counts agree, or unknown, if a commit claims to keep the rows and nothing shows it."
)
_MOST_ACTIONS, _LONGEST = 100, 400
_CAN = {
    "yes": "can be read",
    "blocked": "is refused by Delta, because it is older than the table keeps removed files",
    "unsupported": "is refused by Delta, because it doesn't support a change of a column's type",
    "missing files": "can't be read any more: files that it needs are gone",
    "log gone": "can't be read any more: its part of the log is gone",
}


def version_rows(versions: pa.Table) -> list[list[list[Any]]]:
    """Return the cells of the list, newest version first: of each its text and what it is sorted by."""
    zone = session_zone()
    return [_cells(row, zone) for row in reversed(versions.to_pylist())]


def _cells(row: dict[str, Any], zone: tzinfo | None) -> list[list[Any]]:
    version, time, change = row["version"], row["timestamp"], row["records_change"]
    operation, content = visible(row["operation"] or ""), _content(row)
    when = time and show_time(in_zone(time, zone).replace(tzinfo=None), "seconds")
    other = row["same_content_as"] if content == row["same_content_by"] else None
    is_other = other is not None and other != version - 1
    return [
        [str(version), version],
        [when or "", time and millis(time)],
        [operation, operation or None],
        _change(row["num_added"], row["num_removed"], "{:,}".format),
        _change(row["bytes_added"], row["bytes_removed"], format_size),
        ["" if change is None else f"{change:+,}".replace("-", "−") if change else "0", change],
        [f"{content}, as {other}" if is_other else content, content or None],
    ]


def _change(added: int | None, removed: int | None, show: Callable[[int], str]) -> list[Any]:
    if added is None or removed is None:
        return ["", None]
    signed = [f"{sign}{show(number)}" for sign, number in (("+", added), ("−", removed)) if number]
    return [" ".join(signed) or "0", added - removed]


def _content(row: dict[str, Any]) -> str:
    """Return how it is known that a commit kept the content, or whether it changed it."""
    if row["same_content_as"] is not None and row["same_content_as"] < row["version"]:
        return str(row["same_content_by"])
    if row["num_added"] is None:
        return ""
    has_files = row["num_added"] or row["num_removed"]
    return "unknown" if has_files and not row["data_change"] and not row["records_change"] else "changed"


def version_sentence(versions: pa.Table, version: int) -> str:
    """Say when a version was committed, whether it can be read, until when, and what has the same content."""
    position = versions["version"].index(pa.scalar(version, pa.int64())).as_py()
    (row,), zone = versions.slice(position, 1).to_pylist(), session_zone()
    when = f" of {show_time(in_zone(row['timestamp'], zone), 'milliseconds')}" if row["timestamp"] else ""
    operation, can = row["operation"] or "no commit", _CAN[row["readable"]]
    lines = [f"Version {row['version']}{when}, {operation}: it {can}."]
    if row["readable_until"]:
        until = show_time(in_zone(row["readable_until"], zone))
        lines.append(f"If VACUUM runs on schedule, it can be read until {until}.")
    if row["read_instead"] is not None:
        lines.append(f"By the log, its content can be read as version {row['read_instead']}.")
    elif row["same_content_as"] is not None:
        lines.append(f"Version {row['same_content_as']} has the same content: {row['same_content_by']}.")
    return "\n".join(lines)


def actions_text(actions: pa.Table) -> Html:
    """Write the actions of a commit as JSON, one a line; long lines and long commits are cut."""
    lines = [shortened(text, _LONGEST) for text in actions["fields"][:_MOST_ACTIONS].to_pylist()]
    more = len(actions) - len(lines)
    return element("pre", "\n".join([*lines, *([f"… and {format_count(more, 'more action')}"] if more else [])]))
