"""The files that each version needs, and the versions that Delta can read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.folder import list_folder
from compaction_kit.handle import Handle
from compaction_kit.log.metadata import unsupported_type_change
from compaction_kit.log.paths import deletion_vector_file, is_remote, places
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.retention import cutoff, table_retention
from compaction_kit.storage import Store

YES, BLOCKED, MISSING, LOG_GONE = "yes", "blocked", "missing files", "log gone"
UNSUPPORTED = "unsupported"
# `list_folder` returns neither files outside of the table nor hidden ones.
_UNLISTED = r"^/|(^|/)[._]"


@dataclass(frozen=True)
class FilesByVersion:
    """The data files and deletion vectors that each version needs, and the tombstones of the latest version.

    Paths are relative to the table and decoded; absolute for files outside of it.

    Attributes:
        first, latest: The earliest and the latest version that can be read from the log.
        files: One row for each span of versions that need a file: path (string), is_data (bool), added
            (int64), removed (int64, the first version that doesn't need it; latest + 1 for live files).
        snapshot: The latest version.
    """

    first: int
    latest: int
    files: pa.Table
    snapshot: Snapshot

    @property
    def versions(self) -> np.ndarray:
        """The versions in ascending order (int64)."""
        return np.arange(self.first, self.latest + 1)

    def count(self, paths: pa.Array) -> np.ndarray:
        """Count how many of these files each of `versions` needs (int64)."""
        hits = self.files.filter(pc.is_in(self.files["path"], value_set=paths))
        return running_totals(hits, np.ones(len(hits), np.int64), self.first, self.latest)

    def of_version(self, version: int) -> pa.Array:
        """Return the paths of the files that a version needs."""
        added, removed = self.files["added"], self.files["removed"]
        within = pc.and_(pc.less_equal(added, version), pc.greater(removed, version))
        return self.files.filter(within)["path"].combine_chunks()

    @cached_property
    def live(self) -> pa.Table:
        """The files that the latest version needs: path (string), is_data (bool)."""
        live, store = self.snapshot.live, self.snapshot.store
        files = pa.table({"path": places(live["path"], store)})
        return _with_vectors(files, live["deletion_vector_id"], store)

    @cached_property
    def tombstones(self) -> pa.Table:
        """The tombstones of the latest version: path (string), time (ms since 1970), is_data (bool)."""
        removes, store = self.snapshot.tombstones, self.snapshot.store
        # Delta counts a tombstone without a time as one of 1970 (RemoveFile.delTimestamp).
        times = pc.fill_null(removes["deletion_timestamp"], 0)
        files = pa.table({"path": places(removes["path"], store), "time": times})
        return _with_vectors(files, removes["deletion_vector_id"], store)

    def young_tombstones(self, cutoff: int) -> pa.Table:
        """Return the tombstones from a time on (ms since 1970)."""
        return self.tombstones.filter(pc.greater_equal(self.tombstones["time"], cutoff))


@dataclass(frozen=True)
class Readability:
    """The state that decides which versions Delta can read, now, later, or without some of the files.

    Attributes:
        needs: The files that each version needs.
        missing: The needed paths that aren't on disk.
        times: The time of each version that Delta's guard uses (int64, ms since 1970): the in-commit
            timestamp, else the modification time of the commit's file (Snapshot.timestamp).
        in_log: Whether the log has each version's commit and all commits since a checkpoint or version 0.
        is_supported: Whether Delta reads the schema of each version.
        retention: How long the table keeps removed files.
        guard: Whether Delta refuses versions older than the retention.
    """

    needs: FilesByVersion
    missing: pa.Array
    times: np.ndarray
    in_log: np.ndarray
    is_supported: np.ndarray
    retention: timedelta
    guard: bool

    def statuses(self, deleted: pa.Array | None = None, superseded: bool = False) -> np.ndarray:
        """Return for each version "yes", "log gone", "unsupported", "blocked" or "missing files".

        Args:
            deleted: Paths that will be missing too.
            superseded: Whether a newer version will have been committed: Delta's guard never refuses the
                latest version (SnapshotManagement).
        """
        missing = self.missing if deleted is None else pa.concat_arrays([self.missing, deleted])
        is_old = self.times < cutoff(datetime.now(UTC), self.retention)
        is_latest = (self.needs.versions == self.needs.latest) & (not superseded)
        conditions = {
            LOG_GONE: ~self.in_log,
            UNSUPPORTED: ~self.is_supported,
            BLOCKED: is_old & ~is_latest & self.guard,
            MISSING: self.needs.count(missing) > 0,
        }
        return np.select([*conditions.values()], [*conditions], default=YES).astype(object)

    def compared(self, before: np.ndarray, after: np.ndarray) -> pa.Table:
        """Make a table of statuses: version, timestamp (UTC), readable (before), readable_after."""
        times = pa.array(self.times, mask=self.times == 0).cast(pa.timestamp("ms", "UTC"))
        columns = {"version": self.needs.versions, "timestamp": times}
        return pa.table(columns | {"readable": before, "readable_after": after})


def read_files_by_version(handle: Handle) -> FilesByVersion:
    """Read from the log which files each version needs."""
    first, lifetimes = handle.log.lifetimes()
    snapshot = handle.log.snapshot()
    removed = pc.fill_null(lifetimes["removed"], snapshot.version + 1)
    spans = lifetimes.select(["path", "added"]).append_column("removed", removed)
    files = _with_vectors(spans, lifetimes["deletion_vector_id"], handle.store)
    vectors = files.filter(pc.invert(files["is_data"]))
    if len(vectors):
        data = files.filter(files["is_data"])
        files = pa.concat_tables([data, _merged(vectors).select(data.column_names)])
    return FilesByVersion(first.version, snapshot.version, files, snapshot)


def read_readability(handle: Handle, on_disk: pa.Table | None = None) -> Readability:
    """Read the log, and list the table's folder unless `on_disk`, from `list_folder`, is given."""
    needs = read_files_by_version(handle)
    metadata = needs.snapshot.metadata
    if on_disk is None:
        on_disk = list_folder(handle.store, metadata.partition_columns)
    commits = handle.log.commits()
    versions = commits["version"].to_numpy()
    # Other writers may have committed since the files were read.
    known = (versions >= needs.first) & (versions <= needs.latest)
    times = np.zeros(len(needs.versions), dtype=np.int64)
    times[versions[known] - needs.first] = commits["timestamp"].cast(pa.int64()).to_numpy()[known]
    schemas = read_schemas(handle, handle.log.lifetimes()[0], needs.latest)
    # Versions share the schema's object until a commit sets another.
    distinct = {id(schema): schema for schema in schemas if isinstance(schema, Mapping)}
    refused = [key for key, schema in distinct.items() if unsupported_type_change(schema) is not None]
    return Readability(
        needs=needs,
        missing=missing_paths(handle.store, needs.files["path"], on_disk["path"]),
        times=times,
        in_log=np.isin(needs.versions, versions) & np.array([schema is not None for schema in schemas]),
        is_supported=np.array([id(schema) not in refused for schema in schemas], bool),
        retention=table_retention(metadata),
        guard=handle.has_guard,
    )


def has_state(handle: Handle, versions: np.ndarray) -> np.ndarray:
    """Return whether the state of each version can be read from the log (bool)."""
    ranges = handle.log.ranges()
    return np.any([(known.start <= versions) & (versions < known.stop) for known in ranges], axis=0)


def read_schemas(handle: Handle, first: Snapshot, latest: int) -> list[Any]:
    """Return the schema of each version from `first` to `latest`; None where the log can't be read."""
    commits, log = handle.log.commits().select(["version", "schema"]).to_pydict(), handle.log
    texts = dict(zip(commits["version"], commits["schema"], strict=True))
    schemas: list[Any] = [None] * (latest - first.version + 1)
    for known in log.ranges():
        start = first if known.start == first.version else log.snapshot(known.start)
        schema: Any = start.metadata.schema
        for version in range(known.start, min(known.stop, latest + 1)):
            text = texts.get(version) if version > known.start else None
            if text is not None:
                try:
                    schema = json.loads(text)
                except (ValueError, RecursionError):
                    # This version can't be read, but a later one may be.
                    schema = text
            schemas[version - first.version] = schema
    return schemas


def missing_paths(store: Store, paths: pa.ChunkedArray, on_disk: pa.ChunkedArray) -> pa.Array:
    """Return the paths that aren't on disk, each once; `on_disk` is from `list_folder`."""
    unseen = pc.unique(paths.filter(pc.invert(pc.is_in(paths, value_set=on_disk))))
    # Files on other storage aren't looked for, and so aren't called missing.
    unseen = unseen.filter(pc.invert(is_remote(unseen)))
    unlisted = pc.match_substring_regex(unseen, _UNLISTED)
    found = [path for path in unseen.filter(unlisted).to_pylist() if store.is_file(path)]
    return unseen.filter(pc.invert(pc.is_in(unseen, value_set=pa.array(found, pa.string()))))


def latest_by_path(paths: pa.Array, rows: pa.Table, column: str) -> pa.Array:
    """Return the greatest value of a column in the rows of each path; null for a path without rows."""
    most = rows.group_by("path").aggregate([(column, "max")])
    return most[f"{column}_max"].combine_chunks().take(pc.index_in(paths, value_set=most["path"]))


def running_totals(spans: pa.Table, weights: np.ndarray, first: int, latest: int) -> np.ndarray:
    """Sum, for each version from `first` to `latest`, the weights of its spans (added, removed)."""
    steps = np.zeros(latest - first + 2, weights.dtype)
    np.add.at(steps, spans["added"].to_numpy() - first, weights)
    np.subtract.at(steps, pc.fill_null(spans["removed"], latest + 1).to_numpy() - first, weights)
    return np.cumsum(steps, dtype=weights.dtype)[:-1]


def _with_vectors(files: pa.Table, ids: pa.ChunkedArray, store: Store) -> pa.Table:
    """Add is_data, and a row for the file of each deletion vector; inline vectors have no file."""
    data = files.append_column("is_data", pa.repeat(True, len(files)))
    if ids.null_count == len(ids):
        return data
    encoded = pa.chunked_array(ids).combine_chunks().dictionary_encode()
    names = [deletion_vector_file(vector_id, store) for vector_id in encoded.dictionary.to_pylist()]
    paths = pa.array(names, pa.string()).take(encoded.indices)
    vectors = files.set_column(files.schema.get_field_index("path"), "path", paths)
    vectors = vectors.append_column("is_data", pa.repeat(False, len(files)))
    return pa.concat_tables([data, vectors.filter(paths.is_valid())])


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
