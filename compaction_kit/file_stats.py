"""Statistics of live files, and how many there are of each size."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow.compute as pc

from compaction_kit.log.paths import one_array
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.records import Record
from compaction_kit.retention import cutoff, table_retention
from compaction_kit.text import format_count, format_factor, format_files, format_size


@dataclass(frozen=True, repr=False)
class FileStats(Record):
    """Statistics of a version's live files, its log and its tombstones; sizes are in bytes.

    `skew` is the number of files in the partition with the most, divided by the average. `num_commits` counts
    the commits after the checkpoint, and `log_bytes` is their size and the checkpoint's, which every reader
    reads. `num_tombstones` counts removed files, `tombstoned_bytes` is their size, as far as the log has it,
    and `reclaimable_bytes` the part that is older than the retention; VACUUM may have deleted these files.
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

    @classmethod
    def of(
        cls, snapshot: Snapshot, sizes: np.ndarray, in_partitions: np.ndarray, small_file_size: int
    ) -> FileStats:
        """Return the statistics of some files of a version, from their bytes and the files per partition."""
        small = sizes[sizes < small_file_size]
        # A file that is also live, with another deletion vector, is not counted: VACUUM keeps it.
        is_live = pc.is_in(snapshot.removes["path"], value_set=one_array(snapshot.live["path"]))
        removed = snapshot.tombstones.filter(pc.invert(is_live)).group_by("path")
        # One file may have several tombstones, with different deletion vectors.
        removed = removed.aggregate([("deletion_timestamp", "max"), ("size_bytes", "max")])
        # For VACUUM, a tombstone without a time is older than any other.
        times = pc.fill_null(removed["deletion_timestamp_max"], 0).to_numpy()
        dead_sizes = pc.fill_null(removed["size_bytes_max"], 0).to_numpy()
        oldest = cutoff(datetime.now(UTC), table_retention(snapshot.metadata))
        return cls(
            num_files=len(sizes),
            size_bytes=int(sizes.sum()),
            small_file_size=small_file_size,
            num_small_files=len(small),
            small_bytes=int(small.sum()),
            min_size_bytes=int(sizes.min()) if len(sizes) else 0,
            median_size_bytes=int(np.median(sizes)) if len(sizes) else 0,
            max_size_bytes=int(sizes.max(initial=0)),
            num_partitions=len(in_partitions),
            skew=float(in_partitions.max() / in_partitions.mean()) if len(in_partitions) else 0.0,
            num_commits=len(snapshot.segment.commits),
            log_bytes=sum(source.size_bytes for source in snapshot.sources),
            num_tombstones=len(removed),
            tombstoned_bytes=int(dead_sizes.sum()),
            reclaimable_bytes=int(dead_sizes[times < oldest].sum()),
        )

    def facts(self) -> dict[str, str]:
        """Return the statistics as readable text: names and values."""
        is_skewed, times = self.skew >= 1.05, format_factor(self.skew)
        most = f"; the partition with the most has {times} times the average" if is_skewed else ""
        small = format_files(self.num_small_files, self.small_bytes)
        return {
            "files": f"{self.num_files:,} in {format_count(self.num_partitions, 'partition')}{most}",
            "size": format_size(self.size_bytes),
            f"under {format_size(self.small_file_size)}": small,
            "smallest": format_size(self.min_size_bytes),
            "median": format_size(self.median_size_bytes),
            "largest": format_size(self.max_size_bytes),
            "log to read": f"{format_size(self.log_bytes)}, including "
            f"{format_count(self.num_commits, 'commit')} not in a checkpoint",
            "tombstones": f"{format_files(self.num_tombstones, self.tombstoned_bytes)}, "
            f"{format_size(self.reclaimable_bytes)} past the retention",
        }


@dataclass(frozen=True)
class Histogram:
    """Files by size: bucket i counts sizes of at least edges[i] and less than edges[i + 1].

    `edges` has one element more than `num_files` and `size_bytes`; all are int64.
    """

    edges: np.ndarray
    num_files: np.ndarray
    size_bytes: np.ndarray

    @classmethod
    def of(cls, sizes: np.ndarray) -> Histogram:
        """Count file sizes (bytes) in buckets between powers of two."""
        # An empty file is not valid Parquet, but a log may list it.
        powers = np.frexp(np.maximum(sizes, 1).astype(float))[1] - 1
        lowest = int(powers.min()) if len(sizes) else 0
        num_files = np.bincount(powers - lowest, minlength=1)
        size_bytes = np.bincount(powers - lowest, sizes, minlength=1).astype(np.int64)
        return cls(2 ** np.arange(lowest, lowest + len(num_files) + 1), num_files, size_bytes)
