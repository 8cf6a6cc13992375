"""The rows of a table, in any order: as Spark reads them, and as another reader does from a local disk."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession


def by_spark(spark: SparkSession, table: Path | str) -> list[str]:
    return _sorted(row.asDict() for row in spark.read.format("delta").load(str(table)).collect())


def texts(spark: SparkSession, table: Path | str) -> list[str]:
    """Return the rows as Spark's text, for any type: NaN equals NaN and -0.0 isn't 0.0."""
    return sorted(map(str, spark.read.format("delta").load(str(table)).collect()))


def on_disk(table: Path, version: int | None = None) -> list[str]:
    return _sorted(DeltaTable(table, version=version).to_pyarrow_table().to_pylist())


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(str([(name, _plain(row[name])) for name in sorted(row)]) for row in rows)


def _plain(value: Any) -> Any:
    # Spark's times have no zone; they are in the zone of this machine.
    return value.astimezone(UTC) if isinstance(value, datetime) else value
