"""VACUUM … USING INVENTORY: Delta's own vacuum of given files."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from compaction_kit.sql import quoted, table_name, uri
from compaction_kit.vacuum.plan import VacuumPlan
from compaction_kit.vacuum.sorting import LITE
from compaction_kit.vacuum.window import hours

# VacuumCommand.INVENTORY_SCHEMA.
_SCHEMA = "path STRING, length BIGINT, isDir BOOLEAN, modificationTime BIGINT"


@contextlib.contextmanager
def vacuum_statement(spark: SparkSession, table: Path, plan: VacuumPlan) -> Iterator[str]:
    """The statement that vacuums what a plan shows, for the time of a `with` block.

    Delta takes of an inventory what the log doesn't name and what is older than the table's retention;
    a shorter one has to be said once more, and it refuses that while its check is on.
    """
    view = f"compaction_kit_{uuid.uuid4().hex}"
    spark.createDataFrame(_inventory(table, plan), _SCHEMA).createOrReplaceTempView(view)
    retain = f" RETAIN {hours(plan.retention)} HOURS" if plan.retention < plan.table_retention else ""
    try:
        yield f"VACUUM {table_name(spark, table)} USING INVENTORY (SELECT * FROM {quoted(view)}){retain}"
    finally:
        spark.catalog.dropTempView(view)


def _inventory(table: Path, plan: VacuumPlan) -> pd.DataFrame:
    paths, folders = plan.files["path"].to_pylist(), plan.empty_directories
    times = plan.files["modification_time"].cast("int64").to_numpy()
    if plan.mode == LITE:
        # It goes by when files were removed, and the plan has seen to that.
        times = np.zeros_like(times)
    nothing = np.zeros(len(folders), np.int64)
    return pd.DataFrame(
        {
            # As Hadoop writes a path: it is not encoded.
            "path": [uri(table / path) for path in (*paths, *folders)],
            "length": np.append(plan.files["size_bytes"].to_numpy(), nothing),
            "isDir": np.repeat([False, True], [len(paths), len(folders)]),
            "modificationTime": np.append(times, nothing),
        }
    )
