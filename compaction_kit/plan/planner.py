"""Prepare files once, so that packing with other thresholds is quick; predict the outputs of bins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np
import pyarrow as pa

from compaction_kit.errors import EmptyTableError, InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.plan.clustering import Clustering, clustering_columns
from compaction_kit.plan.order import INGEST, SIZE, by_size, column_of
from compaction_kit.plan.packing import Packer, Packing, batch_of_bins, gains, num_sorted_files
from compaction_kit.plan.partitions import partition_groups
from compaction_kit.plan.predict import SizeModel, count_rows
from compaction_kit.plan.thresholds import SessionRules, Thresholds, candidates
from compaction_kit.times import parse_time_zone

_DEFAULT_RULES = SessionRules()
_UNLIMITED = 2**63 - 1


class Planner:
    """Files to be packed repeatedly.

    Attributes:
        files: The live files to choose from: all files of a version, or those that a predicate selects.
        groups: The partition of each file, as a number.
        group: Function of partition.<column> of other files; returns their partitions' numbers.
        rules: The session's rules.
        clustering: The files' cubes; None for a table that isn't clustered.
        dropped: Bytes of each file's dropped columns (see `predict.dropped_columns`), if purges are planned.
        to_purge: Which files a purge considers, bool (DeltaPurgeOperation.filterFilesToReorg); or None.
        packer: Function of an order; returns the files in that order, one partition after another.
    """

    def __init__(
        self,
        files: Files,
        rules: SessionRules = _DEFAULT_RULES,
        make_model: Callable[[Files], SizeModel] = SizeModel.of,
        dropped: np.ndarray | None = None,
    ):
        """See the class; `make_model` makes the model of output sizes, when it is first needed.

        Raises:
            EmptyTableError: The version has no live file.
            UnsupportedTableError: A partition value isn't of its column's type.
        """
        if files.snapshot.live.num_rows == 0:
            raise EmptyTableError(
                f"The table is empty at version {files.version}: there is nothing to compact until "
                "rows are added."
            )
        self.files, self.rules, self._make_model = files, rules, make_model
        self.dropped, self.to_purge = dropped, None
        self._is_later = np.zeros(files.num_files, dtype=bool)
        if dropped is not None:
            # A purge lists files with dropped columns before the others (filterFilesToReorg).
            self._is_later = dropped < 0
            every_vector = Thresholds(min_file_size=0, max_deleted_rows_ratio=0)
            self.to_purge = candidates(files, every_vector)[1] | (dropped >= 0)
        columns = clustering_columns(files.snapshot)
        self.clustering = (
            Clustering(files, columns, rules, self._is_later, self.to_purge) if columns else None
        )
        types = files.snapshot.metadata.column_types if rules.by_type else None
        has_times = types and any(types[name] == "timestamp" for name in files.partition_columns)
        zone = parse_time_zone(rules.time_zone) if rules.time_zone and has_times else None
        self.group = partial(partition_groups, types=types, time_zone=zone)
        self.groups = self.group(files.partitions)
        self.packer = cache(self._make_packer)

    @cached_property
    def model(self) -> SizeModel:
        """The model of output sizes."""
        model = self._make_model(self.files)
        dropped = 0 if self.dropped is None else np.maximum(self.dropped, 0)
        return replace(model, weights=np.maximum(model.weights - dropped, 0))

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows of each file that no deletion vector hides, float64; NaN if the log lacks their number."""
        records, deleted = count_rows(self.files)
        return records - deleted

    @cached_property
    def largest_bin(self) -> int:
        """Bytes of the largest partition: no bin can have more."""
        return int(np.bincount(self.groups, self.files.sizes).max(initial=1))

    def prepared(self) -> "Planner":
        """Prepare what takes long now, so that later plans are quick; returns the planner."""
        _ = self.packer(SIZE), self.model, self.rows
        return self

    def pack(
        self, thresholds: Thresholds, order: str = SIZE, zorder_by: Sequence[str] = (), full: bool = False
    ) -> Packing:
        """Pack the files into bins; see `Table.plan_compaction` for the orders.

        Raises:
            InvalidArgumentError: There is no such order or column.
        """
        if self.clustering is not None:
            return self.clustering.cubed.pack(full)
        if self.to_purge is not None:
            return self.packer(SIZE).pack(self.to_purge, thresholds.max_file_size, keep_lone=True)
        for name in zorder_by:
            if name not in self.files.data_columns:
                raise InvalidArgumentError(
                    f'zorder_by="{name}" is not a data column of the table: choose from '
                    f"{', '.join(self.files.data_columns)}."
                )
        if zorder_by:
            # All files of a partition are one bin (OptimizeExecutor, filterCandidateFileList;
            # ZOrderStrategy.maxBinSize).
            everything = np.ones(self.files.num_files, dtype=bool)
            return self.packer(SIZE).pack(everything, _UNLIMITED, keep_lone=True)
        capacity = thresholds.max_file_size
        if order != SIZE:
            capacity = max(thresholds.target_file_size - self.model.overhead, 1)
        small, deleted = candidates(self.files, thresholds)
        return self.packer(order).pack(small | deleted, capacity)

    def for_outputs(self, thresholds: Thresholds, order: str) -> Thresholds:
        """Return thresholds for bins that are predicted to become files of the target size.

        Bins have just the target size if the order isn't "size", because they are then filled by predicted
        outputs, or if no partition has more bytes than that.
        """
        size, (small, _) = thresholds.target_file_size, candidates(self.files, thresholds)
        most = size
        if order == SIZE and self.largest_bin > size and small.any():
            shrink = self.files.sizes[small].sum() / max(self.model.weights[small].sum(), 1)
            most = max(int((size - self.model.overhead) * shrink), size)
        return replace(thresholds, max_file_size=most, output_file_size=size)

    def _make_packer(self, order: str) -> Packer:
        files, groups = self.files, self.groups
        if order == SIZE:
            by = by_size(files, groups, self.rules.snapshot_partitions, self._is_later)
            return Packer(by, files.sizes, groups)
        column = column_of(order)
        if column is None:
            keys = [files.to_arrow()["modification_time"].cast(pa.int64()).to_numpy()]
        elif column in files.data_columns:
            # By the minimum, then the maximum; files without bounds come last.
            bounds = files.bounds(column)
            keys = [bounds.highs, np.where(bounds.known, bounds.lows, len(bounds.values))]
        else:
            raise InvalidArgumentError(
                f'order="{order}" is neither "{SIZE}" nor "{INGEST}" nor a data column of the table: '
                f"choose one of those or of {', '.join(files.data_columns)}."
            )
        return Packer(np.lexsort((*keys, groups)), self.model.weights, groups)


@dataclass(frozen=True)
class Outcome:
    """Predicted outputs of bins, and the commit of each: arrays with one number per bin, int64."""

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
        """Leave out the bins of batches that add no file, because OPTIMIZE doesn't commit such batches."""
        kept = np.bincount(self.batch_ids, self.files_added)[self.batch_ids] > 0
        if kept.all():
            return self
        return replace(self, packing=self.packing.select(kept), batch_ids=self.batch_ids[kept])

    @cached_property
    def bytes_removed(self) -> np.ndarray:
        """Bytes of the bin's files."""
        return self._sums(self.planner.files.sizes)

    @cached_property
    def rows_known(self) -> np.ndarray:
        """Whether the log has the row counts that determine how many files are added, bool."""
        some = self._sums(self.planner.rows > 0) > 0
        unknown = self._sums(np.isnan(self.planner.rows)) > 0
        known: np.ndarray = ~unknown if self.thresholds.max_records_per_file else some | ~unknown
        return known

    @cached_property
    def files_added(self) -> np.ndarray:
        """Number of added files; a file with an unknown row count is assumed to have rows."""
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
        return gains(self.packing.counts - self.files_added, self.bytes_removed, self.bytes_added)

    def _sums(self, values: np.ndarray) -> np.ndarray:
        positions, bin_ids = self.packing.members
        return np.bincount(bin_ids, values[positions], minlength=self.packing.num_bins).astype(np.int64)
