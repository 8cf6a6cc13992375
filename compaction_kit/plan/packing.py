"""Next-fit bins over all partitions at once: sizes in, bins out."""

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


class Packer:
    """Files sorted once, to be packed again and again with other thresholds.

    The order is OPTIMIZE's: by partition, in it by size, smallest first (OptimizeExecutor,
    groupFilesIntoBins).
    """

    def __init__(self, sizes: np.ndarray, groups: np.ndarray, ties: np.ndarray):
        """
        Args:
            sizes: Bytes of each file, int64.
            groups: The partition of each file, as a number.
            ties: What decides between files of one size in one partition, ascending.
        """
        self._order = np.lexsort((ties, sizes, groups))
        self._sizes = sizes[self._order]
        self._groups = groups[self._order]

    def pack(self, candidates: np.ndarray, max_file_size: int) -> Packing:
        """Fill bins with the candidates, in order, and drop bins of one.

        A bin is closed when the next file would make it larger than the maximum, and never
        looked at again; a file larger than that stands alone. Rewriting a lone file gains
        nothing, so its bin is dropped.

        Args:
            candidates: Whether each file may be packed, bool, in the order given to the packer.
            max_file_size: Bytes that a bin may hold.
        """
        keep = candidates[self._order]
        order, sizes, groups = self._order[keep], self._sizes[keep], self._groups[keep]
        if len(order) == 0:
            nothing = np.array([], dtype=np.int64)
            return Packing(order, nothing, nothing)
        totals = np.r_[0, np.cumsum(sizes)]
        limit = min(max_file_size, int(totals[-1]))
        first = np.r_[True, groups[1:] != groups[:-1]]
        starts = np.flatnonzero(first)
        ends = np.r_[starts[1:], len(order)]
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
        begin, end = begin[several := end - begin > 1], end[several]
        sort = np.argsort(begin)
        return Packing(order, begin[sort], end[sort])
