"""Mapped and clustered tables are changed at random, and each OPTIMIZE and REORG is as planned."""

import contextlib
import random
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from compaction_kit import open_table
from compaction_kit.errors import EmptyTableError
from compaction_kit.execute.jobs import session_confs
from tests.execute.test_random_plans import run_statement

pytestmark = pytest.mark.spark

COLUMNS = """
    id BIGINT, p INT, n STRUCT<x: INT, Y: STRING>, a ARRAY<STRUCT<u: INT, v: INT>>,
    m MAP<STRING, STRUCT<k: INT, l: INT>>, `d.d` INT
"""
# A row of any of these columns.
ROW = (
    '{"id": #, "p": @, "n": {"x": #, "Y": "#"}, "a": [{"u": #, "v": #}],'
    ' "m": {"k": {"k": #, "l": #}}, "d.d": #}'
)
DROPPABLE = ("n.x", "n.Y", "a.element.u", "a.element.v", "m.value.k", "m.value.l", "`d.d`", "n", "a")
CLUSTERINGS = ("(p)", "(p, id)", "(`d.d`, n.x)", "NONE")
CUBE = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize"


def append(spark: SparkSession, path: Path, num_rows: int, num_files: int) -> None:
    """Append rows of the columns that the table has now."""
    schema = spark.read.format("delta").load(str(path)).schema
    texts = F.expr(f"REPLACE(REPLACE('{ROW}', '#', id), '@', id % 3)")
    rows = spark.range(num_rows).select(F.from_json(texts, schema).alias("row")).select("row.*")
    rows.repartition(num_files).write.format("delta").mode("append").save(str(path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        # By day a clustered table is optimized after a delete, and purged after a column was dropped; five
        # more are optimized once or twice.
        *((14_106, 3), (1, 2), (10, 1), (14, 1), (26, 1), (39, 2)),
        *(pytest.param(seed, 8, marks=pytest.mark.nightly) for seed in range(100, 150)),
    ],
)
def test_random_tables_are_optimized_and_purged_as_planned(
    spark: SparkSession, tmp_path: Path, seed: int, steps: int
) -> None:
    draw, path = random.Random(seed), tmp_path / "table"
    name = f"delta.`{path}`"
    layout = draw.choice(["CLUSTER BY (p)", "CLUSTER BY (`d.d`, n.x)", "PARTITIONED BY (p)", ""])
    spark.sql(
        f"CREATE TABLE {name} ({COLUMNS}) USING delta {layout} TBLPROPERTIES ("
        f"'delta.columnMapping.mode' = '{draw.choice(['name', 'id'])}', "
        f"'delta.enableRowTracking' = '{draw.choice(['true', 'false'])}', "
        "'delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '3')"
    )
    append(spark, path, 100, 2)
    for _ in range(steps):
        kinds = ["append", "drop", "delete", "alter", "optimize", "purge"]
        step = draw.choices(kinds, [3, 1.5, 1.5, 1, 4, 2])[0]
        if step == "append":
            append(spark, path, draw.randint(20, 600), draw.randint(1, 4))
        elif step == "drop":
            # The last field of a struct can't be dropped, nor a column that the table is clustered by.
            with contextlib.suppress(AnalysisException):
                spark.sql(f"ALTER TABLE {name} DROP COLUMN {draw.choice(DROPPABLE)}")
        elif step == "delete":
            spark.sql(f"DELETE FROM {name} WHERE id % {draw.randint(2, 99)} = 1")
        elif step == "alter":
            # The columns may be gone, and a partitioned table takes none.
            with contextlib.suppress(AnalysisException):
                spark.sql(f"ALTER TABLE {name} CLUSTER BY {draw.choice(CLUSTERINGS)}")
        else:
            compare(spark, path, draw, step)
    compare(spark, path, draw, draw.choice(["optimize", "purge"]))


def compare(spark: SparkSession, path: Path, draw: random.Random, step: str) -> None:
    """Optimize or purge a table, and compare what was done and told with the plan."""
    confs = {
        f"{CUBE}.threshold": str(draw.choice([3_000, 8_000, 15_000, 10**9])),
        f"{CUBE}.targetCubeSize": str(draw.choice([2_000, 6_000, 12_000, 30_000])),
        "spark.databricks.delta.optimize.maxFileSize": str(draw.choice([2_000, 5_000, 12_000, 10**9])),
    }
    statement = f"REORG TABLE delta.`{path}` APPLY (PURGE)"
    with session_confs(spark, confs):
        table = open_table(path, spark)
        try:
            plan = table.plan_purge() if step == "purge" else table.plan_compaction()
        except EmptyTableError:
            return
        if step == "optimize":
            full = bool(plan.clustered_by) and draw.random() < 0.3
            plan = table.plan_compaction(full=full)
            statement = f"OPTIMIZE delta.`{path}`{' FULL' if full else ''}"
        outcome = run_statement(spark, path, statement)
    removed = sorted(remove["path"] for remove in outcome.removes)
    assert removed == sorted(plan.files["path"].to_pylist())
    predicted, found = plan.metrics, outcome.metrics
    if plan.clustered_by:
        # The number of outputs is predicted.
        predicted["numFilesAdded"] = found["numFilesAdded"]
        stats = predicted.pop("clusteringStats")
        assert stats == {name: found["clusteringStats"][name] for name in stats}
    assert predicted == {name: found[name] for name in predicted}
