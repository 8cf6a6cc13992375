"""A plan: which files are rewritten together, and the predicted outputs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.plan.clustering import CLEAN, CUBES, quote_if_needed
from compaction_kit.plan.order import SIZE
from compaction_kit.plan.packing import Packing, within_budget
from compaction_kit.plan.planner import Outcome, Planner
from compaction_kit.plan.predict import count_rows
from compaction_kit.plan.thresholds import Thresholds, candidates
from compaction_kit.records import Plan


@dataclass(frozen=True, repr=False)
class BinPlan(Plan):
    """Bins of files that are rewritten together; `CompactionPlan` explains, draws and runs it.

    See `Table.plan_compaction` for where, order, budget, zorder_by and full.

    Attributes:
        planner: The files, prepared for packing.
        thresholds: OPTIMIZE's thresholds.
        unbounded, packed: The bins without a budget, and the bins within the budget.
    """

    planner: Planner
    thresholds: Thresholds
    where: str | None
    order: str
    budget: int | None
    zorder_by: tuple[str, ...]
    unbounded: Packing
    packed: Packing
    full: bool = False

    def __deepcopy__(self, *_: object) -> Self:
        """Return the plan itself, because it is immutable."""
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> NoReturn:
        raise InvalidArgumentError("A plan can't be pickled: make a plan where it is to run.")

    @classmethod
    def of(
        cls,
        planner: Planner,
        thresholds: Thresholds,
        where: str | None = None,
        order: str = SIZE,
        budget: int | None = None,
        zorder_by: Sequence[str] = (),
        full: bool = False,
        **more: Any,
    ) -> Self:
        """Plan with these thresholds; see the class for the arguments, `more` for fields of a subclass.

        Raises:
            InvalidArgumentError: There is no such order or column.
        """
        if order != SIZE or budget is not None:
            # OPTIMIZE doesn't run such a plan, so maxRecordsPerFile has no effect.
            thresholds = replace(thresholds, max_records_per_file=0)
        packed = unbounded = planner.pack(thresholds, order, zorder_by, full)
        if budget is not None:
            bins = Outcome.of(planner, thresholds, bool(zorder_by), unbounded)
            packed = unbounded.select(within_budget(bins.gains, bins.bytes_removed, budget))
        columns = tuple(zorder_by)
        return cls(planner, thresholds, where, order, budget, columns, unbounded, packed, full, **more)

    def in_order(self, order: str) -> "BinPlan":
        """Plan the same files with the same thresholds in another order, without a budget."""
        limits = self.thresholds
        if limits.output_file_size is not None:
            limits = self.planner.for_outputs(limits, order)
        return BinPlan.of(self.planner, limits, order=order)

    @cached_property
    def full_outcome(self) -> Outcome:
        """Predicted outputs, including batches that are not committed because they have no rows."""
        return Outcome.of(self.planner, self.thresholds, self.sorts_rows, self.packed)

    @cached_property
    def outcome(self) -> Outcome:
        """Predicted outputs of the bins."""
        return self.full_outcome.committed()

    @property
    def packing(self) -> Packing:
        """The bins, as positions in `source`."""
        return self.outcome.packing

    @property
    def members(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `source` of the files to be rewritten, and the bin of each."""
        return self.packing.members

    @property
    def source(self) -> Files:
        """The files among which the plan chooses."""
        return self.planner.files

    @property
    def bin_groups(self) -> np.ndarray:
        """The partition of each bin, as a number."""
        return self.planner.groups[self.packing.order[self.packing.starts]]

    @property
    def version(self) -> int:
        """The version that was planned; the plan runs only on this version."""
        return self.source.version

    @property
    def is_optimize(self) -> bool:
        """Whether OPTIMIZE does the same: order "size", and no budget."""
        return self.order == SIZE and self.budget is None

    @property
    def is_purge(self) -> bool:
        """Whether the plan is for REORG … APPLY (PURGE), not for OPTIMIZE."""
        return self.planner.dropped is not None

    @property
    def clustered_by(self) -> tuple[str, ...]:
        """The clustering columns, as SQL names them; none for a table that isn't clustered."""
        return () if self.planner.clustering is None else self.planner.clustering.columns

    @property
    def clustering_column(self) -> str | None:
        """The first clustering column that is not a field of a struct; None if there is none."""
        columns = {quote_if_needed(column): column for column in self.source.data_columns}
        return next((columns[name] for name in self.clustered_by if name in columns), None)

    @property
    def sorts_rows(self) -> bool:
        """Whether rows are sorted into files; then the number of files is predicted from sizes."""
        return bool(self.zorder_by or self.clustered_by)

    @cached_property
    def cubes(self) -> pa.Table:
        """One row per cube of a clustered table; see `Clustering.cubes`."""
        clustering = self.planner.clustering
        return clustering.cubes(self.full) if clustering else CUBES.empty_table()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do; `explain()` says why."""
        return self.num_bins == 0

    @property
    def num_bins(self) -> int:
        """Number of bins."""
        return self.packing.num_bins

    @property
    def num_files_removed(self) -> int:
        """Number of files to be rewritten."""
        return len(self.members[0])

    @property
    def bytes_removed(self) -> int:
        """Bytes of the files to be rewritten."""
        return int(self.outcome.bytes_removed.sum())

    @cached_property
    def is_removed(self) -> np.ndarray:
        """Whether each file of `source` is to be rewritten, bool."""
        removed = np.zeros(self.source.num_files, bool)
        removed[self.members[0]] = True
        return removed

    @property
    def num_deleted_rows(self) -> int:
        """Number of rows in files to be rewritten that deletion vectors hide."""
        return int(count_rows(self.source)[1][self.is_removed].sum())

    @property
    def dropped_columns(self) -> pa.Table:
        """One row per file to be rewritten that has dropped columns; filled by `Table.plan_purge` only.

        Columns: path (string, as in `Files.to_arrow`), size_bytes (int64, of its dropped columns).
        """
        sizes = np.full(self.source.num_files, -1) if self.planner.dropped is None else self.planner.dropped
        found = np.flatnonzero((sizes >= 0) & self.is_removed)
        return pa.table({"path": self.source.paths(found), "size_bytes": sizes[found]})

    @property
    def num_files_added(self) -> int:
        """Number of added files; none for a bin whose rows are all deleted."""
        return int(self.outcome.files_added.sum())

    @property
    def bytes_added(self) -> int:
        """Predicted bytes of the added files; `size_basis` says how they are estimated."""
        return int(self.outcome.bytes_added.sum())

    @property
    def size_basis(self) -> str:
        """How `bytes_added` is estimated, as text."""
        return self.planner.model.basis

    @property
    def num_partitions(self) -> int:
        """Number of partitions that have bins."""
        return len(np.unique(self.bin_groups))

    @property
    def num_batches(self) -> int:
        """Number of OPTIMIZE's batches; a batch that adds no file is not committed."""
        fewest = 1 if self.thresholds.batch_size is None else 0
        return int(self.full_outcome.batch_ids.max(initial=fewest - 1)) + 1

    @property
    def num_files_after(self) -> int:
        """Number of files of `source` that are live after the run, with the added files."""
        return self.source.num_files - self.num_files_removed + self.num_files_added

    @property
    def gain(self) -> int:
        """Bytes that a full read of the table saves; see `packing.gains`."""
        return int(self.outcome.gains.sum())

    @cached_property
    def files(self) -> pa.Table:
        """One row per file to be rewritten, bin by bin.

        Columns: path (string, as in `Files.to_arrow`), size_bytes, bin_id (int64).
        """
        positions, bin_ids = self.members
        paths, sizes = self.source.paths(positions), self.source.sizes[positions]
        return pa.table({"path": paths, "size_bytes": sizes, "bin_id": bin_ids})

    @cached_property
    def bins(self) -> pa.Table:
        """One row per bin.

        Columns: bin_id, num_files, size_bytes, num_records (int64, with deleted rows, null where a file has
        no statistics), partition.<column> (string), num_deletion_vectors, num_files_added, bytes_added
        (int64, predicted), gain (int64, bytes that a full read saves, see `packing.gains`), batch_id (int64,
        the commit).
        """
        (positions, bin_ids), outcome = self.members, self.outcome
        records = np.bincount(bin_ids, count_rows(self.source)[0][positions], self.num_bins)
        columns = {
            "bin_id": np.arange(self.num_bins),
            "num_files": self.packing.counts,
            "size_bytes": outcome.bytes_removed,
            "num_records": pa.array(records, mask=np.isnan(records)).cast(pa.int64()),
            **self.partition_values(self.packing.order[self.packing.starts]),
            "num_deletion_vectors": outcome.vectors,
            "num_files_added": outcome.files_added,
            "bytes_added": outcome.bytes_added,
            "gain": outcome.gains,
            "batch_id": outcome.batch_ids,
        }
        return pa.table(columns)

    def partition_values(self, positions: np.ndarray) -> dict[str, pa.ChunkedArray]:
        """Return the columns partition.<column> of some files of `source`, by position."""
        values = self.source.partitions
        return {name: values[name].take(pa.array(positions)) for name in values.column_names}

    @cached_property
    def batches(self) -> pa.Table:
        """One row per batch, in the order of OPTIMIZE's commits, without batches that add no file.

        Columns: batch_id, num_bins, num_files, size_bytes, num_deletion_vectors, num_files_added (int64).
        """
        sums = ("num_files", "size_bytes", "num_deletion_vectors", "num_files_added")
        counted = [("bin_id", "count"), *((name, "sum") for name in sums)]
        grouped = self.bins.group_by("batch_id").aggregate(counted)
        return grouped.sort_by("batch_id").rename_columns(["batch_id", "num_bins", *sums])

    @cached_property
    def steps(self) -> pa.Table:
        """One row per file of `source`, in packing order, with the bin it went to.

        Columns: path (string), size_bytes (int64), partition.<column> (string), reason (string: "small",
        "deleted rows", "dropped columns", "Z-order", or the state of its cube, see `cubes`; "large" or
        "nothing to purge" for other files), outcome (string: "packed", "large", "alone" in its bin, "over
        budget", "no rows" left in a whole batch, "stays" in its cube or unpurged), bin_id (int64, null if it
        stays).
        """
        small, deleted = candidates(self.source, self.thresholds)
        clustering, dropped, stays = self.planner.clustering, self.planner.dropped, "stays"
        if clustering is not None:
            reason = clustering.states(self.full)
        elif dropped is not None:
            reason = np.select([deleted, dropped >= 0], ["deleted rows", "dropped columns"], CLEAN)
        elif self.zorder_by:
            reason = np.full(len(small), "Z-order")
        else:
            reason, stays = np.select([small, deleted], ["small", "deleted rows"], "large"), "alone"
        outcome = np.where(reason == "large", "large", stays).astype(object)
        outcome[self.unbounded.members[0]] = "over budget"
        outcome[self.packed.members[0]] = "no rows"
        bin_of, (positions, bin_ids) = np.full(len(small), -1), self.members
        outcome[positions], bin_of[positions] = "packed", bin_ids
        order = self.planner.packer(self.order).order
        columns = {
            "path": self.source.paths(order),
            "size_bytes": self.source.sizes[order],
            **self.partition_values(order),
            "reason": reason[order],
            "outcome": pa.array(outcome[order], pa.string()),
            "bin_id": pa.array(bin_of[order], mask=bin_of[order] < 0),
        }
        return pa.table(columns)

    @cached_property
    def sizes_after(self) -> np.ndarray:
        """Predicted bytes of each file of `source` after the run, with the added files."""
        stay = np.delete(self.source.sizes, self.members[0])
        added, num_added = self.outcome.bytes_added, self.outcome.files_added
        return np.r_[stay, np.repeat(added // np.maximum(num_added, 1), num_added)]

    def without(self, paths: Collection[str]) -> Self:
        """Return the plan without the bins that have a file with one of these paths."""
        if not paths:
            return self
        positions, bin_ids = self.packed.members
        found = pc.is_in(self.source.paths(positions), value_set=pa.array(paths, pa.string()))
        hits = np.bincount(bin_ids, found.to_numpy(), minlength=self.packed.num_bins)
        return replace(self, packed=self.packed.select(hits == 0))
