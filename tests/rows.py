"""The rows of a table, in any order: as Spark reads them, and as another reader does from a local disk."""

from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession


def texts(spark: SparkSession, table: Path | str) -> list[str]:
    """The rows as Spark shows them, of any type: NaN equals NaN and -0.0 isn't 0.0."""
    return sorted(map(str, spark.read.format("delta").load(str(table)).collect()))


def on_disk(table: Path, version: int | None = None) -> list[str]:
    rows = DeltaTable(table, version=version).to_pyarrow_table().to_pylist()
    return sorted(str(sorted(row.items())) for row in rows)
