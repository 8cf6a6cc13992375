"""What OPTIMIZE does is what the plan said, by the commit that it left."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import StalePlanError
from compaction_kit.execute import CompactionResult
from tests import handmade
from tests.conftest import SetConf
from tests.handmade import actions_of
from tests.releases import since_spark

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def assert_done_as_planned(table: Path, plan: CompactionPlan, result: CompactionResult) -> None:
    """The commit, read word for word, did what the plan said, and the result tells the same."""
    version = plan.version + 1
    assert result.versions == (version,)
    adds, removes = actions_of(table, version, "add"), actions_of(table, version, "remove")
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
    # One task writes a bin, though it is divided to be read.
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
    with pytest.raises(StalePlanError, match="made at version 4 and the table is at 5: make a new") as caught:
        plan.run(strategy="optimize")
    assert "\n" not in str(caught.value)


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
        removes = actions_of(changed, version, "remove")
        assert (len(removes), sum(r["size"] for r in removes)) == (batch["num_files"], batch["size_bytes"])
        assert len(actions_of(changed, version, "add")) == batch["num_files_added"]
    again = table.plan_compaction(where=where)
    assert again.is_empty
    assert "is the only one in its partition" in again.explain()
    nothing = again.run(strategy="optimize")
    assert (nothing.strategy, nothing.versions, nothing.num_files_removed) == ("none", (), 0)
    assert "nothing to do" in nothing.summary()
    assert table.version == 6


@pytest.mark.nightly
def test_with_the_setting_off_values_that_look_different_are_apart(tmp_path: Path, confs: SetConf) -> None:
    """Random tables have it on, and "" among other values."""
    confs("spark.databricks.delta.normalizePartitionValuesOnRead", "false")
    adds = []
    for i, n in enumerate(("1", "01", "1", None, None, "", "")):
        rows = pa.table({"id": range(i, 3 * i + 1)})
        adds.append(handmade.write_data(tmp_path, f"f{i}.parquet", rows, {"n": n}))
    handmade.write_log(tmp_path, [handmade.metadata({"id": "long", "n": "integer"}, ["n"]), *adds])
    plan = open_table(tmp_path).plan_compaction()
    assert sorted(plan.bins["num_files"].to_pylist()) == [2, 2, 2]
    result = plan.run(strategy="optimize")
    assert result.verified is True
    assert_done_as_planned(tmp_path, plan, result)


def test_z_order_rewrites_whole_partitions(changed: Path) -> None:
    table, where = open_table(changed), "part <> 'p0001'"
    plan = table.plan_compaction(where=where, zorder_by=["id", "value"], max_file_size="8 KiB")
    assert plan.num_files_removed == table.files(where=where).num_files > 10
    assert plan.num_bins == plan.num_partitions == 2
    assert not plan.exact.num_files_added
    assert "its rows in Z-order by id, value" in plan.explain()
    plan.run(strategy="optimize", verify=False)
    removes, (info,) = (actions_of(changed, 5, name) for name in ("remove", "commitInfo"))
    assert Counter(action["path"] for action in removes) == Counter(plan.files["path"].to_pylist())
    assert json.loads(info["operationParameters"]["zOrderBy"]) == ["id", "value"]


@since_spark("4.0")
def test_planning_starts_no_spark_job(spark: SparkSession, changed: Path) -> None:
    def jobs() -> int:
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))

    table = open_table(changed)
    before = jobs()
    plan = table.plan_compaction(where="part = 'p0000'", order="id")
    assert plan.explain()
    assert plan.compare().to_arrow().num_rows == 4
    assert table.plan_compaction()._repr_html_()
    assert jobs() == before
    spark.range(1).collect()
    assert jobs() > before
