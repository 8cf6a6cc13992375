"""A plan: which files would be rewritten in which bins, and what would come of it."""

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.plan.candidates import Thresholds
from compaction_kit.plan.compare import Comparison, compare
from compaction_kit.plan.order import SIZE
from compaction_kit.plan.outcome import Outcome
from compaction_kit.plan.packing import Packing
from compaction_kit.plan.prediction import Exactness, exactness, metrics
from compaction_kit.plan.tables import (
    as_dict,
    batches_table,
    bins_table,
    files_table,
    partitions_table,
    steps_table,
)
from compaction_kit.plan.words import explain, warnings
from compaction_kit.text import format_count, format_size, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from compaction_kit.execute.result import CompactionResult
    from compaction_kit.plan.planner import Planner


@dataclass(frozen=True)
class CompactionPlan:
    """Bins of files, each to be rewritten as one; made by `Table.plan_compaction`.

    It changes nothing until `run()` is called. It can be pickled, and run in another process, which
    opens the table by its path. `packed` has the bins that are looked at, and
    `unbounded` those without a budget. Its commits are known by `id`, which is in their userMetadata.
    """

    planner: "Planner"
    thresholds: Thresholds
    where: str | None
    order: str
    budget: int | None
    zorder_by: tuple[str, ...]
    packed: Packing
    unbounded: Packing
    runner: "Callable[..., CompactionResult] | None" = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

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
        return len(self.members[0])

    @property
    def bytes_removed(self) -> int:
        """Their bytes: what has to be read."""
        return int(self.source.sizes[self.members[0]].sum())

    @property
    def num_files_added(self) -> int:
        """How many files come out; none of a bin whose rows are all deleted."""
        return int(self.outcome.files_added.sum())

    @property
    def bytes_added(self) -> int:
        """The bytes that come out, as predicted; `size_basis` says from what."""
        return int(self.outcome.bytes_added.sum())

    @property
    def size_basis(self) -> str:
        """What the prediction of bytes rests on."""
        return self.planner.model.basis

    @property
    def num_partitions(self) -> int:
        """In how many partitions files are rewritten."""
        return len(np.unique(self.groups[self.members[0]]))

    @property
    def num_batches(self) -> int:
        """Into how many batches OPTIMIZE packs the bins; one that adds no file is not committed."""
        if self.thresholds.batch_size is None:
            return 1
        return int(self.full_outcome.batch_ids.max(initial=-1)) + 1

    @property
    def num_files_after(self) -> int:
        """Live files after the run, among those considered."""
        return self.source.num_files - self.num_files_removed + self.num_files_added

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do; `explain()` says why."""
        return self.num_bins == 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What one should know before it is run, a sentence each; `explain()` says it too."""
        return warnings(self)

    @property
    def gain(self) -> int:
        """What a full read of the table is spared, in bytes; see `benefit.gains`."""
        return int(self.outcome.gains.sum())

    @cached_property
    def files(self) -> pa.Table:
        """The files to be rewritten, bin by bin.

        Columns: path (as the log writes it), size_bytes, bin_id.
        """
        return files_table(self)

    @cached_property
    def bins(self) -> pa.Table:
        """One row a bin.

        Columns: bin_id, num_files, size_bytes, num_records (null where a file has no
        statistics), partition.<column>, num_deletion_vectors, num_files_added, bytes_added
        (predicted), gain (bytes that a full read is spared, see `benefit.gains`), batch_id (the
        commit), gain_per_byte (of those that are rewritten).
        """
        return bins_table(self)

    @cached_property
    def partitions(self) -> pa.Table:
        """One row a partition that has bins, the one that gains the most for a byte first.

        Columns: partition.<column>, num_bins, num_files, size_bytes, num_files_added,
        bytes_added (predicted), gain, gain_per_byte.
        """
        return partitions_table(self)

    @cached_property
    def batches(self) -> pa.Table:
        """One row a batch, in the order of OPTIMIZE's commits; one that would add no file is left out.

        Columns: batch_id, num_bins, num_files, size_bytes, num_deletion_vectors, num_files_added.
        """
        return batches_table(self)

    @cached_property
    def steps(self) -> pa.Table:
        """Every file considered, in the order of packing, and what becomes of it.

        Columns: path, size_bytes, partition.<column>, reason ("small", "deleted rows", "Z-order";
        "large" for no candidate), outcome ("packed", "large", "alone" in its bin, "over budget",
        "no rows" left in a whole batch), bin_id (null if it stays).
        """
        return steps_table(self)

    @cached_property
    def sizes_after(self) -> np.ndarray:
        """Predicted sizes in bytes of the live files considered, after the run."""
        stay = np.ones(self.source.num_files, dtype=bool)
        stay[self.members[0]] = False
        return np.r_[self.source.sizes[stay], self.outcome.sizes]

    @property
    def metrics(self) -> dict[str, Any]:
        """What OPTIMIZE's result row will say; see `prediction.metrics`."""
        return metrics(self)

    @property
    def exact(self) -> Exactness:
        """What of the plan is certain, and what is not."""
        return exactness(self)

    def without(self, paths: Collection[str]) -> "CompactionPlan":
        """The plan less the bins that have a file with one of these paths, as the log writes them."""
        if not paths:
            return self
        positions, bin_ids = self.packed.members()
        found = pc.is_in(self.source.paths(positions), value_set=pa.array(paths, pa.string()))
        hits = np.bincount(bin_ids, found.to_numpy(), minlength=self.packed.num_bins)
        return replace(self, packed=self.packed.select(hits == 0))

    def compare(self, column: str | None = None) -> Comparison:
        """The table's layout now, after OPTIMIZE, and after each order; see `compare.compare`."""
        return compare(self, column)

    def to_dict(self) -> dict[str, Any]:
        """The plan as it can be stored, in values that JSON has; "format" is 1."""
        return as_dict(self)

    def explain(self) -> str:
        """What the plan does and why, in a few sentences."""
        return explain(self)

    def run(
        self,
        strategy: str = "auto",
        verify: bool = True,
        progress: "bool | Callable[[Any], None] | None" = None,
        max_threads: int | None = None,
        repartition: bool | None = None,
    ) -> "CompactionResult":
        """Compact the table as planned; run again what was interrupted, and it goes on.

        Outputs of pyarrow are compared before they are committed. OPTIMIZE and an overwrite are
        compared after their commit, which is undone (by RESTORE) if the content differs, can't be
        read, or the comparison is cancelled. Only where that is impossible does a commit stay that
        isn't proved, and the error says so: the session died, files are gone, or another writer has
        committed since (a comparison that was cancelled is then done after all).

        Args:
            strategy: "arrow" is one Spark job that rewrites bins with pyarrow, committed by
                Delta; it alone runs other orders and budgets, and leaves to OPTIMIZE what it
                can't rewrite. "optimize" is Delta's OPTIMIZE. "rewrite" is Delta's overwrite that
                changes no data, of the whole partitions in which there are bins. "auto" is arrow
                where that can rewrite the table, else optimize; the result says why.
            verify: Compare, as Spark reads them, the rows of the files that are replaced and of
                those that replace them.
            progress: True for a bar, or a callable that takes an `execute.Progress` now and
                then; an exception that it raises cancels the run.
            max_threads: For OPTIMIZE: how many bins it rewrites at once. None: as the session is
                set (15, if it isn't).
            repartition: For OPTIMIZE: whether it shuffles the rows of each bin. None: as the
                session is set (no, if it isn't).

        Returns:
            What was done, by the log.

        Raises:
            InvalidArgumentError: The strategy is unknown or doesn't run such a plan.
            StalePlanError: The plan has been run, another writer has committed since, or the table
                was made anew.
            ReadOnlyTableError: The table's folder can't be written to.
            UnsupportedTableError: The strategy can't rewrite such a table faithfully, or what is left of
                the plan.
            RunFailedError: A file could not be read or written; the message says what is committed.
            ConflictError: Other writers took the files of the plan; the message says the same.
            RunCancelled: It was cancelled; the message says the same.
            VerificationError: The content differs; the message says what became of the commit.
        """
        if self.runner is None:
            raise InvalidArgumentError(
                "This plan belongs to no table: make one with Table.plan_compaction()."
            )
        return self.runner(
            self,
            strategy=strategy,
            verify=verify,
            progress=progress,
            max_threads=max_threads,
            repartition=repartition,
        )

    def plot(self) -> "Figure":
        """Draw the sizes now and as predicted on one scale, and the bins as packed bars."""
        from compaction_kit import plots

        return plots.plan(self)

    def plot_sizes(self) -> "Figure":
        """Draw the sizes alone."""
        from compaction_kit import plots

        return plots.plan_sizes(self)

    def plot_bins(self) -> "Figure":
        """Draw the bins alone."""
        from compaction_kit import plots

        return plots.plan_bins(self)

    def _repr_html_(self) -> str:
        return shown(self.explain(), self.plot())

    def __repr__(self) -> str:
        return (
            f"CompactionPlan(version {self.version}: {self.num_files_removed:,} files in "
            f"{format_count(self.num_bins, 'bin')}, {format_size(self.bytes_removed)})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """The fields: what was worked out from them is worked out again."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def members(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the files to be rewritten among those considered, and the bin of each."""
        return self.packing.members()

    @cached_property
    def outcome(self) -> Outcome:
        """What comes of each bin that is rewritten."""
        if self.planner.every_file_has_rows:
            return self.full_outcome
        return self.full_outcome.select(self.full_outcome.is_committed)

    @cached_property
    def full_outcome(self) -> Outcome:
        """What comes of each bin, those too whose batch leaves no row and is not committed."""
        planner = self.planner
        zorder = bool(self.zorder_by)
        return Outcome.of(
            planner.files, planner.rows, self.packed, self.thresholds, zorder, lambda: planner.model
        )

    @property
    def packing(self) -> Packing:
        """The bins that are rewritten."""
        return self.outcome.packing
