"""What Delta itself says about a table, through Spark: the reference for what the kit reads."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession

Sizes = dict[str, int]


def live_files(spark: SparkSession, table: Path, version: int | None = None) -> Sizes:
    """Bytes of each live file of a version by its path, as Delta's own Snapshot has them."""
    adds = DataFrame(_snapshot(spark, table, version).allFiles().toDF(), spark)
    return {_decoded(row["path"]): row["size"] for row in adds.select("path", "size").collect()}


def forget(spark: SparkSession) -> None:
    """Make Delta read logs anew, after one was changed behind its back."""
    _jvm(spark).DeltaLog.clearCache()


def checkpoint(spark: SparkSession, table: Path) -> None:
    """Have Delta write a checkpoint of the latest version."""
    forget(spark)
    log = _jvm(spark).DeltaLog.forTable(_jsession(spark), str(table))
    log.checkpoint()


def input_files(rows: DataFrame) -> set[str]:
    """The names of the data files that a DataFrame reads."""
    return {Path(_decoded(uri)).name for uri in rows.inputFiles()}


def _snapshot(spark: SparkSession, table: Path, version: int | None) -> Any:
    log = _jvm(spark).DeltaLog.forTable(_jsession(spark), str(table))
    if version is None:
        return log.unsafeVolatileSnapshot()
    defaults = (getattr(log, f"getSnapshotAt$default${position}")() for position in (2, 3, 4))
    return log.getSnapshotAt(version, *defaults)


def _jvm(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    return spark._jvm.org.apache.spark.sql.delta


def _jsession(spark: SparkSession) -> Any:
    return spark._jsparkSession


def _decoded(uri: str) -> str:
    return unquote(urlsplit(uri).path if uri.startswith("file:") else uri)
