"""How well data skipping by a column works: the minimum and maximum of each file, from its stats."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.errors import DAMAGE, InvalidArgumentError
from compaction_kit.log.lines import parse_lines
from compaction_kit.records import Record
from compaction_kit.text import format_factor

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Above this value, the difference of two numbers may be infinite.
_LARGEST = 1e300


@dataclass(frozen=True)
class Bounds:
    """Minimum and maximum of one column in each file, as ranks: integers in the order of the values.

    `known` says whether a file has bounds (a file with only nulls has none); `lows` and `highs` are the ranks
    of its minimum and maximum (int64, -1 without bounds), as positions in `values`, the distinct values.
    """

    known: np.ndarray
    lows: np.ndarray
    highs: np.ndarray
    values: np.ndarray


def read_bounds(column: str, column_type: Any, physical_name: str, stats: pa.Array) -> Bounds:
    """Read the bounds of a column of a Delta type from the stats of each file (JSON text, or null).

    Raises:
        InvalidArgumentError: Stats have no bounds for that type.
    """
    name = column_type if isinstance(column_type, str) else str(column_type["type"])
    parsers = _PARSERS.get(name.partition("(")[0])
    if parsers is None:
        raise InvalidArgumentError(
            f'column="{column}" has the type {name}, for which stats have no bounds: '
            "choose a column of numbers, texts, dates or times."
        )
    # About 4 MiB of text at once.
    step = (len(stats) << 22) // (stats.nbytes + 1) + 1
    starts = range(0, max(len(stats), 1), step)
    found = (_pairs(stats.slice(start, step).to_pylist(), physical_name, *parsers) for start in starts)
    known, pairs = map(np.concatenate, zip(*found, strict=True))
    distinct, ranks = np.unique(pairs, return_inverse=True)
    lows, highs = np.full((2, len(stats)), -1)
    lows[known], highs[known] = ranks.reshape(-1, 2).T
    return Bounds(known, lows, highs, distinct.astype(object))


def _pairs(texts: list[str | None], name: str, parse: Any, kind: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return which texts have both bounds of a column, and the bounds in rows of two."""
    with suppress(*DAMAGE):
        schema = pa.schema(dict.fromkeys(("minValues", "maxValues"), pa.struct({name: kind})))
        rows, _ = parse_lines("\n".join(text or "{}" for text in texts).encode(), schema)
        known = np.logical_and(*(side.is_valid().to_numpy() for side in rows.flatten().columns))
        pairs = np.stack([side.to_numpy() for side in rows.flatten().drop_null().columns], 1)
        if len(known) == len(texts) and (pairs == pairs).all():
            return known, pairs.astype(np.int64) if pairs.dtype.kind == "M" else pairs
    known, values = np.zeros(len(texts), dtype=bool), []
    for row, text in enumerate(texts):
        with suppress(*DAMAGE):
            found = json.loads(text or "{}")
            values.append((parse(found["minValues"][name]), parse(found["maxValues"][name])))
            known[row] = True
    # As objects: in a NumPy text array every element takes the memory of the longest.
    return known, np.array(values, dtype=object).reshape(-1, 2)


def _number(value: Any) -> float:
    number = float(value)
    if number != number:
        raise ValueError(value)
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _microseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


# How stats write the values of each Delta type that has bounds, and as which type pyarrow parses them.
_PARSERS: dict[str, tuple[Callable[[Any], Any], pa.DataType]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (int, pa.int64())),
    # As floats, decimals compare by their first 15 digits.
    **dict.fromkeys(("float", "double", "decimal"), (_number, pa.float64())),
    **dict.fromkeys(("string", "date"), (_text, pa.string())),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), (_microseconds, pa.timestamp("us"))),
}


def place_values(bounds: Bounds, column_type: Any) -> tuple[np.ndarray, Callable[[float], str]]:
    """Return positions to draw the values of bounds: numbers and times unchanged, others one step apart.

    The second result is a function that formats the value at a position.
    """
    values, steps = bounds.values, np.arange(len(bounds.values), dtype=float)
    if not all(isinstance(value, int | float) and -_LARGEST < value < _LARGEST for value in values):
        return steps, lambda place: str(values[round(place)])
    if str(column_type).startswith("timestamp"):
        return values.astype(float), _minute
    is_whole = all(isinstance(value, int) for value in values)
    return values.astype(float), lambda place: f"{round(place):,}" if is_whole else f"{place:,.6g}"


def _minute(micros: float) -> str:
    # Bounds in UTC may be in the years 0 and 10000, which NumPy has and datetime hasn't.
    return str(np.datetime64(int(micros) // 60_000_000, "m")).replace("T", " ")


@dataclass(frozen=True, repr=False)
class Overlap(Record):
    """How many files a query for one value of a column has to read, according to their stats.

    The values are the minima and maxima of the files; `depths` holds, for each, how many files a query for it
    reads: files whose range contains it, and the `num_unknown` files without bounds in their stats.
    """

    column: str
    num_files: int
    num_unknown: int
    depths: np.ndarray

    @property
    def mean(self) -> float:
        """Files read for a value, on average; all files without any bounds."""
        return float(self.depths.mean()) if len(self.depths) else float(self.num_unknown)

    @property
    def max(self) -> int:
        """Files read for the value that needs the most."""
        return int(self.depths.max(initial=self.num_unknown))

    def facts(self) -> dict[str, str]:
        """Return the overlap as readable text: names and values."""
        median = np.median(self.depths) if len(self.depths) else self.num_unknown
        return {
            "files": f"{self.num_files:,}, {self.num_unknown:,} of them without bounds",
            f"files per value of {self.column}": f"{format_factor(self.mean)} on average, "
            f"{median:,.0f} in the median, {self.max:,} at most",
        }


def measure_overlap(column: str, bounds: Bounds) -> Overlap:
    """Count the files that a query for each file's minimum and maximum reads."""
    lows, highs = bounds.lows[bounds.known], bounds.highs[bounds.known]
    points = np.concatenate([lows, highs])
    num_files, num_unknown = len(bounds.known), len(bounds.known) - len(lows)
    depths = files_opened(lows, highs, points, points) + num_unknown
    return Overlap(column, num_files, num_unknown, depths)


def files_opened(lows: np.ndarray, highs: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Count the files, from `lows` to `highs`, that overlap each range, from `begins` to `ends`."""
    begun = np.searchsorted(np.sort(lows), ends, side="right")
    over = np.searchsorted(np.sort(highs), begins, side="left")
    opened: np.ndarray = begun - over
    return opened
