"""OPTIMIZE and REORG do what was planned, and "auto" picks a strategy that can."""

import json
import re
import warnings
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compaction_kit import errors, open_table, plots
from compaction_kit.compaction import CompactionPlan
from compaction_kit.execute import CompactionResult
from compaction_kit.verdict import Verdict
from tests import folders, handmade
from tests.chance import nightly
from tests.conftest import SetConf
from tests.execute.test_run import stop_at
from tests.refusals import refused
from tests.releases import since_spark

pytestmark = pytest.mark.usefixtures("spark")


def assert_done_as_planned(table: Path, plan: CompactionPlan, result: CompactionResult) -> None:
    """Assert that the commit's actions and the result are as planned."""
    version = plan.version + 1
    assert result.versions == (version,)
    adds, removes = handmade.actions_of(table, version, "add"), handmade.actions_of(table, version, "remove")
    assert Counter(action["path"] for action in removes) == Counter(plan.files["path"].to_pylist())
    assert result.num_files_removed == plan.num_files_removed == len(removes)
    assert result.num_files_added == plan.num_files_added == len(adds) == plan.num_bins
    assert result.bytes_removed == plan.bytes_removed == sum(action["size"] for action in removes)
    assert result.bytes_added == sum(action["size"] for action in adds)
    rows = sorted(json.loads(action["stats"])["numRecords"] for action in adds)
    assert rows == sorted(plan.bins["num_records"].to_pylist())
    assert not any(action["dataChange"] for action in adds + removes)
    assert result.as_planned
    assert result.sizes_before.sum() - result.bytes_removed + result.bytes_added == result.sizes_after.sum()
    assert len(result.sizes_after) == open_table(table).files().num_files


@pytest.mark.works("local disk", "optimize")
def test_several_bins_a_partition_are_filled_as_planned(changed: Path, confs: SetConf) -> None:
    # One task writes a bin, although several tasks read it.
    confs("spark.databricks.delta.optimize.repartition.enabled", "true")
    plan = open_table(changed).plan_compaction(max_file_size="10 KiB")
    assert max(Counter(plan.bins["partition.part"].to_pylist()).values()) >= 2
    result = plan.run(strategy="optimize")
    assert (result.strategy, result.verified) == ("optimize", True)
    assert_done_as_planned(changed, plan, result)
    assert "as planned" in result.summary()
    assert "identical: 1,050 rows" in result.summary()
    spans = [span["step"] for span in result.timeline.to_pylist() if span["bin_id"] is None]
    assert spans.count("rewrite") == plan.num_bins
    refused(
        plan.run,
        errors.StalePlanError,
        "made at version 4 and the table is at 5: make a new",
        strategy="optimize",
    )


def test_a_predicate_confines_its_batches_and_then_nothing_is_left(changed: Path, confs: SetConf) -> None:
    confs("spark.databricks.delta.optimize.batchSize", "10000")
    table = open_table(changed)
    where = "part IN ('p0000', 'p0002') -- not the one in between"
    plan = table.plan_compaction(where=where)
    assert plan.bins["partition.part"].to_pylist() == ["p0000", "p0002"]
    result = plan.run(strategy="optimize", verify=False)
    assert (result.verified, result.as_planned, result.versions) == (None, True, (5, 6))
    assert "not compared" in result.summary()
    for version, batch in zip(result.versions, plan.batches.to_pylist(), strict=True):
        removes = handmade.actions_of(changed, version, "remove")
        assert (len(removes), sum(r["size"] for r in removes)) == (batch["num_files"], batch["size_bytes"])
        assert len(handmade.actions_of(changed, version, "add")) == batch["num_files_added"]
    again = table.plan_compaction(where=where)
    assert again.is_empty
    assert "is the only one in its partition" in again.explain()
    nothing = again.run(strategy="optimize")
    assert (nothing.strategy, nothing.versions, nothing.num_files_removed) == ("none", (), 0)
    assert "nothing to do" in nothing.summary()
    refused(nothing.measure_reads, errors.InvalidArgumentError, "committed nothing", query="id > 1")
    assert table.version == 6


def test_z_order_rewrites_whole_partitions(changed: Path) -> None:
    table, where = open_table(changed), "part <> 'p0001'"
    plan = table.plan_compaction(where=where, zorder_by=["id", "value"], max_file_size="8 KiB")
    assert plan.num_files_removed == table.files(where=where).num_files > 10
    assert plan.num_bins == plan.num_partitions == 2
    assert not plan.exact.num_files_added
    assert "its rows in Z-order by id, value" in plan.explain()
    plan.run(strategy="optimize", verify=False)
    removes, (info,) = (handmade.actions_of(changed, 5, name) for name in ("remove", "commitInfo"))
    assert Counter(action["path"] for action in removes) == Counter(plan.files["path"].to_pylist())
    assert json.loads(info["operationParameters"]["zOrderBy"]) == ["id", "value"]


@since_spark("4.0")
def test_planning_starts_no_spark_job(spark: SparkSession, changed: Path) -> None:
    tracker, table = spark.sparkContext.statusTracker(), open_table(changed)
    before = tracker.getJobIdsForGroup()
    plan = table.plan_compaction(where="part = 'p0000'", order="id")
    assert plan.explain()
    assert plan.compare().layouts.num_rows == 4
    assert table.plan_compaction()._repr_html_()
    assert tracker.getJobIdsForGroup() == before


def test_auto_is_arrow_where_it_can_and_tells_where_the_time_went(changed: Path) -> None:
    plan = open_table(changed).plan_compaction()
    result = plan.run()
    assert (result.strategy, result.verified) == ("arrow", True)
    assert result.reason.startswith("arrow: a Spark job rewrites many bins with pyarrow")
    assert result.reason in result.summary()
    timeline = result.timeline.to_pylist()
    assert [span["step"] for span in timeline if span["step"] != "rewrite"] == ["proof", "commit"]
    assert sorted(span["bin_id"] for span in timeline if span["step"] == "rewrite") == [0, 1, 2]
    assert all(0 <= span["start"] <= span["start"] + span["seconds"] <= result.seconds for span in timeline)
    assert "3 bins in" in plots.to_html(result.plot_timeline())
    assert result.batches["seconds"].to_pylist()[0] <= result.seconds
    assert 20 << 20 < result.peak_bytes < 1 << 30


def test_auto_goes_by_arrows_refusals(changed: Path) -> None:
    (widening,) = handmade.actions_of(changed, 0, "metaData")
    widening["configuration"] |= {"delta.enableTypeWidening": "true"}
    features = handmade.protocol(features=["typeWidening"])
    handmade.write_commit(changed, 5, [{"metaData": widening}, features])
    plan = open_table(changed).plan_compaction()
    words = 'strategy="arrow" can\'t run this plan, because ', "feature typeWidening"
    refused(plan.run, errors.UnsupportedTableError, *words, strategy="arrow")
    result = plan.run(verify=False)
    assert (result.strategy, result.as_planned) == ("optimize", True)
    assert re.match("optimize, because .*feature typeWidening", result.reason)


def test_auto_is_optimize_if_arrow_refuses_all(spark: SparkSession, tmp_path: Path, confs: SetConf) -> None:
    folder = tmp_path / "table"
    for codec, files, rows in (("snappy", 3, 30_000), ("lz4", 2, 20)):
        confs("spark.sql.parquet.compression.codec", codec)
        frame = spark.range(0, rows, 1, files)
        frame.write.format("delta").mode("append").save(str(folder))
    largest = sorted(open_table(folder).files().sizes.tolist())[-2:]
    plan = open_table(folder).plan_compaction(max_file_size=sum(largest))
    assert plan.bins["num_files"].to_pylist() == [3, 2]
    before = folders.data_files(folder)
    words = "Hadoop-framed LZ4, ", ': run it with strategy="optimize"'
    refused(plan.run, errors.UnsupportedTableError, *words, strategy="arrow")
    assert folders.data_files(folder) == before
    result = plan.run()
    assert (result.strategy, result.refusals, result.as_planned) == ("optimize", {}, True)
    assert result.verified is True
    assert result.reason.startswith("optimize, because a file is compressed with Hadoop-framed LZ4")
    assert result.batches["strategy"].to_pylist() == ["optimize"]


def test_a_purge_is_proved_and_can_be_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}`"
    rows = spark.range(0, 3_000, 1, 1).selectExpr(
        "id", "id % 3 p", "NAMED_STRUCT('x', id, 'Y', STRING(id)) n", "CONCAT('s', id) s"
    )
    properties = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    rows.write.format("delta").partitionBy("p").options(**properties).mode("append").save(str(tmp_path))
    spark.sql(f"DELETE FROM {name} WHERE id IN (1, 4, 6)")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN n.Y")
    table = open_table(tmp_path, spark)
    compaction, plan, part = table.plan_compaction(), table.plan_purge(), table.plan_purge("p = 1")
    assert compaction.is_empty
    assert "3 deleted rows in 2 files stay on disk" in str(Verdict.of(compaction.source, compaction))
    assert (part.num_files_removed, part.num_deleted_rows) == (1, 2)
    assert (plan.num_files_removed, plan.num_deleted_rows, plan.dropped_columns.num_rows) == (3, 3, 3)
    dropped = sum(plan.dropped_columns["size_bytes"].to_pylist())
    assert 0 < dropped < plan.bytes_removed - plan.bytes_added < plan.bytes_removed
    assert "without 3 deleted rows and dropped columns in 3 files (" in plan.explain()
    assert plan.steps["reason"].to_pylist() == ["dropped columns", "deleted rows", "deleted rows"]
    # A line for a minimum of 0 bytes would be at minus infinity.
    with warnings.catch_warnings(action="error"):
        plan.plot()
    refused(plan.run, errors.RunCancelled, "nothing was committed", progress=stop_at("", KeyboardInterrupt))
    shares: list[float] = []
    result = plan.run(progress=lambda progress: shares.append(progress.fraction))
    assert (result.strategy, result.verified, result.as_planned) == ("reorg", True, True)
    assert result.fingerprint is not None
    assert (result.fingerprint.num_rows, shares[-1]) == (2_997, 1)
    assert result.bytes_added == pytest.approx(plan.bytes_added, rel=0.2)
    again = open_table(tmp_path, spark).plan_purge()
    assert again.is_empty
    assert again.explain().endswith("So there is nothing to do.")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN s")
    Path(tmp_path, table.files().to_arrow()["path"][0].as_py()).unlink()
    refused(open_table(tmp_path, spark).plan_purge, errors.StorageError, "The footer of ", " can't be read")


@pytest.mark.parametrize(
    ("column", "properties", "protocol"),
    [
        ("_change_type", {"delta.enableChangeDataFeed": "true"}, (2, [])),
        (
            "_row-id",
            {
                "delta.rowTracking.materializedRowIdColumnName": "_row-id",
                "delta.enableRowTracking": "false",
            },
            (2, []),
        ),
        # After the property was unset, or the feature rowTracking was dropped.
        ("_change_type", {}, (4, [])),
        *nightly(
            ("_change_type", {}, (7, ["changeDataFeed"])),
            ("_row-id", {}, (7, ["domainMetadata"])),
        ),
    ],
)
def test_a_purge_knows_the_columns_that_delta_writes_besides_the_table_s(
    tmp_path: Path, column: str, properties: dict[str, str], protocol: tuple[int, list[str]]
) -> None:
    rows = {"plain": pa.table({"id": [1]}), "more": pa.table({"id": [1], column: ["x"]})}
    files = [handmade.write_data(tmp_path, name, table) for name, table in rows.items()]
    version, features = protocol
    head = handmade.protocol(writer=version)
    head["protocol"] |= {"writerFeatures": features} if features else {}
    handmade.write_log(tmp_path, [head, handmade.metadata(configuration=properties), *files])
    plan = open_table(tmp_path).plan_purge()
    assert plan.dropped_columns["path"].to_pylist() == ["more"]
    result = plan.run()
    assert (result.strategy, result.as_planned, result.num_files_removed) == ("reorg", True, 1)


def test_what_a_purge_has_no_use_for_is_refused(tmp_path: Path) -> None:
    vectors = [
        handmade.add(f"f{i}.parquet", 10 + i, records=100, vector=handmade.inline_vector([0, i]))
        for i in (1, 2)
    ]
    columns = [handmade.protocol(features=["deletionVectors"]), handmade.metadata()]
    vectors.append(handmade.add("f3.parquet", 2 << 30, records=100, vector=handmade.inline_vector([3])))
    handmade.write_log(tmp_path, [*columns, *vectors])
    plan = open_table(tmp_path).plan_purge()
    assert (plan.num_bins, plan.num_deleted_rows, plan.dropped_columns.num_rows) == (2, 5, 0)
    assert "in 2 bins of at most 1 GiB, or of one larger file, as 2 files" in plan.explain()
    words = 'strategy="arrow" is unknown: use one of auto, reorg'
    refused(plan.run, errors.InvalidArgumentError, words, strategy="arrow")
    purge = open_table(tmp_path).plan_purge
    refused(purge, errors.InvalidArgumentError, "the table is not partitioned", where="p = 1")
