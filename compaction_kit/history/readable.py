"""Which files each version needs, and so which versions can be read."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.folder import list_folder
from compaction_kit.handle import Handle
from compaction_kit.log.paths import deletion_vector_file, is_remote, places
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.retention import cutoff, table_retention
from compaction_kit.storage import Store

YES, BLOCKED, MISSING, LOG_GONE = "yes", "blocked", "missing files", "log gone"
# A listing of the folder leaves out what is elsewhere, and what is hidden.
_UNLISTED = r"^/|(^|/)[._]"


@dataclass(frozen=True)
class Needs:
    """Which version needs which file, and which the latest has removed: data files and deletion vectors.

    Paths are relative to the table, decoded; absolute for files elsewhere.

    Attributes:
        first, latest: The versions that can be read back from the log.
        files: One row each time that a file was needed: path (string), is_data (bool), added (int64),
            removed (int64, the first version that doesn't need it; latest + 1 if the latest does).
        snapshot: The latest version.
    """

    first: int
    latest: int
    files: pa.Table
    snapshot: Snapshot

    @property
    def versions(self) -> np.ndarray:
        """The versions, int64, rising."""
        return np.arange(self.first, self.latest + 1)

    def count(self, paths: pa.Array) -> np.ndarray:
        """How many of these files each of `versions` needs, int64."""
        hits = self.files.filter(pc.is_in(self.files["path"], value_set=paths))
        return running_totals(hits, np.ones(len(hits), np.int64), self.first, self.latest)

    def of_version(self, version: int) -> pa.Array:
        """The paths of the files that a version needs."""
        added, removed = self.files["added"], self.files["removed"]
        within = pc.and_(pc.less_equal(added, version), pc.greater(removed, version))
        return self.files.filter(within)["path"].combine_chunks()

    @cached_property
    def live(self) -> pa.Table:
        """The files of the latest snapshot: path (string), is_data (bool)."""
        live, store = self.snapshot.live, self.snapshot.store
        return with_vectors(
            pa.table({"path": places(live["path"], store)}), live["deletion_vector_id"], store
        )

    @cached_property
    def tombstones(self) -> pa.Table:
        """The files that the latest snapshot has as removed: path (string), time (ms since 1970), is_data."""
        removes, store = self.snapshot.tombstones, self.snapshot.store
        # A tombstone without a time counts as one of 1970 (RemoveFile.delTimestamp).
        times = pc.fill_null(removes["deletion_timestamp"], 0)
        files = pa.table({"path": places(removes["path"], store), "time": times})
        return with_vectors(files, removes["deletion_vector_id"], store)

    def young_tombstones(self, cutoff: int) -> pa.Table:
        """The tombstones from a time on (ms since 1970)."""
        return self.tombstones.filter(pc.greater_equal(self.tombstones["time"], cutoff))


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
    guard: bool

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
        missing = self.missing if gone is None else pa.concat_arrays([self.missing, gone])
        # SnapshotManagement.enforceTimeTravelWithinDeletedFileRetentionDuration, Delta 4.1 and later.
        is_old = self.times < cutoff(now or datetime.now(UTC), self.retention)
        is_latest = (self.needs.versions == self.needs.latest) & (not superseded)
        conditions = [~self.has_commit, is_old & ~is_latest & self.guard, self.needs.count(missing) > 0]
        return np.select(conditions, [LOG_GONE, BLOCKED, MISSING], default=YES).astype(object)

    def compared(self, before: np.ndarray, after: np.ndarray) -> pa.Table:
        """Statuses before and after: version (int64), timestamp (UTC), readable, readable_after (string)."""
        times = pa.array(self.times, mask=~self.has_commit).cast(pa.timestamp("ms", "UTC"))
        columns = {"version": self.needs.versions, "timestamp": times}
        return pa.table(columns | {"readable": before, "readable_after": after})


def read_needs(handle: Handle) -> Needs:
    """Read from the log which version needs which files."""
    first, lifetimes = handle.log.lifetimes()
    snapshot = handle.log.snapshot()
    removed = pc.fill_null(lifetimes["removed"], snapshot.version + 1)
    spans = lifetimes.select(["path", "added"]).append_column("removed", removed)
    files = with_vectors(spans, lifetimes["deletion_vector_id"], handle.store)
    vectors = files.filter(pc.invert(files["is_data"]))
    if len(vectors):
        data = files.filter(files["is_data"])
        files = pa.concat_tables([data, _merged(vectors).select(data.column_names)])
    return Needs(first.version, snapshot.version, files, snapshot)


def read_readability(handle: Handle, on_disk: pa.Table | None = None) -> Readability:
    """Read the log and look at the disk.

    Args:
        handle: The table.
        on_disk: What `list_folder` found, if it has been called already.
    """
    needs = read_needs(handle)
    metadata = needs.snapshot.metadata
    if on_disk is None:
        on_disk = list_folder(handle.store, metadata.partition_columns)
    commits = handle.log.commits()
    versions = commits["version"].to_numpy()
    # Another commit may have come since.
    known = (versions >= needs.first) & (versions <= needs.latest)
    positions = versions[known] - needs.first
    times = np.zeros(len(needs.versions), dtype=np.int64)
    times[positions] = commits["timestamp"].cast(pa.int64()).to_numpy()[known]
    has_commit = np.isin(needs.versions, versions)
    missing = missing_paths(handle.store, needs.files["path"], on_disk["path"])
    return Readability(needs, missing, times, has_commit, table_retention(metadata), handle.has_guard)


def missing_paths(store: Store, paths: pa.ChunkedArray, on_disk: pa.ChunkedArray) -> pa.Array:
    """Those paths, as `Needs` has them, that aren't on disk, each once.

    Args:
        store: The table's files.
        paths: The paths.
        on_disk: The paths that `list_folder` found.
    """
    unseen = pc.unique(paths.filter(pc.invert(pc.is_in(paths, value_set=on_disk))))
    # Nobody has looked whether those are there.
    unseen = unseen.filter(pc.invert(is_remote(unseen)))
    unlisted = pc.match_substring_regex(unseen, _UNLISTED)
    there = [path for path in unseen.filter(unlisted).to_pylist() if store.is_file(path)]
    return unseen.filter(pc.invert(pc.is_in(unseen, value_set=pa.array(there, pa.string()))))


def with_vectors(files: pa.Table, ids: pa.ChunkedArray, store: Store) -> pa.Table:
    """Rows of data files, and each that has a deletion vector once more for the file of the vector.

    Args:
        files: path (where it is, see `log.paths.places`) and other columns.
        ids: The id of the deletion vector of each; see `log.paths.deletion_vector_file`.
        store: The table's files.

    Returns:
        The same columns, and is_data (bool). A vector that is within the log has no file.
    """
    data = files.append_column("is_data", pa.repeat(True, len(files)))
    if ids.null_count == len(ids):
        return data
    encoded = pa.chunked_array(ids).combine_chunks().dictionary_encode()
    names = [deletion_vector_file(one, store) for one in encoded.dictionary.to_pylist()]
    paths = pa.array(names, pa.string()).take(encoded.indices)
    vectors = files.set_column(files.schema.get_field_index("path"), "path", paths)
    vectors = vectors.append_column("is_data", pa.repeat(False, len(files)))
    return pa.concat_tables([data, vectors.filter(paths.is_valid())])


def latest_by_path(paths: pa.Array, rows: pa.Table, column: str) -> pa.Array:
    """The greatest value of a column among the rows of each path; null for a path without any."""
    most = rows.group_by("path").aggregate([(column, "max")])
    return most[f"{column}_max"].combine_chunks().take(pc.index_in(paths, value_set=most["path"]))


def running_totals(spans: pa.Table, weights: np.ndarray, first: int, latest: int) -> np.ndarray:
    """The weights of the spans (added, removed) that each version from `first` to `latest` is in."""
    steps = np.zeros(latest - first + 2, weights.dtype)
    np.add.at(steps, spans["added"].to_numpy() - first, weights)
    np.subtract.at(steps, pc.fill_null(spans["removed"], latest + 1).to_numpy() - first, weights)
    return np.cumsum(steps, dtype=weights.dtype)[:-1]


def _merged(spans: pa.Table) -> pa.Table:
    """The spans of each path, those that overlap as one: several vectors are in one file."""
    paths = spans["path"].combine_chunks().dictionary_encode()
    codes = np.tile(paths.indices.to_numpy(), 2)
    versions = np.concatenate([spans["added"].to_numpy(), spans["removed"].to_numpy()])
    steps = np.repeat([1, -1], len(spans))
    order = np.lexsort((-steps, versions, codes))
    # Each path's steps add up to nothing, so that one running sum does for all of them.
    in_use = np.cumsum(steps[order])
    begins = (steps[order] == 1) & (in_use == 1)
    merged = {"added": versions[order][begins], "removed": versions[order][in_use == 0]}
    merged |= {"path": paths.dictionary.take(pa.array(codes[order][begins]))}
    return pa.table(merged).append_column("is_data", pa.repeat(False, int(begins.sum())))
