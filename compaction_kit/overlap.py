"""How many files a point of a column falls in: what data skipping by that column is worth."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.markup import as_html

# How stats write values of a column that can be compared; anything else has no bounds there.
_NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")
_TEXTS = ("string", "date")
_TIMES = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Overlap:
    """How many files hold a point of a column, as far as their stats tell.

    The points are the files' own minima and maxima; `depths` has for each the number of files
    whose range it falls in. `num_unknown` files have no bounds in their stats: every query reads
    them. A file with nulls alone has no bounds either.
    """

    column: str
    num_files: int
    num_unknown: int
    depths: np.ndarray

    @property
    def mean(self) -> float:
        """Files read for a point on average; 0 without any bounds."""
        return float(self.depths.mean()) if len(self.depths) else 0.0

    @property
    def median(self) -> float:
        """Files read for the median point."""
        return float(np.median(self.depths)) if len(self.depths) else 0.0

    @property
    def max(self) -> int:
        """Files read for the worst point."""
        return int(self.depths.max(initial=0))

    def _repr_html_(self) -> str:
        return as_html(
            {
                "files": f"{self.num_files:,}, {self.num_unknown:,} of them without bounds",
                f"files that a point of {self.column} falls in": f"{self.mean:,.1f} on average, "
                f"{self.median:,.0f} in the median, {self.max:,} at most",
            }
        )

    def __repr__(self) -> str:
        return (
            f"Overlap({self.column}: a point falls in {self.mean:,.1f} of {self.num_files:,} files on "
            f"average, in {self.max:,} at most; {self.num_unknown:,} without bounds)"
        )


def measure_overlap(column: str, column_type: Any, physical_name: str, stats: pa.Array) -> Overlap:
    """Count the files that each file's minimum and maximum fall in.

    Args:
        column: The column's name.
        column_type: Its Delta type.
        physical_name: Its name in stats.
        stats: The stats of each file as JSON text, null for none.

    Raises:
        InvalidArgumentError: Values of that type have no bounds in stats.
    """
    parse = _parser(column, column_type)
    bounds = []
    for text in stats.to_pylist():
        found = _bounds(text, physical_name)
        if found is not None:
            bounds.append((parse(found[0]), parse(found[1])))
    starts = np.array([low for low, _ in bounds])
    ends = np.array([high for _, high in bounds])
    points = np.concatenate([starts, ends])
    begun = np.searchsorted(np.sort(starts), points, side="right")
    over = np.searchsorted(np.sort(ends), points, side="left")
    return Overlap(column, len(stats), len(stats) - len(bounds), begun - over)


def _parser(column: str, column_type: Any) -> Any:
    name = column_type if isinstance(column_type, str) else ""
    if name.startswith(_NUMBERS):
        return float if name.startswith(("float", "double", "decimal")) else int
    if name in _TEXTS:
        return str
    if name in _TIMES:
        return lambda text: np.datetime64(str(text).removesuffix("Z"), "us")
    raise InvalidArgumentError(
        f'column="{column}" is of type {name or column_type["type"]}, of which stats hold no bounds: choose '
        "a column of numbers, texts, dates or times."
    )


def _bounds(text: str | None, name: str) -> tuple[Any, Any] | None:
    try:
        stats: Mapping[str, Any] = json.loads(text) if text else {}
        low, high = stats["minValues"][name], stats["maxValues"][name]
    except (ValueError, KeyError, TypeError):
        return None
    return None if low is None or high is None else (low, high)
