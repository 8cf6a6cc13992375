"""The replay of auto compaction, compared with the commits that Spark made with it on."""

import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.compat import java_class
from compaction_kit.execute.jobs import session_confs
from compaction_kit.table import Table
from tests import handmade

pytestmark = pytest.mark.spark

LAYOUTS = ("", "PARTITIONED BY (p)")
AUTO = "spark.databricks.delta.autoCompact"


def committed(table: Table, since: int) -> dict[int, tuple[int, int]]:
    """Auto compactions in the log: files and bytes that they removed, by the version that they read."""
    return {
        commit["read_version"]: (commit["num_removed"], commit["bytes_removed"])
        for commit in table.log.commits().to_pylist()
        if commit["version"] >= since and dict(commit["parameters"] or {}).get("auto") == "true"
    }


def predicted(table: Table, since: int = 0) -> dict[int, tuple[int, int]]:
    """The same by the replay."""
    files, sizes = Counter[int](), Counter[int]()
    for row in table.auto_compaction(since).fired.to_pylist():
        files[row["version"]] += row["num_files"]
        sizes[row["version"]] += row["size_bytes"]
    return {version: (count, sizes[version]) for version, count in files.items() if count}


def test_a_replay_shows_what_auto_compaction_would_do(tmp_path: Path) -> None:
    """It is off, and the log has large and small files of two partitions."""
    columns = {"id": "long", "p": "string"}

    def commit(*adds: handmade.Action) -> list[handmade.Action]:
        return [{"commitInfo": {"operation": "WRITE"}}, *adds]

    def small(version: int, p: str, count: int) -> list[handmade.Action]:
        return [handmade.add(f"{version}-{p}-{i}", 1_000 + i, {"p": p}) for i in range(count)]

    large = handmade.add("large", 10**9, {"p": "a"})
    commits = [commit(*small(version, "a", 1)) for version in range(3, 60)]
    first = [handmade.metadata(columns, ["p"]), *commit(large, *small(0, "a", 2))]
    handmade.write_log(tmp_path, first, commit(*small(1, "a", 3)), commit(*small(2, "b", 1)), *commits)
    replayed = open_table(tmp_path).auto_compaction()
    rows = replayed.fired.to_pylist()
    assert [(row["version"], row["partition.p"], row["num_counted"], row["num_files"]) for row in rows] == [
        # The first time, whatever the number of files; then when Delta counts 50 of any size.
        (0, "a", 3, 2),
        (2, "b", 1, 0),
        (47, "a", 50, 49),
    ]
    assert replayed.fired["committed_as"].null_count == 3
    assert replayed.facts()["on by"].startswith("nothing: it is off")
    assert replayed.facts()["rewrites"] == "51 files (50.8 KiB in total), after 2 of 60 commits"
    assert replayed.facts()["in vain"] == "after 1 commit, where no two small files fit together"


def forget(spark: SparkSession) -> None:
    """Let Delta forget what it has counted, as in a new session."""
    stats = java_class(spark, "org.apache.spark.sql.delta.stats.AutoCompactPartitionStats")
    stats.instance(spark._jsparkSession).resetTestOnly()


def test_a_new_session_compacts_after_each_commit(spark: SparkSession, tmp_path: Path) -> None:
    """It removes files that it hasn't counted, so that its counter is never positive afterwards."""
    for _ in range(2):
        append(spark, tmp_path, 20, 2, 1)
    forget(spark)
    with session_confs(spark, {f"{AUTO}.enabled": "true"}):
        for _ in range(3):
            append(spark, tmp_path, 10, 1, 1)
        table = open_table(tmp_path, spark)
        replayed = table.auto_compaction(since=2)
        rows = replayed.fired.to_pylist()
        found = [(row["version"], row["num_counted"], row["num_files"]) for row in rows]
        assert found == [(2, 1, 5), (4, 1, 2), (6, 1, 2)]
        assert predicted(table, 2) == committed(table, 2)
    assert replayed.facts()["in the log"] == "3 auto compactions"
    assert replayed.enabled_by == f"{AUTO}.enabled"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "steps"),
    [(0, 6), *(pytest.param(seed, 20, marks=pytest.mark.nightly) for seed in range(100, 130))],
)
def test_random_streams_go_as_replayed(spark: SparkSession, tmp_path: Path, seed: int, steps: int) -> None:
    """Write small files in random ways, with auto compaction on."""
    draw, path = random.Random(seed), tmp_path / "table"
    name, by_property = f"delta.`{path}`", draw.random() < 0.5
    confs = {
        f"{AUTO}.minNumFiles": str(draw.choice([2, 4, 7, 50])),
        f"{AUTO}.maxFileSize": str(draw.choice([1_500, 3_000, 10_000, 128 << 20])),
        **({} if by_property else {f"{AUTO}.enabled": "true"}),
        **({f"{AUTO}.minFileSize": draw.choice(["700", "1200", "5000"])} if draw.random() < 0.4 else {}),
    }
    with session_confs(spark, confs):
        spark.sql(
            f"CREATE TABLE {name} (id BIGINT, p STRING) USING delta {draw.choice(LAYOUTS)} "
            f"TBLPROPERTIES ('delta.autoOptimize.autoCompact' = '{str(by_property).lower()}', "
            f"'delta.enableDeletionVectors' = '{draw.choice(['true', 'false'])}', "
            f"'delta.columnMapping.mode' = '{draw.choice(['none', 'name'])}')"
        )
        since = 0
        for _ in range(steps):
            step = draw.choices(
                ["append", "delete", "update", "optimize", "restart", "replace"], [9, 1, 1, 0.5, 0.5, 0.3]
            )[0]
            if step == "append":
                counts = draw.choice([1, 10, 60, 400]), draw.choice([1, 1, 2, 3]), draw.choice([1, 2, 3])
                append(spark, path, *counts)
            elif step == "delete":
                spark.sql(f"DELETE FROM {name} WHERE id % {draw.choice([2, 3, 31])} = 1")
            elif step == "update":
                spark.sql(f"UPDATE {name} SET id = id + 1 WHERE id % {draw.choice([2, 7, 31])} = 1")
            elif step == "optimize":
                spark.sql(f"OPTIMIZE {name}")
            elif step == "replace":
                rows = spark.range(30).selectExpr("id", "'p0' AS p").repartition(3)
                rows.write.format("delta").mode("overwrite").option("replaceWhere", "p = 'p0'").save(
                    str(path)
                )
            else:
                forget(spark)
                table = open_table(path, spark)
                assert predicted(table, since) == committed(table, since)
                since = table.version + 1
                append(spark, path, 20, 2, 2)
        table = open_table(path, spark)
        assert predicted(table, since) == committed(table, since)


def append(spark: SparkSession, path: Path, num_rows: int, num_files: int, num_partitions: int) -> None:
    rows = spark.range(0, num_rows, 1, num_files)
    rows = rows.selectExpr(
        "id", f"CASE WHEN id % {num_partitions} = 2 THEN NULL ELSE 'p' || id % {num_partitions} END p"
    )
    rows.write.format("delta").mode("append").save(str(path))
