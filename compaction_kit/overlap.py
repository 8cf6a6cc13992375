"""How many files a point of a column falls in: what data skipping by that column is worth."""

from dataclasses import dataclass

import numpy as np

from compaction_kit.bounds import Bounds
from compaction_kit.text import shown


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
        return shown(
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


def measure_overlap(column: str, bounds: Bounds) -> Overlap:
    """Count the files that each file's minimum and maximum fall in.

    Args:
        column: The column's name.
        bounds: Its bounds in each file.
    """
    lows, highs = bounds.lows[bounds.known], bounds.highs[bounds.known]
    points = np.concatenate([lows, highs])
    num_files = len(bounds.known)
    return Overlap(column, num_files, num_files - len(lows), files_touched(lows, highs, points, points))


def files_touched(lows: np.ndarray, highs: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """How many files each range of values falls in.

    Args:
        lows: The least value of each file.
        highs: The greatest value of each file.
        begins: The least value of each range.
        ends: The greatest value of each range.
    """
    begun = np.searchsorted(np.sort(lows), ends, side="right")
    over = np.searchsorted(np.sort(highs), begins, side="left")
    touched: np.ndarray = begun - over
    return touched
