"""Pack files of all partitions at once into next-fit bins; gains and commits of bins. Needs only NumPy."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compaction_kit.text import MIB

# The cost of opening a file, in bytes read (Spark's default of spark.sql.files.openCostInBytes).
OPEN_COST = 4 * MIB


@dataclass(frozen=True)
class Packing:
    """Bins of files: `order` holds positions of files, and bin i is order[starts[i]:ends[i]]."""

    order: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def num_bins(self) -> int:
        """Number of bins."""
        return len(self.starts)

    @property
    def counts(self) -> np.ndarray:
        """Number of files in each bin."""
        return self.ends - self.starts

    @cached_property
    def members(self) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the files in bins, and the bin number of each file."""
        bin_ids = np.repeat(np.arange(self.num_bins), self.counts)
        offsets = np.arange(len(bin_ids)) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        return self.order[np.repeat(self.starts, self.counts) + offsets], bin_ids

    def select(self, bins: np.ndarray) -> "Packing":
        """Return some of the bins, by a mask or by number."""
        return Packing(self.order, self.starts[bins], self.ends[bins])


class Packer:
    """Files in a fixed order, which can be packed repeatedly with different thresholds."""

    def __init__(self, order: np.ndarray, weights: np.ndarray, groups: np.ndarray):
        """`order` has positions, partition by partition; `weights` and `groups` have one number per file."""
        self.order = order
        self._weights = weights[order]
        ordered = groups[order]
        changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        self._group_starts = np.r_[0, changes] if len(order) else changes

    def pack(self, candidates: np.ndarray, capacity: int, keep_lone: bool = False) -> Packing:
        """Pack the candidates (bool, by position) in order into bins of a capacity; drop bins of one file.

        A bin is closed when the next file would make it exceed the capacity; a file larger than the capacity
        is alone in its bin. Rewriting a lone file gains nothing, so without `keep_lone` its bin is dropped
        (OptimizeExecutor, groupFilesIntoBins).
        """
        keep = candidates[self.order]
        order, weights = self.order[keep], self._weights[keep]
        totals = np.concatenate([[0], np.cumsum(weights)])
        limit = min(capacity, int(totals[-1]))
        counts = np.add.reduceat(keep, self._group_starts, dtype=np.int64)
        counts = counts[counts > 0]
        ends = np.cumsum(counts)
        starts = ends - counts
        # Each round closes one bin in every partition that has files left.
        bin_starts, bin_ends = [starts[:0]], [ends[:0]]
        while len(starts):
            fits = np.searchsorted(totals, totals[starts] + limit, side="right") - 1
            closed = np.clip(fits, starts + 1, ends)
            bin_starts.append(starts)
            bin_ends.append(closed)
            more = closed < ends
            starts, ends = closed[more], ends[more]
        begin, end = np.concatenate(bin_starts), np.concatenate(bin_ends)
        sort = np.argsort(begin)
        packing = Packing(order, begin[sort], end[sort])
        return packing if keep_lone else packing.select(packing.counts > 1)


def batch_of_bins(sizes: np.ndarray, batch_size: int) -> np.ndarray:
    """Assign bins to commits, numbered from 0 in their order (BinPackingUtils, binPackBySize).

    Bins are taken smallest first; a batch is closed when the next bin would make it exceed `batch_size`
    bytes.
    """
    batches = np.zeros(len(sizes), dtype=np.int64)
    order = np.argsort(sizes, kind="stable")
    totals = np.r_[0, np.cumsum(sizes[order])]
    start, number = 0, 0
    while start < len(order):
        fits = int(np.searchsorted(totals, totals[start] + batch_size, side="right")) - 1
        end = max(fits, start + 1)
        batches[order[start:end]] = number
        start, number = end, number + 1
    return batches


def num_sorted_files(size_bytes: np.ndarray, max_file_size: int) -> np.ndarray:
    """Predict how many files each bin becomes, int64, if its rows are sorted.

    There may be fewer, because ranges of values without rows make no file (OptimizeExecutor: approxNumFiles).
    """
    return np.maximum(size_bytes // max_file_size, 1).astype(np.int64)


def gains(fewer_files: np.ndarray, bytes_before: np.ndarray, bytes_after: np.ndarray) -> np.ndarray:
    """Return the bytes that a full read of each bin saves.

        gain = (files before - files after) × 4 MiB + bytes before - bytes after, as predicted

    Opening a file costs as much as reading 4 MiB, as Spark assumes too.
    """
    saved: np.ndarray = np.maximum(fewer_files, 0) * OPEN_COST + np.maximum(bytes_before - bytes_after, 0)
    return saved


def within_budget(worth: np.ndarray, costs: np.ndarray, budget: int) -> np.ndarray:
    """Return the numbers of the bins within the budget, chosen and sorted by the highest gain per byte."""
    ranked = np.argsort(-worth / np.maximum(costs, 1), kind="stable")
    chosen, left = [], budget
    for bin_id, cost in zip(ranked.tolist(), costs[ranked].tolist(), strict=True):
        if cost <= left:
            chosen.append(bin_id)
            left -= cost
    return np.array(chosen, dtype=np.int64)
