"""What OPTIMIZE would do to a table: which files it would rewrite, in which bins."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import EmptyTableError, InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.plan.packing import Packer, Packing
from compaction_kit.plan.partitions import partition_groups
from compaction_kit.sizes import GIB, format_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from compaction_kit.execute.result import CompactionResult


@dataclass(frozen=True)
class Thresholds:
    """What OPTIMIZE goes by; the defaults are its own (DeltaSQLConf, optimize.*)."""

    min_file_size: int = GIB
    max_file_size: int = GIB
    max_deleted_rows_ratio: float = 0.05


class Planner:
    """Plans one set of files; sorted once, so that other thresholds cost little."""

    def __init__(self, files: Files, time_zone: tzinfo | None = None):
        """
        Args:
            files: The live files to choose from: all of a version, or those a predicate selects.
            time_zone: The session's; None for the machine's.

        Raises:
            EmptyTableError: The version has no live file at all.
            UnsupportedTableError: A partition value isn't of its column's type.
        """
        if files.snapshot.live.num_rows == 0:
            raise EmptyTableError(
                f"The table is empty at version {files.version}: there is nothing to compact until "
                "rows are added."
            )
        self._files = files
        types = files.snapshot.metadata.column_types
        self._groups = partition_groups(files.partitions, types, time_zone)
        self._packer = Packer(files.sizes, self._groups, np.arange(files.num_files))

    def plan(
        self,
        thresholds: Thresholds,
        where: str | None = None,
        run: "Callable[..., CompactionResult] | None" = None,
    ) -> "CompactionPlan":
        """The plan with these thresholds.

        Args:
            thresholds: Sizes in bytes, and the ratio of deleted rows.
            where: The predicate that selected the files, for the record.
            run: What `plan.run()` calls, with the plan first.
        """
        packing = self._packer.pack(self._candidates(thresholds), thresholds.max_file_size)
        return CompactionPlan(self._files, thresholds, where, packing, self._groups, run)

    def _candidates(self, thresholds: Thresholds) -> np.ndarray:
        """Small files, and files with many deleted rows (OptimizeExecutor, filterCandidateFileList)."""
        small = self._files.sizes < thresholds.min_file_size
        if not self._files.snapshot.has_vectors:
            return small
        table = self._files.to_arrow()
        has_vector = table["deletion_vector_cardinality"].is_valid().to_numpy()
        counted = table["num_records"].is_valid().to_numpy()
        records = table["num_records"].fill_null(1).to_numpy().astype(float)
        deleted = table["deletion_vector_cardinality"].fill_null(0).to_numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = 1.0 - (records - deleted) / records
        return small | (has_vector & (~counted | (ratio > thresholds.max_deleted_rows_ratio)))


@dataclass(frozen=True)
class CompactionPlan:
    """Bins of files, each to be rewritten as one; made by `Table.plan_compaction`.

    It changes nothing until `run()` is called.
    """

    source: Files
    thresholds: Thresholds
    where: str | None
    packing: Packing
    groups: np.ndarray
    runner: "Callable[..., CompactionResult] | None" = None

    @property
    def version(self) -> int:
        """The version that was planned; the plan runs on no other."""
        return self.source.version

    @property
    def num_bins(self) -> int:
        """How many bins are rewritten."""
        return self.packing.num_bins

    @property
    def num_files_removed(self) -> int:
        """How many files are rewritten."""
        return len(self._members[0])

    @property
    def bytes_removed(self) -> int:
        """Their bytes: what has to be read."""
        return int(self.source.sizes[self._members[0]].sum())

    @cached_property
    def num_files_added(self) -> int:
        """How many files come out: one a bin, none for a bin whose rows are all deleted."""
        if not self.source.snapshot.has_vectors:
            return self.num_bins
        table = self.source.to_arrow()
        deleted = table["deletion_vector_cardinality"].fill_null(0)
        # A file that doesn't say how many rows it has is taken to have some.
        records = pc.subtract(table["num_records"], deleted).fill_null(1).to_numpy()
        positions, bin_ids = self._members
        rows = np.bincount(bin_ids, records[positions], minlength=self.num_bins)
        return int((rows > 0).sum())

    @property
    def num_partitions(self) -> int:
        """In how many partitions files are rewritten."""
        return len(np.unique(self.groups[self._members[0]]))

    @property
    def num_files_after(self) -> int:
        """Live files after the run, among those considered."""
        return self.source.num_files - self.num_files_removed + self.num_files_added

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do; `explain()` says why."""
        return self.num_bins == 0

    @cached_property
    def files(self) -> pa.Table:
        """The files to be rewritten, bin by bin.

        Columns: path (as the log writes it), size_bytes, bin_id.
        """
        positions, bin_ids = self._members
        paths = self.source.snapshot.live["path"]
        rows = positions if self.source.rows is None else self.source.rows[positions]
        return pa.table(
            {
                "path": paths.take(pa.array(rows)),
                "size_bytes": self.source.sizes[positions],
                "bin_id": bin_ids,
            }
        )

    @cached_property
    def bins(self) -> pa.Table:
        """One row a bin.

        Columns: bin_id, num_files, size_bytes, num_records (null where a file has no
        statistics), partition.<column>.
        """
        positions, bin_ids = self._members
        table = self.source.to_arrow().take(pa.array(positions)).append_column("bin_id", pa.array(bin_ids))
        partitions = [name for name in table.column_names if name.startswith("partition.")]
        keep_null = pc.ScalarAggregateOptions(skip_nulls=False)
        grouped = table.group_by("bin_id").aggregate(
            [
                ("path", "count"),
                ("size_bytes", "sum"),
                ("num_records", "sum", keep_null),
                *((name, "min") for name in partitions),
            ]
        )
        names = ["path_count", "size_bytes_sum", "num_records_sum", *(f"{name}_min" for name in partitions)]
        bins = grouped.select(["bin_id", *names]).sort_by("bin_id")
        return bins.rename_columns(["bin_id", "num_files", "size_bytes", "num_records", *partitions])

    @cached_property
    def sizes_after(self) -> np.ndarray:
        """Predicted sizes in bytes of the live files considered, after the run.

        A bin's is the sum of its files: an upper bound, as one file compresses better than many.
        """
        positions, bin_ids = self._members
        stay = np.ones(self.source.num_files, dtype=bool)
        stay[positions] = False
        bin_sizes = np.bincount(bin_ids, self.source.sizes[positions], minlength=self.num_bins)
        return np.r_[self.source.sizes[stay], bin_sizes.astype(np.int64)]

    def explain(self) -> str:
        """What the plan does and why, in a few sentences."""
        minimum = format_size(self.thresholds.min_file_size)
        scope = f" where {self.where}" if self.where else ""
        small = int((self.source.sizes < self.thresholds.min_file_size).sum())
        lines = [
            f"Version {self.version} has {_count(self.source.num_files, 'live file')}{scope}, "
            f"{small:,} under {minimum}."
        ]
        if self.source.num_files == 0:
            lines.append("No file matches, so there is nothing to do.")
        elif small == 0 and self.is_empty:
            lines.append("No file is under that size, so there is nothing to do.")
        elif self.is_empty:
            lines.append("None of them has a partner in its partition to share a bin with: nothing to do.")
        else:
            partitions = _count(self.num_partitions, "partition")
            lines.append(
                f"Of these, {self.num_files_removed:,} fill {_count(self.num_bins, 'bin')} of at most "
                f"{format_size(self.thresholds.max_file_size)} in {partitions}: "
                f"{format_size(self.bytes_removed)} become {_count(self.num_files_added, 'file')}."
            )
        return "\n".join(lines)

    def run(
        self,
        strategy: str = "auto",
        verify: bool = True,
        progress: "bool | Callable[[Any], None] | None" = None,
    ) -> "CompactionResult":
        """Compact the table as planned.

        Args:
            strategy: "optimize" (Delta's OPTIMIZE) or "auto", which picks it.
            verify: Compare the content before and after, read by Spark.
            progress: True for a bar, or a callable that takes an `execute.Progress` now and
                then; an exception that it raises cancels the run.

        Returns:
            What was done, by the log.

        Raises:
            StalePlanError: The table isn't at the planned version any more.
            ReadOnlyTableError: The table's folder can't be written to.
            ConflictError: Another writer removed a file of the plan meanwhile.
            RunCancelled: It was cancelled; nothing was committed.
            VerificationError: The content differs.
        """
        if self.runner is None:
            raise InvalidArgumentError(
                "This plan belongs to no table: make one with Table.plan_compaction()."
            )
        return self.runner(self, strategy=strategy, verify=verify, progress=progress)

    def plot(self) -> "Figure":
        """Draw the sizes now and as predicted, on one scale."""
        from compaction_kit import plots

        return plots.before_after(
            self.source.sizes,
            self.sizes_after,
            min_file_size=self.thresholds.min_file_size,
            max_file_size=self.thresholds.max_file_size,
            predicted=True,
        )

    def _repr_html_(self) -> str:
        from compaction_kit import plots

        text = self.explain().replace("\n", "<br>")
        return f"<div><p>{text}</p>{plots.to_html(self.plot())}</div>"

    def __repr__(self) -> str:
        return (
            f"CompactionPlan(version {self.version}: {self.num_files_removed:,} files in "
            f"{_count(self.num_bins, 'bin')}, {format_size(self.bytes_removed)})"
        )

    @cached_property
    def _members(self) -> tuple[np.ndarray, np.ndarray]:
        return self.packing.members()


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
