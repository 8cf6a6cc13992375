from pathlib import Path

import deltalake
import pytest

from compaction_kit import open_table
from compaction_kit.history import read_history
from compaction_kit.log import TransactionLog
from compaction_kit.sizes import MIB
from tests import handmade


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
        [handmade.remove("a b"), handmade.add("d", 5)],
        [handmade.add("a b", 10), handmade.add("d", 5, vector=vector), handmade.remove("d")],
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
