"""How many bytes a bin's output will have, judged by the files that the table has now."""

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from compaction_kit.files import Files
from compaction_kit.text import format_size

_FEWEST_FILES = 3


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
