"""Which files OPTIMIZE selects: its thresholds, from the caller or the session, and the files below them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.plan.order import DEFAULT_PARTITIONS
from compaction_kit.text import GIB, parse_size, parse_spark_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL, DELETED_ROWS, LARGE = "small", "deleted rows", "large"
_OPTIMIZE = "spark.databricks.delta.optimize"
_SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_NORMALIZE = "spark.databricks.delta.normalizePartitionValuesOnRead"
_MAX_RECORDS = "spark.sql.files.maxRecordsPerFile"

# The value of a setting of the session, or None if it has none.
Conf = Callable[[str], str | None]
Size = int | str | None
D = TypeVar("D", int, None)


@dataclass(frozen=True)
class Thresholds:
    """OPTIMIZE's thresholds, with its defaults (DeltaSQLConf, optimize.*).

    Sizes are in bytes. `batch_size` limits the bins of one commit; None puts all in one.
    `max_records_per_file` is Spark's spark.sql.files.maxRecordsPerFile; 0 for no limit.
    """

    min_file_size: int = GIB
    max_file_size: int = GIB
    max_deleted_rows_ratio: float = 0.05
    batch_size: int | None = None
    max_records_per_file: int = 0


@dataclass(frozen=True)
class SessionRules:
    """Session settings that change how OPTIMIZE groups and orders files.

    Attributes:
        time_zone: The name of the zone of partition timestamps without one; None for the machine's.
        snapshot_partitions: spark.databricks.delta.snapshotPartitions, which decides between
            files of one size.
        by_type: Whether partition values are compared as typed, or as written.
    """

    time_zone: str | None = None
    snapshot_partitions: int = DEFAULT_PARTITIONS
    by_type: bool = True


def thresholds(
    conf: Conf,
    min_file_size: Size = None,
    max_file_size: Size = None,
    max_deleted_rows_ratio: float | None = None,
    batch_size: Size = None,
    even: bool = False,
) -> Thresholds:
    """Choose the thresholds of a plan.

    Args:
        conf: Reads the session's settings.
        min_file_size: Files below this size are rewritten. None: OPTIMIZE's setting in the session, or
            `max_file_size` if that is less.
        max_file_size: The size that a bin may have. None: OPTIMIZE's setting, or `min_file_size` if
            that is more. Given both, the minimum may be above the maximum, as OPTIMIZE allows.
        max_deleted_rows_ratio: Files with a greater share of deleted rows are rewritten whatever
            their size.
        batch_size: Bytes of the bins of one commit. None: OPTIMIZE's setting.
        even: Keep files of at least half of `max_file_size`, unless `min_file_size` is given.

    Raises:
        InvalidArgumentError: A size or the ratio can't be used.
    """
    default = Thresholds()
    lower = _set_size(conf, "minFileSize", default.min_file_size)
    upper = _set_size(conf, "maxFileSize", default.max_file_size)
    if min_file_size is not None:
        lower = parse_size(min_file_size, "min_file_size")
    if max_file_size is not None:
        upper = parse_size(max_file_size, "max_file_size")
    if min_file_size is None and even:
        lower = max(upper // 2, 1)
    elif min_file_size is None and max_file_size is not None:
        lower = min(lower, upper)
    elif max_file_size is None and min_file_size is not None:
        upper = max(lower, upper)
    ratio = max_deleted_rows_ratio
    if ratio is None:
        ratio = float(conf(f"{_OPTIMIZE}.maxDeletedRowsRatio") or default.max_deleted_rows_ratio)
    if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 <= ratio <= 1:
        raise InvalidArgumentError(
            f"max_deleted_rows_ratio={ratio!r} is not a share: give a number from 0 to 1."
        )
    batch = _set_size(conf, "batchSize", None) if batch_size is None else parse_size(batch_size, "batch_size")
    return Thresholds(lower, upper, float(ratio), batch, int(conf(_MAX_RECORDS) or 0))


def session_rules(conf: Conf, spark: SparkSession | None) -> SessionRules:
    """Read the rules from the session's settings and the release of Delta."""
    from compaction_kit.compat import groups_by_type

    return SessionRules(
        conf("spark.sql.session.timeZone") or None,
        int(conf(_SNAPSHOT_PARTITIONS) or DEFAULT_PARTITIONS),
        groups_by_type(spark) and conf(_NORMALIZE) != "false",
    )


def _set_size(conf: Conf, name: str, default: D) -> int | D:
    """OPTIMIZE's setting of a size; 0 is one too, and no file is below it."""
    value = conf(f"{_OPTIMIZE}.{name}")
    return parse_spark_size(value, f"{_OPTIMIZE}.{name}") if value else default


def small_files(files: Files, thresholds: Thresholds) -> np.ndarray:
    """Whether each file is below the minimum."""
    return files.sizes < thresholds.min_file_size


def files_with_many_deleted_rows(files: Files, thresholds: Thresholds) -> np.ndarray:
    """Whether a deletion vector deletes too many rows of each file, or the log hasn't its number of rows."""
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
    """Whether each file is selected."""
    return small_files(files, thresholds) | files_with_many_deleted_rows(files, thresholds)


def reasons(files: Files, thresholds: Thresholds) -> np.ndarray:
    """Why each file is a candidate ("small", "deleted rows") or is none ("large")."""
    return np.select(
        [small_files(files, thresholds), files_with_many_deleted_rows(files, thresholds)],
        [SMALL, DELETED_ROWS],
        LARGE,
    )
