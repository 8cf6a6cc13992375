"""OPTIMIZE's thresholds, from the caller or the session, and the files that they select."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from compaction_kit.files import Files
from compaction_kit.plan.predict import count_rows
from compaction_kit.text import GIB, parse_number, parse_size, parse_spark_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPTIMIZE = "spark.databricks.delta.optimize"
# Settings for clustered tables: sizes of cubes.
CUBES = f"{_OPTIMIZE}.clustering.mergeStrategy.minCubeSize"

# Returns the value of a setting of the session, or None if it isn't set.
Conf = Callable[[str], str | None]
Size = int | str | None
D = TypeVar("D", int, None)


@dataclass(frozen=True)
class Thresholds:
    """OPTIMIZE's thresholds, with its defaults (DeltaSQLConf, optimize.*).

    See `Table.plan_compaction` for the first four. `max_records_per_file` is Spark's
    spark.sql.files.maxRecordsPerFile, 0 for no limit; `output_file_size` is the predicted size of the file
    that a full bin becomes, if the caller gave it; `max_file_size` is then computed from it.
    """

    min_file_size: int = GIB
    max_file_size: int = GIB
    max_deleted_rows_ratio: float = 0.05
    batch_size: int | None = None
    max_records_per_file: int = 0
    output_file_size: int | None = None

    @property
    def target_file_size(self) -> int:
        """The size that the caller gave: of new files (`output_file_size`), or else of a bin."""
        return self.output_file_size or self.max_file_size


@dataclass(frozen=True)
class CubeSizes:
    """Sizes of a clustered table's cubes, with OPTIMIZE's defaults (DeltaSQLConf, optimize.clustering.*).

    Cubes of at least `complete` bytes are not rewritten; a new cube has at most `target` bytes, or `complete`
    bytes if that is more.
    """

    complete: int = 100 * GIB
    target: int = 150 * GIB

    @property
    def most(self) -> int:
        """The largest size of a bin, which becomes a cube, in bytes."""
        return max(self.complete, self.target)


@dataclass(frozen=True)
class SessionRules:
    """Session settings that change how OPTIMIZE groups and orders files.

    Attributes:
        time_zone: The time zone of partition timestamps without a zone; None for the machine's zone.
        snapshot_partitions: spark.databricks.delta.snapshotPartitions, or 50 as in Snapshot.scala; it
            determines the order of files of equal size.
        by_type: Whether partition values are compared as typed values, or as text.
        cubes: The sizes of cubes, for clustered tables.
    """

    time_zone: str | None = None
    snapshot_partitions: int = 50
    by_type: bool = True
    cubes: CubeSizes = CubeSizes()


def thresholds(
    conf: Conf,
    min_file_size: Size = None,
    max_file_size: Size = None,
    max_deleted_rows_ratio: float | None = None,
    batch_size: Size = None,
    even: bool = False,
) -> Thresholds:
    """Return the thresholds of a plan; arguments that are None come from OPTIMIZE's settings in the session.

    If only one size is given, the other one is adjusted so that the minimum isn't above the maximum. With
    `even`, the minimum is half of the maximum, so that a second run does not rewrite the outputs of the
    first. See `Table.plan_compaction` for the arguments.

    Raises:
        InvalidArgumentError: A size or the ratio can't be used.
    """
    default = Thresholds()
    lower = _size(conf, f"{_OPTIMIZE}.minFileSize", default.min_file_size, min_file_size, "min_file_size")
    upper = _size(conf, f"{_OPTIMIZE}.maxFileSize", default.max_file_size, max_file_size, "max_file_size")
    if min_file_size is None and even:
        lower = max(upper // 2, 1)
    elif min_file_size is None and max_file_size is not None:
        lower = min(lower, upper)
    elif max_file_size is None and min_file_size is not None:
        upper = max(lower, upper)
    ratio = max_deleted_rows_ratio
    if ratio is None:
        ratio = float(conf(f"{_OPTIMIZE}.maxDeletedRowsRatio") or default.max_deleted_rows_ratio)
    ratio = float(parse_number(ratio, "max_deleted_rows_ratio", most=1))
    batch = _size(conf, f"{_OPTIMIZE}.batchSize", None, batch_size, "batch_size")
    most_records = max(int(conf("spark.sql.files.maxRecordsPerFile") or 0), 0)
    return Thresholds(lower, upper, ratio, batch, most_records)


def _size(conf: Conf, setting: str, default: D, given: Size = None, name: str = "") -> int | D:
    if given is not None:
        return parse_size(given, name)
    value = conf(setting)
    return parse_spark_size(value, setting) if value else default


def session_rules(conf: Conf, spark: SparkSession | None) -> SessionRules:
    """Read the rules from the session's settings and the release of Delta."""
    from compaction_kit.compat import groups_by_type

    by_type = (conf("spark.databricks.delta.normalizePartitionValuesOnRead") or "").lower() != "false"
    return SessionRules(
        conf("spark.sql.session.timeZone") or None,
        int(conf("spark.databricks.delta.snapshotPartitions") or SessionRules.snapshot_partitions),
        groups_by_type(spark) and by_type,
        CubeSizes(
            _size(conf, f"{CUBES}.threshold", CubeSizes.complete),
            _size(conf, f"{CUBES}.targetCubeSize", CubeSizes.target),
        ),
    )


def candidates(files: Files, thresholds: Thresholds) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks (bool) of files to rewrite: small ones, and others with many deleted rows."""
    small = files.sizes < thresholds.min_file_size
    if not files.snapshot.has_vectors:
        return small, np.zeros(files.num_files, dtype=bool)
    has_vector = files.to_arrow()["deletion_vector_cardinality"].is_valid().to_numpy()
    records, deleted = count_rows(files)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 1.0 - (records - deleted) / records
    # As in OPTIMIZE, files with a deletion vector but no row count are rewritten too.
    return small, ~small & has_vector & (np.isnan(records) | (ratio > thresholds.max_deleted_rows_ratio))
