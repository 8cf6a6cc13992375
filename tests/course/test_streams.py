"""Streams that read a table while a strategy compacts it; lesson 07 shows what Delta itself does."""

from pathlib import Path

import pytest
from course import read_ids
from course.museum import copy_by_stream
from pyspark.sql import SparkSession

from compaction_kit import open_table
from tests.conftest import QUICK_STREAMS, SetConf


# Lesson 07 covers OPTIMIZE.
@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ["arrow", "rewrite"])
def test_a_stream_delivers_compacted_rows_once(
    spark: SparkSession, tmp_path: Path, confs: SetConf, strategy: str
) -> None:
    """The compaction takes files that were delivered, files of a version read in part, and an unread file."""
    for key, value in QUICK_STREAMS.items():
        confs(key, value)

    def compact() -> None:
        assert len(read_ids(spark, tmp_path / "sink")) == 30
        table = open_table(tmp_path / "source", spark)
        table.plan_compaction().run(strategy=strategy, verify=False)
        last = table.log.commits().to_pylist()[-1]
        assert (last["data_change"], last["num_removed"], last["num_added"]) == (False, 7, 1)

    copy_by_stream(tmp_path, spark, compact)
    assert read_ids(spark, tmp_path / "sink") == tuple(range(80))
