"""Streams that read a table while a strategy compacts it; lesson 07 has what Delta itself does for them."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compaction_kit import open_table
from tests.conftest import QUICK_STREAMS, SetConf

pytestmark = pytest.mark.spark


def append(spark: SparkSession, root: Path, first: int, files: int = 1) -> None:
    rows = spark.range(first, first + 10 * files, 1, files)
    rows.write.format("delta").mode("append").save(str(root / "source"))


def start(spark: SparkSession, root: Path, **trigger: Any) -> StreamingQuery:
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 3)
    writer = reader.load(str(root / "source")).writeStream.format("delta")
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    return writer.trigger(**trigger).start(str(root / "sink"))


# Lesson 07 has OPTIMIZE.
@pytest.mark.parametrize("strategy", ["arrow", pytest.param("rewrite", marks=pytest.mark.nightly)])
def test_a_stream_delivers_compacted_rows_once(
    spark: SparkSession, tmp_path: Path, confs: SetConf, strategy: str
) -> None:
    """The compaction takes files that were delivered, files of a version read in part, and an unread file."""
    for key, value in QUICK_STREAMS.items():
        confs(key, value)
    append(spark, tmp_path, 0, files=6)
    query = start(spark, tmp_path, processingTime="1 hour")
    while query.lastProgress is None:
        query.awaitTermination(0.02)  # type: ignore[arg-type]
    append(spark, tmp_path, 60)
    open_table(tmp_path / "source", spark).plan_compaction().run(strategy=strategy, verify=False)
    query.stop()
    assert query.lastProgress["numInputRows"] == 30
    compaction = open_table(tmp_path / "source").log.commits().to_pylist()[-1]
    assert (compaction["data_change"], compaction["num_removed"], compaction["num_added"]) == (False, 7, 1)
    append(spark, tmp_path, 70)
    start(spark, tmp_path, availableNow=True).awaitTermination()
    rows = spark.read.format("delta").load(str(tmp_path / "sink")).collect()
    assert sorted(row["id"] for row in rows) == [*range(80)]
