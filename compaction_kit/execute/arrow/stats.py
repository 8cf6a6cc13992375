"""The stats of a bin's output, merged from those of its files.

Wrong stats lose rows silently, for readers skip files by them. What isn't known of every file is
left out: Delta then skips nothing by it (protocol, "Per-file Statistics").
"""

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from compaction_kit.log.metadata import Metadata

_INTEGERS = ("byte", "short", "integer", "long")
_FLOATS = ("float", "double")
# To Spark NaN is greater than any number.
_WORDS = {
    "-Infinity": (0, Decimal("-Infinity")),
    "Infinity": (0, Decimal("Infinity")),
    "NaN": (1, Decimal(0)),
}
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Stands for a number while JSON is written; no text in stats can hold it by chance.
_MARK = f"number {uuid.uuid4()} "
_MARKED = re.compile(f'"{_MARK}([^"]*)"')

# Made once: json.loads makes one for each text.
_DECODER = json.JSONDecoder(parse_float=Decimal)

# A type as schemas have it: a name, or a struct's object with its fields.
Kind = Any


class MergedStats(NamedTuple):
    """The stats of some files' rows together.

    Attributes:
        num_rows: How many rows the files have by their stats; None if one doesn't say.
        text: JSON: numRecords; nullCount, minValues and maxValues of the columns of which every file
            says them.
    """

    num_rows: int | None
    text: str

    def of(self, num_rows: int) -> str:
        """The stats of so many rows that were written: those that count others are not to be trusted."""
        return self.text if num_rows == self.num_rows else json.dumps({"numRecords": num_rows})


def merge_stats(stats: Sequence[str | None], schema: Mapping[str, Any]) -> MergedStats:
    """The stats of all rows together.

    Args:
        stats: The stats of each file as JSON text, null for none.
        schema: The table's schema as the log has it, by physical names (see `physical_schema`).
    """
    parts = [one for one in map(_parsed, stats) if one is not None]
    if len(parts) < len(stats) or not all(one.get("tightBounds", True) for one in parts):
        return MergedStats(None, "")
    num_rows = sum(one["numRecords"] for one in parts)
    merged: dict[str, Any] = {"numRecords": num_rows}
    if all(isinstance(one.get("nullCount"), dict) for one in parts):
        merged["nullCount"] = _counts([one["nullCount"] for one in parts], schema)
    for name, pick in (("minValues", min), ("maxValues", max)):
        if all(isinstance(one.get(name), dict) for one in parts):
            files = [(one[name], one.get("nullCount"), one["numRecords"]) for one in parts]
            merged[name] = _bounds(files, schema, pick)
    return MergedStats(num_rows, _dumped(merged))


def _counts(parts: Sequence[Mapping[str, Any]], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The sums for each column that all parts count."""
    merged: dict[str, Any] = {}
    for name, kind in _columns(schema):
        values = [part.get(name) for part in parts]
        if _is_struct(kind):
            if all(isinstance(value, dict) for value in values):
                merged[name] = _counts(values, kind)  # type: ignore[arg-type]
        elif all(isinstance(value, int) for value in values):
            merged[name] = sum(values)  # type: ignore[arg-type]
    return merged


def _bounds(
    files: Sequence[tuple[Any, Any, int]], schema: Mapping[str, Any], pick: Callable[..., Any]
) -> dict[str, Any]:
    """The least or greatest of each column of which all files have one, or nothing but nulls.

    Args:
        files: Of each file its bounds, its null counts and its records.
        schema: Of the columns.
        pick: min or max.
    """
    merged: dict[str, Any] = {}
    for name, kind in _columns(schema):
        found = []
        for bounds, nulls, records in files:
            null_count = nulls.get(name) if isinstance(nulls, dict) else None
            if bounds.get(name) is not None or null_count != records:
                found.append((bounds.get(name), null_count, records))
        if _is_struct(kind):
            if found and all(isinstance(bounds, dict) for bounds, _, _ in found):
                merged[name] = _bounds(found, kind, pick)
        elif found and all(bound is not None for bound, _, _ in found):
            value = _extreme([bound for bound, _, _ in found], kind, pick)
            if value is not None:
                merged[name] = value
    return merged


def _columns(schema: Mapping[str, Any]) -> list[tuple[str, Kind]]:
    return [(field["name"], field["type"]) for field in schema["fields"]]


def _is_struct(kind: Kind) -> bool:
    return isinstance(kind, dict) and kind["type"] == "struct"


def _extreme(values: list[Any], kind: Kind, pick: Callable[..., Any]) -> Any:
    """The value whose meaning is the least or greatest, as it is written; None if it isn't sure."""
    try:
        meanings = [_meaning(value, kind) for value in values]
    except (ValueError, TypeError, ArithmeticError):
        return None
    return values[meanings.index(pick(meanings))]


def _meaning(value: Any, kind: Kind) -> Any:
    """A value so that it compares as the column's values do; raises if it isn't sure how."""
    is_number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    if not isinstance(kind, str):
        raise TypeError(kind)
    if kind in _FLOATS and value in _WORDS:
        return _WORDS[value]
    if kind in _FLOATS and is_number:
        return 0, Decimal(value)
    if kind in _INTEGERS and is_number and not isinstance(value, Decimal):
        return value
    if kind.startswith("decimal") and is_number:
        return value
    if kind == "string" and isinstance(value, str):
        return value.encode()
    if kind == "date" and isinstance(value, str) and _DATE.fullmatch(value):
        return value
    if kind in ("timestamp", "timestamp_ntz") and isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if (moment.tzinfo is None) != (kind == "timestamp_ntz"):
            # Without a zone it is in the session's, whichever that was.
            raise TypeError(value)
        return moment
    raise TypeError(value)


def _parsed(text: str | None) -> dict[str, Any] | None:
    """The stats with numbers as they are written, or None if there are none, or none that count."""
    try:
        stats = _DECODER.decode(text) if text else None
    except (ValueError, ArithmeticError, RecursionError):
        return None
    if not isinstance(stats, dict) or not isinstance(stats.get("numRecords"), int):
        return None
    return stats


def _dumped(stats: Mapping[str, Any]) -> str:
    """JSON text in which decimals have all their digits."""
    text = json.dumps(stats, default=lambda number: f"{_MARK}{number}")
    return _MARKED.sub(r"\1", text)


def physical_schema(metadata: Metadata) -> dict[str, Any]:
    """A table's schema by the names that data files and stats have."""
    return _physical(metadata.schema, metadata)


def _physical(schema: Mapping[str, Any], metadata: Metadata) -> dict[str, Any]:
    fields = [
        {
            "name": metadata.physical_name(field),
            "type": _physical(field["type"], metadata) if _is_struct(field["type"]) else field["type"],
        }
        for field in schema["fields"]
    ]
    return {"type": "struct", "fields": fields}
