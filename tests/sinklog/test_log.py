"""A log compared with the stream that wrote it: its files, what Spark reads, and what was projected."""

import json
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.sinklog.policy import Kind
from tests.refusals import refused
from tests.sinklog.streams import Stream, names_in

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def streamed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """11 batches with Spark's default settings; tests leave the files as they are."""
    stream = Stream(spark, tmp_path_factory.mktemp("default"))
    stream.run(11)
    return stream


@pytest.mark.works("local disk", "sink")
def test_entries_are_what_spark_reads(streamed: Stream, spark: SparkSession) -> None:
    assert ck.find_sink_logs(streamed.root) == [str(streamed.folders[Kind.SOURCE]), str(streamed.output)]
    log = ck.sink_log(streamed.output)
    paths = spark.read.parquet(str(streamed.output)).selectExpr("_metadata.file_path path").collect()
    assert set(log.entries["path"].to_pylist()) == {row.path.replace("file:/", "file:///") for row in paths}
    on_disk = {f"file://{path}": path.stat().st_size for path in streamed.output.glob("*.parquet")}
    assert dict(zip(*log.entries.select(["path", "size_bytes"]).to_pydict().values(), strict=True)) == on_disk
    assert set(log.entries["action"].to_pylist()) == {"add"}
    source = ck.sink_log(streamed.checkpoint)
    assert source.entries["batch_id"].to_pylist() == list(range(11))
    names = [Path(path).name for path in source.entries["path"].to_pylist()]
    assert names == [f"{i:04d}.json" for i in range(11)]
    assert source.entries["timestamp"][3].as_py().timestamp() == 1_000_000_003


def test_spark_reads_what_is_marked_as_deleted(streamed: Stream, spark: SparkSession) -> None:
    file = streamed.folders[Kind.SINK] / "9.compact"
    text = file.read_text()
    file.write_text(text.replace('"action":"add"', '"action":"delete"', 1))
    try:
        assert spark.read.parquet(str(streamed.output)).count() == 11
        assert ck.sink_log(streamed.output).num_entries == 11
    finally:
        file.write_text(text)


def test_by_default_100_batches_are_kept_and_a_retention_bounds_what_is_projected(streamed: Stream) -> None:
    for kind, folder in streamed.folders.items():
        log = ck.sink_log(folder)
        assert names_in(folder) == log.files["name"].to_pylist() == [*"012345678", "9.compact", "10"]
        numbers = (log.latest_batch, log.compact_interval, log.next_compaction_batch)
        assert (log.kind, *numbers) == (kind, 10, 10, 19)
        assert log.files.filter(log.files["needed"])["name"].to_pylist() == ["9.compact", "10"]
        # Files go once 100 batches have followed a compaction, and once they are ten minutes old.
        soon, late = (log.project(150, seconds_between=seconds).removals for seconds in (60, 5))
        assert soon["batch"].unique().to_pylist()[:2] == [109, 119]
        assert soon["name"].to_pylist()[:9] == list("012345678")
        assert 109 < late["batch"][0].as_py() <= 146
    log = ck.sink_log(streamed.output)
    plain, kept = (
        log.project(1_000, length, seconds_between=3_600).compactions for length in (None, "5 days")
    )
    assert plain["num_entries"][-1].as_py() == 1_010
    assert kept["num_entries"][-1].as_py() == 121
    assert pc.max(kept["num_entries"]).as_py() < 200
    for options in ({"num_batches": "x"}, {"seconds_between": float("nan")}, {"seconds_between": "x"}):
        refused(log.project, InvalidArgumentError, "give a", *options, **options)
    refused(log.plot, InvalidArgumentError, 'num_batches="x" is not a whole number', num_batches="x")
    refused(
        partial(ck.sink_log(streamed.checkpoint).project, 1, "1 day"),
        InvalidArgumentError,
        "is a source's log",
    )


def test_a_stream_compacts_as_projected_and_drops_what_a_retention_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path)
    stream.run(8)
    for name in ("0", "1", "4"):
        file = stream.folders[Kind.SINK] / name
        entry = json.loads(file.read_text().splitlines()[1])
        # Two days earlier.
        entry["modificationTime"] -= 2 * 86_400_000
        file.write_text(f"v1\n{json.dumps(entry)}")
        file.with_name(f".{name}.crc").unlink(missing_ok=True)
    log, source = ck.sink_log(stream.output), ck.sink_log(stream.checkpoint)
    for length in ("7 days", "7d", "168h"):
        assert log.project(2, length).compactions["num_entries"].to_pylist() == [10]
    refused(partial(log.project, 2, "a while"), InvalidArgumentError, "is not a length of time")
    planned = [log.project(2, retention="1 day"), source.project(2)]
    stream.run(2, retention="1d")
    for projection, folder, entries in zip(planned, (stream.output, stream.checkpoint), (7, 10), strict=True):
        (made,), (told,) = ck.sink_log(folder).compactions.to_pylist(), projection.compactions.to_pylist()
        assert made["num_entries"] == told["num_entries"] == entries
        assert told["size_bytes"] == pytest.approx(made["size_bytes"], rel=0.05)
    ids = {row.id for row in spark.read.parquet(str(stream.output)).collect()}
    assert ids == {2, 3, 5, 6, 7, 8, 9}
    # The files stay, and no reader of the log sees them any more.
    assert len(list(stream.output.glob("*.parquet"))) == 10
