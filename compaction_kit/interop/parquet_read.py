"""Read Parquet with Spark, whatever characters are in a path."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from compaction_kit.sql import pattern


def read_parquet(
    spark: SparkSession,
    paths: Path | Iterable[Path],
    schema: StructType | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows of a folder, or of files, with Spark's own reader of Parquet.

    Args:
        spark: The session.
        paths: The folder or the files.
        schema: The columns; None for what Spark infers.
        options: The reader's.
    """
    reader = spark.read.options(**(options or {}))
    if schema is not None:
        reader = reader.schema(schema)
    each = [paths] if isinstance(paths, Path) else paths
    return reader.parquet(*map(pattern, each))
