"""Next-fit bins over all partitions at once: weights in, bins out."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Packing:
    """Which files go together.

    `order` holds positions of files; bin i is order[starts[i]:ends[i]].
    """

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

    def members(self) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the files in bins, and the number of each one's bin."""
        bin_ids = np.repeat(np.arange(self.num_bins), self.counts)
        offsets = np.arange(len(bin_ids)) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        return self.order[np.repeat(self.starts, self.counts) + offsets], bin_ids

    def totals(self, values: np.ndarray) -> np.ndarray:
        """The sum of the files' values in each bin, float64; `values` has one a file."""
        positions, bin_ids = self.members()
        return np.bincount(bin_ids, values[positions], minlength=self.num_bins)

    def select(self, bins: np.ndarray) -> "Packing":
        """Some of the bins, by a mask or by number."""
        return Packing(self.order, self.starts[bins], self.ends[bins])


class Packer:
    """Files in an order, to be packed again and again with other thresholds."""

    def __init__(self, order: np.ndarray, weights: np.ndarray, groups: np.ndarray):
        """
        Args:
            order: Positions of the files as they are to be packed: one partition after another.
            weights: What each file takes of a bin, int64 ≥ 0.
            groups: The partition of each file, as a number.
        """
        self.order = order
        self._weights = weights[order]
        ordered = groups[order]
        changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        self._group_starts = np.r_[0, changes] if len(order) else changes

    def pack(self, candidates: np.ndarray, capacity: int, keep_lone: bool = False) -> Packing:
        """Fill bins with the candidates, in order, and drop bins of one.

        A bin is closed when the next file would make it exceed the capacity, and never looked
        at again; a file larger than that stands alone. Rewriting a lone file gains nothing, so
        its bin is dropped (OptimizeExecutor, groupFilesIntoBins).

        Args:
            candidates: Whether each file may be packed, bool, by position.
            capacity: How much a bin may hold.
            keep_lone: Keep bins of one.
        """
        keep = candidates[self.order]
        order, weights = self.order[keep], self._weights[keep]
        if len(order) == 0:
            nothing = np.array([], dtype=np.int64)
            return Packing(order, nothing, nothing)
        totals = np.concatenate([[0], np.cumsum(weights)])
        limit = min(capacity, int(totals[-1]))
        counts = np.add.reduceat(keep, self._group_starts, dtype=np.int64)
        counts = counts[counts > 0]
        ends = np.cumsum(counts)
        starts = ends - counts
        # Each round closes one bin in every partition that has files left.
        bin_starts, bin_ends = [], []
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
