import json
import os
from pathlib import Path

import deltalake
import pytest

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log import TransactionLog
from tests import folders, handmade


def test_the_ledger_sums_up_each_commit(tmp_path: Path) -> None:
    info = {"operation": "OPTIMIZE", "isolationLevel": "SnapshotIsolation", "operationMetrics": {"n": 1}}
    table = handmade.write_log(
        tmp_path,
        [handmade.add("a", 10), handmade.add("b", 20)],
        [
            {"commitInfo": info | {"inCommitTimestamp": 1_700_000_000_000}},
            {"remove": {"path": "a", "dataChange": False, "size": 10}},
            {"remove": {"path": "b", "dataChange": False}},
            {"add": handmade.add("c", 25)["add"] | {"dataChange": False}},
        ],
    )
    os.utime(handmade.commit_path(table, 0), (1_600_000_000, 1_600_000_000))
    first, second = TransactionLog(table).commits().to_pylist()
    assert (first["version"], first["num_added"], first["bytes_added"]) == (0, 2, 30)
    assert (first["num_removed"], first["data_change"], first["operation"]) == (0, True, None)
    assert first["timestamp"].timestamp() == 1_600_000_000
    assert (second["operation"], second["isolation_level"]) == ("OPTIMIZE", "SnapshotIsolation")
    assert (second["num_removed"], second["bytes_removed"], second["bytes_added"]) == (2, 10, 25)
    assert second["data_change"] is False
    assert dict(second["metrics"]) == {"n": "1"}
    assert second["timestamp"].timestamp() == 1_700_000_000


def test_a_commit_opens_up_action_by_action_in_its_order(tmp_path: Path) -> None:
    table = handmade.write_log(tmp_path, [handmade.add("a", 10, {"p": None})], [handmade.remove("a")])
    actions = TransactionLog(table).actions(0)
    assert actions["action"].to_pylist() == ["protocol", "metaData", "add"]
    add = actions.to_pylist()[2]
    assert (add["path"], add["size_bytes"], add["data_change"]) == ("a", 10, True)
    assert dict(add["partition_values"]) == {"p": None}
    assert json.loads(add["stats"]) == {"numRecords": 10}
    assert json.loads(add["fields"]) == handmade.add("a", 10, {"p": None})
    assert TransactionLog(table).actions(1)["action"].to_pylist() == ["remove"]


def test_actions_of_a_commit_that_is_not_there_are_refused(tmp_path: Path) -> None:
    table = handmade.write_log(tmp_path, [handmade.add("a")])
    with pytest.raises(InvalidArgumentError, match=r"version=7 has no commit in the log; see commits\(\)"):
        TransactionLog(table).actions(7)


def test_the_listing_says_what_a_reader_of_the_latest_version_needs(tmp_path: Path) -> None:
    table = handmade.write_log(tmp_path, [handmade.add("a")], [handmade.add("b")])
    handmade.commit_path(table, 0, "crc").write_text("{}")
    listing = TransactionLog(table).listing()
    assert {row["name"]: row["needed"] for row in listing.to_pylist()} == {
        handmade.log_name(0): True,
        handmade.log_name(0, "crc"): False,
        handmade.log_name(1): True,
    }
    on_disk = {name: size for name, (size, _) in folders.listing(table / "_delta_log").items()}
    assert dict(zip(*(listing[name].to_pylist() for name in ("name", "size_bytes")), strict=True)) == on_disk


def test_a_checkpoint_makes_older_commits_needless(changed: Path) -> None:
    deltalake.DeltaTable(str(changed)).create_checkpoint()
    listing = TransactionLog(changed).listing().to_pylist()
    assert sorted(row["version"] for row in listing if row["kind"] == "commit") == [0, 1, 2, 3, 4]
    assert [row["name"] for row in listing if row["needed"]] == [handmade.log_name(4, "checkpoint.parquet")]
    assert [row["kind"] for row in listing if row["name"] == "_last_checkpoint"] == ["last checkpoint"]


def test_a_snapshot_is_read_once_and_again_when_the_log_has_grown(tmp_path: Path) -> None:
    log = TransactionLog(handmade.write_log(tmp_path, [handmade.add("a")]))
    first = log.snapshot()
    assert log.snapshot() is first
    handmade.write_commit(tmp_path, 1, [handmade.add("b")])
    assert log.snapshot().live_files.num_rows == 2
    assert log.snapshot(0).live_files.num_rows == 1


def test_reading_a_log_changes_nothing(shaped: Path) -> None:
    before = folders.listing(shaped)
    log = TransactionLog(shaped)
    log.listing(), log.commits(), log.actions(1), log.snapshot(), log.lifetimes()
    assert folders.listing(shaped) == before
