"""Plans that strategy "arrow" runs, compared with Delta's own results, or refuses because of the log."""

import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.arrow import job, strategy
from compaction_kit.arrow.duckdb import compare_quickly
from compaction_kit.arrow.refusals import refuse_changes, refuse_table
from compaction_kit.arrow.worker import rewrite
from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import ConflictError, RunFailedError
from compaction_kit.execute import CompactionResult
from compaction_kit.execute.delta import OptimizeTransaction
from compaction_kit.execute.failures import NotCompared
from tests import folders, handmade
from tests.chance import nightly
from tests.conftest import SetConf
from tests.execute.meanwhile import once_rewriting
from tests.execute.test_optimize import assert_done_as_planned
from tests.folders import data_files
from tests.handmade import actions_of
from tests.releases import GROUPS_BY_TYPE, since_delta

pytestmark = pytest.mark.usefixtures("spark")


def assert_done_by_arrow(table: Path, plan: CompactionPlan, result: CompactionResult) -> None:
    assert (result.strategy, result.verified) == ("arrow", True)
    assert_done_as_planned(table, plan, result)


def test_a_plan_in_another_order_within_a_budget_is_run(changed: Path) -> None:
    table = open_table(changed)
    plan = table.plan_compaction(max_file_size="10 KiB", order="id", budget="30 KiB")
    assert 0 < plan.num_bins < plan.unbounded.num_bins
    assert_done_by_arrow(changed, plan, plan.run(strategy="arrow"))


@pytest.mark.works("local disk", "arrow")
def test_typed_odd_and_null_partitions_are_kept_apart(tmp_path: Path) -> None:
    types = {"n": "integer", "s": "string"}
    adds = []
    for i, value in enumerate([("1", "a b"), ("01", "a b"), *[(None, "100%")] * 2, *[("2", "")] * 2]):
        rows, partition = pa.table({"id": range(3 * i, 3 * i + 3)}), dict(zip(types, value, strict=True))
        adds.append(handmade.write_data(tmp_path, f"dir {i}/f.parquet", rows, partition))
        adds[-1]["add"]["path"] = f"dir%20{i}/f.parquet"
    handmade.write_log(tmp_path, [handmade.metadata({"id": "long", **types}, list(types)), *adds])
    expected = [{"n": None, "s": "100%"}, {"n": "2", "s": ""}]
    if GROUPS_BY_TYPE:
        expected.append({"n": "1", "s": "a b"})
    plan = open_table(tmp_path).plan_compaction()
    assert plan.num_bins == len(expected)
    assert_done_by_arrow(tmp_path, plan, plan.run(strategy="arrow"))
    found = [add["partitionValues"] for add in actions_of(tmp_path, 1, "add")]
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_rows_deleted_by_vectors_meanwhile_stay_deleted(spark: SparkSession, changed: Path) -> None:
    """Two files keep their paths but are other live files: one gets a vector, the other another vector."""
    one, other, *_ = (add for version in range(5) for add in actions_of(changed, version, "add"))
    vectors = [handmade.inline_vector(rows) for rows in ([0], [0, 1])]
    marked = [{"add": other | {"deletionVector": vector}} for vector in vectors]
    features = handmade.protocol(features=["deletionVectors"])
    handmade.write_commit(changed, 5, [features, handmade.remove(other["path"]), marked[0]])
    plan = open_table(changed).plan_compaction()
    more = [handmade.remove(one["path"]), {"add": one | {"deletionVector": vectors[0]}}]
    more += [handmade.remove(other["path"], vector=vectors[0]), marked[1]]
    during = once_rewriting(lambda: handmade.write_commit(changed, 6, more))
    result = plan.run(strategy="arrow", progress=during)
    assert (result.verified, len(result.conflicts)) == (True, 1)
    left = spark.read.format("delta").load(str(changed)).select("id").collect()
    gone = {*rows_in(changed / one["path"])[:1], *rows_in(changed / other["path"])[:2]}
    assert sorted(row["id"] for row in left) == sorted({*range(1_050)} - gone)
    assert result.num_files_removed < plan.num_files_removed


def rows_in(path: Path) -> list[int]:
    """Return the ids in a file, in the order of its rows."""
    return pq.read_table(path, columns=["id"], partitioning=None)["id"].to_pylist()


@pytest.mark.parametrize("moment", ["before Delta begins", "after Delta has begun"])
def test_files_removed_meanwhile_are_reported_and_left_out(
    changed: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Delta itself detects what happens after it has begun."""
    plan, files = open_table(changed).plan_compaction(), data_files(changed)
    # Remove all files of a bin but one.
    lone, *removed = (file["path"] for file in plan.files.to_pylist() if file["bin_id"] == 0)

    def remove() -> None:
        if not handmade.commit_path(changed, 5).exists():
            handmade.write_commit(changed, 5, list(map(handmade.remove, removed)))

    class Transaction(OptimizeTransaction):
        def __init__(self, spark: SparkSession, table: str):
            if moment == "before Delta begins":
                remove()
            super().__init__(spark, table)
            remove()

    monkeypatch.setattr(strategy, "OptimizeTransaction", Transaction)
    result = plan.run(strategy="arrow")
    assert result.verified is True
    (conflict,) = result.conflicts
    assert (conflict == "files of 1 bin are gone") == (moment == "before Delta begins")
    assert result.num_files_removed == plan.num_files_removed - 1 - len(removed)
    assert result.fingerprint is not None
    assert result.fingerprint.num_rows == 50 * result.num_files_removed
    assert folders.live(changed) & {lone, *removed} == {lone}
    adds = [add for version in result.versions for add in actions_of(changed, version, "add")]
    assert data_files(changed) - files == {changed / add["path"] for add in adds}


def test_columns_that_older_files_lack_have_the_stats_of_all_rows(tmp_path: Path) -> None:
    files = {"old": pa.table({"id": [1, 2]}), "new": pa.table({"id": [3], "s": ["x" * 40], "f": [math.nan]})}
    bounds = {"old": ({"id": 1}, {"id": 2}), "new": ({"id": 3, "s": "x"}, {"id": 3, "s": "y"})}
    adds = []
    for name, rows in files.items():
        known = dict(zip(("minValues", "maxValues"), bounds[name], strict=True))
        stats = {"numRecords": len(rows), "nullCount": dict.fromkeys(rows.column_names, 0)} | known
        adds.append(handmade.write_data(tmp_path, name, rows)["add"] | {"stats": json.dumps(stats)})
    columns = handmade.metadata({"id": "long", "s": "string", "f": "double"})
    handmade.write_log(tmp_path, [columns, *({"add": add} for add in adds)])
    assert open_table(tmp_path).plan_compaction().run(strategy="arrow").verified
    (added,) = actions_of(tmp_path, 1, "add")
    assert json.loads(added["stats"]) == {
        "numRecords": 3,
        "nullCount": {"id": 0, "s": 2},
        "minValues": {"id": 1, "s": "x" * 32},
        "maxValues": {"id": 3, "s": "x" * 32 + "\U0010ffff", "f": "NaN"},
    }


@pytest.mark.parametrize("indexed", [None, "2", *nightly("-1", "0")])
def test_files_without_stats_become_one_with_those_that_optimize_writes(
    tmp_path: Path, indexed: str | None
) -> None:
    kinds = {"n": handmade.struct_of({"d": "date", "t": "timestamp"}), "id": "long", "s": "string"}
    time, actions = datetime(1969, 5, 6, 7, 8, 9, 123_456, UTC), list[handmade.Action]()
    for stats in (None, {"numRecords": 2}, {"numRecords": 2, "nullCount": {"id": 1}}):
        nested = [{"d": time.date(), "t": None}, {"d": None, "t": time}]
        rows = {"n": nested, "id": [len(actions), None], "s": ["ä" * 40, "b"]}
        rows |= {f"more{i}": [i, -i] for i in range(32)}
        action = handmade.write_data(tmp_path / "table", f"{len(actions)}.parquet", pa.table(rows))
        actions.append({"add": action["add"] | {"stats": stats and json.dumps(stats)}})
    columns = kinds | {f"more{i}": "long" for i in range(32)}
    properties = {"delta.dataSkippingNumIndexedCols": indexed} if indexed else {}
    handmade.write_log(tmp_path / "table", [handmade.metadata(columns, configuration=properties), *actions])
    found = []
    for name in ("arrow", "optimize"):
        table = folders.copy(tmp_path / "table", tmp_path / name)
        open_table(table).plan_compaction().run(name)
        (added,) = actions_of(table, 1, "add")
        found.append(json.loads(added["stats"]))
    assert found[0] == found[1]
    assert len(found[0].get("nullCount", {})) == {None: 31, "-1": 35, "2": 1, "0": 0}[indexed]


@pytest.mark.parametrize("way", ["decoded", "copied", *nightly("joined")])
def test_bounds_include_nan_that_bounds_of_inputs_leave_out(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """delta-rs leaves NaN out of bounds; for Spark NaN is greater than any number."""
    if way == "copied":
        monkeypatch.setattr(rewrite, "WHOLE_BYTES", 1)
    if way == "joined":
        monkeypatch.setattr(job, "LEAST_PART", 1)
    for number in (math.nan, 1.0, 2.0, 3.0):
        rows = pa.table({"d": [number, 2.5], "s": [{"f": 1.0}, {"f": number}], "w": [1.0, None]})
        deltalake.write_deltalake(tmp_path, rows, mode="append")
    assert open_table(tmp_path).plan_compaction().run(strategy="arrow").verified
    (added,) = actions_of(tmp_path, 4, "add")
    stats = json.loads(added["stats"])
    assert stats["minValues"] == {"d": 1.0, "s": {"f": 1.0}, "w": 1.0}
    assert stats["maxValues"] == {"d": "NaN", "s": {"f": "NaN"}, "w": 1.0}
    found = spark.read.format("delta").load(str(tmp_path)).where("d > 5 OR s.f > 5")
    assert found.count() == 2


@pytest.mark.parametrize("name", ["datetimeRebaseModeInRead", *nightly("int96RebaseModeInRead")])
def test_old_dates_that_spark_refuses_are_left_to_it(tmp_path: Path, confs: SetConf, name: str) -> None:
    """Nothing says in which calendar the dates were written."""
    confs(f"spark.sql.parquet.{name}", "EXCEPTION")
    int96: dict[str, Any] = {"use_deprecated_int96_timestamps": name.startswith("int96")}
    for years in ((1901, 1500), (1901, 1901)):
        table, kind, adds = tmp_path / str(years), pa.timestamp("us", "UTC"), list[Any]()
        for year in years:
            rows = pa.table({"t": pa.array([datetime(year, 1, 1)], kind)})
            adds.append(handmade.write_data(table, f"{len(adds)}.parquet", rows, **int96))
            bounds = {name: {"t": f"{year}-01-01T00:00:00.000Z"} for name in ("minValues", "maxValues")}
            adds[-1]["add"]["stats"] = json.dumps({"numRecords": 1, "nullCount": {"t": 0}} | bounds)
        handmade.write_log(table, [handmade.metadata({"t": "timestamp"}), *adds])
        plan = open_table(table).plan_compaction()
        if years == (1901, 1901):
            assert plan.run().strategy == "arrow"
        else:
            with pytest.raises(RunFailedError, match="nothing was committed"):
                plan.run()


def test_a_feature_that_comes_meanwhile_is_a_conflict(changed: Path) -> None:
    plan, before = open_table(changed).plan_compaction(), data_files(changed)
    actions = [handmade.protocol(features=["typeWidening"])]
    during = once_rewriting(lambda: handmade.write_commit(changed, 5, actions))
    told = r"^Another writer changed the table \(version 5\), .*feature typeWidening now: .* nothing was"
    with pytest.raises(ConflictError, match=told):
        plan.run(strategy="arrow", verify=False, progress=during)
    assert data_files(changed) == before


NAMES = ("materializedRowIdColumnName", "materializedRowCommitVersionColumnName")
TRACKED = {"delta.enableRowTracking": "true", **{f"delta.rowTracking.{name}": f"_{name}" for name in NAMES}}
TWO_FILES = [handmade.add(f"{name}.parquet") for name in "ab"]


def writer(*features: str) -> handmade.Action:
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (handmade.metadata(configuration={"delta.columnMapping.mode": "ID"}), "are found by their field ids"),
        (handmade.metadata({"v": "variant"}), "Column v is of type variant, which pyarrow can't rewrite"),
        (
            handmade.metadata(of_columns={"EXISTS_DEFAULT": "5"}),
            "Column id has a default that Spark reads from files without",
        ),
        (writer("fancy"), "arrow doesn't know the table's feature fancy"),
    ],
    ids=["field ids", "variant", "default", "unknown feature"],
)
def test_some_tables_are_refused_and_not_compared_by_duckdb(
    spark: SparkSession, tmp_path: Path, head: handmade.Action, told: str
) -> None:
    table = open_table(handmade.write_log(tmp_path, [head, *TWO_FILES]))
    assert told in str(refuse_table(None, table.plan_compaction()))
    if "metaData" in head:
        with pytest.raises(NotCompared, match=told):
            compare_quickly(spark, table.log.snapshot(), TWO_FILES, TWO_FILES)


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"columns": {"id": "long", "more": "string"}}, None),
        ({"columns": {"id": "integer"}}, "the column id is of another type now"),
        ({"configuration": TRACKED}, "row tracking was switched on or off"),
        ({"partition_by": ["id"]}, "it was created again or has other partition columns now"),
        pytest.param(
            {"configuration": {"delta.writePartitionColumnsToParquet": "false"}},
            "data files are to be without the partition columns now",
            marks=since_delta("4.4"),
        ),
    ],
    ids=["a column more", "type", "row tracking", "partitions", "partition columns"],
)
def test_some_metadata_changes_meanwhile_conflict_with_the_files_written(
    spark: SparkSession, tmp_path: Path, metadata: dict[str, Any], told: str | None
) -> None:
    table = handmade.write_log(tmp_path, [handmade.metadata(), *TWO_FILES])
    handmade.write_commit(table, 1, [handmade.metadata(**metadata)])
    log = open_table(table).log
    assert refuse_changes(spark, log.snapshot(0), log.snapshot(1)) == told


@pytest.mark.nightly
def test_workers_of_another_python_are_asked_and_left_alone(
    spark: SparkSession, changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    result = open_table(changed).plan_compaction().run()
    assert result.reason.startswith("optimize, because executors have no ")
    assert result.verified


@pytest.mark.parametrize("name", ["datetimeRebaseMode", "int96RebaseMode", "int96TimestampConversion"])
def test_arrow_and_duckdb_refuse_if_settings_change_the_times_that_spark_reads(
    spark: SparkSession, tmp_path: Path, confs: SetConf, name: str
) -> None:
    is_mode = name.endswith("Mode")
    confs(f"spark.sql.parquet.{name}{'InRead' * is_mode}", "LEGACY" if is_mode else "true")
    table = open_table(handmade.write_log(tmp_path, TWO_FILES))
    assert name in str(refuse_table(spark, table.plan_compaction()))
    with pytest.raises(NotCompared, match=name):
        compare_quickly(spark, table.log.snapshot(), [], [])
