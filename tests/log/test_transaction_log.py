import gc
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.log import TransactionLog
from compaction_kit.log.sources import JsonSource
from tests import checkpoints, deltas_view, folders, handmade
from tests.conftest import CopyOf, SetConf
from tests.releases import since_delta


def test_the_ledger_sums_up_each_commit(tmp_path: Path) -> None:
    info = {"operation": "OPTIMIZE", "isolationLevel": "SnapshotIsolation", "operationMetrics": {"n": 1}}
    table = handmade.write_log(
        tmp_path,
        [handmade.add("a", 10), handmade.add("b", 20)],
        [
            {"commitInfo": info | {"inCommitTimestamp": 1_700_000_000_000}},
            handmade.unchanged({"remove": {"path": "a", "size": 10}}),
            handmade.unchanged(handmade.remove("b")),
            handmade.unchanged(handmade.add("c", 25)),
        ],
    )
    os.utime(handmade.commit_path(table, 0), (1_600_000_000, 1_600_000_000))
    first, second = TransactionLog(table).commits().to_pylist()
    numbers = ("num_added", "bytes_added", "num_removed", "bytes_removed", "data_change", "operation")
    assert [first[name] for name in numbers] == [2, 30, 0, 0, True, None]
    assert [second[name] for name in numbers] == [1, 25, 2, 10, False, "OPTIMIZE"]
    assert (second["isolation_level"], dict(second["metrics"])) == ("SnapshotIsolation", {"n": "1"})
    assert [one["timestamp"].timestamp() for one in (first, second)] == [1_600_000_000, 1_700_000_000]


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


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with everything that a checksum file records: deletion vectors, in-commit timestamps,
    transactions, a domain; and with a V2 checkpoint that has only parsed stats."""
    table = tmp_path_factory.mktemp("told") / "table"
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.enableInCommitTimestamps": "true",
        "delta.enableRowTracking": "true",
        "delta.checkpointPolicy": "v2",
        "delta.checkpointInterval": "2",
        "delta.checkpoint.writeStatsAsJson": "false",
        "delta.checkpoint.writeStatsAsStruct": "true",
    }
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"CREATE TABLE delta.`{table}` (id LONG, s STRING) USING delta TBLPROPERTIES ({listed})")
    for i in range(2):
        rows = spark.range(i * 100, i * 100 + 100, 1, 2).selectExpr("id", "concat('x', id) AS s")
        options = {"txnAppId": "loader", "txnVersion": str(i)}
        rows.write.format("delta").mode("append").options(**options).save(str(table))
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id % 7 = 0")
    return table


def test_a_snapshot_equals_deltas_checksum_file(told: Path) -> None:
    for version in range(4):
        said = json.loads(handmade.commit_path(told, version, "crc").read_text())
        snapshot = TransactionLog(told).snapshot(version)
        size, deleted = (
            pc.sum(snapshot.live_files[name]).as_py() or 0
            for name in ("size_bytes", "deletion_vector_cardinality")
        )
        assert (len(snapshot.live), size) == (said["numFiles"], said["tableSizeBytes"])
        assert deleted == said["numDeletedRecordsOpt"]
        loaded = {key: action["version"] for key, action in snapshot.others.items() if key[0] == "txn"}
        assert loaded == {("txn", row["appId"]): row["version"] for row in said["setTransactions"]}
        assert {row["domain"] for row in said["domainMetadata"]} == set(snapshot.domains)


@since_delta("4.1")
def test_a_checkpoint_opens_up_with_its_sidecars_and_its_parsed_stats_as_text(told: Path) -> None:
    log = TransactionLog(told)
    rows = log.listing().to_pylist()
    version = max(row["version"] for row in rows if row["kind"] == "v2 checkpoint")
    actions = log.actions(version, checkpoint=True).to_pylist()
    kinds = {row["action"] for row in actions}
    assert {"checkpointMetadata", "sidecar", "protocol", "metaData", "txn"} <= kinds
    files = open_table(told).files(version).to_arrow().to_pylist()
    adds = {row["path"]: row for row in actions if row["action"] == "add"}
    counts = {path: row["num_records"] for path, row in adds.items()}
    assert counts == {file["path"]: file["num_records"] for file in files}
    assert all({"numRecords", "minValues"} <= set(json.loads(row["stats"])) for row in adds.values())
    with pytest.raises(InvalidArgumentError, match=f"version=1 has no complete checkpoint .*: {version}"):
        log.actions(1, checkpoint=True)
    # A reader of the latest version needs the checkpoint, its sidecars, and the commits after it.
    needed = {f"_sidecars/{row['path']}" for row in actions if row["action"] == "sidecar"}
    needed |= {row["name"] for row in rows if row["kind"] == "v2 checkpoint" and row["version"] == version}
    needed |= {handmade.log_name(later) for later in range(version + 1, 4)}
    assert {row["name"] for row in rows if row["needed"]} == needed


@pytest.mark.parametrize("policy", ["classic", pytest.param("v2", marks=pytest.mark.nightly)])
def test_a_checkpoint_of_delta_says_the_same_as_the_commits(
    spark: SparkSession, copy_of: CopyOf, lived: Path, confs: SetConf, policy: str
) -> None:
    table = copy_of(lived)
    confs("spark.databricks.delta.checkpointV2.topLevelFileFormat", "json")
    if policy == "v2":
        spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    files, before = open_table(table).files().to_arrow(), TransactionLog(table).snapshot()
    deltas_view.checkpoint(spark, table)
    handmade.remove_commits(table, *range(before.version + 1))
    (file,) = TransactionLog(table).segment().checkpoint
    assert file.name.endswith(".json" if policy == "v2" else "checkpoint.parquet")
    snapshot = TransactionLog(table).snapshot()
    assert snapshot.metadata == before.metadata
    assert open_table(table).files().to_arrow().sort_by("path").equals(files.sort_by("path"))
    assert snapshot.tombstones.num_rows == before.tombstones.num_rows > 0


def test_a_time_picks_the_version_that_delta_picks(spark: SparkSession, told: Path) -> None:
    """With in-commit timestamps; tests/test_times.py has the times of files."""
    log = TransactionLog(told)
    committed = log.commits()["timestamp"][2].as_py()
    millis = int(committed.timestamp() * 1000)
    ((local,),) = spark.sql(f"SELECT string(timestamp_millis({millis}))").collect()
    rows = spark.read.format("delta").option("timestampAsOf", local).load(str(told))
    version = log.version_at(f"{committed:%Y-%m-%d %H:%M:%S.%f}")
    assert deltas_view.input_files(rows) == {Path(path).name for path in folders.live(told, version)}


def test_the_last_of_an_operation_is_found_from_the_newest_commit_back(tmp_path: Path) -> None:
    optimize, write = (
        {"commitInfo": {"operation": name, "note": "OPTIMIZE"}} for name in ("OPTIMIZE", "WRITE")
    )
    named = handmade.add("a")
    named["add"]["tags"] = {"was": '"commitInfo" of an OPTIMIZE'}
    table = handmade.write_log(tmp_path, [named], [named, optimize], [optimize], [named], [write])
    # These versions have the same file time, so each is 1 ms later than the one before, as in Delta.
    for version in range(3):
        os.utime(handmade.commit_path(table, version), (1_700_000_000, 1_700_000_000))
    log, moment = TransactionLog(table), datetime.fromtimestamp(1_700_000_000.002, UTC)
    assert log.last_operation("OPTIMIZE") == log.last_operation("OPTIMIZE", most=3) == (2, moment)
    assert log.last_operation("OPTIMIZE", most=2) is None
    assert log.last_operation("DELETE") is None
    for time, version in ((moment, 2), (moment - timedelta(milliseconds=1), 1)):
        assert log.version_at(time) == version


def test_the_last_of_an_operation_has_its_in_commit_timestamp(tmp_path: Path) -> None:
    enabled = handmade.metadata(configuration={"delta.enableInCommitTimestamps": "true"})
    info = {"commitInfo": {"operation": "OPTIMIZE", "inCommitTimestamp": 1_650_000_000_123}}
    first = [info, handmade.protocol(), enabled]
    log = TransactionLog(handmade.write_log(tmp_path, first))
    assert log.last_operation("OPTIMIZE") == (0, datetime.fromtimestamp(1_650_000_000.123, UTC))
    handmade.write_commit(tmp_path, 1, [{"commitInfo": {"operation": "OPTIMIZE"}}])
    with pytest.raises(CorruptLogError, match="has no in-commit timestamp"):
        log.last_operation("OPTIMIZE")
    # The checkpoint has all that a snapshot needs.
    checkpoints.write_classic(tmp_path, 1, checkpoints.replay([first]))
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("[]\n")
    with pytest.raises(CorruptLogError, match=r"01\.json"):
        TransactionLog(tmp_path).commit_times()


def test_times_of_files_count_only_before_the_first_in_commit_timestamp(tmp_path: Path) -> None:
    """Delta does the same. The times of a copied table's files may be later."""
    start = 1_650_000_000_000
    properties = {"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "2"}
    stamps = [[{"commitInfo": {"inCommitTimestamp": start + 1_000 * version}}] for version in (2, 3, 4)]
    stamps[0].append(handmade.metadata(configuration=properties))
    log = TransactionLog(handmade.write_log(tmp_path, [], [handmade.add("a")], *stamps))

    def found(millis: int) -> int:
        return log.version_at(datetime.fromtimestamp((start + millis) / 1000, UTC))

    assert [found(millis) for millis in (2_000, 2_999, 3_000, 4_000)] == [2, 2, 3, 4]
    with pytest.raises(InvalidArgumentError, match="is before version 2, the earliest that can be read"):
        found(1_999)
    with pytest.raises(InvalidArgumentError, match="is after version 4, the latest: choose"):
        found(4_001)
    for version in range(2):
        os.utime(handmade.commit_path(tmp_path, version), (start / 1000, start / 1000 + version))
    assert [found(millis) for millis in (0, 999, 1_000, 1_999, 2_000, 4_000)] == [0, 0, 1, 1, 2, 4]


def test_a_log_that_is_replaced_by_one_with_its_sizes_and_times_is_read_again(tmp_path: Path) -> None:
    for gone, left in ("ab", "ba"):
        actions = [handmade.add("a"), handmade.add("b")], [handmade.remove(gone)]
        handmade.write_log(tmp_path, *actions)
        for version in range(2):
            os.utime(handmade.commit_path(tmp_path, version), (1_700_000_000, 1_700_000_000))
        assert open_table(tmp_path).files().to_arrow()["path"].to_pylist() == [left]


def test_commits_stay_in_memory_a_few_times_however_many_follow(tmp_path: Path) -> None:
    log = open_table(handmade.write_log(tmp_path, [handmade.add("f0")])).log

    def kept() -> int:
        assert log.lifetimes()[1].num_rows == log.segment().version + 1
        gc.collect()
        return sum(isinstance(one, JsonSource) for one in gc.get_objects())

    before = kept()
    for version in range(1, 8):
        handmade.write_commit(tmp_path, version, [handmade.add(f"f{version}")])
        assert kept() <= before + 2


def test_what_a_process_read_before_does_not_change_what_a_version_is_read_from(tmp_path: Path) -> None:
    commits = [[handmade.add(f"f{version}")] for version in range(12)]
    table = handmade.write_log(tmp_path, *commits[:6])
    assert open_table(table).files().stats().num_commits == 6
    # Another writer goes on, and writes a checkpoint.
    for version in range(6, 12):
        handmade.write_commit(table, version, commits[version])
    first = [handmade.protocol(), handmade.metadata()]
    state = checkpoints.replay([first, *commits[:11]])
    (file,) = checkpoints.write_classic(table, 10, state)
    snapshot, stats = TransactionLog(table).snapshot(), open_table(table).files().stats()
    assert snapshot.segment == TransactionLog(table).segment()
    sizes = [path.stat().st_size for path in (file, handmade.commit_path(table, 11))]
    assert (len(snapshot.live), stats.num_commits, stats.log_bytes) == (12, 1, sum(sizes))
