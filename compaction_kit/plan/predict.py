"""Predict the outputs of bins: files, bytes (by a model of the table's files), what they save, commits."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.files import Files
from compaction_kit.log.paths import is_remote, places
from compaction_kit.plan.packing import Packing, batch_of_bins, gains
from compaction_kit.plan.partitions import text_groups
from compaction_kit.plan.thresholds import Thresholds
from compaction_kit.storage import Store
from compaction_kit.text import MIB, format_size

_FEWEST_FILES = 3
_MOST_FILES = 64
_MOST_BYTES = 32 * MIB


@dataclass(frozen=True)
class SizeModel:
    """A file's bytes as an overhead and so many bytes a row.

    Footers, schemas and dictionaries come once a file, so that one large file has fewer bytes
    than many small ones. The straight line through the table's own files says how many fewer;
    where dictionaries save more beyond the largest of them, the output is smaller still.

    Attributes:
        overhead: Bytes that a file has whatever is in it.
        weights: Bytes that each file's live rows take, int64, one a file.
        basis: Where the numbers come from, in words.
    """

    overhead: int
    weights: np.ndarray
    basis: str

    @classmethod
    def of(cls, files: Files) -> "SizeModel":
        """Fit a least-squares line of bytes by rows to some files."""
        sizes = files.sizes
        records, deleted = _rows(files)
        known = ~np.isnan(records) & (records > 0)
        if known.sum() >= _FEWEST_FILES and len(np.unique(records[known])) > 1:
            slope, intercept = np.polyfit(records[known], sizes[known], 1)
            if slope > 0 and intercept >= 0:
                overhead = float(min(intercept, sizes[known].min()))
                weights = np.where(known, slope * (records - deleted), np.maximum(sizes - overhead, 0))
                costs = f"{format_size(overhead)} per file and {slope:,.1f} bytes per row"
                basis = f"{costs}, estimated from {int(known.sum()):,} of the table's files"
                return cls.by_row(overhead, weights, sizes, basis)
        share = np.ones(len(sizes))
        share[known] = 1 - deleted[known] / records[known]
        return cls.by_row(0, sizes * share, sizes, "at most the bytes of the rows that are kept")

    @classmethod
    def by_row(cls, overhead: float, weights: np.ndarray, sizes: np.ndarray, basis: str) -> "SizeModel":
        """Make a model with these weights, none of them above the file's own size."""
        return cls(int(overhead), np.clip(np.ceil(weights), 0, sizes).astype(np.int64), basis)

    def output_bytes(self, positions: np.ndarray, bin_ids: np.ndarray, num_bins: int) -> np.ndarray:
        """Predict the bytes of each bin's output, int64.

        Args:
            positions: The files in bins.
            bin_ids: The bin of each of them.
            num_bins: How many bins there are.
        """
        contents = np.bincount(bin_ids, self.weights[positions], minlength=num_bins)
        return (contents + self.overhead).astype(np.int64)


@dataclass(frozen=True)
class Outcome:
    """Predictions for a packing; every array has one number a bin.

    `rows` are those of each file as `live_rows` has them, `model` is called when bytes are needed, and
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
        """Predict the outputs of all bins, in batches as OPTIMIZE packs them."""
        sizes = packing.counts if thresholds.batch_size is None else packing.totals(source.sizes)
        batch_ids = batch_of_bins(sizes.astype(np.int64), thresholds.batch_size)
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
        """Whether the log has the rows that decide how many files are added, bool."""
        some = self._sums(np.nan_to_num(self._member_rows)) > 0
        unknown = self._sums(np.isnan(self._member_rows)) > 0
        known: np.ndarray = ~unknown if self.thresholds.max_records_per_file else some | ~unknown
        return known

    @cached_property
    def files_added(self) -> np.ndarray:
        """Files that are added, int64; a file of unknown rows is taken to have some."""
        rows = self._sums(np.nan_to_num(self._member_rows, nan=1))
        if self.zorder:
            # OptimizeExecutor, runOptimizeBinJob: approxNumFiles; ranges without rows make no file.
            files = np.maximum(self.bytes_removed // self.thresholds.max_file_size, 1)
            return np.minimum(files, rows).astype(np.int64)
        most = self.thresholds.max_records_per_file
        return (np.ceil(rows / most) if most else rows > 0).astype(np.int64)

    @cached_property
    def vectors(self) -> np.ndarray:
        """Deletion vectors that are removed with the bin's files, int64."""
        if not self.source.snapshot.has_vectors:
            return np.zeros(self.packing.num_bins, dtype=np.int64)
        has_vector = self.source.to_arrow()["deletion_vector_cardinality"].is_valid().to_numpy()
        return self._sums(has_vector[self._members[0]]).astype(np.int64)

    @cached_property
    def bytes_added(self) -> np.ndarray:
        """Predicted bytes of the added files, int64."""
        predicted = self.model().output_bytes(*self._members, self.packing.num_bins)
        return np.where(self.files_added > 0, np.minimum(predicted, self.bytes_removed), 0)

    @cached_property
    def gains(self) -> np.ndarray:
        """Bytes that a full read of the bin saves; see `packing.gains`."""
        return gains(self.packing.counts, self.bytes_removed, self.bytes_added)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Predicted bytes of each added file, int64."""
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


def live_rows(files: Files) -> np.ndarray:
    """The rows of each file that no deletion vector hides, float64; NaN if the log hasn't their number."""
    records, deleted = _rows(files)
    return records - deleted


def _rows(files: Files) -> tuple[np.ndarray, np.ndarray]:
    table = files.to_arrow()
    records = pc.cast(table["num_records"], "float64").to_numpy()
    deleted = pc.fill_null(table["deletion_vector_cardinality"], 0).to_numpy()
    return records, deleted


def sampled_model(store: Store, files: Files) -> SizeModel:
    """Make a model by rewriting some files to memory.

    Up to 64 and 32 MiB of the oldest files of the partition with the most files are read and written
    again, half of them and all of them: the difference is the cost of more rows, and the rest is that of
    a file. If a file can't be read so, it is the line through the files' own sizes (`SizeModel.of`).

    Args:
        store: The table's files.
        files: The files of the model.
    """
    rows = live_rows(files)
    chosen = _neighbours(files, rows)
    if len(chosen) < 2:
        return SizeModel.of(files)
    try:
        opened = [pq.ParquetFile(file) for file in _open(store, files, chosen)]
        parts = [file.read() for file in opened]
        codec = opened[0].metadata.row_group(0).column(0).compression
        whole, half = (_written(parts[:count], codec) for count in (len(parts), len(parts) // 2))
    except (OSError, pa.ArrowException, IndexError):
        return SizeModel.of(files)
    counts = np.cumsum([len(part) for part in parts])
    slope = (whole - half) / (counts[-1] - counts[len(parts) // 2 - 1])
    overhead = whole - slope * counts[-1]
    if slope <= 0 or overhead < 0:
        return SizeModel.of(files)
    weights = np.where(np.isnan(rows), files.sizes, slope * rows)
    costs = f"{format_size(overhead)} per file and {slope:,.1f} bytes per row"
    basis = f"{costs}, measured by rewriting {len(chosen):,} files in memory"
    return SizeModel.by_row(overhead, weights, files.sizes, basis)


def _neighbours(files: Files, rows: np.ndarray) -> np.ndarray:
    """The oldest files of the partition that has the most, as many as may be rewritten.

    The same files however the log was read: their order in a checkpoint isn't that of the commits.
    """
    usable = np.flatnonzero(rows > 0)
    if not len(usable):
        return usable
    groups = text_groups(files.partitions)[usable]
    counts = np.bincount(groups)
    fullest = np.flatnonzero((counts == counts.max())[groups])
    paths = files.paths(usable[fullest])
    members = usable[groups == groups[fullest[pc.index(paths, pc.min(paths)).as_py()]]]
    times = files.to_arrow()["modification_time"].take(pa.array(members))
    table = pa.table({"position": members, "time": times, "path": files.paths(members)})
    keys = [("time", "ascending"), ("path", "ascending")]
    chosen = table.take(pc.select_k_unstable(table, min(_MOST_FILES, len(table)), keys))
    members = chosen["position"].to_numpy()
    kept: np.ndarray = members[np.cumsum(files.sizes[members]) <= _MOST_BYTES]
    return kept


def _open(store: Store, files: Files, positions: np.ndarray) -> list[pa.NativeFile]:
    found = places(files.paths(positions), store)
    if pc.any(is_remote(found)).as_py():
        raise OSError("in another storage")
    return [pa.BufferReader(data) for data in store.at_once(store.read, found.to_pylist())]


def _written(parts: list[pa.Table], codec: str) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(parts, promote_options="default"), sink, compression=codec)
    return int(sink.tell())
