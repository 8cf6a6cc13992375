"""Statistics of rewritten files, merged from the inputs' statistics, or read from the outputs' footers.

Wrong statistics lose rows silently, because readers skip files by them. Statistics that aren't known for
every file are left out; Delta then skips no file by them (protocol, "Per-file Statistics").
"""

import contextlib
import json
import math
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.files import Files
from compaction_kit.log.lines import json_text
from compaction_kit.log.protocol import Metadata
from compaction_kit.storage import Store

# The physical names of a column and of the structs that it is in, outermost first, and its Delta type.
Leaf = tuple[tuple[str, ...], Any]

# A column's number of nulls, minimum and maximum; None for unknown ones.
LeafStats = tuple[int, Any, Any]

_FLOATS = ("float", "double")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Delta keeps the first characters of texts, and ends a maximum with a character greater than all others.
_PREFIX, _GREATEST = 32, "\U0010ffff"
# Made once, because json.loads would make a decoder for each text.
_DECODER = json.JSONDecoder(parse_float=Decimal)


class MergedStats(NamedTuple):
    """The merged stats of some files, as JSON; `num_rows` is None if one has no stats, or no tight ones.

    `indexed` are the columns that any file has stats for, or that Delta would write stats for.
    """

    num_rows: int | None
    text: str
    indexed: Sequence[Leaf] = ()

    def of(
        self, num_rows: int, read: Callable[[], Mapping[str, LeafStats]], with_nan: Container[str] = ()
    ) -> str:
        """Return the stats of an output; the merged stats are left out if its number of rows differs.

        `read` reads missing bounds from the output: all bounds then, or those of columns newer than some
        files. For Delta, NaN is the greatest value; some writers' bounds ignore it in the columns `with_nan`.
        """
        text = self.text if num_rows == self.num_rows else json.dumps({"numRecords": num_rows})
        found = _DECODER.decode(text)
        lacking = [leaf for leaf in self.indexed if _value(found, "nullCount", leaf[0]) is None]
        bounds = read() if lacking else {}
        for path, kind in lacking:
            null_count, low, high = bounds.get(".".join(path), (None, None, None))
            _put(found, "nullCount", path, null_count)
            _put(found, "minValues", path, _written(kind, low, is_max=False))
            _put(found, "maxValues", path, _written(kind, high, is_max=True))
        nan = [path for path, kind in self.indexed if kind in _FLOATS and ".".join(path) in with_nan]
        for path in nan:
            _put(found, "maxValues", path, "NaN")
        return json_text(found) if lacking or nan else text


def data_leaves(metadata: Metadata) -> list[Leaf]:
    """Return the columns that can have stats: no partition columns, and fields instead of structs."""

    def leaves(fields: Sequence[Mapping[str, Any]], path: tuple[str, ...]) -> Iterator[Leaf]:
        for field in fields:
            inner, kind = (*path, metadata.physical_name(field)), field["type"]
            if isinstance(kind, dict) and kind["type"] == "struct":
                yield from leaves(kind["fields"], inner)
            else:
                yield inner, kind

    names = metadata.partition_columns
    return list(leaves([field for field in metadata.schema["fields"] if field["name"] not in names], ()))


def indexed_leaves(metadata: Metadata) -> list[Leaf]:
    """Return the columns that Delta writes stats for: the first 32, or as many as a property says.

    Returns no column if a property names the columns (StatisticsCollection, DeltaStatsColumnSpec).
    """
    properties = metadata.configuration
    count = properties.get("delta.dataSkippingNumIndexedCols", "32")
    if "delta.dataSkippingStatsColumns" in properties or not re.fullmatch(r"-1|\d+", count):
        return []
    leaves = data_leaves(metadata)
    return leaves if count == "-1" else leaves[: int(count)]


def merge_stats(
    stats: Sequence[str | None],
    leaves: Sequence[Leaf],
    is_new: Callable[[tuple[str, ...], int], bool] = lambda path, file: False,
    by_default: Sequence[Leaf] = (),
) -> MergedStats:
    """Merge the stats of files, given as JSON; `leaves` are the table's columns.

    The result has numRecords, and nullCount, minValues and maxValues of the columns for which every file has
    them. `is_new` takes a column's path and the number of a file that lacks its stats while other files have
    them, and returns whether the column counts as null in all such files. `by_default` are the indexed
    columns if no file has stats of any column.
    """
    files = [file for file in map(_parsed, stats) if file is not None]
    if len(files) < len(stats):
        return MergedStats(None, "", by_default)
    counts, indexed = [file["numRecords"] for file in files], list[Leaf]()
    is_tight = all(file.get("tightBounds", True) for file in files)
    merged: dict[str, Any] = {"numRecords": sum(counts)}
    for path, kind in leaves:
        nulls = [_value(file, "nullCount", path) for file in files]
        if any(isinstance(count, int) for count in nulls):
            indexed.append((path, kind))
            if None in nulls and is_new(path, nulls.index(None)):
                nulls = [rows if one is None else one for one, rows in zip(nulls, counts, strict=True)]
        if all(isinstance(count, int) for count in nulls):
            _put(merged, "nullCount", path, sum(nulls))
        for name, pick in (("minValues", min), ("maxValues", max)):
            bounds = [_value(file, name, path) for file in files]
            if None in bounds:
                # Columns of nulls have no bounds.
                found = zip(bounds, nulls, counts, strict=True)
                bounds = [bound for bound, null, count in found if bound is not None or null != count]
            # Left out if a bound is missing, or if it isn't certain how the bounds compare.
            with contextlib.suppress(ValueError, TypeError, ArithmeticError):
                _put(merged, name, path, pick(bounds, key=partial(_sort_key, kind)))
    return MergedStats(sum(counts) if is_tight else None, json_text(merged), indexed or by_default)


def footer_stats(store: Store, place: str) -> dict[str, LeafStats]:
    """Return the bounds of a file's leaf columns, by their path in Parquet, from its footer."""
    with store.open(place) as file:
        metadata = pq.read_metadata(file)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    found = {
        path: _bounds([group.column(number).statistics for group in groups])
        for number, path in enumerate(paths)
        # A path occurs twice for a column a.b and the field b of a struct a.
        if paths.count(path) == 1
    }
    return {path: bounds for path, bounds in found.items() if bounds is not None}


def _bounds(chunks: list[pq.Statistics | None]) -> LeafStats | None:
    known = [chunk for chunk in chunks if chunk is not None and chunk.has_null_count]
    if len(known) < len(chunks):
        return None
    null_count = sum(chunk.null_count for chunk in known)
    full = [chunk for chunk in known if chunk.num_values]
    # Python can't represent some timestamps.
    with contextlib.suppress(ValueError, OverflowError, NotImplementedError):
        if full and all(chunk.has_min_max for chunk in full):
            return null_count, min(chunk.min for chunk in full), max(chunk.max for chunk in full)
    return null_count, None, None


def shows_years(source: Files, positions: np.ndarray, kinds: str, first: int) -> np.ndarray:
    """Return whether the stats of each file show that all its values are in the years `first` to 9999.

    `kinds` is a pattern for the beginnings of types.
    """
    of_kind = re.compile(f'"({kinds})')
    leaves = [leaf for leaf in data_leaves(source.snapshot.metadata) if of_kind.search(json.dumps(leaf[1]))]
    if not leaves:
        return np.ones(len(positions), bool)

    def is_within(value: Any) -> bool:
        # Years of more or less than four digits have a sign.
        year, dash, _ = str(value).partition("-")
        return bool(dash) and len(year) == 4 and year.isdecimal() and int(year) >= first

    def shows(text: str | None) -> bool:
        file = _parsed(text)
        return file is not None and all(
            _value(file, "nullCount", path) == file["numRecords"]
            or all(is_within(_value(file, name, path)) for name in ("minValues", "maxValues"))
            for path, _ in leaves
        )

    stats = source.snapshot.stats.take(pa.array(source.in_snapshot(positions))).to_pylist()
    return np.fromiter(map(shows, stats), bool, len(stats))


def _parsed(text: str | None) -> dict[str, Any] | None:
    """Parse stats with exact decimals; None without numRecords."""
    try:
        stats = _DECODER.decode(text) if text else None
    except (ValueError, ArithmeticError, RecursionError):
        return None
    return stats if isinstance(stats, dict) and isinstance(stats.get("numRecords"), int) else None


def _written(kind: Any, value: Any, is_max: bool) -> Any:
    """Return a bound as Delta writes it to stats (StatisticsCollection); None if it writes none."""
    match kind, value:
        case "boolean" | "binary", _:
            return None
        case "string", str() if len(value) > _PREFIX and is_max:
            return value[:_PREFIX] + _GREATEST if value[_PREFIX] < _GREATEST else None
        case "string", str():
            return value[:_PREFIX]
        case _, datetime():
            # Truncated to milliseconds, because readers add a millisecond to a maximum.
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case _, date():
            return value.isoformat()
        case _, float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
    return value


def _value(file: Mapping[str, Any], name: str, path: Sequence[str]) -> Any:
    found = file.get(name)
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _put(merged: dict[str, Any], name: str, path: Sequence[str], value: Any) -> None:
    """Set a column's value, if it is known."""
    if value is None:
        return
    inner = merged.setdefault(name, {})
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = value


def _sort_key(kind: Any, value: Any) -> Any:
    """Return a sort key that orders a bound like the column's values; raises if the order is uncertain."""
    match kind, value:
        case "string", str():
            return value.encode()
        case "date", str() if _DATE.fullmatch(value):
            return value
        case "timestamp" | "timestamp_ntz", str():
            moment = datetime.fromisoformat(value)
            # A timestamp without a zone is in the zone of its writer's session, which is unknown.
            if (moment.tzinfo is None) == (kind == "timestamp_ntz"):
                return moment
        case "byte" | "short" | "integer" | "long", int():
            return value
        case "float" | "double", int() | Decimal() | "Infinity" | "-Infinity":
            return 0, Decimal(value)
        case "float" | "double", "NaN":
            # For Spark, NaN is greater than any number.
            return 1, Decimal(0)
        case str(), int() | Decimal() if kind.startswith("decimal"):
            return value
    raise TypeError(value)
