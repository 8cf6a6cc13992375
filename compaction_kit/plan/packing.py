"""Next-fit bins over all partitions at once, their gains, and their commits; NumPy alone."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compaction_kit.text import MIB

# The cost of opening a file, in bytes read (Spark's default of spark.sql.files.openCostInBytes).
OPEN_COST = 4 * MIB


@dataclass(frozen=True)
class Packing:
    """Which files go together: `order` holds positions of files; bin i is order[starts[i]:ends[i]]."""

    order: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def num_bins(self) -> int:
        """How many bins there are."""
        return len(self.starts)

    @property
    def counts(self) -> np.ndarray:
        """Files in each bin."""
        return self.ends - self.starts

    @cached_property
    def members(self) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the files in bins, and the number of each one's bin."""
        bin_ids = np.repeat(np.arange(self.num_bins), self.counts)
        offsets = np.arange(len(bin_ids)) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        return self.order[np.repeat(self.starts, self.counts) + offsets], bin_ids

    def select(self, bins: np.ndarray) -> "Packing":
        """Return some of the bins, by a mask or by number."""
        return Packing(self.order, self.starts[bins], self.ends[bins])


class Packer:
    """Files in an order, to be packed again and again with other thresholds."""

    def __init__(self, order: np.ndarray, weights: np.ndarray, groups: np.ndarray):
        """`order` has positions, by partition; `weights` and `groups` a number for each file."""
        self.order = order
        self._weights = weights[order]
        ordered = groups[order]
        changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        self._group_starts = np.r_[0, changes] if len(order) else changes

    def pack(self, candidates: np.ndarray, capacity: int, keep_lone: bool = False) -> Packing:
        """Fill bins of a capacity with the candidates (bool, by position), in order, and drop bins of one.

        A bin is closed when the next file would make it exceed the capacity; a file larger than that
        is alone in its bin. To rewrite a lone file gains nothing, so its bin is dropped
        (OptimizeExecutor, groupFilesIntoBins), but with `keep_lone`.
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

    It may be fewer, as ranges of values without rows make no file (OptimizeExecutor: approxNumFiles).
    """
    return np.maximum(size_bytes // max_file_size, 1).astype(np.int64)


def gains(fewer_files: np.ndarray, bytes_before: np.ndarray, bytes_after: np.ndarray) -> np.ndarray:
    """Return the bytes that a full read of each bin saves.

        gain = (files before - files after) × 4 MiB + bytes before - bytes after, as predicted

    To open a file costs as much as to read 4 MiB, as when Spark distributes files over tasks.
    """
    saved: np.ndarray = np.maximum(fewer_files, 0) * OPEN_COST + np.maximum(bytes_before - bytes_after, 0)
    return saved


def within_budget(worth: np.ndarray, costs: np.ndarray, budget: int) -> np.ndarray:
    """Return the numbers of bins, those that gain the most per byte first, without those over the budget."""
    ranked = np.argsort(-worth / np.maximum(costs, 1), kind="stable")
    chosen, left = [], budget
    for bin_id, cost in zip(ranked.tolist(), costs[ranked].tolist(), strict=True):
        if cost <= left:
            chosen.append(bin_id)
            left -= cost
    return np.array(chosen, dtype=np.int64)
