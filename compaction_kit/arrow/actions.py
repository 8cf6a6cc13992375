"""The file actions of rewritten bins: adds with the merged stats of their inputs, and removes.

Wrong stats lose rows silently, for readers skip files by them. What isn't known of every file is
left out: Delta then skips nothing by it (protocol, "Per-file Statistics").
"""

import itertools
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from compaction_kit.arrow.job import Bin, PartitionValues, partition_values
from compaction_kit.arrow.worker import Rewritten
from compaction_kit.files import Files
from compaction_kit.log.paths import log_path
from compaction_kit.log.protocol import Metadata
from compaction_kit.storage import Store

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


class MergedStats(NamedTuple):
    """The stats of some files' rows together.

    Attributes:
        num_rows: The number of rows by the files' stats; None if one has none.
        text: JSON: numRecords; nullCount, minValues and maxValues of the columns of which every file
            has them.
    """

    num_rows: int | None
    text: str

    def of(self, num_rows: int) -> str:
        """The stats of so many rows that were written: stats that count others are not to be trusted."""
        return self.text if num_rows == self.num_rows else json.dumps({"numRecords": num_rows})


@dataclass(frozen=True)
class Replaced:
    """The part of a bin's actions that its inputs determine.

    Attributes:
        partition_values: Of its files.
        stats: Of its rows.
        sizes: The bytes of each file.
        removes: The remove action of each file, in JSON; thousands of objects would keep Python's
            garbage collector busy.
    """

    partition_values: PartitionValues
    stats: MergedStats
    sizes: list[int]
    removes: list[str]


def replace_files(source: Files, bins: Sequence[Bin]) -> list[Replaced]:
    """Make the actions of some bins' inputs.

    They are removed as of now, before they are rewritten, as OPTIMIZE has it (OptimizeExecutor,
    operationTimestamp).
    """
    schema = physical_schema(source.snapshot.metadata)
    positions = np.concatenate([bin_.positions for bin_ in bins])
    stats = source.snapshot.stats.take(pa.array(source.in_snapshot(positions))).to_pylist()
    paths, sizes = source.paths(positions).to_pylist(), source.sizes[positions].tolist()
    values = partition_values(source, positions)
    now = int(time.time() * 1000)
    ends = np.cumsum([len(bin_.positions) for bin_ in bins]).tolist()
    found = []
    for start, end in itertools.pairwise([0, *ends]):
        files = zip(paths[start:end], values[start:end], sizes[start:end], strict=True)
        removes = [_remove(*file, now) for file in files]
        merged = merge_stats(stats[start:end], schema)
        found.append(Replaced(values[start], merged, sizes[start:end], removes))
    return found


def _remove(path: str, values: PartitionValues, size_bytes: int, now: int) -> str:
    remove = {
        "path": path,
        "deletionTimestamp": now,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": values,
        "size": size_bytes,
    }
    return json.dumps({"remove": remove})


def file_actions(store: Store, replaced: Iterable[Replaced], outputs: Iterable[Rewritten]) -> list[str]:
    """The add of each bin's output, if that has rows, and the removes of its inputs, in JSON."""
    actions: list[str] = []
    for files, output in zip(replaced, outputs, strict=True):
        if output.num_rows:
            add = {
                "path": log_path(output.path.removeprefix(f"{store.root}/")),
                "partitionValues": files.partition_values,
                "size": output.size_bytes,
                "modificationTime": output.modification_time,
                "dataChange": False,
                "stats": files.stats.of(output.num_rows),
            }
            actions.append(json.dumps({"add": add}))
        actions += files.removes
    return actions


def commit_metrics(replaced: Iterable[Replaced], outputs: Iterable[Rewritten]) -> dict[str, int]:
    """OPTIMIZE's metrics in the history (OptimizeExecutor, createMetrics); one output has rows at least."""
    added = sorted(output.size_bytes for output in outputs if output.num_rows)
    removed = [size_bytes for files in replaced for size_bytes in files.sizes]
    count = len(added)
    return {
        "numAddedFiles": count,
        "numRemovedFiles": len(removed),
        "numAddedBytes": sum(added),
        "numRemovedBytes": sum(removed),
        "minFileSize": added[0],
        "p25FileSize": added[count // 4],
        "p50FileSize": added[count // 2],
        "p75FileSize": added[count * 3 // 4],
        "maxFileSize": added[-1],
        "numDeletionVectorsRemoved": 0,
    }


def merge_stats(stats: Sequence[str | None], schema: Mapping[str, Any]) -> MergedStats:
    """Merge the stats of files.

    Args:
        stats: The stats of each file as JSON text, null for none.
        schema: The table's schema as the log has it, by physical names (see `physical_schema`).
    """
    parts = [part for part in map(_parsed, stats) if part is not None]
    if len(parts) < len(stats) or not all(part.get("tightBounds", True) for part in parts):
        return MergedStats(None, "")
    num_rows = sum(part["numRecords"] for part in parts)
    merged: dict[str, Any] = {"numRecords": num_rows}
    if all(isinstance(part.get("nullCount"), dict) for part in parts):
        merged["nullCount"] = _counts([part["nullCount"] for part in parts], schema)
    for name, pick in (("minValues", min), ("maxValues", max)):
        if all(isinstance(part.get(name), dict) for part in parts):
            files = [(part[name], part.get("nullCount"), part["numRecords"]) for part in parts]
            merged[name] = _bounds(files, schema, pick)
    # JSON has no decimals: they are written as text, with all their digits, and the quotes taken away.
    text = json.dumps(merged, default=lambda number: f"{_MARK}{number}")
    return MergedStats(num_rows, _MARKED.sub(r"\1", text))


def physical_schema(metadata: Metadata) -> dict[str, Any]:
    """A table's schema by the names that data files and stats have."""

    def physical(schema: Mapping[str, Any]) -> dict[str, Any]:
        kinds = [field["type"] for field in schema["fields"]]
        types = [physical(kind) if _is_struct(kind) else kind for kind in kinds]
        names = map(metadata.physical_name, schema["fields"])
        fields = [{"name": name, "type": kind} for name, kind in zip(names, types, strict=True)]
        return {"type": "struct", "fields": fields}

    return physical(metadata.schema)


def _parsed(text: str | None) -> dict[str, Any] | None:
    """The stats with numbers as they are written, or None if there are none, or none that count."""
    try:
        stats = _DECODER.decode(text) if text else None
    except (ValueError, ArithmeticError, RecursionError):
        return None
    if not isinstance(stats, dict) or not isinstance(stats.get("numRecords"), int):
        return None
    return stats


def _counts(parts: Sequence[Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The sums for each column that all parts count."""
    merged: dict[str, Any] = {}
    for name, kind in _columns(schema):
        values = [part.get(name) for part in parts]
        if _is_struct(kind):
            if all(isinstance(value, dict) for value in values):
                merged[name] = _counts(values, kind)
        elif all(isinstance(value, int) for value in values):
            merged[name] = sum(values)
    return merged


def _bounds(
    files: Sequence[tuple[Any, Any, int]], schema: Mapping[str, Any], pick: Callable[..., Any]
) -> dict[str, Any]:
    """The least or greatest of each column of which all files have one, or nothing but nulls.

    Args:
        files: The bounds, the null counts and the number of records of each file.
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


def _columns(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(field["name"], field["type"]) for field in schema["fields"]]


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, dict) and kind["type"] == "struct"


def _extreme(values: list[Any], kind: Any, pick: Callable[..., Any]) -> Any:
    """The least or greatest value, as it is written; None if it isn't sure."""
    try:
        keys = [_sort_key(value, kind) for value in values]
    except (ValueError, TypeError, ArithmeticError):
        return None
    return values[keys.index(pick(keys))]


def _sort_key(value: Any, kind: Any) -> Any:
    """A value in stats so that it compares as the column's values do; raises if it isn't sure how."""
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
