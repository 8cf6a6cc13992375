"""Which files each version needs, those of its deletion vectors among them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.log import TransactionLog
from compaction_kit.log.paths import deletion_vector_file, places


@dataclass(frozen=True)
class Needs:
    """From which version to which each file is needed.

    `first` and `latest` are the versions that the log tells of. `files` has a row for each time
    that a file was needed: path (relative to the table, decoded; absolute if it is elsewhere),
    added, and removed (the first version that doesn't need it; latest + 1 if all from there on do).
    """

    first: int
    latest: int
    files: pa.Table

    @property
    def versions(self) -> np.ndarray:
        """The versions that the log tells of, int64, rising."""
        return np.arange(self.first, self.latest + 1)

    def versions_without(self, paths: pa.Array) -> np.ndarray:
        """Which versions can't do without some of these files: bool, as long as `versions`."""
        return self.count(paths) > 0

    def count(self, paths: pa.Array) -> np.ndarray:
        """How many of these files each version needs: int64, as long as `versions`."""
        hits = self.files.filter(pc.is_in(self.files["path"], value_set=paths))
        length = self.latest - self.first + 2
        begun = np.bincount(hits["added"].to_numpy() - self.first, minlength=length)
        ended = np.bincount(hits["removed"].to_numpy() - self.first, minlength=length)
        return np.cumsum(begun - ended)[:-1]

    def of_version(self, version: int) -> pa.ChunkedArray:
        """The paths of the files that a version needs."""
        within = pc.and_(
            pc.less_equal(self.files["added"], version), pc.greater(self.files["removed"], version)
        )
        return self.files.filter(within)["path"]


def read_needs(table: Path, log: TransactionLog) -> Needs:
    """Read from the log which version needs which files.

    Args:
        table: The table's folder.
        log: Its log.
    """
    first, lifetimes = log.lifetimes()
    latest = log.segment().version
    removed = pc.fill_null(lifetimes["removed"], latest + 1)
    spans = pa.table({"added": lifetimes["added"], "removed": removed})
    data = spans.append_column("path", lifetimes["path"])
    vectors = spans.append_column("path", vector_paths(lifetimes["deletion_vector_id"], table))
    files = pa.concat_tables([data, _merged(vectors.filter(vectors["path"].is_valid()))])
    return Needs(first.version, latest, files.select(["path", "added", "removed"]))


def _merged(spans: pa.Table) -> pa.Table:
    """The spans of each path, those that overlap as one: several vectors are in one file."""
    if not len(spans):
        return spans
    paths = spans["path"].combine_chunks().dictionary_encode()
    codes = np.tile(paths.indices.to_numpy(), 2)
    versions = np.concatenate([spans["added"].to_numpy(), spans["removed"].to_numpy()])
    steps = np.repeat([1, -1], len(spans))
    order = np.lexsort((-steps, versions, codes))
    # Each path's steps add up to nothing, so that one running sum does for all of them.
    in_use = np.cumsum(steps[order])
    begins = (steps[order] == 1) & (in_use == 1)
    ends = in_use == 0
    merged = {"added": versions[order][begins], "removed": versions[order][ends]}
    return pa.table(merged).append_column("path", paths.dictionary.take(pa.array(codes[order][begins])))


def file_names(actions: pa.Table, table: Path) -> pa.ChunkedArray:
    """The data files and deletion vector files of some actions, relative to the table.

    Args:
        actions: Columns path (as snapshots have it) and deletion_vector_id.
        table: The table's folder.
    """
    vectors = vector_paths(actions["deletion_vector_id"], table).drop_null()
    return pa.chunked_array([places(actions["path"], table), vectors], pa.string())


def vector_paths(ids: pa.ChunkedArray, table: Path) -> pa.Array:
    """The file that each deletion vector is in; null for none, and for one within the log."""
    if ids.null_count == len(ids):
        return pa.nulls(len(ids), pa.string())
    encoded = pa.chunked_array(ids).combine_chunks().dictionary_encode()
    names = [deletion_vector_file(one, table) for one in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)
