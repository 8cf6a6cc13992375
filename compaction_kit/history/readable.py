"""The files that each version needs, and the versions that Delta can read."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.folder import Folder, look_through
from compaction_kit.handle import Handle
from compaction_kit.log import TransactionLog
from compaction_kit.log.paths import deletion_vector_file, is_remote, places
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.retention import GUARD, cutoff, table_retention

YES, BLOCKED, MISSING, LOG_GONE = "yes", "blocked", "missing files", "log gone"
# `look_through` returns neither files outside of the table nor hidden ones.
_UNLISTED = r"^/|(^|/)[._]"


@dataclass(frozen=True)
class FilesByVersion:
    """The files that each version needs, and whether Delta can read it, as the log was at one time.

    Paths are relative to the table and decoded; absolute for files outside of it.

    Attributes:
        handle: The table.
        log: Its log, as it was listed.
        earliest, snapshot: The earliest version that can be read from the log, and the latest.
        lifetimes: The versions in which each data file was live, as in `TransactionLog.lifetimes`.
        commits: The table that `TransactionLog.commits` returns.
        schemas: The schema of each of `versions`.
    """

    handle: Handle
    log: TransactionLog
    earliest: Snapshot
    snapshot: Snapshot
    lifetimes: pa.Table
    commits: pa.Table
    schemas: list[Any]

    @property
    def first(self) -> int:
        """The earliest version that can be read from the log."""
        return self.earliest.version

    @property
    def latest(self) -> int:
        """The latest version."""
        return self.snapshot.version

    @property
    def versions(self) -> np.ndarray:
        """The versions in ascending order (int64)."""
        return np.arange(self.first, self.latest + 1)

    @property
    def has_commit(self) -> np.ndarray:
        """Whether the log has the commit of each of `versions` (bool)."""
        return np.isin(self.versions, self.commits["version"])

    @cached_property
    def times(self) -> np.ndarray:
        """The time of each of `versions` for Delta's guard (int64, ms since 1970; 0 without a commit).

        It is the in-commit timestamp, else the modification time of the commit's file (Snapshot.timestamp).
        """
        times = np.zeros(len(self.versions), np.int64)
        # The log may have commits of versions that can't be read any more.
        commits = self.commits.filter(pc.is_in(self.commits["version"], value_set=pa.array(self.versions)))
        times[self.has_commit] = commits["timestamp"].cast(pa.int64()).to_numpy()
        return times

    @property
    def retention(self) -> timedelta:
        """How long the table keeps removed files; Delta's guard refuses older versions."""
        return table_retention(self.snapshot.metadata)

    @cached_property
    def folder(self) -> Folder:
        """The files that VACUUM sees in the table's folder; hides Iceberg's metadata if Delta writes it."""
        metadata = self.snapshot.metadata
        formats = metadata.configuration.get("delta.universalFormat.enabledFormats", "")
        return look_through(self.handle.store, metadata.partition_columns, "iceberg" in formats)

    @cached_property
    def missing(self) -> pa.Array:
        """The paths that aren't on disk, each once."""
        paths, store = self.files["path"], self.snapshot.store
        unseen = pc.unique(paths.filter(pc.invert(pc.is_in(paths, value_set=self.folder.files["path"]))))
        # Files on other storage aren't checked, so they don't count as missing.
        unseen = unseen.filter(pc.invert(is_remote(unseen)))
        unlisted = unseen.filter(pc.match_substring_regex(unseen, _UNLISTED))
        found = pa.array(filter(store.is_file, unlisted.to_pylist()), pa.string())
        return unseen.filter(pc.invert(pc.is_in(unseen, value_set=found)))

    @cached_property
    def files(self) -> pa.Table:
        """One row for each span of versions that need a data file or a file of deletion vectors.

        path (string), is_data (bool), added (int64), removed (int64, the first version that doesn't need
        it; latest + 1 for live files).
        """
        removed = pc.fill_null(self.lifetimes["removed"], self.latest + 1)
        spans = self.lifetimes.select(["path", "added"]).append_column("removed", removed)
        files = self._with_vectors(spans, self.lifetimes["deletion_vector_id"])
        vectors = files.filter(pc.invert(files["is_data"]))
        data = files.filter(files["is_data"])
        return pa.concat_tables([data, _merged(vectors).select(data.column_names)])

    @cached_property
    def live(self) -> pa.Table:
        """The files that the latest version needs: path (string), is_data (bool)."""
        live = self.snapshot.live
        files = pa.table({"path": places(live["path"], self.snapshot.store)})
        return self._with_vectors(files, live["deletion_vector_id"])

    @cached_property
    def tombstones(self) -> pa.Table:
        """The tombstones of the latest version: path (string), time (ms since 1970), is_data (bool)."""
        return self._dead(self.snapshot.tombstones)

    def young_tombstones(self, at: datetime, retention: timedelta) -> pa.Table:
        """Return the tombstones that are younger than a retention at a time, as far as the log has them."""
        found = [self.tombstones]
        # A checkpoint drops tombstones that are older than the table's own retention; commits keep them.
        if retention > self.retention:
            found += map(self._dead, self.log.removals())
        tombstones = pa.concat_tables(found)
        return tombstones.filter(pc.greater_equal(tombstones["time"], cutoff(at, retention)))

    def of_version(self, version: int) -> pa.Array:
        """Return the paths of the files that a version needs."""
        within = (pc.field("added") <= version) & (pc.field("removed") > version)
        return self.files.filter(within)["path"].combine_chunks()

    def count(self, paths: pa.Array) -> np.ndarray:
        """Count how many of these files each of `versions` needs (int64)."""
        hits = self.files.filter(pc.is_in(self.files["path"], value_set=paths))
        return self.totals(hits, np.ones(len(hits), np.int64))

    def totals(self, spans: pa.Table, weights: np.ndarray) -> np.ndarray:
        """Sum, for each of `versions`, the weights of the spans (added, removed) that it is in."""
        steps = np.zeros(self.latest - self.first + 2, weights.dtype)
        ends = pc.fill_null(spans["removed"], self.latest + 1).to_numpy()
        np.add.at(steps, spans["added"].to_numpy() - self.first, weights)
        np.subtract.at(steps, ends - self.first, weights)
        return np.cumsum(steps, dtype=weights.dtype)[:-1]

    def statuses(
        self, deleted: pa.Array | None = None, superseded: bool = False, at: datetime | None = None
    ) -> np.ndarray:
        """Return whether each version can be read at a time, as in `Table.versions`, without deleted paths.

        Delta's guard never refuses the latest version (SnapshotManagement) unless it is `superseded`.
        """
        missing = self.missing if deleted is None else pa.concat_arrays([self.missing, deleted])
        is_old = self.times < cutoff(at or datetime.now(UTC), self.retention)
        is_latest = (self.versions == self.latest) & (not superseded)
        conditions = {
            LOG_GONE: ~self.has_commit,
            MISSING: self.count(missing) > 0,
            BLOCKED: is_old & ~is_latest & self.handle.goes_by(GUARD),
        }
        return np.select([*conditions.values()], [*conditions], default=YES).astype(object)

    def missing_of(self, version: int) -> list[str]:
        """Return the paths that a version needs and that aren't on disk, sorted."""
        return sorted({*self.of_version(version).to_pylist()} & {*self.missing.to_pylist()})

    def _dead(self, removes: pa.Table) -> pa.Table:
        # Delta treats a tombstone without a time as a tombstone of 1970 (RemoveFile.delTimestamp).
        times = pc.fill_null(removes["deletion_timestamp"], 0)
        files = pa.table({"path": places(removes["path"], self.snapshot.store), "time": times})
        return self._with_vectors(files, removes["deletion_vector_id"])

    def _with_vectors(self, files: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
        """Add is_data, and a row for the file of each deletion vector; inline vectors have no file."""
        data = files.append_column("is_data", pa.repeat(True, len(files)))
        if ids.null_count == len(ids):
            return data
        store = self.snapshot.store
        encoded = pa.chunked_array(ids).combine_chunks().dictionary_encode()
        names = [deletion_vector_file(vector_id, store) for vector_id in encoded.dictionary.to_pylist()]
        paths = pa.array(names, pa.string()).take(encoded.indices)
        vectors = files.set_column(files.schema.get_field_index("path"), "path", paths)
        vectors = vectors.append_column("is_data", pa.repeat(False, len(files)))
        return pa.concat_tables([data, vectors.filter(paths.is_valid())])


def read_files_by_version(handle: Handle) -> FilesByVersion:
    """Read from the log which files each version needs."""
    log = handle.log.listed()
    earliest, lifetimes = log.lifetimes()
    snapshot, commits = log.snapshot(), log.commits()
    texts = dict(zip(commits["version"].to_pylist(), commits["schema"].to_pylist(), strict=True))
    schemas: list[Any] = [earliest.metadata.schema]
    for version in range(earliest.version + 1, snapshot.version + 1):
        schemas.append(schemas[-1])
        if (text := texts.get(version)) is not None:
            try:
                schemas[-1] = json.loads(text)
            except (ValueError, RecursionError):
                # This version can't be read, but a later one may be.
                schemas[-1] = text
    return FilesByVersion(handle, log, earliest, snapshot, lifetimes, commits, schemas)


def latest_by_path(paths: pa.Array, rows: pa.Table, column: str) -> pa.Array:
    """Return the greatest value of a column in the rows of each path; null for a path without rows."""
    most = rows.group_by("path").aggregate([(column, "max")])
    return most[f"{column}_max"].combine_chunks().take(pc.index_in(paths, value_set=most["path"]))


def _merged(spans: pa.Table) -> pa.Table:
    """Merge the overlapping spans of each path, because one file can hold several deletion vectors."""
    paths = spans["path"].combine_chunks().dictionary_encode()
    codes = np.tile(paths.indices.to_numpy(), 2)
    versions = np.concatenate([spans["added"].to_numpy(), spans["removed"].to_numpy()])
    steps = np.repeat([1, -1], len(spans))
    order = np.lexsort((-steps, versions, codes))
    # The steps of each path add up to 0, so that a single running sum serves all paths.
    in_use = np.cumsum(steps[order])
    begins = (steps[order] == 1) & (in_use == 1)
    merged = {"added": versions[order][begins], "removed": versions[order][in_use == 0]}
    merged |= {"path": paths.dictionary.take(pa.array(codes[order][begins]))}
    return pa.table(merged).append_column("is_data", pa.repeat(False, int(begins.sum())))
