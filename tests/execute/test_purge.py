"""Purges: what REORG TABLE … APPLY (PURGE) does is what the plan said, and its proof and undo work."""

import contextlib
import random
import shutil
import warnings
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from compaction_kit import open_table
from compaction_kit.errors import EmptyTableError, InvalidArgumentError, RunCancelled, StorageError
from compaction_kit.execute.jobs import session_confs
from compaction_kit.verdict import Verdict
from tests import handmade
from tests.execute.random_tables import random_recipe
from tests.execute.test_random_plans import SETTINGS, Outcome, check, run_statement

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
CUBE = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize"


def reorg(spark: SparkSession, table: Path, where: str | None) -> Outcome:
    condition = f" WHERE {where}" if where else ""
    return run_statement(spark, table, f"REORG TABLE delta.`{table}`{condition} APPLY (PURGE)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "least"), [(range(2), 1), pytest.param(range(100, 130), 16, marks=pytest.mark.nightly)]
)
def test_random_purges_are_as_planned(spark: SparkSession, tmp_path: Path, seeds: range, least: int) -> None:
    """Many of them have something to purge."""
    changed = 0
    for recipe in map(random_recipe, seeds):
        table = tmp_path / str(recipe.seed)
        recipe.write(table)
        with session_confs(spark, SETTINGS | recipe.confs):
            try:
                plan = open_table(table, spark).plan_purge(recipe.where)
            except EmptyTableError:
                continue
            outcome = reorg(spark, table, recipe.where)
        check(recipe, plan, outcome)
        deleted = sum(remove["deletionVector"]["cardinality"] for remove in outcome.removes)
        assert plan.num_deleted_rows == deleted or not plan.exact.num_files_added
        changed += bool(outcome.commits)
        shutil.rmtree(table)
    assert changed >= least


def test_a_purge_is_proved_and_can_be_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}`"
    spark.sql(
        f"CREATE TABLE {name} ({COLUMNS}) USING delta PARTITIONED BY (p) TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')"
    )
    append(spark, tmp_path, 3_000, 1)
    spark.sql(f"DELETE FROM {name} WHERE id IN (1, 4, 6)")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN n.Y")
    table = open_table(tmp_path, spark)
    compaction, plan, part = table.plan_compaction(), table.plan_purge(), table.plan_purge("p = 1")
    assert compaction.is_empty
    said = Verdict.of(compaction.source, compaction)
    assert "3 deleted rows in 2 files stay on disk" in str(said)
    assert (part.num_files_removed, part.num_deleted_rows) == (1, 2)
    assert (plan.num_files_removed, plan.num_deleted_rows, plan.dropped_columns.num_rows) == (3, 3, 3)
    dropped = sum(plan.dropped_columns["size_bytes"].to_pylist())
    assert 0 < dropped < plan.bytes_removed - plan.bytes_added < plan.bytes_removed
    assert "without 3 deleted rows and dropped columns in 3 files (" in plan.explain()
    assert plan.steps["reason"].to_pylist() == ["dropped columns", "deleted rows", "deleted rows"]
    # A line for a minimum of 0 bytes would be at minus infinity.
    with warnings.catch_warnings(action="error"):
        plan.plot()
    with pytest.raises(RunCancelled, match="nothing was committed"):
        plan.run(progress=cancel)
    shares: list[float] = []
    result = plan.run(progress=lambda progress: shares.append(progress.fraction))
    assert (result.strategy, result.verified, result.as_planned) == ("reorg", True, True)
    assert result.fingerprint is not None
    assert result.fingerprint.num_rows == 2_997
    assert shares[-1] == 1
    assert result.bytes_added == pytest.approx(plan.bytes_added, rel=0.2)
    again = open_table(tmp_path, spark).plan_purge()
    assert again.is_empty
    assert again.explain().endswith("So there is nothing to do.")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN m")
    Path(tmp_path, table.files().to_arrow()["path"][0].as_py()).unlink()
    with pytest.raises(StorageError, match=r"The footer of .* can't be read"):
        open_table(tmp_path, spark).plan_purge()


def cancel(_: object) -> None:
    raise KeyboardInterrupt


def test_what_a_purge_has_no_use_for_is_refused(tmp_path: Path) -> None:
    vectors = [handmade.add(f"f{i}.parquet", 10 + i, vector=handmade.inline_vector([0, i])) for i in (1, 2)]
    columns = [handmade.protocol(features=["deletionVectors"]), handmade.metadata()]
    handmade.write_log(tmp_path, [*columns, *vectors])
    plan = open_table(tmp_path).plan_purge()
    assert (plan.num_bins, plan.num_deleted_rows, plan.dropped_columns.num_rows) == (1, 4, 0)
    with pytest.raises(InvalidArgumentError, match='strategy="arrow" is unknown: use one of auto, reorg'):
        plan.run(strategy="arrow")
    with pytest.raises(InvalidArgumentError, match="A purge has no other order"):
        plan.compare()
    with pytest.raises(InvalidArgumentError, match="the table is not partitioned"):
        open_table(tmp_path).plan_purge(where="p = 1")


def append(spark: SparkSession, path: Path, num_rows: int, num_files: int) -> None:
    """Append rows of the columns that the table has now."""
    schema = spark.read.format("delta").load(str(path)).schema
    texts = F.expr(f"REPLACE(REPLACE('{ROW}', '#', id), '@', id % 3)")
    rows = spark.range(num_rows).select(F.from_json(texts, schema).alias("row")).select("row.*")
    rows.repartition(num_files).write.format("delta").mode("append").save(str(path))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [2, 8, *range(100, 115)])
def test_random_dropped_columns_are_purged_as_planned(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Change a table with mapped columns in random ways, and compare each REORG with its plan."""
    draw, path = random.Random(seed), tmp_path / "table"
    name, is_clustered = f"delta.`{path}`", draw.random() < 0.4
    mode = draw.choice(["name", "id"])
    layout = "CLUSTER BY (id)" if is_clustered else draw.choice(["PARTITIONED BY (p)", ""])
    tracking = draw.choice(["true", "false"])
    spark.sql(
        f"CREATE TABLE {name} ({COLUMNS}) USING delta {layout} TBLPROPERTIES "
        f"('delta.columnMapping.mode' = '{mode}', 'delta.enableDeletionVectors' = 'true', "
        f"'delta.enableRowTracking' = '{tracking}')"
    )
    droppable = ["n.x", "n.Y", "a.element.u", "a.element.v", "m.value.k", "m.value.l", "`d.d`", "n", "a"]
    append(spark, path, 100, 2)
    for _ in range(7):
        step = draw.choices(["append", "drop", "delete", "optimize", "reorg"], [3, 2, 2, 1, 3])[0]
        if step == "append":
            append(spark, path, draw.randint(10, 300), draw.randint(1, 3))
        elif step == "drop":
            column = draw.choice(droppable)
            # The last field of a struct can't be dropped.
            with contextlib.suppress(AnalysisException):
                spark.sql(f"ALTER TABLE {name} DROP COLUMN {column}")
        elif step == "delete":
            spark.sql(f"DELETE FROM {name} WHERE id % {draw.randint(2, 99)} = 1")
        else:
            compare(spark, path, draw, step)
    compare(spark, path, draw, "reorg")


def compare(spark: SparkSession, path: Path, draw: random.Random, step: str) -> None:
    """Optimize or purge a table, and compare with the plan."""
    confs = {
        f"{CUBE}.threshold": str(draw.choice([3_000, 15_000, 10**9])),
        f"{CUBE}.targetCubeSize": str(draw.choice([2_000, 12_000, 30_000])),
        "spark.databricks.delta.optimize.maxFileSize": str(draw.choice([5_000, 12_000, 10**9])),
    }
    with session_confs(spark, confs):
        table = open_table(path, spark)
        try:
            plan = table.plan_compaction() if step == "optimize" else table.plan_purge()
        except EmptyTableError:
            return
        outcome = (
            run_statement(spark, path, f"OPTIMIZE delta.`{path}`")
            if step == "optimize"
            else reorg(spark, path, None)
        )
    assert {remove["path"] for remove in outcome.removes} == set(plan.files["path"].to_pylist())
    predicted, found = plan.metrics, outcome.metrics
    if plan.clustered_by:
        # The number of outputs is predicted.
        predicted["numFilesAdded"] = found["numFilesAdded"]
        stats = predicted.pop("clusteringStats")
        assert stats == {name: found["clusteringStats"][name] for name in stats}
    assert predicted == {name: found[name] for name in predicted}
