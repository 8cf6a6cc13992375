"""The live files of one version: their sizes, partitions and bounds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit import plots
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.file_stats import FileStats, Histogram
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.skipping import Bounds, Overlap, measure_overlap, place_values, read_bounds
from compaction_kit.text import MIB, format_count, format_factor, format_size, parse_size, parse_spark_size

SMALL_FILE_SIZE = 16 * MIB
_TARGET_SIZE = "delta.targetFileSize"
_PARTITION_SUMS = ("num_files", "size_bytes", "num_small_files")


@dataclass(frozen=True)
class Files:
    """The live files of a table at a version, or those of some of its partitions.

    `rows` selects files of the snapshot by position; None for all of them.
    """

    snapshot: Snapshot
    rows: np.ndarray | None = None

    @property
    def version(self) -> int:
        """The version of the table."""
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

    def _selected(self, values: Any) -> Any:
        return values if self.rows is None else values.take(pa.array(self.rows))

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Names of the partition columns."""
        return self.snapshot.metadata.partition_columns

    @property
    def data_columns(self) -> tuple[str, ...]:
        """Names of the other top-level columns."""
        return tuple(n for n in self.snapshot.metadata.column_types if n not in self.partition_columns)

    @property
    def partitions(self) -> pa.Table:
        """The columns partition.<column> of each file, as the log writes the values."""
        names = [f"partition.{name}" for name in self.partition_columns]
        return self._selected(self.snapshot.live_files.select(names))

    def to_arrow(self) -> pa.Table:
        """Return one row per file, in the order of the log.

        path is as the log writes it, but absolute paths are URIs as in Delta's snapshot; num_records counts
        deleted rows too and is null without stats; deletion_vector_cardinality counts the rows that a
        deletion vector deletes.

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
        return self._selected(pa.table(columns))

    def stats(self, small_file_size: int | str | None = None) -> FileStats:
        """Return statistics of the files, the log and the tombstones.

        Args:
            small_file_size: Files below this size (bytes, or text such as "16 MiB") count as small. None:
                half of the table's delta.targetFileSize, which other systems than Spark set, or 16 MiB.

        Examples:
            >>> ck.open_table("data/flights").files().stats()
            FileStats(
            files           1,095 in 3 partitions
            size            ...
            under 16 MiB    1,095 files (...
        """
        threshold = self.small_file_size(small_file_size)
        in_partitions = self.by_partition(threshold)["num_files"].to_numpy()
        return FileStats.of(self.snapshot, self.sizes, in_partitions, threshold)

    def small_file_size(self, size: int | str | None = None) -> int:
        """Return the size in bytes below which a file counts as small; see `stats`."""
        if size is not None:
            return parse_size(size, "small_file_size")
        target = self.snapshot.metadata.configuration.get(_TARGET_SIZE)
        return SMALL_FILE_SIZE if target is None else parse_spark_size(target, _TARGET_SIZE) // 2

    def by_partition(self, small_file_size: int | str | None = None) -> pa.Table:
        """Return one row per partition, the one with the most files first; `small_file_size` as in `stats`.

        Examples:
            >>> ck.open_table("data/flights").files().by_partition().schema
            partition.origin: string
            num_files: int64
            size_bytes: int64
            num_small_files: int64
        """
        small = (self.sizes < self.small_file_size(small_file_size)).astype(np.int64)
        table, names = self.partitions, self.partitions.column_names
        counts = (np.ones(len(small), np.int64), self.sizes, small)
        table = pa.table([*table.columns, *map(pa.array, counts)], [*names, *_PARTITION_SUMS])
        # Without partition columns all files are one group; without files there is no group.
        if not len(table):
            return table
        result = table.group_by(names).aggregate([(name, "sum") for name in _PARTITION_SUMS])
        result = result.rename_columns([*names, *_PARTITION_SUMS])
        return result.sort_by([("num_files", "descending"), ("size_bytes", "descending")])

    def has_bounds(self, column: str) -> bool:
        """Return whether the stats of any file have bounds of a column."""
        with suppress(InvalidArgumentError):
            return bool(self.bounds(column).known.any())
        return False

    def bounds(self, column: str, *others: Files) -> Bounds:
        """Return the minimum and maximum of a top-level data column in each file, from the files' stats.

        The bounds of `others`, which are the same table's files at other versions, come after them.

        Raises:
            InvalidArgumentError: There is no such column, or stats have no bounds for its type.
        """
        if column not in self.data_columns:
            raise InvalidArgumentError(
                f'column="{column}" is not a data column of the table: choose one of '
                f"{', '.join(self.data_columns)}."
            )
        metadata = self.snapshot.metadata
        stats = pa.concat_arrays([files._selected(files.snapshot.stats) for files in (self, *others)])
        return read_bounds(column, metadata.column_types[column], metadata.physical_names[column], stats)

    def overlap(self, column: str) -> Overlap:
        """Return how many files a query for one value of a data column opens, according to their stats.

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

    def plot(self, small_file_size: int | str | None = None) -> plots.Chart:
        """Draw the histogram, with the small files marked."""
        return plots.file_sizes(self.sizes, self.small_file_size(small_file_size))

    def plot_extents(self, column: str, after: Files | None = None, figure: Any = None) -> plots.Chart:
        """Draw one bar per file, from the minimum to the maximum of a data column in the file's stats.

        Args:
            column: The column; see `bounds` for the errors.
            after: The same table's files at a later version, drawn beside the files; None to draw only these.
            figure: The part of a figure to draw in; None for a new figure.
        """
        sides = {"now": self} if after is None else {"before": self, "after": after}
        bounds, start = self.bounds(column, *list(sides.values())[1:]), 0
        panels, found = {}, []
        for name, files in sides.items():
            these = slice(start, start := start + files.num_files)
            known, lows, highs = (array[these] for array in (bounds.known, bounds.lows, bounds.highs))
            overlap = measure_overlap(column, Bounds(known, lows, highs, bounds.values))
            in_cube = files._selected(files.snapshot.clustering_tags["cube_id"]).is_valid()
            panels[name] = pa.table({"low": lows, "high": highs, "in_cube": in_cube}).filter(pa.array(known))
            when = f" {name}" if after is not None else ""
            found.append(f"{format_factor(overlap.mean)} of {format_count(files.num_files, 'file')}{when}")
        finding = f"A value of {column} is in {', in '.join(found)}, on average"
        if unknown := int((~bounds.known).sum()):
            are = "is" if unknown == 1 else "are"
            finding += f"; {format_count(unknown, 'file')} without bounds {are} not drawn"
        kind = self.snapshot.metadata.column_types[column]
        values, label = place_values(bounds, kind)
        name = f"{column} (UTC)" if kind == "timestamp" else column
        return plots.extents(finding, name, values, label, panels, figure)

    def __repr__(self) -> str:
        files = format_count(self.num_files, "file")
        return f"Files(version {self.version}: {files}, {format_size(self.size_bytes)})"
