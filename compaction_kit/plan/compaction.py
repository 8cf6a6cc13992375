"""A plan: which files would be rewritten in which bins, and what would come of it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.plan.batches import batch_of_bins
from compaction_kit.plan.benefit import gains
from compaction_kit.plan.candidates import LARGE, Thresholds, reasons
from compaction_kit.plan.compare import Comparison, compare
from compaction_kit.plan.estimate import live_rows
from compaction_kit.plan.order import SIZE
from compaction_kit.plan.packing import Packing
from compaction_kit.plan.prediction import Exactness, exactness, metrics
from compaction_kit.plan.words import explain
from compaction_kit.sizes import format_count, format_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from compaction_kit.execute.result import CompactionResult
    from compaction_kit.plan.planner import Planner

_FORMAT = 1


@dataclass(frozen=True)
class CompactionPlan:
    """Bins of files, each to be rewritten as one; made by `Table.plan_compaction`.

    It changes nothing until `run()` is called. `unbounded` has the bins as they would be without
    a budget.
    """

    planner: "Planner"
    thresholds: Thresholds
    where: str | None
    order: str
    budget: int | None
    zorder_by: tuple[str, ...]
    packing: Packing
    unbounded: Packing
    runner: "Callable[..., CompactionResult] | None" = None

    @property
    def source(self) -> Files:
        """The files that were considered."""
        return self.planner.files

    @property
    def groups(self) -> np.ndarray:
        """The partition of each file considered, as a number."""
        return self.planner.groups

    @property
    def version(self) -> int:
        """The version that was planned; the plan runs on no other."""
        return self.source.version

    @property
    def is_optimize(self) -> bool:
        """Whether this is what OPTIMIZE does: its own order, and all that it finds."""
        return self.order == SIZE and self.budget is None

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

    @property
    def num_files_added(self) -> int:
        """How many files come out; none of a bin whose rows are all deleted."""
        return int(self._files_added.sum())

    @property
    def bytes_added(self) -> int:
        """The bytes that come out, as predicted; `size_basis` says from what."""
        return int(self._bytes_added[self._files_added > 0].sum())

    @property
    def size_basis(self) -> str:
        """What the prediction of bytes rests on."""
        return self.planner.model.basis

    @property
    def num_partitions(self) -> int:
        """In how many partitions files are rewritten."""
        return len(np.unique(self.groups[self._members[0]]))

    @property
    def num_batches(self) -> int:
        """In how many commits OPTIMIZE packs the bins; one that adds no file is not made."""
        if self.thresholds.batch_size is None:
            return 1
        return int(self._batch_ids.max(initial=-1)) + 1

    @property
    def num_files_after(self) -> int:
        """Live files after the run, among those considered."""
        return self.source.num_files - self.num_files_removed + self.num_files_added

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do; `explain()` says why."""
        return self.num_bins == 0

    @property
    def gain(self) -> int:
        """What a full read of the table is spared, in bytes; see `benefit.gains`."""
        return int(self._gains.sum())

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
        statistics), partition.<column>, num_files_added, bytes_added (predicted), gain (bytes
        that a full read is spared), batch_id (the commit).
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
        bins = bins.rename_columns(["bin_id", "num_files", "size_bytes", "num_records", *partitions])
        predicted = {
            "num_files_added": self._files_added,
            "bytes_added": self._bytes_added,
            "gain": self._gains,
            "batch_id": self._batch_ids,
        }
        for name, values in predicted.items():
            bins = bins.append_column(name, pa.array(values, pa.int64()))
        return bins

    @cached_property
    def batches(self) -> pa.Table:
        """One row a batch, in the order of OPTIMIZE's commits; one that adds no file commits nothing.

        Columns: batch_id, num_bins, num_files, size_bytes, num_files_added.
        """
        sums = [(name, "sum") for name in ("num_files", "size_bytes", "num_files_added")]
        grouped = self.bins.group_by("batch_id").aggregate([("bin_id", "count"), *sums]).sort_by("batch_id")
        names = ["batch_id", "bin_id_count", *(f"{name}_sum" for name, _ in sums)]
        return grouped.select(names).rename_columns(["batch_id", "num_bins", *(name for name, _ in sums)])

    @cached_property
    def steps(self) -> pa.Table:
        """Every file considered, in the order of packing, and what becomes of it.

        Columns: path, size_bytes, partition.<column>, reason ("small", "deleted rows", "Z-order";
        "large" for no candidate), outcome ("packed", "large", "alone" in its bin, "over budget"),
        bin_id (null if it stays).
        """
        source = self.source
        reason = np.full(source.num_files, "Z-order") if self.zorder_by else reasons(source, self.thresholds)
        outcome = np.where(reason == LARGE, "large", "alone").astype(object)
        outcome[self.unbounded.members()[0]] = "over budget"
        positions, bin_ids = self._members
        outcome[positions] = "packed"
        bin_of = np.full(source.num_files, -1)
        bin_of[positions] = bin_ids
        order = self.planner.order(self.order)
        files = source.to_arrow()
        kept = [name for name in files.column_names if name.startswith("partition.")]
        return pa.table(
            {
                **{name: files[name].take(pa.array(order)) for name in ("path", "size_bytes", *kept)},
                "reason": reason[order],
                "outcome": outcome[order],
                "bin_id": pa.array(bin_of[order], mask=bin_of[order] < 0),
            }
        )

    @cached_property
    def sizes_after(self) -> np.ndarray:
        """Predicted sizes in bytes of the live files considered, after the run."""
        stay = np.ones(self.source.num_files, dtype=bool)
        stay[self._members[0]] = False
        counts = self._files_added
        each = self._bytes_added // np.maximum(counts, 1)
        return np.r_[self.source.sizes[stay], np.repeat(each, counts)]

    @property
    def metrics(self) -> dict[str, Any]:
        """What OPTIMIZE's result row will say; see `prediction.metrics`."""
        return metrics(self)

    @property
    def exact(self) -> Exactness:
        """What of the plan is certain, and what is not."""
        return exactness(self)

    def compare(self, column: str | None = None) -> Comparison:
        """The table's layout now, after OPTIMIZE, and after each order; see `compare.compare`."""
        return compare(self, column)

    def to_dict(self) -> dict[str, Any]:
        """The plan as it can be stored, in values that JSON has; "format" is 1."""
        thresholds = self.thresholds
        return {
            "format": _FORMAT,
            "version": self.version,
            "where": self.where,
            "order": self.order,
            "budget": self.budget,
            "zorder_by": list(self.zorder_by),
            "min_file_size": thresholds.min_file_size,
            "max_file_size": thresholds.max_file_size,
            "max_deleted_rows_ratio": thresholds.max_deleted_rows_ratio,
            "batch_size": thresholds.batch_size,
            "num_files_removed": self.num_files_removed,
            "num_files_added": self.num_files_added,
            "bytes_removed": self.bytes_removed,
            "bytes_added": self.bytes_added,
            "size_basis": self.size_basis,
            "bins": self.bins.to_pylist(),
            "files": self.files.to_pylist(),
        }

    def explain(self) -> str:
        """What the plan does and why, in a few sentences."""
        return explain(self)

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
        """Draw the sizes now and as predicted on one scale, and the bins as packed bars."""
        from compaction_kit import plots

        return plots.plan(self.source.sizes, self.sizes_after, self.files, self.thresholds)

    def _repr_html_(self) -> str:
        from compaction_kit import plots

        text = self.explain().replace("\n", "<br>")
        return f"<div><p>{text}</p>{plots.to_html(self.plot())}</div>"

    def __repr__(self) -> str:
        return (
            f"CompactionPlan(version {self.version}: {self.num_files_removed:,} files in "
            f"{format_count(self.num_bins, 'bin')}, {format_size(self.bytes_removed)})"
        )

    @cached_property
    def output_rows_known(self) -> np.ndarray:
        """Whether the log says of each bin if any row is left in it, bool."""
        positions, bin_ids = self._members
        rows = live_rows(self.source)[positions]
        some = np.bincount(bin_ids, np.nan_to_num(rows), minlength=self.num_bins) > 0
        unknown = np.bincount(bin_ids, np.isnan(rows), minlength=self.num_bins) > 0
        known: np.ndarray = ~unknown if self.thresholds.max_records_per_file else some | ~unknown
        return known

    @cached_property
    def _members(self) -> tuple[np.ndarray, np.ndarray]:
        return self.packing.members()

    @cached_property
    def _files_added(self) -> np.ndarray:
        """Files that come out of each bin; one of unknown rows is taken to have some."""
        positions, bin_ids = self._members
        rows = np.nan_to_num(live_rows(self.source)[positions], nan=1)
        of_bin = np.bincount(bin_ids, rows, minlength=self.num_bins)
        if self.zorder_by:
            # OptimizeExecutor, runOptimizeBinJob: approxNumFiles; ranges without rows make no file.
            files = np.maximum(self._bytes_removed // self.thresholds.max_file_size, 1)
            return np.minimum(files, of_bin).astype(np.int64)
        most = self.thresholds.max_records_per_file
        return (np.ceil(of_bin / most) if most else of_bin > 0).astype(np.int64)

    @cached_property
    def _bytes_removed(self) -> np.ndarray:
        positions, bin_ids = self._members
        sizes = np.bincount(bin_ids, self.source.sizes[positions], minlength=self.num_bins)
        return sizes.astype(np.int64)

    @cached_property
    def _bytes_added(self) -> np.ndarray:
        predicted = self.planner.model.output_bytes(*self._members, self.num_bins)
        return np.where(self._files_added > 0, np.minimum(predicted, self._bytes_removed), 0)

    @cached_property
    def _gains(self) -> np.ndarray:
        return gains(self.packing.counts, self._bytes_removed, self._bytes_added)

    @cached_property
    def _batch_ids(self) -> np.ndarray:
        return batch_of_bins(self._bytes_removed, self.thresholds.batch_size)
