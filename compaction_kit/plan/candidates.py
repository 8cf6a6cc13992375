"""Which files OPTIMIZE takes up, and why (OptimizeExecutor, filterCandidateFileList)."""

from dataclasses import dataclass

import numpy as np

from compaction_kit.files import Files
from compaction_kit.text import GIB

SMALL, DELETED_ROWS, LARGE = "small", "deleted rows", "large"


@dataclass(frozen=True)
class Thresholds:
    """What OPTIMIZE goes by; the defaults are its own (DeltaSQLConf, optimize.*).

    Sizes are in bytes. `batch_size` is what the bins of one commit may hold; None puts all in one.
    `max_records_per_file` is Spark's spark.sql.files.maxRecordsPerFile; 0 for as many as there are.
    """

    min_file_size: int = GIB
    max_file_size: int = GIB
    max_deleted_rows_ratio: float = 0.05
    batch_size: int | None = None
    max_records_per_file: int = 0


def small_files(files: Files, thresholds: Thresholds) -> np.ndarray:
    """Whether each file is below the minimum."""
    return files.sizes < thresholds.min_file_size


def files_with_many_deleted_rows(files: Files, thresholds: Thresholds) -> np.ndarray:
    """Whether a vector deletes too many rows of each file, or the log doesn't say of how many."""
    if not files.snapshot.has_vectors:
        return np.zeros(files.num_files, dtype=bool)
    table = files.to_arrow()
    has_vector = table["deletion_vector_cardinality"].is_valid().to_numpy()
    counted = table["num_records"].is_valid().to_numpy()
    records = table["num_records"].fill_null(1).to_numpy().astype(float)
    deleted = table["deletion_vector_cardinality"].fill_null(0).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 1.0 - (records - deleted) / records
    many: np.ndarray = has_vector & (~counted | (ratio > thresholds.max_deleted_rows_ratio))
    return many


def candidates(files: Files, thresholds: Thresholds) -> np.ndarray:
    """Whether each file is taken up."""
    return small_files(files, thresholds) | files_with_many_deleted_rows(files, thresholds)


def reasons(files: Files, thresholds: Thresholds) -> np.ndarray:
    """Why each file is a candidate ("small", "deleted rows") or is none ("large")."""
    return np.select(
        [small_files(files, thresholds), files_with_many_deleted_rows(files, thresholds)],
        [SMALL, DELETED_ROWS],
        LARGE,
    )
