"""The live files of one version: what they weigh and how many are small."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from compaction_kit.histogram import Histogram
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.markup import as_html
from compaction_kit.sizes import MIB, format_size, parse_size

SMALL_FILE_SIZE = 16 * MIB


@dataclass(frozen=True)
class FileStats:
    """How a version's files are distributed; sizes in bytes."""

    num_files: int
    size_bytes: int
    small_file_size: int
    num_small_files: int
    small_bytes: int
    min_size_bytes: int
    median_size_bytes: int
    max_size_bytes: int
    num_partitions: int

    def _repr_html_(self) -> str:
        return as_html(
            {
                "files": f"{self.num_files:,} in {self.num_partitions:,} partitions",
                "size": format_size(self.size_bytes),
                f"under {format_size(self.small_file_size)}": f"{self.num_small_files:,} files, "
                f"{format_size(self.small_bytes)}",
                "smallest": format_size(self.min_size_bytes),
                "median": format_size(self.median_size_bytes),
                "largest": format_size(self.max_size_bytes),
            }
        )


@dataclass(frozen=True)
class Files:
    """The live files of a table at a version, or those of some of its partitions.

    `rows` picks files of the snapshot by position; None for all of them.
    """

    snapshot: Snapshot
    rows: np.ndarray | None = None

    @property
    def version(self) -> int:
        """The version that they are the files of."""
        return self.snapshot.version

    @property
    def num_files(self) -> int:
        """How many they are."""
        return len(self.sizes)

    @property
    def size_bytes(self) -> int:
        """Their bytes in total."""
        return int(self.sizes.sum())

    @cached_property
    def sizes(self) -> np.ndarray:
        """Bytes of each file, int64, in the order of `to_arrow()`."""
        sizes = self.snapshot.live["size_bytes"].to_numpy()
        return sizes if self.rows is None else sizes[self.rows]

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by."""
        return self.snapshot.metadata.partition_columns

    @property
    def partitions(self) -> pa.Table:
        """partition.<column> of each file, as the log writes it."""
        table = self.snapshot.live_files.select([f"partition.{name}" for name in self.partition_columns])
        return table if self.rows is None else table.take(pa.array(self.rows))

    def to_arrow(self) -> pa.Table:
        """One row a file, in the order of the log.

        Returns:
            path (as the log writes it), size_bytes, num_records (null where the log has no
            statistics; deleted rows count too), modification_time (UTC),
            deletion_vector_cardinality (rows deleted by a vector, null without one),
            partition.<column> (text, as the log writes it).
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

    def stats(self, small_file_size: int | str = SMALL_FILE_SIZE) -> FileStats:
        """Count and weigh the files.

        Args:
            small_file_size: Files below this size count as small.
        """
        threshold = parse_size(small_file_size, "small_file_size")
        sizes = self.sizes
        small = sizes[sizes < threshold]
        return FileStats(
            num_files=len(sizes),
            size_bytes=int(sizes.sum()),
            small_file_size=threshold,
            num_small_files=len(small),
            small_bytes=int(small.sum()),
            min_size_bytes=int(sizes.min(initial=0) if len(sizes) == 0 else sizes.min()),
            median_size_bytes=int(np.median(sizes)) if len(sizes) else 0,
            max_size_bytes=int(sizes.max(initial=0)),
            num_partitions=self._num_partitions(),
        )

    def _num_partitions(self) -> int:
        if not self.partition_columns:
            return 1 if self.num_files else 0
        return len(self.partitions.group_by(self.partitions.column_names).aggregate([]))

    def histogram(self) -> Histogram:
        """Files and bytes by size, in buckets between powers of two."""
        return Histogram.of(self.sizes)

    def plot(self, small_file_size: int | str = SMALL_FILE_SIZE) -> Figure:
        """Draw the histogram, with the small files marked."""
        from compaction_kit import plots

        return plots.file_sizes(self.histogram(), parse_size(small_file_size, "small_file_size"))

    def __repr__(self) -> str:
        return f"Files(version {self.version}: {self.num_files:,} files, {format_size(self.size_bytes)})"
