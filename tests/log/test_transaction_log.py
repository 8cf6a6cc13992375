import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.log import TransactionLog
from tests import deltas_view, folders, handmade
from tests.releases import since_delta


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


@pytest.mark.parametrize(
    "lines",
    [
        ['{"add": {"path": "a"', '"size": 1}}'],
        ['{"remove": {"path": "a"}}, {"remove": {"path": "b"}}'],
        ['{"remove": {"path": "a"}}', "[]"],
        ['{"remove": {"path": "a"}}', '{"remove": {"pa'],
    ],
)
def test_a_line_that_is_no_action_is_refused(tmp_path: Path, lines: list[str]) -> None:
    table = handmade.write_log(tmp_path, [handmade.add("a")], [handmade.remove("a")])
    handmade.commit_path(table, 1).write_text("\n".join(lines))
    with pytest.raises(CorruptLogError, match=f"{handmade.log_name(1)} is damaged"):
        TransactionLog(table).actions(1)


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


def test_a_log_that_was_listed_has_no_later_commit(tmp_path: Path) -> None:
    table = handmade.write_log(tmp_path, [handmade.add("a", 10)], [handmade.add("b", 20)])
    log = TransactionLog(table)
    listed = log.listed()
    handmade.write_commit(table, 2, [handmade.add("c", 30)])
    assert log.segment().version == 2
    assert (listed.segment().version, len(listed.commits()), len(listed.snapshot().live)) == (1, 2, 2)
    assert len(log.snapshot().live) == 3


def test_reading_a_log_changes_nothing(shaped: Path) -> None:
    before = folders.listing(shaped)
    log = TransactionLog(shaped)
    log.listing(), log.commits(), log.actions(1), log.snapshot(), log.lifetimes()
    assert folders.listing(shaped) == before


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with all that a checksum file tells of: vectors, in-commit timestamps, transactions, a
    domain; and a V2 checkpoint whose stats are parsed alone."""
    table = tmp_path_factory.mktemp("told") / "table"
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.enableInCommitTimestamps": "true",
        "delta.enableRowTracking": "true",
        "delta.checkpointPolicy": "v2",
        "delta.checkpointInterval": "3",
        "delta.checkpoint.writeStatsAsJson": "false",
        "delta.checkpoint.writeStatsAsStruct": "true",
    }
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"CREATE TABLE delta.`{table}` (id LONG, s STRING) USING delta TBLPROPERTIES ({listed})")
    for i in range(3):
        rows = spark.range(i * 100, i * 100 + 100).selectExpr("id", "concat('x', id) AS s")
        options = {"txnAppId": "loader", "txnVersion": str(i)}
        rows.repartition(2).write.format("delta").mode("append").options(**options).save(str(table))
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id % 7 = 0")
    return table


def test_a_snapshot_equals_deltas_checksum_file(told: Path) -> None:
    for version in range(5):
        said = json.loads(handmade.commit_path(told, version, "crc").read_text())
        snapshot = TransactionLog(told).snapshot(version)
        assert (len(snapshot.live), pc.sum(snapshot.live["size_bytes"]).as_py() or 0) == (
            said["numFiles"],
            said["tableSizeBytes"],
        )
        assert {row["appId"]: row["version"] for row in said["setTransactions"]} == {
            action["appId"]: action["version"]
            for (name, _), action in snapshot.others.items()
            if name == "txn"
        }
        assert {row["domain"] for row in said["domainMetadata"]} == set(snapshot.domains)
        deleted = pc.sum(snapshot.live_files["deletion_vector_cardinality"]).as_py() or 0
        assert deleted == said["numDeletedRecordsOpt"]


@since_delta("4.1")
def test_a_checkpoint_opens_up_with_its_sidecars_and_its_parsed_stats_as_text(told: Path) -> None:
    log = TransactionLog(told)
    version = max(row["version"] for row in log.listing().to_pylist() if row["kind"] == "v2 checkpoint")
    actions = log.actions(version, checkpoint=True).to_pylist()
    assert {"checkpointMetadata", "sidecar", "protocol", "metaData", "txn"} <= {
        row["action"] for row in actions
    }
    files = open_table(told).files(version)
    adds = {row["path"]: row for row in actions if row["action"] == "add"}
    assert {path: row["num_records"] for path, row in adds.items()} == dict(
        zip(*(files.to_arrow()[name].to_pylist() for name in ("path", "num_records")), strict=True)
    )
    assert all({"numRecords", "minValues"} <= set(json.loads(row["stats"])) for row in adds.values())
    with pytest.raises(InvalidArgumentError, match=f"version=1 has no complete checkpoint .*: {version}"):
        log.actions(1, checkpoint=True)


def test_the_listing_tells_which_sidecars_are_needed(told: Path) -> None:
    rows = TransactionLog(told).listing().to_pylist()
    newest = max(row["version"] for row in rows if row["kind"] == "v2 checkpoint")
    sidecars = [row for row in rows if row["kind"] == "sidecar"]
    assert [row["needed"] for row in sidecars] == [f"/{newest:020d}." in row["name"] for row in sidecars]


def test_a_time_picks_the_version_that_delta_picks(spark: SparkSession, told: Path, lived: Path) -> None:
    for table in (told, lived):
        log = TransactionLog(table)
        times = log.commits()["timestamp"].to_pylist()[::2]
        # Delta takes times of the session's zone; a moment after leaves no doubt about rounding.
        moments = [f"timestamp_millis({int(committed.timestamp() * 1000)})" for committed in times]
        columns = [f"date_format({moment}, 'yyyy-MM-dd HH:mm:ss.SSS')" for moment in moments]
        (shown,) = spark.sql(f"SELECT {', '.join(columns)}").collect()
        for committed, local in zip(times, shown, strict=True):
            text = f"{committed:%Y-%m-%d %H:%M:%S.%f}"
            rows = spark.read.format("delta").option("timestampAsOf", local).load(str(table))
            version = log.version_at(text)
            assert deltas_view.input_files(rows) == {Path(path).name for path in folders.live(table, version)}


def test_times_of_files_are_made_to_rise(tmp_path: Path) -> None:
    table = handmade.write_log(tmp_path, *([handmade.add(f"f{i}")] for i in range(3)))
    for version, seconds in enumerate((1_000, 900, 2_000)):
        os.utime(handmade.commit_path(table, version), (seconds, seconds))
    log = TransactionLog(table)
    assert log.version_at(datetime.fromtimestamp(1_000, UTC)) == 0
    assert log.version_at(datetime.fromtimestamp(1_000.001, UTC)) == 1
    assert log.version_at("1970-01-01 00:33:19") == 1
    assert log.version_at("1970-01-01T00:33:20+00:00") == 2


@pytest.mark.parametrize(
    ("timestamp", "told_of"),
    [
        ("1960-01-01", "before the earliest version that can be read, 0 of"),
        ("2999-01-01", "after the latest version, 0 of"),
        ("noon", "is not a time"),
    ],
)
def test_a_time_without_a_version_is_refused(tmp_path: Path, timestamp: str, told_of: str) -> None:
    table = open_table(handmade.write_log(tmp_path, [handmade.add("a")]))
    with pytest.raises(InvalidArgumentError, match=told_of):
        table.files(timestamp=timestamp)


def test_the_last_of_an_operation_is_found_from_the_newest_commit_back(tmp_path: Path) -> None:
    optimize, write = (
        {"commitInfo": {"operation": name, "note": "OPTIMIZE"}} for name in ("OPTIMIZE", "WRITE")
    )
    named = handmade.add("a")
    named["add"]["tags"] = {"was": '"commitInfo" of an OPTIMIZE'}
    commits = ([named], [named, optimize], [optimize, named], [named], [write, named])
    table = handmade.write_log(tmp_path, *commits)
    for version, seconds in enumerate((1_600_000_000, 1_700_000_000, 1_600_000_000)):
        os.utime(handmade.commit_path(table, version), (seconds, seconds))
    log = TransactionLog(table)
    # The file's time is before that of the commit before it: Delta says a ms later.
    moment = datetime.fromtimestamp(1_700_000_000.001, UTC)
    assert log.last_operation("OPTIMIZE") == log.last_operation("OPTIMIZE", most=3) == (2, moment)
    assert log.last_operation("OPTIMIZE", most=2) is None
    assert log.last_operation("DELETE") is None


@pytest.mark.parametrize(
    ("restored", "found"),
    [
        ({"version": 2, "timestamp": None}, 2),
        ({"version": 1, "timestamp": None}, 0),
        # delta-rs writes text.
        ({"version": "1"}, 0),
        # Which version that was depends on the time zone of the session.
        ({"version": None, "timestamp": "2026-03-01 12:00:00.123"}, None),
    ],
)
def test_an_undone_operation_is_not_last(tmp_path: Path, restored: dict[str, Any], found: int | None) -> None:
    infos: list[handmade.Action] = [{"operation": name} for name in ("OPTIMIZE", "WRITE") * 2]
    infos.append({"operation": "RESTORE", "operationParameters": restored})
    commits = [[{"commitInfo": info}, handmade.add(f"f{i}")] for i, info in enumerate(infos)]
    last = TransactionLog(handmade.write_log(tmp_path, *commits)).last_operation("OPTIMIZE")
    assert (last and last[0]) == found


def test_the_last_of_an_operation_has_its_in_commit_timestamp(tmp_path: Path) -> None:
    enabled = handmade.metadata(configuration={"delta.enableInCommitTimestamps": "true"})
    info = {"commitInfo": {"operation": "OPTIMIZE", "inCommitTimestamp": 1_650_000_000_123}}
    first = [info, handmade.protocol(), enabled, handmade.add("a")]
    log = TransactionLog(handmade.write_log(tmp_path, first))
    assert log.last_operation("OPTIMIZE") == (0, datetime.fromtimestamp(1_650_000_000.123, UTC))
    handmade.write_commit(tmp_path, 1, [{"commitInfo": {"operation": "OPTIMIZE"}}])
    with pytest.raises(CorruptLogError, match="has no in-commit timestamp"):
        log.last_operation("OPTIMIZE")
