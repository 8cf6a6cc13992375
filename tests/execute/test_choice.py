"""Which strategy "auto" picks, and which options go with which."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table, plots
from compaction_kit.errors import UnsupportedTableError
from tests import folders
from tests.conftest import SetConf
from tests.execute.test_optimize import assert_done_as_planned
from tests.releases import since_delta

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

CONF = "spark.databricks.delta.optimize"


def test_auto_is_arrow_where_it_can_and_tells_where_the_time_went(changed: Path) -> None:
    plan = open_table(changed).plan_compaction()
    result = plan.run()
    assert (result.strategy, result.verified) == ("arrow", True)
    assert result.reason.startswith("arrow: one Spark job rewrites all bins with pyarrow")
    assert result.reason in result.summary()
    timeline = result.timeline.to_pylist()
    assert [span["step"] for span in timeline if span["step"] != "rewrite"] == ["proof", "commit"]
    assert sorted(span["bin_id"] for span in timeline if span["step"] == "rewrite") == [0, 1, 2]
    assert all(0 <= span["start"] <= span["start"] + span["seconds"] <= result.seconds for span in timeline)
    assert "3 bins in" in plots.to_html(result.plot_timeline())
    assert result.batches["seconds"].to_pylist()[0] <= result.seconds
    assert 20 << 20 < result.peak_bytes < 1 << 30


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')", "the feature typeWidening"),
        pytest.param("ADD COLUMN (v VARIANT)", "variant", marks=since_delta("4.1")),
    ],
)
def test_auto_goes_by_arrows_refusals(spark: SparkSession, changed: Path, statement: str, told: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{changed}` {statement}")
    plan = open_table(changed).plan_compaction()
    with pytest.raises(
        UnsupportedTableError, match=f'strategy="arrow" can\'t run this plan, because .*{told}'
    ) as caught:
        plan.run(strategy="arrow")
    assert "\n" not in str(caught.value)
    result = plan.run(verify=False)
    assert result.strategy == "optimize"
    assert re.match(f"optimize, because .*{told}", result.reason)
    assert result.as_planned


def test_auto_is_optimize_for_odd_timestamps(spark: SparkSession, tmp_path: Path, confs: SetConf) -> None:
    confs("spark.sql.parquet.outputTimestampType", "INT96")
    # Three files.
    moment = f"TIMESTAMP_MICROS(ARRAY(0, {2**63 - 1}, {-(2**63) + 1})[INT(id)])"
    rows = spark.range(0, 3, 1, 3).selectExpr("id", f"ARRAY({moment}) t")
    rows.write.format("delta").save(str(tmp_path / "table"))
    result = open_table(tmp_path / "table").plan_compaction().run()
    assert (result.strategy, result.verified, len(result.versions)) == ("optimize", True, 1)
    assert result.reason.startswith("optimize, because column t.list.element is stored as INT96")


def test_where_all_is_refused_it_is_optimize(spark: SparkSession, tmp_path: Path, confs: SetConf) -> None:
    folder = tmp_path / "table"
    for codec, files, rows in (("snappy", 3, 30_000), ("lz4", 2, 20)):
        confs("spark.sql.parquet.compression.codec", codec)
        frame = spark.range(0, rows, 1, files)
        frame.write.format("delta").mode("append").save(str(folder))
    largest = sorted(open_table(folder).files().sizes.tolist())[-2:]
    plan = open_table(folder).plan_compaction(max_file_size=sum(largest))
    assert plan.bins["num_files"].to_pylist() == [3, 2]
    before = folders.data_files(folder)
    with pytest.raises(
        UnsupportedTableError, match=r'Hadoop-framed LZ4, .*: run it with strategy="optimize"'
    ):
        plan.run(strategy="arrow")
    assert folders.data_files(folder) == before
    result = plan.run()
    assert (result.strategy, result.refusals, result.as_planned) == ("optimize", {}, True)
    assert result.verified is True
    assert result.reason.startswith("optimize, because a file is compressed with Hadoop-framed LZ4")
    assert result.batches["strategy"].to_pylist() == ["optimize"]


def test_optimize_goes_by_the_session_and_its_jobs_are_told(changed: Path, confs: SetConf) -> None:
    confs(f"{CONF}.repartition.enabled", "true")
    plan = open_table(changed).plan_compaction()
    result = plan.run(strategy="optimize", verify=False)
    # One task writes a bin, though it is divided to be read.
    assert_done_as_planned(changed, plan, result)
    spans = result.timeline.to_pylist()
    assert [span["step"] for span in spans] == ["rewrite"] * 3
    assert all(span["seconds"] > 0 and span["bin_id"] is None for span in spans)
