"""The live files of one version: their sizes, statistics and partitions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.histogram import Histogram
from compaction_kit.log.paths import one_array
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.records import Record
from compaction_kit.retention import table_retention
from compaction_kit.skipping import Bounds, Overlap, measure_overlap, read_bounds
from compaction_kit.text import MIB, format_count, format_files, format_size, parse_size, parse_spark_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL_FILE_SIZE = 16 * MIB
_TARGET_SIZE = "delta.targetFileSize"
_PARTITION_SUMS = ("num_files", "size_bytes", "num_small_files")


@dataclass(frozen=True, repr=False)
class FileStats(Record):
    """Statistics of a version's live files, its log and its tombstones.

    Sizes are in bytes. `skew` is the number of files in the partition with the most, divided by the average.
    `num_commits` counts the commits after the checkpoint, and `log_bytes` is their size and the checkpoint's,
    which every reader of this version reads. `tombstoned_bytes` is the size of removed files, except for
    `num_unsized_tombstones` whose size the log doesn't have. `reclaimable_bytes` is the part of it that is
    older than the retention; VACUUM may have deleted these files already, which the log doesn't show.
    """

    num_files: int
    size_bytes: int
    small_file_size: int
    num_small_files: int
    small_bytes: int
    min_size_bytes: int
    median_size_bytes: int
    max_size_bytes: int
    num_partitions: int
    skew: float
    num_commits: int
    log_bytes: int
    num_tombstones: int
    tombstoned_bytes: int
    reclaimable_bytes: int
    num_unsized_tombstones: int

    def facts(self) -> dict[str, str]:
        """Return the statistics for people: names and values."""
        most = f"; the partition with the most has {self.skew:,.1f} times the average"
        return {
            "files": f"{self.num_files:,} in {format_count(self.num_partitions, 'partition')}"
            f"{most if self.num_partitions > 1 else ''}",
            "size": format_size(self.size_bytes),
            f"under {format_size(self.small_file_size)}": format_files(
                self.num_small_files, self.small_bytes
            ),
            "smallest": format_size(self.min_size_bytes),
            "median": format_size(self.median_size_bytes),
            "largest": format_size(self.max_size_bytes),
            "log to read": f"{format_size(self.log_bytes)}, with {format_count(self.num_commits, 'commit')} "
            "that no checkpoint has",
            "tombstones": f"{format_files(self.num_tombstones, self.tombstoned_bytes)}, "
            f"{format_size(self.reclaimable_bytes)} past the retention",
        }


@dataclass(frozen=True)
class Files:
    """The live files of a table at a version, or those of some of its partitions.

    `rows` selects files of the snapshot by position; None for all of them.
    """

    snapshot: Snapshot
    rows: np.ndarray | None = None

    @property
    def version(self) -> int:
        """The version whose files these are."""
        return self.snapshot.version

    @property
    def num_files(self) -> int:
        """Number of files."""
        return len(self.sizes)

    @property
    def size_bytes(self) -> int:
        """Size of all files, in bytes."""
        return int(self.sizes.sum())

    @cached_property
    def sizes(self) -> np.ndarray:
        """Size of each file in bytes, int64, in the order of `to_arrow()`."""
        sizes = self.snapshot.live["size_bytes"].to_numpy()
        return sizes if self.rows is None else sizes[self.rows]

    def paths(self, positions: np.ndarray) -> pa.ChunkedArray:
        """Return the paths of some of the files, as in Delta's snapshot."""
        return self.snapshot.live["path"].take(pa.array(self.in_snapshot(positions)))

    def in_snapshot(self, positions: np.ndarray) -> np.ndarray:
        """Convert positions in these files to positions in the snapshot."""
        return positions if self.rows is None else self.rows[positions]

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Names of the partition columns."""
        return self.snapshot.metadata.partition_columns

    @property
    def data_columns(self) -> tuple[str, ...]:
        """Names of the other top-level columns."""
        metadata = self.snapshot.metadata
        return tuple(name for name in metadata.column_types if name not in metadata.partition_columns)

    @property
    def partitions(self) -> pa.Table:
        """The columns partition.<column> of each file, as the log writes the values."""
        table = self.snapshot.live_files.select([f"partition.{name}" for name in self.partition_columns])
        return table if self.rows is None else table.take(pa.array(self.rows))

    def to_arrow(self) -> pa.Table:
        """Return one row per file, in the order of the log.

        Returns:
            path is as the log writes it (see `paths.canonical_paths`). num_records counts deleted rows
            too, and is null without stats. deletion_vector_cardinality counts the rows that a deletion
            vector deletes.

        Examples:
            >>> ck.open_table("data/flights").files().to_arrow().schema
            path: string
            size_bytes: int64
            num_records: int64
            modification_time: timestamp[ms, tz=UTC]
            deletion_vector_cardinality: int64
            partition.origin: string
        """
        live = self.snapshot.live_files
        columns = {
            "path": live["path"],
            "size_bytes": live["size_bytes"],
            "num_records": self.snapshot.num_records,
            "modification_time": live["modification_time"].cast(pa.timestamp("ms", "UTC")),
            "deletion_vector_cardinality": live["deletion_vector_cardinality"],
        }
        columns |= {name: live[name] for name in live.column_names if name.startswith("partition.")}
        table = pa.table(columns)
        return table if self.rows is None else table.take(pa.array(self.rows))

    def stats(self, small_file_size: int | str | None = None) -> FileStats:
        """Return statistics of the files, the log and the tombstones.

        Args:
            small_file_size: Files below this size (bytes, or text such as "16 MiB") count as small.
                None: half of the table's property delta.targetFileSize, as for auto compaction
                (AutoCompact.scala), or 16 MiB.

        Examples:
            >>> ck.open_table("data/flights").files().stats()
            FileStats(
            files           1,095 in 3 partitions; the partition with the most has 1.0 times the average
            size            ...
            under 16 MiB    1,095 files (...
        """
        threshold = self.small_file_size(small_file_size)
        sizes = self.sizes
        small = sizes[sizes < threshold]
        in_partitions = self.by_partition(threshold)["num_files"].to_numpy()
        return FileStats(
            num_files=len(sizes),
            size_bytes=int(sizes.sum()),
            small_file_size=threshold,
            num_small_files=len(small),
            small_bytes=int(small.sum()),
            min_size_bytes=int(sizes.min()) if len(sizes) else 0,
            median_size_bytes=int(np.median(sizes)) if len(sizes) else 0,
            max_size_bytes=int(sizes.max(initial=0)),
            num_partitions=len(in_partitions),
            skew=float(in_partitions.max() / in_partitions.mean()) if len(in_partitions) else 0.0,
            num_commits=len(self.snapshot.segment.commits),
            log_bytes=sum(source.size_bytes for source in self.snapshot.sources),
            **_waste(self.snapshot),
        )

    def small_file_size(self, size: int | str | None = None) -> int:
        """Return the size in bytes below which a file counts as small; see `stats`."""
        if size is not None:
            return parse_size(size, "small_file_size")
        target = self.snapshot.metadata.configuration.get(_TARGET_SIZE)
        return SMALL_FILE_SIZE if target is None else parse_spark_size(target, _TARGET_SIZE) // 2

    def by_partition(self, small_file_size: int | str | None = None) -> pa.Table:
        """Return one row per partition, the one with the most files first.

        Args:
            small_file_size: See `stats`.

        Examples:
            >>> partitions = ck.open_table("data/flights").files().by_partition()
            >>> partitions.schema
            partition.origin: string
            num_files: int64
            size_bytes: int64
            num_small_files: int64
            >>> partitions["num_files"].to_pylist()
            [365, 365, 365]
        """
        names = [f"partition.{name}" for name in self.partition_columns]
        small = pa.array(self.sizes < self.small_file_size(small_file_size)).cast(pa.int64())
        table = pa.table({"size_bytes": self.sizes, "num_small_files": small})
        for name in names:
            table = table.append_column(name, self.partitions[name])
        sums = [("size_bytes", "count"), ("size_bytes", "sum"), ("num_small_files", "sum")]
        # Without partition columns all files are one group; without files there is none.
        groups = table.group_by(names).aggregate(sums) if len(table) or names else None
        if groups is None:
            return pa.table({name: pa.array([], pa.int64()) for name in _PARTITION_SUMS})
        counted = groups.select([*names, "size_bytes_count", "size_bytes_sum", "num_small_files_sum"])
        result = counted.rename_columns([*names, *_PARTITION_SUMS])
        return result.sort_by([("num_files", "descending"), ("size_bytes", "descending")])

    def bounds(self, column: str) -> Bounds:
        """Return the minimum and maximum of a column in each file, from the files' stats.

        Args:
            column: A top-level column that isn't a partition column.

        Raises:
            InvalidArgumentError: There is no such column, or stats have no bounds for its type.
        """
        if column not in self.data_columns:
            raise InvalidArgumentError(
                f'column="{column}" is not a data column of the table: choose one of '
                f"{', '.join(self.data_columns)}."
            )
        metadata, stats = self.snapshot.metadata, self.snapshot.stats
        return read_bounds(
            column,
            metadata.column_types[column],
            metadata.physical_names[column],
            stats if self.rows is None else stats.take(pa.array(self.rows)),
        )

    def overlap(self, column: str) -> Overlap:
        """Return how many files a query for one value of a column reads, according to their stats.

        Args:
            column: See `bounds`.

        Examples:
            >>> ck.open_table("data/flights").files().overlap("time_hour")
            Overlap(
            files                           1,095, 0 of them without bounds
            files per value of time_hour    2.5 on average, 3 in the median, 3 at most
            )
        """
        return measure_overlap(column, self.bounds(column))

    def histogram(self) -> Histogram:
        """Return the number and the bytes of files by size, in buckets between powers of two."""
        return Histogram.of(self.sizes)

    def plot(self, small_file_size: int | str | None = None) -> Figure:
        """Draw the histogram, with the small files marked."""
        from compaction_kit import plots

        return plots.file_sizes(self.histogram(), self.small_file_size(small_file_size))

    def __repr__(self) -> str:
        files = format_count(self.num_files, "file")
        return f"Files(version {self.version}: {files}, {format_size(self.size_bytes)})"


def _waste(snapshot: Snapshot) -> dict[str, int]:
    """Sum up the tombstones, except those of files that are live with another deletion vector."""
    tombstones = snapshot.tombstones
    live = one_array(snapshot.live["path"])
    removed = tombstones.filter(pc.invert(pc.is_in(tombstones["path"], value_set=live)))
    # For VACUUM, a tombstone without a time is older than any other.
    times = pc.fill_null(removed["deletion_timestamp"], 0).to_numpy()
    retention_ms = table_retention(snapshot.metadata) // timedelta(milliseconds=1)
    sizes = pc.fill_null(removed["size_bytes"], 0).to_numpy()
    return {
        "num_tombstones": len(removed),
        "tombstoned_bytes": int(sizes.sum()),
        "reclaimable_bytes": int(sizes[times < time.time() * 1000 - retention_ms].sum()),
        "num_unsized_tombstones": removed["size_bytes"].null_count,
    }
