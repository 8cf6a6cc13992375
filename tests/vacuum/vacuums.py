"""VACUUM itself, to compare with."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests import deltas_view
from tests.ageing import age_file


def listed(spark: SparkSession, table: Path) -> set[str]:
    """The files and folders that VACUUM says it would delete, relative to the table."""
    deltas_view.forget(spark)
    rows = spark.sql(f"VACUUM delta.`{table}` DRY RUN").collect()
    return {str(Path(row["path"].removeprefix("file:")).relative_to(table)) for row in rows}


def vacuum(spark: SparkSession, table: Path) -> set[str]:
    """Vacuum; the files and folders that are gone, the log's left out."""
    deltas_view.forget(spark)
    before = content(table)
    spark.sql(f"VACUUM delta.`{table}`").collect()
    return before - content(table)


def content(table: Path) -> set[str]:
    """All files and folders but the log's, and Hadoop's checksums."""
    paths = (path.relative_to(table) for path in table.rglob("*"))
    return {str(path) for path in paths if path.parts[0] != "_delta_log" and not path.name.endswith(".crc")}


def drop_file(table: Path, path: str, days_old: float = 0) -> None:
    """Put a file there that no log knows of."""
    file = table / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    age_file(file, days_old)
