"""A log beside the stream that wrote it: what is on disk, what Spark reads, what was projected."""

import json
from datetime import timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.sinklog.policy import Kind, Policy
from tests.sinklog.streams import Stream, names_after, names_in, policies

pytestmark = pytest.mark.spark
# Policies that clean up soon: another interval for the source than for the sink.
TUNED = {Kind.SINK: Policy(3, 4, timedelta()), Kind.SOURCE: Policy(4, 4, timedelta())}


@pytest.fixture(scope="module")
def streamed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """26 batches with Spark's default settings, which tests leave as they are."""
    stream = Stream(spark, tmp_path_factory.mktemp("default"))
    stream.run(26)
    return stream


@pytest.mark.nightly
def test_by_default_26_batches_leave_every_file_and_two_compactions(streamed: Stream) -> None:
    for kind, folder in streamed.folders.items():
        log = ck.sink_log(folder)
        expected = [f"{i}.compact" if i in (9, 19) else str(i) for i in range(26)]
        assert names_in(folder) == log.files["name"].to_pylist() == expected
        assert log.compactions["num_entries"].to_pylist() == [10, 20]
        numbers = (log.latest_batch, log.compact_interval, log.next_compaction_batch)
        assert (log.kind, *numbers) == (kind, 25, 10, 29)
        assert log.files.filter(log.files["needed"])["batch"].to_pylist() == list(range(19, 26))
        # The first batch whose 100 predecessors begin after a compaction; and then ten minutes later.
        soon, late = (log.project(150, seconds_between=seconds).removals for seconds in (60, 5))
        assert soon["batch"].unique().to_pylist()[:2] == [109, 119]
        assert soon["name"].to_pylist()[:10] == [*map(str, range(9)), "9.compact"]
        assert 109 < late["batch"][0].as_py() <= 146


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
    assert source.entries["batch_id"].to_pylist() == list(range(26))
    assert [Path(path).name for path in source.entries["path"].to_pylist()] == [
        f"{i:04d}.json" for i in range(26)
    ]
    assert source.entries["timestamp"][3].as_py().timestamp() == 1_000_000_003


def test_a_real_stream_leaves_what_was_projected_at_each_restart(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    with policies(spark, TUNED):
        stream.run(1)
        for num_batches in (7, 9):
            logs = {kind: ck.sink_log(folder) for kind, folder in stream.folders.items()}
            stream.run(num_batches)
            for kind, folder in stream.folders.items():
                projection = logs[kind].project(num_batches)
                assert names_in(folder) == names_after(logs[kind], projection, stream.num_batches - 1)
                sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
                for row in projection.compactions.to_pylist():
                    name = f"{row['batch']}.compact"
                    if name in sizes:
                        assert row["size_bytes"] == pytest.approx(sizes[name], rel=0.05)
                        assert row["num_entries"] == row["batch"] + 1
        # The sum: 17 - 4 = 13, less 13 % 3, less 1; and 13 % 4.
        assert names_in(stream.folders[Kind.SINK]) == ["11.compact", "12", "13", "14.compact", "15", "16"]
        assert names_in(stream.folders[Kind.SOURCE]) == ["11.compact", "12", "13", "14", "15.compact", "16"]
    # Another interval has no effect as long as two compactions are there.
    changed = {kind: Policy(5, 4, timedelta()) for kind in Kind}
    with policies(spark, changed):
        logs = {kind: ck.sink_log(folder) for kind, folder in stream.folders.items()}
        stream.run(3)
        for kind, folder in stream.folders.items():
            assert logs[kind].compact_interval == TUNED[kind].default_interval
            assert names_in(folder) == names_after(logs[kind], logs[kind].project(3), 19)


def test_an_interval_shorter_than_a_log_without_compactions_breaks_the_stream_and_loses_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path)
    stream.run(4)
    short = {Kind.SINK: Policy(3, 2, timedelta())}
    with policies(spark, short):
        log = ck.sink_log(stream.output)
        projection = log.project(10)
        assert (projection.fails_at, projection.missing) == (5, "2.compact")
        assert projection.removals["name"].to_pylist() == ["0", "1"]
        assert "fails at batch 5: its compaction reads 2.compact, which is missing" in log.explain()
        assert log.plot(10).get_axes()[0].texts[-1].get_text() == "fails at batch 5"
        with pytest.raises(StreamingQueryException, match=r"2\.compact"):
            stream.run(3)
        assert names_in(stream.folders[Kind.SINK]) == names_after(log, projection, 4)
    with pytest.raises(CorruptLogError, match="misses batch 0, 1"):
        ck.sink_log(stream.output)


def test_spark_reads_what_is_marked_as_deleted(streamed: Stream, spark: SparkSession) -> None:
    file = streamed.folders[Kind.SINK] / "19.compact"
    text = file.read_text()
    file.write_text(text.replace('"action":"add"', '"action":"delete"', 1))
    try:
        assert spark.read.parquet(str(streamed.output)).count() == 26
        assert ck.sink_log(streamed.output).num_entries == 26
    finally:
        file.write_text(text)


def test_a_retention_bounds_what_is_projected(streamed: Stream) -> None:
    log = ck.sink_log(streamed.output)
    plain = log.project(1_000, seconds_between=3_600)
    kept = log.project(1_000, retention="5 days", seconds_between=3_600)
    assert plain.compactions["num_entries"][-1].as_py() == 1_020
    assert kept.compactions["num_entries"][-1].as_py() == 121
    assert pc.max(kept.compactions["num_entries"]).as_py() < 200
    for text in (log.explain(), repr(log), log._repr_html_()):
        assert "26" in text
    assert "19.compact is" in log.explain()
    with pytest.raises(InvalidArgumentError, match="num_batches=-1 is not a number of batches"):
        log.project(-1)
    with pytest.raises(InvalidArgumentError, match="is a source's log"):
        ck.sink_log(streamed.checkpoint).project(1, "1 day")


def test_a_compaction_drops_what_the_projection_says(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    stream.run(8)
    for name in ("0", "1", "4"):
        file = stream.folders[Kind.SINK] / name
        entry = json.loads(file.read_text().splitlines()[1])
        # Two days earlier.
        entry["modificationTime"] -= 2 * 86_400_000
        file.write_text(f"v1\n{json.dumps(entry)}")
        file.with_name(f".{name}.crc").unlink(missing_ok=True)
    log = ck.sink_log(stream.output)
    assert log.project(2, "7 days").compactions["num_entries"].to_pylist() == [10]
    with pytest.raises(InvalidArgumentError, match="is not a length of time"):
        log.project(2, "a while")
    planned = log.project(2, retention="1 day").compactions["num_entries"].to_pylist()

    stream.run(2, retention="1d")
    assert ck.sink_log(stream.output).compactions["num_entries"].to_pylist() == planned == [7]
    ids = {row.id for row in spark.read.parquet(str(stream.output)).collect()}
    assert ids == {2, 3, 5, 6, 7, 8, 9}
    # The files stay, and no reader of the log sees them any more.
    assert len(list(stream.output.glob("*.parquet"))) == 10
