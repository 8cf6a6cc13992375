"""The replay of auto compaction, compared with the auto compactions that Spark committed."""

import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.compat import java_class
from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.execute.jobs import session_confs
from compaction_kit.log import TransactionLog
from compaction_kit.plan.auto import enabled_by, replay
from compaction_kit.table import Table
from tests import checkpoints, handmade
from tests.chance import nightly

pytestmark = pytest.mark.spark

AUTO = "spark.databricks.delta.autoCompact"
WRITE = {"commitInfo": {"operation": "WRITE"}}


def test_a_replay_shows_what_auto_compaction_would_do(tmp_path: Path) -> None:
    """Auto compaction is off, and the log has large and small files of two partitions."""
    columns = {"id": "long", "p": "string"}

    def small(version: int, p: str, count: int) -> list[handmade.Action]:
        return [handmade.add(f"{version}-{p}-{i}", 1_000 + i, {"p": p}) for i in range(count)]

    large = handmade.add("large", 10**9, {"p": "a"})
    commits = [
        [WRITE, *small(*one)] for one in ((1, "a", 3), (2, "b", 1), *((v, "a", 1) for v in range(3, 60)))
    ]
    handmade.write_log(
        tmp_path, [handmade.metadata(columns, ["p"]), WRITE, large, *small(0, "a", 2)], *commits
    )
    replayed = open_table(tmp_path).auto_compaction()
    rows = replayed.fired.to_pylist()
    assert [(row["version"], row["partition.p"], row["num_counted"], row["num_files"]) for row in rows] == [
        # It fires first for any number of files, and then when Delta counts 50 files of any size.
        (0, "a", 3, 2),
        (2, "b", 1, 0),
        (47, "a", 50, 49),
    ]
    assert replayed.fired["committed_as"].null_count == 3
    on, fires, _, *others = replayed.facts().values()
    assert on.startswith("nothing: it is off")
    assert f"50 live files of any size there ({AUTO}.minNumFiles)" in fires
    assert others == [
        f"files below 64 MiB into files of at most 128 MiB ({AUTO}.maxFileSize)",
        "51 files (50.8 KiB in total), after 2 of 60 commits",
        *("after 1 commit, where no two small files fit together", "0 auto compactions"),
    ]


def test_the_setting_comes_before_the_property() -> None:
    name = "delta.autoOptimize.autoCompact"
    by = [enabled_by({f"{AUTO}.enabled": text}.get, {name: "TRUE"}) for text in ("TRUE", "no", None)]
    assert by == [f"{AUTO}.enabled", "", name]


def test_it_fires_after_writes_alone_and_while_it_is_on(tmp_path: Path) -> None:
    def commit(p: str, operation: str = "WRITE", auto: object = None) -> list[handmade.Action]:
        info = {"operation": operation, "operationParameters": {"auto": auto}}
        adds = (handmade.add(f"{operation}-{one}", partition={"p": one}) for one in p)
        return [{"commitInfo": info}, *adds]

    columns = {"id": "long", "p": "string"}, ["p"]
    off, on = (handmade.metadata(*columns, {"delta.autoOptimize": text}) for text in ("false", "true"))
    commits = [commit("zedcba"), commit("a", "OPTIMIZE", True), commit("x"), commit("x", "OPTIMIZE", "true")]
    commits += [commit("y", "RESTORE"), commit("y", "RESTORE")[1:]]
    handmade.write_log(tmp_path, [off, *commit("k")], [on, *commits[0]], *commits[1:])
    replayed = open_table(tmp_path).auto_compaction()
    fired = replayed.fired.select(["version", "partition.p", "committed_as"]).to_pydict().values()
    assert [*zip(*fired, strict=True)] == [*((1, p, 2) for p in "abcdez"), (3, "x", 4)]
    assert (replayed.enabled_by, replayed.num_in_log) == ("delta.autoOptimize", 2)
    assert [open_table(tmp_path).auto_compaction(since).num_in_log for since in (2, 3, 4, 5)] == [2, 1, 1, 0]


def test_files_up_to_the_size_that_is_set_count_by_their_live_rows(tmp_path: Path) -> None:
    half = handmade.add("half", 1_000, records=10, vector=handmade.vector("0rJua", 5))
    commits = [
        [WRITE, handmade.add("500", 500), handmade.add("501", 501), half],
        [WRITE, handmade.remove("501"), handmade.add("d", 501)],
        [WRITE, handmade.remove("500"), handmade.remove("half"), handmade.remove("d")],
        [WRITE, handmade.add("uncounted", 501)],
        [WRITE, handmade.add("first again", 100)],
    ]
    log = TransactionLog(handmade.write_log(tmp_path, *commits))
    found = replay(log, {f"{AUTO}.minFileSize": "500", f"{AUTO}.minNumFiles": "2"}.get)
    fired = found.fired.select(["version", "num_counted", "num_small_files"]).to_pydict().values()
    assert [*zip(*fired, strict=True)] == [(0, 2, 1), (1, 2, 1), (4, 1, 1)]
    assert "2 live files of at most 500 B there" in found.facts()["fires"]


@pytest.mark.parametrize("stats", ['{"numRecords":20}', "{bad", "[]", "", '{"numRecords":"20"}'])
def test_one_deleted_row_of_twenty_or_of_an_unknown_number_is_many(tmp_path: Path, stats: str) -> None:
    """Delta computes it in the same way."""
    large = [handmade.add(name, 64 << 20, vector=handmade.vector("0rJua")) for name in ("a", "b")]
    for action in large:
        action["add"]["stats"] = stats
    handmade.write_log(tmp_path, [WRITE, *large])
    assert open_table(tmp_path).auto_compaction().fired["num_files"].to_pylist() == [2]


def test_commits_before_a_replace_are_in_the_partitions_of_their_time(tmp_path: Path) -> None:
    first, second = (handmade.metadata({"id": "long", name: "string"}, [name]) for name in "pq")
    adds = handmade.add("a", partition={"p": "x"}), handmade.add("b", partition={"q": "y"})
    handmade.write_log(tmp_path, [WRITE, first, adds[0]], [WRITE, second, handmade.remove("a"), adds[1]])
    fired = open_table(tmp_path).auto_compaction().fired.select(["version", "partition.p", "partition.q"])
    assert fired.to_pylist() == [
        {"version": 0, "partition.p": "x", "partition.q": None},
        {"version": 1, "partition.p": None, "partition.q": "y"},
    ]


def test_a_replay_begins_after_the_last_lost_commit(tmp_path: Path) -> None:
    commits = [[WRITE, handmade.add(name)] for name in "abcde"]
    handmade.write_log(tmp_path, *commits)
    state = checkpoints.replay([[handmade.protocol(), handmade.metadata()], *commits[:3]])
    checkpoints.write_classic(tmp_path, 2, state)
    handmade.remove_commits(tmp_path, 1)
    replayed = open_table(tmp_path).auto_compaction()
    assert (replayed.since, replayed.num_commits) == (3, 2)
    assert replayed.fired["version"].to_pylist() == [3, 4]
    assert replayed.fired["num_files"].to_pylist() == [4, 2]
    with pytest.raises(InvalidArgumentError, match="version=5 does not exist: the latest is 4"):
        open_table(tmp_path).auto_compaction(since=5)


def test_a_commit_that_a_replay_cannot_follow_is_named(tmp_path: Path) -> None:
    handmade.write_log(
        tmp_path, [handmade.add("a")], [{"add": handmade.add("b")["add"] | {"partitionValues": "1"}}]
    )
    with pytest.raises(CorruptLogError, match=r"The log file 0+1\.json is damaged"):
        open_table(tmp_path).auto_compaction()


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "steps"), [(56, 4), *nightly(*((seed, 20) for seed in range(100, 130)))])
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
        layout = draw.choice(["", "PARTITIONED BY (p)"])
        spark.sql(
            f"CREATE TABLE {name} (id BIGINT, p STRING) USING delta {layout} "
            f"TBLPROPERTIES ('delta.autoOptimize.autoCompact' = '{str(by_property).lower()}', "
            f"'delta.enableDeletionVectors' = '{draw.choice(['true', 'false'])}', "
            f"'delta.columnMapping.mode' = '{draw.choice(['none', 'name'])}')"
        )
        since, rows = 0, "SELECT id, 'p0' FROM RANGE(0, 30, 1, 3)"
        for _ in range(steps):
            statements = {
                "delete": f"DELETE FROM {name} WHERE id % {draw.choice([2, 3, 31])} = 1",
                "update": f"UPDATE {name} SET id = id + 1 WHERE id % {draw.choice([2, 7, 31])} = 1",
                "optimize": f"OPTIMIZE {name}",
                "replace": f"INSERT INTO {name} REPLACE WHERE p = 'p0' {rows}",
            }
            step = draw.choices(["append", "restart", *statements], [9, 0.5, 1, 1, 0.5, 0.3])[0]
            if step in statements:
                spark.sql(statements[step])
                continue
            if step == "restart":
                forget(spark)
                since = check(open_table(path, spark), since, by_property)
            counts = draw.choice([1, 10, 60, 400]), draw.choice([1, 1, 2, 3]), draw.choice([1, 2, 3])
            append(spark, path, *counts)
        check(open_table(path, spark), since, by_property)


def check(table: Table, since: int, by_property: bool) -> int:
    """Assert that the replay has the auto compactions of the log; return the version to continue from."""
    replayed, files, sizes = table.auto_compaction(since), Counter[int](), Counter[int]()
    for row in replayed.fired.to_pylist():
        files[row["version"]] += row["num_files"]
        sizes[row["version"]] += row["size_bytes"]
    committed = {
        commit["read_version"]: (commit["num_removed"], commit["bytes_removed"])
        for commit in table.log.commits().to_pylist()
        if commit["version"] >= since and dict(commit["parameters"] or {}).get("auto") == "true"
    }
    assert {version: (count, sizes[version]) for version, count in files.items() if count} == committed
    assert replayed.num_in_log == len(committed)
    assert replayed.enabled_by == ("delta.autoOptimize.autoCompact" if by_property else f"{AUTO}.enabled")
    return table.version + 1


def forget(spark: SparkSession) -> None:
    """Reset Delta's counts of files, as in a new session."""
    stats = java_class(spark, "org.apache.spark.sql.delta.stats.AutoCompactPartitionStats")
    stats.instance(spark._jsparkSession).resetTestOnly()


def append(spark: SparkSession, path: Path, num_rows: int, num_files: int, num_partitions: int) -> None:
    rows = spark.range(0, num_rows, 1, num_files)
    p = f"CASE WHEN id % {num_partitions} = 2 THEN NULL ELSE 'p' || id % {num_partitions} END p"
    rows.selectExpr("id", p).write.format("delta").mode("append").save(str(path))
