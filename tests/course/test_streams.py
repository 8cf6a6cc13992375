"""Streams that read a table while a strategy compacts it; lesson 07 has what Delta itself does for them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compaction_kit import open_table
from compaction_kit.execute.jobs import session_confs
from tests.conftest import QUICK_STREAMS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("quick")]


@pytest.fixture(scope="module")
def quick(spark: SparkSession) -> Iterator[None]:
    with session_confs(spark, QUICK_STREAMS):
        yield


def append(spark: SparkSession, root: Path, first: int, files: int = 1) -> None:
    rows = spark.range(first, first + 10 * files, 1, files)
    rows.write.format("delta").mode("append").save(str(root / "source"))


def start(spark: SparkSession, root: Path, **trigger: Any) -> StreamingQuery:
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 3)
    writer = reader.load(str(root / "source")).writeStream.format("delta")
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    return writer.trigger(**trigger).start(str(root / "sink"))


def read_half(spark: SparkSession, root: Path) -> StreamingQuery:
    """Let a stream read 3 of the 6 files of the first version, append another one, and return the stream."""
    append(spark, root, 0, files=6)
    query = start(spark, root, processingTime="1 hour")
    while query.lastProgress is None:
        query.awaitTermination(0.02)  # type: ignore[arg-type]
    append(spark, root, 60)
    return query


def read_rest(spark: SparkSession, root: Path) -> list[int]:
    """Append once more and let the stream read all; return the ids that it delivered, sorted."""
    append(spark, root, 70)
    start(spark, root, availableNow=True).awaitTermination()
    rows = spark.read.format("delta").load(str(root / "sink")).collect()
    return sorted(row["id"] for row in rows)


# Lesson 07 has OPTIMIZE.
@pytest.mark.parametrize(
    "strategy",
    ["arrow", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("optimize", "rewrite"))],
)
def test_a_stream_delivers_compacted_rows_once(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    """The compaction takes files that were delivered, files of a version read in part, and an unread file."""
    query = read_half(spark, tmp_path)
    open_table(tmp_path / "source", spark).plan_compaction().run(strategy=strategy, verify=False)
    query.stop()
    compaction = open_table(tmp_path / "source").log.commits().to_pylist()[-1]
    assert (compaction["data_change"], compaction["num_removed"], compaction["num_added"]) == (False, 7, 1)
    assert query.lastProgress is not None
    assert query.lastProgress["numInputRows"] == 30
    assert read_rest(spark, tmp_path) == [*range(80)]


# Exercise 07.2 counts what streams deliver that ignore it.
@pytest.mark.nightly
def test_an_ordinary_overwrite_ends_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    read_half(spark, tmp_path).stop()
    source = str(tmp_path / "source")
    spark.read.format("delta").load(source).write.format("delta").mode("overwrite").save(source)
    with pytest.raises(StreamingQueryException, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        read_rest(spark, tmp_path)
