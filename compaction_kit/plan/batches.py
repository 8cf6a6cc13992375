"""Which bins OPTIMIZE commits together (BinPackingUtils, binPackBySize)."""

import numpy as np


def batch_of_bins(sizes: np.ndarray, batch_size: int | None) -> np.ndarray:
    """The commit that each bin goes into.

    Bins are taken from the smallest on; a batch is closed when the next bin would make it
    exceed its size.

    Args:
        sizes: Bytes of each bin.
        batch_size: Bytes that a batch may hold; None puts all bins into one.

    Returns:
        int64, one a bin; numbers start at 0, in the order of the commits.
    """
    batches = np.zeros(len(sizes), dtype=np.int64)
    if batch_size is None or len(sizes) == 0:
        return batches
    order = np.argsort(sizes, kind="stable")
    totals = np.r_[0, np.cumsum(sizes[order])]
    start, number = 0, 0
    while start < len(order):
        fits = int(np.searchsorted(totals, totals[start] + batch_size, side="right")) - 1
        end = max(fits, start + 1)
        batches[order[start:end]] = number
        start, number = end, number + 1
    return batches
