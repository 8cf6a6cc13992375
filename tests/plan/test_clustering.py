"""Plans of clustered tables, compared with what OPTIMIZE does and what its result row says."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute.jobs import session_confs
from tests import handmade
from tests.conftest import SetConf
from tests.execute.meanwhile import clustered_table
from tests.handmade import actions_of

pytestmark = pytest.mark.spark

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
@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        *((seed, 3) for seed in range(2)),
        *(pytest.param(seed, 8, marks=pytest.mark.nightly) for seed in range(100, 140)),
    ],
)
def test_random_tables_cluster_as_planned(spark: SparkSession, tmp_path: Path, seed: int, steps: int) -> None:
    """Change a table in random ways, and compare each OPTIMIZE with its plan."""
    draw, path = random.Random(seed), tmp_path / "table"
    name = f"delta.`{path}`"
    create(spark, path, draw.choice(COLUMNS))
    append(spark, path, 100)
    for _ in range(steps):
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


def test_new_rows_have_partial_cubes_rewritten(spark: SparkSession, tmp_path: Path, confs: SetConf) -> None:
    create(spark, tmp_path)
    append(spark, tmp_path, 4_000)
    first = open_table(tmp_path, spark).plan_compaction()
    first.run()
    append(spark, tmp_path, 50, 1)
    table = open_table(tmp_path, spark)
    plan = table.plan_compaction()
    states = {row["state"]: row["num_files"] for row in plan.cubes.to_pylist()}
    assert states == {"new": 1, "partial cube": 1}
    new_bytes = next(row["size_bytes"] for row in plan.cubes.to_pylist() if row["cube_id"] is None)
    assert plan.clustered_by == ("k", "id")
    assert f"{plan.bytes_removed / new_bytes:,.1f} times as much" in plan.explain()
    assert "plan.amplification() says what more appends cost" in plan.explain()
    (row,) = first.amplification(new_bytes, 1).to_pylist()
    assert row["bytes_rewritten"] == pytest.approx(plan.bytes_removed, rel=0.05)
    assert (row["num_complete_cubes"], row["num_partial_cubes"]) == (0, 1)
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


def test_clustered_tables_have_their_own_options(spark: SparkSession, tmp_path: Path, shaped: Path) -> None:
    table = open_table(clustered_table(tmp_path / "clustered"), spark)
    wrong: list[dict[str, Any]] = [{"order": "ingest"}, {"budget": "1 MiB"}, {"zorder_by": "id"}]
    for arguments in wrong:
        with pytest.raises(InvalidArgumentError, match="clustered by id, value, so OPTIMIZE sorts its rows"):
            table.plan_compaction(**arguments)
    with pytest.raises(InvalidArgumentError, match="other order can be compared"):
        table.plan_compaction().compare()
    prediction = table.plan_compaction().predict_reads("id = 3")
    assert prediction.layouts["layout"].to_pylist() == ["now"]
    assert "OPTIMIZE sorts the rows" in prediction.unpredicted
    plain = open_table(shaped)
    with pytest.raises(InvalidArgumentError, match="this table isn't clustered"):
        plain.plan_compaction(full=True)
    with pytest.raises(InvalidArgumentError, match="this table isn't clustered"):
        plain.plan_compaction().amplification("1 MiB")
    with pytest.raises(InvalidArgumentError, match='min_cube_size="small" is not a size'):
        table.plan_compaction().amplification(1, min_cube_size="small")


def clustered_log(table: Path, cubes: dict[str | None, list[int]], others: str = "") -> Path:
    """A table without data files, clustered by k: the sizes of the files of each cube, in MiB.

    Cubes with a name in `others` are of another column.
    """
    actions = [*handmade.clustered_by("k"), handmade.metadata({"k": "long"})]
    for name, sizes in cubes.items():
        for number, size in enumerate(sizes):
            action = handmade.add(f"{name}-{number}", size << 20, records=None)
            if name is not None:
                columns = '["j"]' if name in others else '["k"]'
                tags = {"ZCUBE_ID": name, "ZCUBE_ZORDER_BY": columns, "ZCUBE_ZORDER_CURVE": "hilbert"}
                action["add"] |= {"tags": tags, "clusteringProvider": "liquid"}
            actions.append(action)
    return handmade.write_log(table, actions)


def test_files_of_other_columns_wait_for_full(tmp_path: Path) -> None:
    table = open_table(clustered_log(tmp_path, {None: [1, 1], "a": [5]}, others="a"))
    plan, full = table.plan_compaction(), table.plan_compaction(full=True)
    assert (plan.num_files_removed, full.num_files_removed) == (2, 3)
    assert "only OPTIMIZE … FULL rewrites files of other clustering columns" in plan.explain()
    assert dict(zip(*plan.cubes.select(["state", "num_files"]).to_pydict().values(), strict=True)) == {
        "new": 2,
        "other columns": 1,
    }


def test_appends_to_a_table_below_the_cube_s_size_rewrite_all_of_it_each_time(tmp_path: Path) -> None:
    """As in delta-io/delta#4304: 1 GB appended to 40 GB."""
    plan = open_table(clustered_log(tmp_path, {"a": [1024] * 40})).plan_compaction()
    assert plan.is_empty
    now, smaller, huge = (
        plan.amplification("1 GiB", min_cube_size=size) for size in (None, "4 GiB", "1 TiB")
    )
    assert [size >> 30 for size in now["bytes_rewritten"].to_pylist()] == list(range(41, 51))
    assert now["num_partial_cubes"].to_pylist() == [1] * 10
    # The cube of 40 GiB is complete, as each next one of 4 GiB.
    assert [size >> 30 for size in smaller["bytes_rewritten"].to_pylist()] == [1, 2, 3, 4] * 2 + [1, 2]
    assert smaller["num_complete_cubes"].to_pylist() == [1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    assert huge == now
    plan = open_table(clustered_log(tmp_path / "new", {None: [100] * 3, "a": [50]})).plan_compaction()
    # The plan is run before the first append.
    assert plan.amplification("50 MiB", 2)["bytes_rewritten"].to_pylist() == [400 << 20, 450 << 20]


@pytest.mark.nightly
@pytest.mark.parametrize(("appends_in_a_cube", "target"), [(2.5, 1.0), (2.5, 1.5), (4.5, 1.5)])
def test_amplification_is_what_optimize_rewrites(
    spark: SparkSession, tmp_path: Path, appends_in_a_cube: float, target: float
) -> None:
    """A cube is complete after three or five appends; if it may not hold more than that, never.

    No rows are alike, so that sizes are predicted well, and a file too many would be noticed.
    """
    name = f"delta.`{tmp_path}`"

    def append_rows() -> None:
        rows = spark.range(0, 20_000, 1, 2).selectExpr("CAST(1e15 * RAND() AS BIGINT) k", "RAND() x")
        rows.write.format("delta").mode("append").save(str(tmp_path))

    spark.sql(f"CREATE TABLE {name} (k BIGINT, x DOUBLE) USING delta CLUSTER BY (k)")
    append_rows()
    append_bytes = open_table(tmp_path).files().size_bytes
    complete = int(appends_in_a_cube * append_bytes)
    sizes = {f"{CUBE}.threshold": str(complete), f"{CUBE}.targetCubeSize": str(int(target * complete))}
    with session_confs(spark, sizes | {"spark.databricks.delta.optimize.maxFileSize": str(append_bytes)}):
        plan = open_table(tmp_path, spark).plan_compaction()
        predicted = plan.amplification(append_bytes, 6).to_pylist()
        plan.run(verify=False)
        for row in predicted:
            append_rows()
            metrics = spark.sql(f"OPTIMIZE {name}").collect()[0]["metrics"]
            assert row["bytes_rewritten"] == pytest.approx(metrics["filesRemoved"]["totalSize"], rel=0.02)
            states = open_table(tmp_path, spark).plan_compaction().cubes["state"].to_pylist()
            num_complete = states.count("complete cube")
            assert row["num_complete_cubes"] == num_complete
            if target > 1:
                # Else how full each bin is depends on the sizes of single files.
                assert row["num_partial_cubes"] == len(states) - num_complete
