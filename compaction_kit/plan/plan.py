"""A plan: which files are rewritten together, and what comes of them."""

import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.files import Files
from compaction_kit.plan.clustering import CLEAN, CUBES
from compaction_kit.plan.order import SIZE
from compaction_kit.plan.packing import Packing, batch_of_bins, gains, num_sorted_files, within_budget
from compaction_kit.plan.planner import Planner
from compaction_kit.plan.predict import count_rows
from compaction_kit.plan.thresholds import Thresholds, candidates
from compaction_kit.records import Plan
from compaction_kit.text import format_partition


@dataclass(frozen=True)
class Outcome:
    """Predicted outputs of bins: files, bytes, what they save; every array has one number a bin, int64.

    Attributes:
        planner: The files.
        thresholds: The plan's.
        sorts: Whether rows are sorted, in Z-order or by the clustering columns.
        packing: The bins.
        batch_ids: The commit of each bin.
    """

    planner: Planner
    thresholds: Thresholds
    sorts: bool
    packing: Packing
    batch_ids: np.ndarray

    @classmethod
    def of(cls, planner: Planner, thresholds: Thresholds, sorts: bool, packing: Packing) -> "Outcome":
        """Predict the outputs of all bins, in batches as OPTIMIZE packs them."""
        one = cls(planner, thresholds, sorts, packing, np.zeros(packing.num_bins, dtype=np.int64))
        size = thresholds.batch_size
        return one if size is None else replace(one, batch_ids=batch_of_bins(one.bytes_removed, size))

    def committed(self) -> "Outcome":
        """Without the bins of batches that add no file: OPTIMIZE doesn't commit those."""
        kept = np.bincount(self.batch_ids, self.files_added)[self.batch_ids] > 0
        return replace(self, packing=self.packing.select(kept), batch_ids=self.batch_ids[kept])

    @cached_property
    def bytes_removed(self) -> np.ndarray:
        """Bytes of the bin's files."""
        return self._sums(self.planner.files.sizes)

    @cached_property
    def rows_known(self) -> np.ndarray:
        """Whether the log has the rows that decide how many files are added, bool."""
        some = self._sums(self.planner.rows > 0) > 0
        unknown = self._sums(np.isnan(self.planner.rows)) > 0
        known: np.ndarray = ~unknown if self.thresholds.max_records_per_file else some | ~unknown
        return known

    @cached_property
    def files_added(self) -> np.ndarray:
        """Files that are added; a file of unknown rows is taken to have some."""
        rows = self._sums(np.nan_to_num(self.planner.rows, nan=1))
        if self.sorts:
            return np.minimum(num_sorted_files(self.bytes_removed, self.thresholds.max_file_size), rows)
        most = self.thresholds.max_records_per_file
        return (np.ceil(rows / most) if most else rows > 0).astype(np.int64)

    @cached_property
    def vectors(self) -> np.ndarray:
        """Deletion vectors that are removed with the bin's files."""
        files = self.planner.files
        if not files.snapshot.has_vectors:
            return np.zeros(self.packing.num_bins, dtype=np.int64)
        return self._sums(files.to_arrow()["deletion_vector_cardinality"].is_valid().to_numpy())

    @cached_property
    def bytes_added(self) -> np.ndarray:
        """Predicted bytes of the added files."""
        predicted = self.planner.model.output_bytes(*self.packing.members, self.packing.num_bins)
        return np.where(self.files_added > 0, np.minimum(predicted, self.bytes_removed), 0)

    @cached_property
    def gains(self) -> np.ndarray:
        """Bytes that a full read of the bin saves; see `packing.gains`."""
        return gains(self.packing.counts, self.bytes_removed, self.bytes_added)

    def _sums(self, values: np.ndarray) -> np.ndarray:
        positions, bin_ids = self.packing.members
        return np.bincount(bin_ids, values[positions], minlength=self.packing.num_bins).astype(np.int64)


@dataclass(frozen=True, repr=False)
class BinPlan(Plan):
    """Bins of files, each of which is rewritten as one file; `CompactionPlan` explains, draws and runs it.

    Attributes:
        planner: The files, prepared for packing.
        thresholds: Sizes in bytes, and the ratio of deleted rows.
        where: The predicate that selected the files.
        order: "size", "ingest" or a column.
        budget: Bytes that may be rewritten.
        zorder_by: Columns by which the rows of each partition are sorted.
        unbounded: The bins without a budget.
        packed: The bins within the budget.
        full: Whether files of a clustered table are clustered again that have other columns.
        id: Identifies the plan's commits, in their userMetadata.
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
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

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
            # OPTIMIZE doesn't run such a plan, so its setting has no effect.
            thresholds = replace(thresholds, max_records_per_file=0)
        packed = unbounded = planner.pack(thresholds, order, zorder_by, full)
        if budget is not None:
            bins = Outcome.of(planner, thresholds, bool(zorder_by), unbounded)
            packed = unbounded.select(within_budget(bins.gains, bins.bytes_removed, budget))
        columns = tuple(zorder_by)
        return cls(planner, thresholds, where, order, budget, columns, unbounded, packed, full, **more)

    @cached_property
    def full_outcome(self) -> Outcome:
        """Predicted outputs, with those of batches that are not committed because they have no rows."""
        return Outcome.of(self.planner, self.thresholds, self.sorts_rows, self.packed)

    @cached_property
    def outcome(self) -> Outcome:
        """Predicted outputs of the bins."""
        return self.full_outcome if self.planner.every_file_has_rows else self.full_outcome.committed()

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
    def groups(self) -> np.ndarray:
        """The partition of each file of `source`, as a number."""
        return self.planner.groups

    @property
    def bin_groups(self) -> np.ndarray:
        """The partition of each bin, as a number."""
        return self.groups[self.packing.order[self.packing.starts]]

    @property
    def version(self) -> int:
        """The version that was planned; the plan runs on this version alone."""
        return self.source.version

    @property
    def is_optimize(self) -> bool:
        """Whether OPTIMIZE does the same: order "size", and no budget."""
        return self.order == SIZE and self.budget is None

    @property
    def is_purge(self) -> bool:
        """Whether REORG … APPLY (PURGE) does the same, and not OPTIMIZE."""
        return self.planner.dropped is not None

    @property
    def clustered_by(self) -> tuple[str, ...]:
        """The clustering columns, as SQL names them; none for a table that isn't clustered."""
        return () if self.planner.clustering is None else self.planner.clustering.columns

    @property
    def clustering_column(self) -> str | None:
        """The first clustering column that is no field of a struct; None without one."""
        names = (name.strip("`") for name in self.clustered_by)
        return next((name for name in names if name in self.source.data_columns), None)

    @property
    def sorts_rows(self) -> bool:
        """Whether rows are sorted into files, so that their number is predicted from sizes."""
        return bool(self.zorder_by or self.clustered_by)

    @cached_property
    def cubes(self) -> pa.Table:
        """One row per cube of a clustered table; see `Clustering.cubes`."""
        clustering = self.planner.clustering
        return clustering.cubes(self.planner.rules.cubes, self.full) if clustering else CUBES.empty_table()

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
        """One row a file to be rewritten that has dropped columns; empty but for `Table.plan_purge`.

        Columns: path (string, as the log writes it), size_bytes (int64, of its dropped columns).
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
        return (
            int(self.full_outcome.batch_ids.max(initial=0 if self.thresholds.batch_size is None else -1)) + 1
        )

    @property
    def num_files_after(self) -> int:
        """Number of live files after the run, of `source`."""
        return self.source.num_files - self.num_files_removed + self.num_files_added

    @property
    def gain(self) -> int:
        """Bytes that a full read of the table saves; see `packing.gains`."""
        return int(self.outcome.gains.sum())

    @cached_property
    def files(self) -> pa.Table:
        """One row a file to be rewritten, bin by bin.

        Columns: path (string, as the log writes it), size_bytes, bin_id (int64).
        """
        positions, bin_ids = self.members
        paths, sizes = self.source.paths(positions), self.source.sizes[positions]
        return pa.table({"path": paths, "size_bytes": sizes, "bin_id": bin_ids})

    @cached_property
    def bins(self) -> pa.Table:
        """One row a bin.

        Columns: bin_id, num_files, size_bytes, num_records (int64, null where a file has no
        statistics), partition.<column> (string), num_deletion_vectors, num_files_added, bytes_added
        (int64, predicted), gain (int64, bytes that a full read saves, see `packing.gains`), batch_id
        (int64, the commit).
        """
        positions, bin_ids = self.members
        table = self.source.to_arrow().take(pa.array(positions)).append_column("bin_id", pa.array(bin_ids))
        partitions = _partition_columns(table)
        keep_null = pc.ScalarAggregateOptions(skip_nulls=False)
        sums: list[Any] = [("path", "count"), ("size_bytes", "sum"), ("num_records", "sum", keep_null)]
        sums += [(name, "min") for name in partitions]
        bins = table.group_by("bin_id").aggregate(sums).sort_by("bin_id")
        bins = bins.rename_columns(["bin_id", "num_files", "size_bytes", "num_records", *partitions])
        predicted = {
            "num_deletion_vectors": self.outcome.vectors,
            "num_files_added": self.outcome.files_added,
            "bytes_added": self.outcome.bytes_added,
            "gain": self.outcome.gains,
            "batch_id": self.outcome.batch_ids,
        }
        for name, values in predicted.items():
            bins = bins.append_column(name, pa.array(values, pa.int64()))
        return bins

    @property
    def bin_names(self) -> list[str]:
        """Name of each bin: its partition and its number there, such as "origin=JFK, bin 2 of 3"."""
        rows, numbers = self.bins.select(_partition_columns(self.bins)).to_pylist(), self.bin_groups
        total, seen, names = Counter(numbers.tolist()), Counter[int](), []
        for row, number in zip(rows, numbers.tolist(), strict=True):
            seen[number] += 1
            place = f"bin {seen[number]} of {total[number]}"
            names.append(f"{format_partition(row)}, {place}" if row else place)
        return names

    @cached_property
    def batches(self) -> pa.Table:
        """One row a batch, in the order of OPTIMIZE's commits, without batches that add no file.

        Columns: batch_id, num_bins, num_files, size_bytes, num_deletion_vectors, num_files_added (int64).
        """
        sums = ("num_files", "size_bytes", "num_deletion_vectors", "num_files_added")
        grouped = self.bins.group_by("batch_id").aggregate(
            [("bin_id", "count"), *((name, "sum") for name in sums)]
        )
        return grouped.sort_by("batch_id").rename_columns(["batch_id", "num_bins", *sums])

    @cached_property
    def steps(self) -> pa.Table:
        """One row per candidate file, in packing order, with the bin it went to.

        Columns: path (string), size_bytes (int64), partition.<column> (string), reason (string: "small",
        "deleted rows", "dropped columns", "Z-order", or the state of its cube, see `cubes`; "large" or
        "nothing to purge" for no candidate), outcome (string: "packed", "large", "alone" in its bin, "over
        budget", "no rows" left in a whole batch, "stays" in its cube or unpurged), bin_id (int64, null if it
        stays).
        """
        small, deleted = candidates(self.source, self.thresholds)
        reason = np.select([small, deleted], ["small", "deleted rows"], "large")
        if self.zorder_by:
            reason = np.full(len(small), "Z-order")
        outcome = np.where(reason == "large", "large", "alone").astype(object)
        if self.planner.dropped is not None:
            conditions = [deleted, self.planner.dropped >= 0]
            reason = np.select(conditions, ["deleted rows", "dropped columns"], CLEAN)
            outcome = np.full(len(small), "stays", object)
        if self.planner.clustering is not None:
            reason = self.planner.clustering.states(self.planner.rules.cubes, self.full)
            outcome = np.full(len(small), "stays", object)
        outcome[self.unbounded.members[0]] = "over budget"
        outcome[self.packed.members[0]] = "no rows"
        positions, bin_ids = self.members
        outcome[positions] = "packed"
        bin_of = np.full(self.source.num_files, -1)
        bin_of[positions] = bin_ids
        order, files = self.planner.packer(self.order).order, self.source.to_arrow()
        return pa.table(
            {
                **{
                    name: files[name].take(pa.array(order))
                    for name in ("path", "size_bytes", *_partition_columns(files))
                },
                "reason": reason[order],
                "outcome": outcome[order],
                "bin_id": pa.array(bin_of[order], mask=bin_of[order] < 0),
            }
        )

    @cached_property
    def sizes_after(self) -> np.ndarray:
        """Predicted bytes of each live file after the run, of `source`."""
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


def _partition_columns(files: pa.Table) -> list[str]:
    return [name for name in files.column_names if name.startswith("partition.")]
