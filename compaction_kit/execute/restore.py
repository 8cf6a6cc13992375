"""Go back to a version, by Delta's RESTORE."""

from pathlib import Path

from pyspark.sql import SparkSession

from compaction_kit.sql import table_name


def restore(spark: SparkSession, table: Path, version: int) -> None:
    """Commit the state of an earlier version anew.

    Raises:
        PySparkException, Py4JJavaError: Delta refused it, or it failed.
    """
    spark.sql(f"RESTORE TABLE {table_name(spark, table)} TO VERSION AS OF {version}").collect()
