"""What a bin is worth: the reading that it saves, for each byte that is rewritten."""

import numpy as np

from compaction_kit.text import MIB

# What Spark reckons a file's opening to cost, in bytes read (spark.sql.files.openCostInBytes).
OPEN_COST = 4 * MIB


def gains(num_files: np.ndarray, bytes_before: np.ndarray, bytes_after: np.ndarray) -> np.ndarray:
    """What each bin saves whoever reads all of it, in bytes.

        gain = (files - 1) × 4 MiB + bytes before - bytes after

    Opening a file counts as much as reading 4 MiB, as Spark reckons when it spreads files over
    tasks; what the files weigh less than before needn't be read either.

    Args:
        num_files: Files in each bin.
        bytes_before: Their bytes.
        bytes_after: The bytes of the bin's output, as predicted.
    """
    saved: np.ndarray = (num_files - 1) * OPEN_COST + np.maximum(bytes_before - bytes_after, 0)
    return saved


def within_budget(worth: np.ndarray, costs: np.ndarray, budget: int) -> np.ndarray:
    """The bins to rewrite for a budget: those that gain the most for a byte, as long as they fit.

    Args:
        worth: What each bin gains.
        costs: The bytes that rewriting it reads.
        budget: Bytes to spend in all.

    Returns:
        The numbers of the bins, the best first.
    """
    ranked = np.argsort(-worth / np.maximum(costs, 1), kind="stable")
    chosen, left = [], budget
    for bin_id, cost in zip(ranked.tolist(), costs[ranked].tolist(), strict=True):
        if cost <= left:
            chosen.append(bin_id)
            left -= cost
    return np.array(chosen, dtype=np.int64)
