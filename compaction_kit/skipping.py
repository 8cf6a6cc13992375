"""How well data skipping by a column works: the minimum and maximum of each file, from its stats."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.errors import DAMAGE, InvalidArgumentError
from compaction_kit.records import Record

# Delta types whose stats have bounds that can be compared, by how stats write their values.
_INTEGERS = ("byte", "short", "integer", "long")
_NUMBERS = ("float", "double", "decimal")
_TEXTS = ("string", "date")
_TIMES = ("timestamp", "timestamp_ntz")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Bounds:
    """Minimum and maximum of one column in each file, as ranks: integers in the order of the values.

    Attributes:
        known: Whether each file has bounds, bool; a file with only nulls has none.
        lows: The rank of each file's minimum, int64; -1 without bounds.
        highs: The rank of each file's maximum, int64; -1 without bounds.
        num_ranks: The number of distinct values among the bounds.
    """

    known: np.ndarray
    lows: np.ndarray
    highs: np.ndarray
    num_ranks: int


def read_bounds(column: str, column_type: Any, physical_name: str, stats: pa.Array) -> Bounds:
    """Read the bounds of a column from stats.

    Args:
        column: The column's name.
        column_type: Its Delta type.
        physical_name: Its name in the stats.
        stats: The stats of each file as JSON text, null for none.

    Raises:
        InvalidArgumentError: Stats have no bounds for that type.
    """
    parse = _parser(column, column_type)
    known = np.zeros(len(stats), dtype=bool)
    values = []
    for row, text in enumerate(stats.to_pylist()):
        found = _bounds(text, physical_name, parse)
        if found is not None:
            known[row] = True
            values.append(found)
    # As objects: in a NumPy text array every element takes the memory of the longest.
    pairs = np.array(values, dtype=object).reshape(-1, 2)
    distinct, ranks = np.unique(pairs, return_inverse=True)
    lows, highs = np.full((2, len(stats)), -1)
    lows[known], highs[known] = ranks.reshape(-1, 2).T
    return Bounds(known, lows, highs, len(distinct))


def _parser(column: str, column_type: Any) -> Callable[[Any], Any]:
    name = column_type if isinstance(column_type, str) else ""
    if name in _INTEGERS:
        return int
    if name.startswith(_NUMBERS):
        return _number
    if name in _TEXTS:
        return _text
    if name in _TIMES:
        return _microseconds
    raise InvalidArgumentError(
        f'column="{column}" has the type {name or column_type["type"]}, for which stats have no bounds: '
        "choose a column of numbers, texts, dates or times."
    )


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


def _bounds(text: str | None, name: str, parse: Callable[[Any], Any]) -> tuple[Any, Any] | None:
    try:
        stats: Mapping[str, Any] = json.loads(text) if text else {}
        return parse(stats["minValues"][name]), parse(stats["maxValues"][name])
    except DAMAGE:
        return None


@dataclass(frozen=True, repr=False)
class Overlap(Record):
    """How many files a query for one value of a column has to read, according to their stats.

    The values are the minima and maxima of the files; `depths` holds, for each, the number of files
    whose range contains it. `num_unknown` files have no bounds in their stats, so every query reads
    them; a file with only nulls is one of these.
    """

    column: str
    num_files: int
    num_unknown: int
    depths: np.ndarray

    @property
    def mean(self) -> float:
        """Files read for a value, on average; 0 without any bounds."""
        return float(self.depths.mean()) if len(self.depths) else 0.0

    @property
    def median(self) -> float:
        """Files read for a value, in the median."""
        return float(np.median(self.depths)) if len(self.depths) else 0.0

    @property
    def max(self) -> int:
        """Files read for the value that needs the most."""
        return int(self.depths.max(initial=0))

    def facts(self) -> dict[str, str]:
        """Return the overlap for people: names and values."""
        return {
            "files": f"{self.num_files:,}, {self.num_unknown:,} of them without bounds",
            f"files per value of {self.column}": f"{self.mean:,.1f} on average, "
            f"{self.median:,.0f} in the median, {self.max:,} at most",
        }


def measure_overlap(column: str, bounds: Bounds) -> Overlap:
    """Count the files whose range contains each file's minimum and maximum.

    Args:
        column: The column's name.
        bounds: Its bounds in each file.
    """
    lows, highs = bounds.lows[bounds.known], bounds.highs[bounds.known]
    points = np.concatenate([lows, highs])
    num_files = len(bounds.known)
    return Overlap(column, num_files, num_files - len(lows), files_touched(lows, highs, points, points))


def files_touched(lows: np.ndarray, highs: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Count the files that overlap each range of values.

    Args:
        lows: The minimum of each file.
        highs: The maximum of each file.
        begins: The minimum of each range.
        ends: The maximum of each range.
    """
    begun = np.searchsorted(np.sort(lows), ends, side="right")
    over = np.searchsorted(np.sort(highs), begins, side="left")
    touched: np.ndarray = begun - over
    return touched
