"""Plans of clustered tables, compared with what OPTIMIZE does and what its result row says."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute.jobs import session_confs
from tests.handmade import actions_of

pytestmark = pytest.mark.spark

SetConf = Callable[[str, str], None]
CUBE = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize"
COLUMNS = ("k", "k, id", "`s.t`, n.x")


def create(spark: SparkSession, path: Path, columns: str = "k, id") -> None:
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, k INT, `s.t` STRING, n STRUCT<x: INT>) USING delta "
        f"CLUSTER BY ({columns}) TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
        "'delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '3')"
    )


def append(spark: SparkSession, path: Path, num_rows: int, num_files: int = 2) -> None:
    rows = spark.range(num_rows).selectExpr(
        "id", "CAST(id % 7 AS INT) k", "CAST(id AS STRING) `s.t`", "NAMED_STRUCT('x', CAST(id AS INT)) n"
    )
    rows.repartition(num_files).write.format("delta").mode("append").save(str(path))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_tables_are_clustered_as_planned(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    compare_random_table(spark, tmp_path / "table", seed)


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_random_tables_are_clustered_as_planned(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    compare_random_table(spark, tmp_path / "table", seed)


def compare_random_table(spark: SparkSession, path: Path, seed: int) -> None:
    """Change a table in random ways, and compare each OPTIMIZE with its plan."""
    draw = random.Random(seed)
    name = f"delta.`{path}`"
    create(spark, path, draw.choice(COLUMNS))
    append(spark, path, 100)
    for _ in range(8):
        step = draw.choices(["append", "alter", "none", "delete", "optimize"], [3, 1, 0.2, 1, 5])[0]
        if step == "append":
            append(spark, path, draw.randint(20, 600), draw.randint(1, 4))
        elif step == "alter":
            spark.sql(f"ALTER TABLE {name} CLUSTER BY ({draw.choice(COLUMNS)})")
        elif step == "none":
            spark.sql(f"ALTER TABLE {name} CLUSTER BY NONE")
        elif step == "delete":
            spark.sql(f"DELETE FROM {name} WHERE id % {draw.randint(2, 9)} = 0")
        else:
            compare_optimize(spark, path, draw)


def compare_optimize(spark: SparkSession, path: Path, draw: random.Random) -> None:
    confs = {
        f"{CUBE}.threshold": str(draw.choice([3_000, 8_000, 15_000, 10**9])),
        f"{CUBE}.targetCubeSize": str(draw.choice([2_000, 6_000, 12_000, 30_000])),
        "spark.databricks.delta.optimize.maxFileSize": str(draw.choice([2_000, 5_000, 10**9])),
    }
    with session_confs(spark, confs):
        table = open_table(path, spark)
        is_clustered = bool(table.plan_compaction().clustered_by)
        full = is_clustered and draw.random() < 0.3
        plan = table.plan_compaction(full=full)
        row = spark.sql(f"OPTIMIZE delta.`{path}`{' FULL' if full else ''}").collect()[0]["metrics"]
    removed = [action["path"] for action in actions_of(path, plan.version + 1, "remove")] if row[1] else []
    assert sorted(removed) == sorted(plan.files["path"].to_pylist())
    predicted = plan.metrics
    assert (row["numFilesRemoved"], row["numBins"]) == (len(removed), predicted["numBins"])
    if is_clustered:
        stats = row["clusteringStats"].asDict(recursive=True)
        assert predicted["clusteringStats"] == {key: stats[key] for key in predicted["clusteringStats"]}


def test_new_rows_make_optimize_rewrite_every_cube_that_is_not_complete(
    spark: SparkSession, tmp_path: Path, confs: SetConf
) -> None:
    create(spark, tmp_path)
    append(spark, tmp_path, 4_000)
    open_table(tmp_path, spark).plan_compaction().run()
    append(spark, tmp_path, 50, 1)
    table = open_table(tmp_path, spark)
    plan = table.plan_compaction()
    states = {row["state"]: row["num_files"] for row in plan.cubes.to_pylist()}
    assert states == {"new": 1, "partial cube": 1}
    new_bytes = next(row["size_bytes"] for row in plan.cubes.to_pylist() if row["cube_id"] is None)
    assert plan.clustered_by == ("k", "id")
    assert f"{plan.bytes_removed / new_bytes:,.1f} times as much" in plan.explain()
    assert not plan.exact.num_files_added
    assert plan.steps["outcome"].to_pylist() == ["packed", "packed"]
    # From this size on the cube would be left alone.
    confs(f"{CUBE}.threshold", str(max(plan.cubes["size_bytes"].to_pylist())))
    later = table.plan_compaction()
    assert (later.num_files_removed, plan.num_files_removed) == (1, 2)
    assert "are not rewritten" in later.explain()
    # The plan keeps the sizes with which it was made.
    result = plan.run()
    assert (result.strategy, result.verified, result.as_planned) == ("optimize", True, True)
    assert "clustering needs Spark" in result.reason
    assert (result.num_files_removed, result.num_files_added) == (2, 1)
    confs(f"{CUBE}.threshold", str(10**12))
    done = open_table(tmp_path, spark).plan_compaction()
    assert done.is_empty
    assert "no file is new, and all are in one cube" in done.explain()
    open_table(tmp_path, spark).plan_restore(plan.version).run()
    assert open_table(tmp_path, spark).plan_compaction().num_files_removed == 2


def test_files_of_other_columns_wait_for_full(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path)
    append(spark, tmp_path, 100)
    open_table(tmp_path, spark).plan_compaction().run(verify=False)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` CLUSTER BY (`s.t`)")
    append(spark, tmp_path, 100)
    table = open_table(tmp_path, spark)
    plan, full = table.plan_compaction(), table.plan_compaction(full=True)
    assert plan.clustered_by == ("`s.t`",)
    assert (plan.num_files_removed, full.num_files_removed) == (2, 3)
    assert "only OPTIMIZE … FULL rewrites files of other clustering columns" in plan.explain()
    assert full.run().as_planned
    assert open_table(tmp_path, spark).plan_compaction(full=True).is_empty


def test_what_is_not_for_clustered_tables_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path / "clustered")
    append(spark, tmp_path / "clustered", 10)
    table = open_table(tmp_path / "clustered", spark)
    wrong: list[dict[str, Any]] = [{"order": "ingest"}, {"budget": "1 MiB"}, {"zorder_by": "id"}]
    for arguments in wrong:
        with pytest.raises(InvalidArgumentError, match="clustered by k, id, so OPTIMIZE sorts its rows"):
            table.plan_compaction(**arguments)
    with pytest.raises(InvalidArgumentError, match="other order can be compared"):
        table.plan_compaction().compare()
    prediction = table.plan_compaction().predict_reads("id = 3")
    assert prediction.layouts["layout"].to_pylist() == ["now"]
    assert "OPTIMIZE sorts the rows" in prediction.unpredicted
    spark.range(3).write.format("delta").save(str(tmp_path / "plain"))
    with pytest.raises(InvalidArgumentError, match="this table isn't clustered"):
        open_table(tmp_path / "plain", spark).plan_compaction(full=True)
