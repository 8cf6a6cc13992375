import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.history import read_history
from compaction_kit.log import TransactionLog
from compaction_kit.text import MIB
from tests import deltas_view, handmade


def assert_history_is_that_of_the_snapshots(table: Path) -> None:
    log = TransactionLog(table)
    for row in open_table(table).history().to_pylist():
        sizes = log.snapshot(row["version"]).live_files["size_bytes"].to_pylist()
        small = [size for size in sizes if size < 16 * MIB]
        assert row["num_files"] == len(sizes)
        assert row["size_bytes"] == sum(sizes)
        assert row["num_small_files"] == len(small)


def test_history_counts_the_live_files_of_every_version(shaped: Path) -> None:
    history = open_table(shaped).history()
    assert history["version"].to_pylist() == [0, 1, 2, 3, 4]
    assert history["num_files"].to_pylist()[0] == 0
    assert_history_is_that_of_the_snapshots(shaped)


def test_history_follows_removes_returns_and_vectors(tmp_path: Path) -> None:
    vector = handmade.vector("0rJua")
    handmade.write_log(
        tmp_path,
        [handmade.add("a%20b", 10), handmade.add("c", 20 * MIB)],
        [handmade.remove("./a%20b"), handmade.add("d", 5)],
        [handmade.add("x/../a%20b", 10), handmade.add("d", 5, vector=vector), handmade.remove("d")],
        [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}],
    )
    history = open_table(tmp_path).history()
    assert history["num_files"].to_pylist() == [2, 2, 3, 3]
    assert history["operation"].to_pylist()[-1] == "SET TBLPROPERTIES"
    assert_history_is_that_of_the_snapshots(tmp_path)


def test_history_begins_with_nulls_where_the_log_was_cleaned_up(changed: Path) -> None:
    table = deltalake.DeltaTable(str(changed))
    table.create_checkpoint()
    handmade.remove_commits(changed, 0, 1)
    history = open_table(changed).history()
    live = open_table(changed).files().num_files
    assert history["version"].to_pylist() == [2, 3, 4]
    assert history["num_files"].to_pylist() == [None, None, live]


def test_a_log_with_nothing_but_a_checkpoint_has_no_history(changed: Path) -> None:
    deltalake.DeltaTable(str(changed)).create_checkpoint()
    handmade.remove_commits(changed, *range(5))
    assert open_table(changed).history().num_rows == 0


@pytest.mark.parametrize(("small_file_size", "small"), [("1 B", 0), ("20 B", 1), (21, 2)])
def test_small_is_what_the_caller_says(tmp_path: Path, small_file_size: str | int, small: int) -> None:
    handmade.write_log(tmp_path, [handmade.add("a", 10), handmade.add("b", 20)])
    history = read_history(TransactionLog(tmp_path), small_file_size)
    assert history["num_small_files"].to_pylist() == [small]


@pytest.mark.spark
def test_history_of_a_table_with_a_life_is_that_of_its_snapshots(lived: Path) -> None:
    history = open_table(lived).history()
    operations = ["WRITE", "DELETE", "DELETE", "OPTIMIZE", "WRITE"]
    assert history["operation"].to_pylist() == operations
    assert history["data_change"].to_pylist() == [True, True, True, False, True]
    assert_history_is_that_of_the_snapshots(lived)


@pytest.mark.spark
def test_history_says_what_describe_history_says(
    spark: SparkSession, copy_of: Callable[[Path], Path], lived: Path, confs: Callable[[str, str], None]
) -> None:
    table = copy_of(lived)
    name = f"delta.`{table}`"
    # As old as the one before: Delta makes times rise.
    times = handmade.commit_path(table, 3).stat()
    os.utime(handmade.commit_path(table, 4), ns=(times.st_atime_ns, times.st_mtime_ns))
    confs("spark.databricks.delta.commitInfo.userMetadata", "a note")
    spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 3 days')"
    )
    spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 3")
    deltas_view.forget(spark)
    told = spark.sql(f"DESCRIBE HISTORY {name}").selectExpr("*", "unix_millis(timestamp) millis").collect()
    mine = {row["version"]: row for row in open_table(table).history().to_pylist()}
    assert len(mine) == len(told)
    for row in told:
        own = mine[row["version"]]
        assert own["timestamp"].timestamp() * 1000 == row["millis"]
        assert dict(own["parameters"] or {}) == row["operationParameters"]
        assert dict(own["metrics"] or {}) == (row["operationMetrics"] or {})
        names = ("operation", "isolationLevel", "userMetadata", "engineInfo", "readVersion", "isBlindAppend")
        keys = ("operation", "isolation_level", "user_metadata", "engine", "read_version", "is_blind_append")
        assert [own[key] for key in keys] == [row[name] for name in names]
    assert mine[6]["user_metadata"] == "a note"


def test_history_tells_when_retention_ends(tmp_path: Path) -> None:
    configuration = {"delta.logRetentionDuration": "interval 2 days"}
    head = [handmade.metadata(configuration=configuration), handmade.add("a"), handmade.add("b")]
    day = int(datetime(2024, 1, 1, 15, tzinfo=UTC).timestamp() * 1000)
    handmade.write_log(tmp_path, head, [handmade.remove("a", day), handmade.remove("b", day - 1)])
    for version in (0, 1):
        os.utime(handmade.commit_path(tmp_path, version), (day / 1000, day / 1000))
    history = open_table(tmp_path).history()
    assert history["files_expire"].to_pylist() == [None, datetime(2024, 1, 8, 15, tzinfo=UTC)]
    # By whole days of UTC.
    assert history["log_expires"].to_pylist() == [datetime(2024, 1, 4, tzinfo=UTC)] * 2
