"""The least and the greatest value of a column in each file, from the files' stats."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.errors import InvalidArgumentError

# How stats write values of a column that can be compared; anything else has no bounds there.
_INTEGERS = ("byte", "short", "integer", "long")
_NUMBERS = ("float", "double", "decimal")
_TEXTS = ("string", "date")
_TIMES = ("timestamp", "timestamp_ntz")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Bounds:
    """Bounds of one column, as ranks: numbers that compare as the values do.

    Attributes:
        known: Whether each file has bounds, bool; a file with nulls alone has none.
        lows: The rank of each file's least value, int64; -1 without bounds.
        highs: The rank of its greatest value; -1 without bounds.
        num_ranks: How many different values the bounds have.
    """

    known: np.ndarray
    lows: np.ndarray
    highs: np.ndarray
    num_ranks: int


def read_bounds(column: str, column_type: Any, physical_name: str, stats: pa.Array) -> Bounds:
    """Read the bounds of a column out of stats.

    Args:
        column: The column's name.
        column_type: Its Delta type.
        physical_name: Its name in stats.
        stats: The stats of each file as JSON text, null for none.

    Raises:
        InvalidArgumentError: Values of that type have no bounds in stats.
    """
    parse = _parser(column, column_type)
    known = np.zeros(len(stats), dtype=bool)
    values = []
    for row, text in enumerate(stats.to_pylist()):
        found = _bounds(text, physical_name, parse)
        if found is not None:
            known[row] = True
            values.append(found)
    # As objects: texts of one array would all take the room of the longest.
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
        f'column="{column}" is of type {name or column_type["type"]}, of which stats hold no bounds: choose '
        "a column of numbers, texts, dates or times."
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
    except (ValueError, KeyError, TypeError, ArithmeticError):
        return None
