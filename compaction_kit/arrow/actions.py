"""The file actions of rewritten bins: adds with the merged stats of their inputs, and removes.

Wrong stats lose rows silently, because readers skip files by them. What isn't known of every file is left
out: Delta then skips nothing by it (protocol, "Per-file Statistics").
"""

import contextlib
import itertools
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from compaction_kit.arrow.job import Bin, PartitionValues, partition_values
from compaction_kit.arrow.worker import RewriteOutput
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
    """The stats of some files' rows together, as JSON; `num_rows` is None if one of them has no stats."""

    num_rows: int | None
    text: str

    def of(self, num_rows: int) -> str:
        """Return the stats of an output: of another number of rows, they aren't to be trusted."""
        return self.text if num_rows == self.num_rows else json.dumps({"numRecords": num_rows})


@dataclass(frozen=True)
class Replaced:
    """The part of a bin's actions that its inputs determine: of its output, and `removes` in JSON.

    Thousands of objects instead of JSON would keep Python's garbage collector busy.
    """

    partition_values: PartitionValues
    stats: MergedStats
    sizes: list[int]
    removes: list[str]


def replace_files(source: Files, bins: Sequence[Bin]) -> list[Replaced]:
    """Make the actions of some bins' inputs.

    They are removed as of now, before they are rewritten, as OPTIMIZE does (OptimizeExecutor,
    operationTimestamp).
    """
    schema = physical_schema(source.snapshot.metadata)
    positions = np.concatenate([bin_.positions for bin_ in bins])
    stats = source.snapshot.stats.take(pa.array(source.in_snapshot(positions))).to_pylist()
    paths, sizes = source.paths(positions).to_pylist(), source.sizes[positions].tolist()
    values = partition_values(source, positions)
    same = {"deletionTimestamp": int(time.time() * 1000), "dataChange": False, "extendedFileMetadata": True}
    ends = np.cumsum([len(bin_.positions) for bin_ in bins]).tolist()
    found = []
    for start, end in itertools.pairwise([0, *ends]):
        removes = [
            json.dumps({"remove": {"path": path, **same, "partitionValues": row, "size": size_bytes}})
            for path, row, size_bytes in zip(
                paths[start:end], values[start:end], sizes[start:end], strict=True
            )
        ]
        merged = merge_stats(stats[start:end], schema)
        found.append(Replaced(values[start], merged, sizes[start:end], removes))
    return found


def file_actions(store: Store, replaced: Iterable[Replaced], outputs: Iterable[RewriteOutput]) -> list[str]:
    """Return the add of each bin's output, if that has rows, and the removes of its inputs, in JSON."""
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


def commit_metrics(replaced: Iterable[Replaced], outputs: Iterable[RewriteOutput]) -> dict[str, int]:
    """Return OPTIMIZE's metrics for the history (OptimizeExecutor, createMetrics)."""
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
    """Merge the stats of files, given as JSON; `schema` is the table's, see `physical_schema`.

    The result has numRecords, and nullCount, minValues and maxValues of the columns of which every file has
    them.
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
    """Return a table's schema with the names that data files and stats have."""

    def physical(kind: Any) -> Any:
        if not _is_struct(kind):
            return kind
        names = map(metadata.physical_name, kind["fields"])
        fields = zip(names, (physical(field["type"]) for field in kind["fields"]), strict=True)
        return {"type": "struct", "fields": [{"name": name, "type": inner} for name, inner in fields]}

    found: dict[str, Any] = physical(metadata.schema)
    return found


def _parsed(text: str | None) -> dict[str, Any] | None:
    """Parse stats with exact decimals; None without numRecords."""
    try:
        stats = _DECODER.decode(text) if text else None
    except (ValueError, ArithmeticError, RecursionError):
        return None
    return stats if isinstance(stats, dict) and isinstance(stats.get("numRecords"), int) else None


def _counts(parts: Sequence[Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Add up the counts of each column that all parts count."""
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
    """Return the min or max of each column of which all files have one, or nothing but nulls.

    `files` are the bounds, the null counts and the number of records of each file.
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
            # Left out if it isn't sure how values compare.
            with contextlib.suppress(ValueError, TypeError, ArithmeticError):
                merged[name] = pick((bound for bound, _, _ in found), key=partial(_sort_key, kind))
    return merged


def _columns(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(field["name"], field["type"]) for field in schema["fields"]]


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, dict) and kind["type"] == "struct"


def _sort_key(kind: Any, value: Any) -> Any:
    """Return a value in stats so that it compares as the column's values do; raises if it isn't sure how."""
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
