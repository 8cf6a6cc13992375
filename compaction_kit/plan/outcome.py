"""What comes of each bin: files, bytes, what it gains, and in which commit."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from compaction_kit.files import Files
from compaction_kit.plan.estimate import SizeModel
from compaction_kit.plan.packing import Packing, batch_of_bins, gains
from compaction_kit.plan.thresholds import Thresholds


@dataclass(frozen=True)
class Outcome:
    """Predictions for a packing; every array has one number a bin.

    `rows` are those of each file as `live_rows` has them, `model` is asked when bytes are, and
    `batch_ids` is the commit that each bin goes into.
    """

    source: Files
    rows: np.ndarray
    packing: Packing
    thresholds: Thresholds
    zorder: bool
    model: Callable[[], SizeModel]
    batch_ids: np.ndarray

    @classmethod
    def of(
        cls,
        source: Files,
        rows: np.ndarray,
        packing: Packing,
        thresholds: Thresholds,
        zorder: bool,
        model: Callable[[], SizeModel],
    ) -> "Outcome":
        """What comes of all bins, in batches as OPTIMIZE packs them."""
        batch_ids = np.zeros(packing.num_bins, dtype=np.int64)
        if thresholds.batch_size is not None:
            sizes = packing.totals(source.sizes).astype(np.int64)
            batch_ids = batch_of_bins(sizes, thresholds.batch_size)
        return cls(source, rows, packing, thresholds, zorder, model, batch_ids)

    @cached_property
    def is_committed(self) -> np.ndarray:
        """Whether the bin's batch is committed, bool: one that adds no file isn't, and changes nothing."""
        added = np.bincount(self.batch_ids, self.files_added)
        committed: np.ndarray = added[self.batch_ids] > 0
        return committed

    def select(self, bins: np.ndarray) -> "Outcome":
        """The same for some of the bins."""
        return replace(self, packing=self.packing.select(bins), batch_ids=self.batch_ids[bins])

    @cached_property
    def bytes_removed(self) -> np.ndarray:
        """Bytes of the bin's files, int64."""
        return self._sums(self.source.sizes[self._members[0]]).astype(np.int64)

    @cached_property
    def rows_known(self) -> np.ndarray:
        """Whether the log says how many files come out, bool: it may not count the rows."""
        some = self._sums(np.nan_to_num(self._member_rows)) > 0
        unknown = self._sums(np.isnan(self._member_rows)) > 0
        known: np.ndarray = ~unknown if self.thresholds.max_records_per_file else some | ~unknown
        return known

    @cached_property
    def files_added(self) -> np.ndarray:
        """Files that come out, int64; a file of unknown rows is taken to have some."""
        rows = self._sums(np.nan_to_num(self._member_rows, nan=1))
        if self.zorder:
            # OptimizeExecutor, runOptimizeBinJob: approxNumFiles; ranges without rows make no file.
            files = np.maximum(self.bytes_removed // self.thresholds.max_file_size, 1)
            return np.minimum(files, rows).astype(np.int64)
        most = self.thresholds.max_records_per_file
        return (np.ceil(rows / most) if most else rows > 0).astype(np.int64)

    @cached_property
    def vectors(self) -> np.ndarray:
        """Deletion vectors that go with the bin's files, int64."""
        if not self.source.snapshot.has_vectors:
            return np.zeros(self.packing.num_bins, dtype=np.int64)
        has_vector = self.source.to_arrow()["deletion_vector_cardinality"].is_valid().to_numpy()
        return self._sums(has_vector[self._members[0]]).astype(np.int64)

    @cached_property
    def bytes_added(self) -> np.ndarray:
        """Their bytes as predicted, int64."""
        predicted = self.model().output_bytes(*self._members, self.packing.num_bins)
        return np.where(self.files_added > 0, np.minimum(predicted, self.bytes_removed), 0)

    @cached_property
    def gains(self) -> np.ndarray:
        """What a read of the bin is spared, in bytes; see `packing.gains`."""
        return gains(self.packing.counts, self.bytes_removed, self.bytes_added)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Predicted bytes of each file that comes out, int64."""
        each = self.bytes_added // np.maximum(self.files_added, 1)
        return np.repeat(each, self.files_added)

    @cached_property
    def _members(self) -> tuple[np.ndarray, np.ndarray]:
        return self.packing.members()

    @cached_property
    def _member_rows(self) -> np.ndarray:
        return self.rows[self._members[0]]

    def _sums(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self._members[1], values, minlength=self.packing.num_bins)
