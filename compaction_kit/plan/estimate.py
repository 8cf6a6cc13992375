"""How many bytes a bin's output will have, judged by the table's files or by rewriting some in memory."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.files import Files
from compaction_kit.log.paths import is_remote, places
from compaction_kit.plan.partitions import text_groups
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
    where dictionaries go on repaying beyond the largest of them, the output is smaller still.

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
        """The model of some files: a least-squares line of bytes by rows."""
        sizes = files.sizes
        records, deleted = _rows(files)
        known = ~np.isnan(records) & (records > 0)
        if known.sum() < _FEWEST_FILES or len(np.unique(records[known])) < 2:
            return cls._of_share(sizes, records, deleted, known)
        slope, intercept = np.polyfit(records[known], sizes[known], 1)
        overhead = float(np.clip(intercept, 0, sizes[known].min()))
        if slope <= 0 or intercept < 0:
            return cls._of_share(sizes, records, deleted, known)
        weights = np.where(known, slope * (records - deleted), np.maximum(sizes - overhead, 0))
        basis = (
            f"{format_size(overhead)} a file and {slope:,.1f} bytes a row, as {int(known.sum()):,} of the "
            "table's files have it"
        )
        return cls.by_row(overhead, weights, sizes, basis)

    @classmethod
    def by_row(cls, overhead: float, weights: np.ndarray, sizes: np.ndarray, basis: str) -> "SizeModel":
        """A model with these weights, none of them above the file's own size."""
        return cls(int(overhead), np.clip(np.ceil(weights), 0, sizes).astype(np.int64), basis)

    @classmethod
    def _of_share(
        cls, sizes: np.ndarray, records: np.ndarray, deleted: np.ndarray, known: np.ndarray
    ) -> "SizeModel":
        share = np.ones(len(sizes))
        share[known] = 1 - deleted[known] / records[known]
        return cls.by_row(0, sizes * share, sizes, "the bytes of the rows that are kept, at most")

    def output_bytes(self, positions: np.ndarray, bin_ids: np.ndarray, num_bins: int) -> np.ndarray:
        """The predicted bytes of each bin's output, int64.

        Args:
            positions: The files in bins.
            bin_ids: The bin of each of them.
            num_bins: How many bins there are.
        """
        contents = np.bincount(bin_ids, self.weights[positions], minlength=num_bins)
        return (contents + self.overhead).astype(np.int64)


def live_rows(files: Files) -> np.ndarray:
    """The rows of each file that no deletion vector hides, float64; NaN where the log doesn't say."""
    records, deleted = _rows(files)
    return records - deleted


def _rows(files: Files) -> tuple[np.ndarray, np.ndarray]:
    table = files.to_arrow()
    records = pc.cast(table["num_records"], "float64").to_numpy()
    deleted = pc.fill_null(table["deletion_vector_cardinality"], 0).to_numpy()
    return records, deleted


def sampled_model(store: Store, files: Files) -> SizeModel:
    """What the files' bytes will be made of once they are rewritten.

    Up to 64 files and 32 MiB of the partition with the most files are read and written again to
    memory, half of them and all of them: the difference is what more rows cost, and the rest
    is what a file costs. Where a file can't be read so, the line through the files' own sizes
    has to do (`SizeModel.of`).

    Args:
        store: The table's files.
        files: The files to be judged.
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
    costs = f"{format_size(overhead)} a file and {slope:,.1f} bytes a row"
    basis = f"{costs}, by writing {len(chosen):,} files to memory"
    return SizeModel.by_row(overhead, weights, files.sizes, basis)


def _neighbours(files: Files, rows: np.ndarray) -> np.ndarray:
    """Files that stand side by side in the log and in one partition, as many as a trial may take."""
    groups = text_groups(files.partitions)
    usable = rows > 0
    if not usable.any():
        return np.flatnonzero(usable)
    fullest = np.bincount(groups[usable]).argmax()
    members = np.flatnonzero(usable & (groups == fullest))[:_MOST_FILES]
    kept: np.ndarray = members[np.cumsum(files.sizes[members]) <= _MOST_BYTES]
    return kept


def _open(store: Store, files: Files, positions: np.ndarray) -> list[pa.NativeFile]:
    found = places(files.paths(positions), store)
    if pc.any(is_remote(found)).as_py():
        raise OSError("not in the table's storage")
    return [store.open(place) for place in found.to_pylist()]


def _written(parts: list[pa.Table], codec: str) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(parts, promote_options="default"), sink, compression=codec)
    return int(sink.tell())
