"""What each version did to the files, and what it left."""

import numpy as np
import pyarrow as pa

from compaction_kit.files import SMALL_FILE_SIZE
from compaction_kit.log import TransactionLog
from compaction_kit.sizes import parse_size


def read_history(log: TransactionLog, small_file_size: int | str = SMALL_FILE_SIZE) -> pa.Table:
    """The ledger, with the state that each version left.

    Args:
        log: The table's log.
        small_file_size: Files below this size count as small.

    Returns:
        The columns of `log.commits()`, and num_files, size_bytes, num_small_files: the live
        files after each version, null where it can't be read back. Oldest first.
    """
    threshold = parse_size(small_file_size, "small_file_size")
    commits = log.commits()
    snapshot, lifetimes = log.lifetimes()
    versions = commits["version"].to_numpy()
    sizes = lifetimes["size_bytes"].to_numpy()
    ones = np.ones(len(sizes), dtype=np.int64)
    known = versions >= snapshot.version
    columns = {"num_files": ones, "size_bytes": sizes, "num_small_files": ones * (sizes < threshold)}
    for name, weights in columns.items():
        totals = _running(lifetimes, weights, versions)
        commits = commits.append_column(name, pa.array(totals, pa.int64(), mask=~known))
    return commits


def _running(lifetimes: pa.Table, weights: np.ndarray, versions: np.ndarray) -> np.ndarray:
    """The weight of the live files after each version."""
    added = lifetimes["added"].to_numpy()
    gone = lifetimes["removed"].is_valid().to_numpy()
    removed = lifetimes["removed"].drop_null().to_numpy()
    length = int(versions.max(initial=0)) + 1
    change = np.bincount(added, weights, minlength=length) - np.bincount(
        removed, weights[gone], minlength=length
    )
    return np.cumsum(change)[versions].astype(np.int64)
