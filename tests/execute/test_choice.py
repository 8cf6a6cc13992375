"""Which strategy "auto" picks, and which options go with which."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table, plots
from compaction_kit.errors import UnsupportedTableError
from tests import folders, handmade
from tests.conftest import SetConf
from tests.execute.meanwhile import changed_metadata

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


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


def test_auto_goes_by_arrows_refusals(changed: Path) -> None:
    widening = changed_metadata(changed, configuration={"delta.enableTypeWidening": "true"})
    handmade.write_commit(changed, 5, [widening, handmade.protocol(features=["typeWidening"])])
    plan, why = open_table(changed).plan_compaction(), "because .*the feature typeWidening"
    with pytest.raises(
        UnsupportedTableError, match=f'strategy="arrow" can\'t run this plan, {why}'
    ) as caught:
        plan.run(strategy="arrow")
    assert "\n" not in str(caught.value)
    result = plan.run(verify=False)
    assert (result.strategy, result.as_planned) == ("optimize", True)
    assert re.match(f"optimize, {why}", result.reason)


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
