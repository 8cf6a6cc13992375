"""What each version did to the files, and what it left."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.files import SMALL_FILE_SIZE
from compaction_kit.history.expiry import log_expiry, to_millis
from compaction_kit.log import TransactionLog
from compaction_kit.retention import log_retention, table_retention
from compaction_kit.text import parse_size


def read_history(log: TransactionLog, small_file_size: int | str = SMALL_FILE_SIZE) -> pa.Table:
    """The ledger, with the state that each version left.

    Args:
        log: The table's log.
        small_file_size: Files below this size count as small.

    Returns:
        The columns of `log.commits()`, with the timestamp as DESCRIBE HISTORY has it; num_files,
        size_bytes, num_small_files: the live files after each version, null where it can't be read
        back; files_expire (UTC: when the retention of the files that it removed has passed, so that
        VACUUM may delete those that no version brought back; null if it removed none); and
        log_expires (UTC: when the retention of the commit has, so that a cleanup of the log may
        take it if a checkpoint allows; see `plan_log_cleanup`). Oldest first.
    """
    threshold = parse_size(small_file_size, "small_file_size")
    commits = log.commits()
    commits = commits.set_column(1, commits.schema.field("timestamp"), log.commit_times())
    snapshot, lifetimes = log.lifetimes()
    versions = commits["version"].to_numpy()
    sizes = lifetimes["size_bytes"].to_numpy()
    ones = np.ones(len(sizes), dtype=np.int64)
    known = versions >= snapshot.version
    columns = {"num_files": ones, "size_bytes": sizes, "num_small_files": ones * (sizes < threshold)}
    for name, weights in columns.items():
        totals = _running(lifetimes, weights, versions)
        commits = commits.append_column(name, pa.array(totals, pa.int64(), mask=~known))
    metadata = log.snapshot().metadata
    kept = pa.scalar(to_millis(table_retention(metadata)), pa.duration("ms"))
    files_expire = pc.add(commits["files_removed_at"], kept)
    log_expires = log_expiry(log.commit_file_times(), log_retention(metadata))
    return commits.append_column("files_expire", files_expire).append_column(
        "log_expires", pa.array(log_expires, pa.timestamp("ms", "UTC"))
    )


def _running(lifetimes: pa.Table, weights: np.ndarray, versions: np.ndarray) -> np.ndarray:
    """The weight of the live files after each version."""
    added = lifetimes["added"].to_numpy()
    gone = lifetimes["removed"].is_valid().to_numpy()
    removed = lifetimes["removed"].drop_null().to_numpy()
    turns = np.concatenate([added, removed])
    changes = np.concatenate([weights, -weights[gone]])
    order = np.argsort(turns, kind="stable")
    totals = np.append(0, np.cumsum(changes[order]))
    return totals[np.searchsorted(turns[order], versions, side="right")].astype(np.int64)
