"""What comes of the bins of a plan: files, bytes and commits, predicted."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from compaction_kit.plan.packing import Packing, batch_of_bins, gains, num_sorted_files
from compaction_kit.plan.planner import Planner
from compaction_kit.plan.thresholds import Thresholds


@dataclass(frozen=True)
class Outcome:
    """Predicted outputs of bins, and the commit of each: arrays with one number a bin, int64."""

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
        if kept.all():
            return self
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
