"""A plan's bins: which files would be rewritten together, with what outputs."""

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
from compaction_kit.plan.order import SIZE
from compaction_kit.plan.packing import Packing
from compaction_kit.plan.planner import Planner
from compaction_kit.plan.predict import Outcome
from compaction_kit.plan.thresholds import LARGE, Thresholds, reasons
from compaction_kit.records import Plan
from compaction_kit.text import format_partition


@dataclass(frozen=True, repr=False)
class BinPlan(Plan):
    """Bins of files, each to be rewritten as one; `CompactionPlan` explains, draws and runs it.

    Attributes:
        planner: The files, prepared.
        thresholds: Sizes in bytes, and the ratio of deleted rows.
        where: The predicate that selected the files.
        order: "size", "ingest" or a column.
        budget: Bytes that may be rewritten.
        zorder_by: Columns to sort the rows of each partition by.
        packed: The bins, those within the budget.
        unbounded: The bins without a budget.
        id: Identifies the plan's commits, in their userMetadata.
    """

    planner: Planner
    thresholds: Thresholds
    where: str | None
    order: str
    budget: int | None
    zorder_by: tuple[str, ...]
    packed: Packing
    unbounded: Packing
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
        **more: Any,
    ) -> Self:
        """Plan with these thresholds.

        Args:
            planner: The files, prepared.
            thresholds: Sizes in bytes, and the ratio of deleted rows.
            where: The predicate that selected the files, for the record.
            order: "size", "ingest" or a column.
            budget: Bytes that may be rewritten; None for no limit.
            zorder_by: Columns to sort the rows of each partition by.
            more: Other fields of the class.

        Raises:
            InvalidArgumentError: There is no such order or column.
        """
        if order != SIZE or budget is not None:
            # A setting of OPTIMIZE, which doesn't run such a plan.
            thresholds = replace(thresholds, max_records_per_file=0)
        unbounded = planner.pack(thresholds, order, zorder_by)
        packed = unbounded if budget is None else planner.within_budget(unbounded, budget)
        return cls(planner, thresholds, where, order, budget, tuple(zorder_by), packed, unbounded, **more)

    @property
    def source(self) -> Files:
        """The files that were considered."""
        return self.planner.files

    @property
    def groups(self) -> np.ndarray:
        """The partition of each file considered, as a number."""
        return self.planner.groups

    @property
    def bin_groups(self) -> np.ndarray:
        """The partition of each bin that is rewritten, as a number."""
        return self.groups[self.packing.order[self.packing.starts]]

    @property
    def version(self) -> int:
        """The version that was planned; the plan runs on no other."""
        return self.source.version

    @property
    def is_optimize(self) -> bool:
        """Whether OPTIMIZE does the same: its own order, and no budget."""
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
        """How many files are added; none for a bin whose rows are all deleted."""
        return int(self.outcome.files_added.sum())

    @property
    def bytes_added(self) -> int:
        """The predicted bytes of the added files; `size_basis` says how they were estimated."""
        return int(self.outcome.bytes_added.sum())

    @property
    def size_basis(self) -> str:
        """How `bytes_added` was estimated, as text."""
        return self.planner.model.basis

    @property
    def num_partitions(self) -> int:
        """The number of partitions in which files are rewritten."""
        return len(np.unique(self.groups[self.members[0]]))

    @property
    def num_batches(self) -> int:
        """The number of batches of OPTIMIZE; one that adds no file is not committed."""
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
    def gain(self) -> int:
        """Bytes that a full read of the table saves; see `packing.gains`."""
        return int(self.outcome.gains.sum())

    @cached_property
    def files(self) -> pa.Table:
        """The files to be rewritten, bin by bin.

        Columns: path (string, as the log writes it), size_bytes, bin_id (int64).
        """
        source = self.source
        positions, bin_ids = self.members
        return pa.table(
            {
                "path": source.paths(positions),
                "size_bytes": source.sizes[positions],
                "bin_id": bin_ids,
            }
        )

    @cached_property
    def bins(self) -> pa.Table:
        """One row a bin.

        Columns: bin_id, num_files, size_bytes, num_records (int64, null where a file has no
        statistics), partition.<column> (string), num_deletion_vectors, num_files_added, bytes_added
        (int64, predicted), gain (int64, bytes that a full read saves, see `packing.gains`), batch_id
        (int64, the commit), gain_per_byte (double, for each byte that is rewritten).
        """
        positions, bin_ids = self.members
        table = self.source.to_arrow().take(pa.array(positions)).append_column("bin_id", pa.array(bin_ids))
        partitions = _partition_columns(table)
        keep_null = pc.ScalarAggregateOptions(skip_nulls=False)
        sums: list[Any] = [("path", "count"), ("size_bytes", "sum"), ("num_records", "sum", keep_null)]
        sums += [(name, "min") for name in partitions]
        bins = table.group_by("bin_id").aggregate(sums).sort_by("bin_id")
        bins = bins.rename_columns(["bin_id", "num_files", "size_bytes", "num_records", *partitions])
        outcome = self.outcome
        predicted = {
            "num_deletion_vectors": outcome.vectors,
            "num_files_added": outcome.files_added,
            "bytes_added": outcome.bytes_added,
            "gain": outcome.gains,
            "batch_id": outcome.batch_ids,
        }
        for name, values in predicted.items():
            bins = bins.append_column(name, pa.array(values, pa.int64()))
        return _with_rate(bins)

    @property
    def bin_names(self) -> list[str]:
        """What each bin is called: its partition, and its number there, such as "origin=JFK, bin 2 of 3"."""
        rows, numbers = self.bins.select(_partition_columns(self.bins)).to_pylist(), self.bin_groups
        total, seen, names = Counter(numbers.tolist()), Counter[int](), []
        for row, number in zip(rows, numbers.tolist(), strict=True):
            seen[number] += 1
            place = f"bin {seen[number]} of {total[number]}"
            names.append(f"{format_partition(row)}, {place}" if row else place)
        return names

    @cached_property
    def partitions(self) -> pa.Table:
        """One row a partition that has bins, the one that gains the most for a byte first.

        Columns: partition.<column> (string), num_bins, num_files, size_bytes, num_files_added,
        bytes_added (int64, predicted), gain (int64), gain_per_byte (double).
        """
        names = _partition_columns(self.bins)
        sums = ("num_files", "size_bytes", "num_files_added", "bytes_added", "gain")
        # By number and not by value: values that look different may be one partition.
        bins = self.bins.append_column("number", pa.array(self.bin_groups))
        partitions = _with_rate(_summed(bins, "number", names, sums).drop_columns("number"))
        return partitions.sort_by([("gain_per_byte", "descending")])

    @cached_property
    def batches(self) -> pa.Table:
        """One row a batch, in the order of OPTIMIZE's commits; one that would add no file is left out.

        Columns: batch_id, num_bins, num_files, size_bytes, num_deletion_vectors, num_files_added (int64).
        """
        sums = ("num_files", "size_bytes", "num_deletion_vectors", "num_files_added")
        return _summed(self.bins, "batch_id", (), sums)

    @cached_property
    def steps(self) -> pa.Table:
        """Every file considered, in the order of packing, and whether it is packed.

        Columns: path (string), size_bytes (int64), partition.<column> (string), reason (string: "small",
        "deleted rows", "Z-order"; "large" for no candidate), outcome (string: "packed", "large", "alone" in
        its bin, "over budget", "no rows" left in a whole batch), bin_id (int64, null if it stays).
        """
        source = self.source
        reason = np.full(source.num_files, "Z-order") if self.zorder_by else reasons(source, self.thresholds)
        outcome = np.where(reason == LARGE, "large", "alone").astype(object)
        outcome[self.unbounded.members()[0]] = "over budget"
        outcome[self.packed.members()[0]] = "no rows"
        positions, bin_ids = self.members
        outcome[positions] = "packed"
        bin_of = np.full(source.num_files, -1)
        bin_of[positions] = bin_ids
        order = self.planner.order(self.order)
        files = source.to_arrow()
        kept = ["path", "size_bytes", *_partition_columns(files)]
        return pa.table(
            {
                **{name: files[name].take(pa.array(order)) for name in kept},
                "reason": reason[order],
                "outcome": outcome[order],
                "bin_id": pa.array(bin_of[order], mask=bin_of[order] < 0),
            }
        )

    @cached_property
    def sizes_after(self) -> np.ndarray:
        """Predicted sizes in bytes of the live files considered, after the run."""
        stay = np.ones(self.source.num_files, dtype=bool)
        stay[self.members[0]] = False
        return np.r_[self.source.sizes[stay], self.outcome.sizes]

    def without(self, paths: Collection[str]) -> Self:
        """Remove the bins that have a file with one of these paths, as the log writes them."""
        if not paths:
            return self
        positions, bin_ids = self.packed.members()
        found = pc.is_in(self.source.paths(positions), value_set=pa.array(paths, pa.string()))
        hits = np.bincount(bin_ids, found.to_numpy(), minlength=self.packed.num_bins)
        return replace(self, packed=self.packed.select(hits == 0))

    @cached_property
    def members(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the files to be rewritten among those considered, and the bin of each."""
        return self.packing.members()

    @cached_property
    def outcome(self) -> Outcome:
        """The outputs of the bins that are rewritten."""
        if self.planner.every_file_has_rows:
            return self.full_outcome
        return self.full_outcome.select(self.full_outcome.is_committed)

    @cached_property
    def full_outcome(self) -> Outcome:
        """The outputs of all bins; a batch that leaves no row is not committed."""
        planner, zorder = self.planner, bool(self.zorder_by)
        files, rows = planner.files, planner.rows
        return Outcome.of(files, rows, self.packed, self.thresholds, zorder, lambda: planner.model)

    @property
    def packing(self) -> Packing:
        """The bins that are rewritten."""
        return self.outcome.packing


def _summed(bins: pa.Table, key: str, names: Sequence[str], sums: Sequence[str]) -> pa.Table:
    """Number of bins and sums for each key; `names` are columns with one value for each."""
    values = [(name, "min") for name in names]
    grouped = bins.group_by(key).aggregate([*values, ("bin_id", "count"), *((name, "sum") for name in sums)])
    return grouped.sort_by(key).rename_columns([key, *names, "num_bins", *sums])


def _with_rate(table: pa.Table) -> pa.Table:
    rate = table["gain"].to_numpy() / np.maximum(table["size_bytes"].to_numpy(), 1)
    return table.append_column("gain_per_byte", pa.array(rate, pa.float64()))


def _partition_columns(files: pa.Table) -> list[str]:
    return [name for name in files.column_names if name.startswith("partition.")]
