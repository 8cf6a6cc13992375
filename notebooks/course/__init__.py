"""Experiments of the course on small tables, such as two concurrent writers."""

import re
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.sql import uri


def new_folder(within: str | Path, name: str) -> Path:
    """Make an empty folder for a lesson's tables in `within`, which is made if needed; return its full path.

    A number is added to the name if a folder of that name exists.

    Raises:
        InvalidArgumentError: The folder would be inside a Delta table.
    """
    parent = Path(within).resolve()
    for folder in (parent, *parent.parents):
        if (folder / LOG_FOLDER).is_dir():
            raise InvalidArgumentError(f"{within} is inside the Delta table {folder}: give another folder.")
    stem = re.sub(r"\W+", "-", name).strip("-").lower()
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    folder = next(path for path in map(parent.joinpath, names) if not path.exists())
    folder.mkdir(parents=True)
    return folder


def read_ids(spark: SparkSession, table: Path) -> tuple[int, ...]:
    """Return the values of a Delta table's column id, sorted."""
    rows = spark.read.format("delta").load(uri(table)).select("id").collect()
    return tuple(sorted(row["id"] for row in rows))
