"""The orders in which the files of a partition are packed."""

import numpy as np
import pyarrow as pa

from compaction_kit.bounds import Bounds
from compaction_kit.files import Files
from compaction_kit.plan.state_order import DEFAULT_PARTITIONS, state_order

SIZE, INGEST = "size", "ingest"
_SIZE_BITS = 40


def by_size(files: Files, groups: np.ndarray, snapshot_partitions: int = DEFAULT_PARTITIONS) -> np.ndarray:
    """OPTIMIZE's order: the smallest first, among equals as Delta's snapshot has them.

    Args:
        files: The files.
        groups: The partition of each file, as a number from 0 on.
        snapshot_partitions: spark.databricks.delta.snapshotPartitions; it decides among equals.

    Returns:
        Positions of the files, one partition after another.
    """
    sizes = files.sizes
    order = _sorted(sizes, groups)
    same = tied_across(sizes, groups, order[:-1], order[1:])
    if not same.any():
        return order
    tied = np.flatnonzero(np.r_[False, same] | np.r_[same, False])
    # Each run of equals is put in order by itself.
    run = np.cumsum(np.r_[True, ~same])[tied]
    places = state_order(files.paths(order[tied]).combine_chunks(), snapshot_partitions)
    order[tied] = order[tied][np.lexsort((places, run))]
    return order


def column_of(order: str) -> str | None:
    """The column that an order goes by; None for "size" and "ingest".

    A column of one of those names is told apart by backticks.
    """
    return None if order in (SIZE, INGEST) else order.removeprefix("`").removesuffix("`")


def order_by(column: str) -> str:
    """The order by a column."""
    return f"`{column}`" if column in (SIZE, INGEST) else column


def by_ingestion(files: Files, groups: np.ndarray) -> np.ndarray:
    """The oldest first, by the time at which each file was written."""
    times = files.to_arrow()["modification_time"].cast(pa.int64()).to_numpy()
    return np.lexsort((np.arange(len(groups)), times, groups))


def by_bounds(bounds: Bounds, groups: np.ndarray) -> np.ndarray:
    """By the least value of a column; files that say none come last."""
    lows = np.where(bounds.known, bounds.lows, bounds.num_ranks)
    return np.lexsort((np.arange(len(groups)), bounds.highs, lows, groups))


def tied_across(sizes: np.ndarray, groups: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Whether two files could change places without OPTIMIZE's rule being broken."""
    tied: np.ndarray = (sizes[before] == sizes[after]) & (groups[before] == groups[after])
    return tied


def _sorted(sizes: np.ndarray, groups: np.ndarray) -> np.ndarray:
    largest, num_groups = int(sizes.max(initial=0)), int(groups.max(initial=0)) + 1
    if largest >> _SIZE_BITS or num_groups >> (63 - _SIZE_BITS) or sizes.min(initial=0) < 0:
        return np.lexsort((sizes, groups))
    # One number to sort by is several times as fast as two.
    return np.argsort(groups << _SIZE_BITS | sizes)
