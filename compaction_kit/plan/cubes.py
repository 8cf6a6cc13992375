"""Which files OPTIMIZE clusters again, by their cubes, and what that costs as a table grows."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from compaction_kit.plan.packing import Packer, Packing, num_sorted_files
from compaction_kit.plan.thresholds import CubeSizes

NO_CUBE = -1
_COLUMNS = ("append", "bytes_appended", "bytes_rewritten", "num_complete_cubes", "num_partial_cubes")


@dataclass(frozen=True)
class CubedFiles:
    """The files of a clustered table, with what decides which of them OPTIMIZE rewrites; one element a file.

    A cube is the files that one bin became. New rows are in files without a cube. The rules are those of
    ClusteringStrategy.applyMinZCube and ZCube.filterOutLargeZCubes.

    Attributes:
        sizes, logical_bytes: Bytes, and bytes of the rows that are not deleted, int64.
        cube_of: The number of the file's cube, in the order of the cubes' ids, int64; `NO_CUBE` without one.
        is_apart: Whether another system has clustered the file, or by other columns, bool.
        order: Positions of the files to choose from, in OPTIMIZE's order: those without a cube come first.
    """

    sizes: np.ndarray
    logical_bytes: np.ndarray
    cube_of: np.ndarray
    is_apart: np.ndarray
    order: np.ndarray

    def is_complete(self, cubes: CubeSizes) -> np.ndarray:
        """Return whether each file is in a complete cube, bool."""
        is_ours = (self.cube_of != NO_CUBE) & ~self.is_apart
        # Files without a cube count at the last place.
        totals = np.zeros(self.cube_of.max(initial=NO_CUBE) + 2, np.int64)
        counted = self.order[is_ours[self.order]]
        np.add.at(totals, self.cube_of[counted], self.logical_bytes[counted])
        complete: np.ndarray = is_ours & (totals[self.cube_of] >= cubes.complete)
        return complete

    def select(self, cubes: CubeSizes, full: bool = False) -> np.ndarray:
        """Return the positions of the files that OPTIMIZE rewrites, in its order.

        With `full` files of other columns or providers are rewritten too, as by OPTIMIZE … FULL.
        """
        is_apart = self.is_apart[self.order]
        ours, others = self.order[~is_apart], self.order[is_apart]
        is_complete = self.is_complete(cubes)
        chosen = self._last_first(ours)
        chosen = chosen[~is_complete[chosen]]
        if full and len(others):
            return np.concatenate([chosen, others])
        numbers = self.cube_of[chosen]
        if len(chosen) and numbers[0] != NO_CUBE and (numbers == numbers[0]).all():
            return chosen[:0]
        return self._last_first(chosen)

    def pack(self, cubes: CubeSizes, full: bool = False) -> Packing:
        """Pack the files that OPTIMIZE rewrites into bins, each of which becomes one cube."""
        one_group, everything = np.zeros(len(self.sizes), np.int64), np.ones(len(self.sizes), dtype=bool)
        packer = Packer(self.select(cubes, full), self.sizes, one_group)
        return packer.pack(everything, cubes.most, keep_lone=True)

    def clustered(self, packing: Packing, max_file_size: int, overhead: int) -> Self:
        """Return the files after the bins were rewritten as one cube each, whose sizes are predicted.

        New files have about `max_file_size` bytes, of which each has `overhead` whatever is in it.
        """
        positions, bin_ids = packing.members
        contents = np.maximum(self.logical_bytes - overhead, 0)
        removed, kept = (
            np.bincount(bin_ids, values[positions], packing.num_bins) for values in (self.sizes, contents)
        )
        counts = num_sorted_files(removed, max_file_size)
        sizes = np.minimum(kept + overhead * counts, removed).astype(np.int64) // counts
        numbers = np.arange(packing.num_bins) + self.cube_of.max(initial=NO_CUBE) + 1
        stay = np.delete(np.arange(len(self.sizes)), positions)
        return self._with(stay, np.repeat(sizes, counts), np.repeat(numbers, counts))

    def appended(self, size_bytes: int, max_file_size: int) -> Self:
        """Return the files with new ones, of these bytes together."""
        count = int(num_sorted_files(np.array([size_bytes]), max_file_size)[0])
        new = np.full(count, size_bytes // count), np.full(count, NO_CUBE)
        return self._with(np.arange(len(self.sizes)), *new)

    def count_cubes(self, cubes: CubeSizes) -> tuple[int, int]:
        """Return how many cubes are complete, and how many are not; without those of other columns."""
        is_complete, in_cube = self.is_complete(cubes), (self.cube_of != NO_CUBE) & ~self.is_apart
        complete, partial = (
            len(np.unique(self.cube_of[which])) for which in (is_complete, in_cube & ~is_complete)
        )
        return complete, partial

    def _with(self, stay: np.ndarray, sizes: np.ndarray, cube_of: np.ndarray) -> Self:
        """Return some of the files, by position, and new ones."""
        numbers = np.append(self.cube_of[stay], cube_of)
        return type(self)(
            np.append(self.sizes[stay], sizes),
            np.append(self.logical_bytes[stay], sizes),
            numbers,
            np.append(self.is_apart[stay], np.zeros(len(sizes), dtype=bool)),
            np.argsort(numbers, kind="stable"),
        )

    def _last_first(self, order: np.ndarray) -> np.ndarray:
        """Put the last file before the cube before it, if it is the only one of its own cube.

        Delta's iterators return the last cube before the one that it ends (ZCube, `!files.hasNext`).
        """
        cubes = self.cube_of[order]
        if len(order) < 2 or NO_CUBE in cubes[-2:] or cubes[-1] == cubes[-2]:
            return order
        start = int(np.flatnonzero(np.append(True, cubes[1:-1] != cubes[:-2]))[-1])
        return np.concatenate([order[:start], order[-1:], order[start:-1]])


def amplify(
    files: CubedFiles, cubes: CubeSizes, append_bytes: int, times: int, max_file_size: int, overhead: int
) -> pa.Table:
    """Append and run OPTIMIZE in turns, on sizes alone; see `CompactionPlan.amplification`.

    The ids of new cubes are random, so the order of several partial cubes is not known; here it is that in
    which they were made.
    """
    rows = []
    for number in range(1, times + 1):
        files = files.appended(append_bytes, max_file_size)
        packing = files.pack(cubes)
        rewritten = int(files.sizes[packing.members[0]].sum())
        files = files.clustered(packing, max_file_size, overhead)
        rows.append((number, append_bytes, rewritten, *files.count_cubes(cubes)))
    columns = np.array(rows, np.int64).reshape(-1, len(_COLUMNS)).T
    return pa.table(dict(zip(_COLUMNS, columns, strict=True)))
