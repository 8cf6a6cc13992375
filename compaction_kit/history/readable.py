"""Which versions can be read: by the log, by the files on disk, and by Delta's guard."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.folder import is_file, list_folder
from compaction_kit.history.needs import Needs, read_needs
from compaction_kit.log import TransactionLog
from compaction_kit.log.paths import is_remote
from compaction_kit.retention import table_retention
from compaction_kit.times import earlier, millis

YES, BLOCKED, MISSING, LOG_GONE = "yes", "blocked", "missing files", "log gone"
# A listing of the folder leaves out what is elsewhere, and what is hidden.
_UNLISTED = r"^/|(^|/)[._]"


@dataclass(frozen=True)
class Readability:
    """What decides which versions Delta reads, now or later, or with other files gone.

    Attributes:
        needs: Which files each version needs.
        missing: The paths among them that aren't on disk.
        times: When each of `needs.versions` was committed, int64, ms since 1970, as the guard
            has it: the in-commit timestamp, else the time of the commit's file (Snapshot.timestamp).
        has_commit: Whether the commit itself is in the log, for each of `needs.versions`; without
            it Delta doesn't read the version, not even from a checkpoint.
        retention: How long the table keeps removed files.
        guard: Whether Delta refuses versions that are older than that.
    """

    needs: Needs
    missing: pa.Array
    times: np.ndarray
    has_commit: np.ndarray
    retention: timedelta
    guard: bool = True

    def statuses(
        self, now: datetime | None = None, gone: pa.Array | None = None, superseded: bool = False
    ) -> np.ndarray:
        """Whether each version can be read.

        Args:
            now: At which time; None for now.
            gone: Paths that will be gone by then too, as `Needs` has them.
            superseded: Whether a version will have been committed by then: the guard lets only the
                latest pass.

        Returns:
            For each of `needs.versions` "yes", "blocked" (it is older than the retention, so that
            Delta refuses it, files or no files), "missing files" or "log gone".
        """
        missing = self.missing if gone is None else pa.concat_arrays([self.missing, _flat(gone)])
        incomplete = self.needs.versions_without(missing)
        refused = self._refused(now, superseded)
        return np.select(
            [~self.has_commit, refused, incomplete], [LOG_GONE, BLOCKED, MISSING], default=YES
        ).astype(object)

    def readable(
        self, now: datetime | None = None, gone: pa.Array | None = None, superseded: bool = False
    ) -> np.ndarray:
        """Which versions' status is "yes": bool, for each of `needs.versions`; see `statuses`."""
        return self.statuses(now, gone, superseded) == YES

    def _refused(self, now: datetime | None, superseded: bool) -> np.ndarray:
        # SnapshotManagement.enforceTimeTravelWithinDeletedFileRetentionDuration, Delta 4.1 and later.
        cutoff = millis(earlier(now or datetime.now(UTC), self.retention))
        is_latest = (self.needs.versions == self.needs.latest) & (not superseded)
        return (self.times < cutoff) & ~is_latest & self.guard


def read_readability(
    table: Path, log: TransactionLog, guard: bool = True, on_disk: pa.Table | None = None
) -> Readability:
    """Read the log and look at the disk.

    Args:
        table: The table's folder.
        log: Its log.
        guard: Whether the session has Delta's guard on.
        on_disk: What `list_folder` found, if it has been called already.
    """
    metadata = log.snapshot().metadata
    needs = read_needs(table, log)
    if on_disk is None:
        on_disk = list_folder(table, metadata.partition_columns)
    commits = log.commits()
    known = commits["version"].to_numpy()
    within = known >= needs.first
    positions = known[within] - needs.first
    has_commit = np.zeros(len(needs.versions), dtype=bool)
    has_commit[positions] = True
    times = np.zeros(len(needs.versions), dtype=np.int64)
    times[positions] = commits["timestamp"].cast(pa.int64()).to_numpy()[within]
    missing = missing_paths(table, needs.files["path"], on_disk["path"])
    return Readability(needs, missing, times, has_commit, table_retention(metadata), guard)


def missing_paths(table: Path, paths: pa.ChunkedArray, on_disk: pa.ChunkedArray) -> pa.Array:
    """Those paths that aren't on disk, each once.

    Args:
        table: The table's folder.
        paths: As `Needs` has them: relative to the table, or absolute.
        on_disk: The paths that `list_folder` found.
    """
    unseen = pc.unique(paths.filter(pc.invert(pc.is_in(paths, value_set=on_disk))))
    # Nobody has looked whether those are there.
    unseen = unseen.filter(pc.invert(is_remote(unseen)))
    unlisted = pc.match_substring_regex(unseen, _UNLISTED)
    there = [path for path in unseen.filter(unlisted).to_pylist() if is_file(table / path)]
    return unseen.filter(pc.invert(pc.is_in(unseen, value_set=pa.array(there, pa.string()))))


def _flat(paths: pa.Array | pa.ChunkedArray | Sequence[str]) -> pa.Array:
    if isinstance(paths, pa.ChunkedArray):
        return paths.combine_chunks()
    return paths if isinstance(paths, pa.Array) else pa.array(paths, pa.string())
