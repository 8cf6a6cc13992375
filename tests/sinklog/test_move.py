"""An output moved to Delta: the rows of the log's files and no other, and a stream that goes on."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit.errors import (
    CorruptLogError,
    EmptyTableError,
    InvalidArgumentError,
    StalePlanError,
    UnsupportedTableError,
)
from compaction_kit.sinklog.policy import Kind, Policy
from tests.folders import listing
from tests.releases import DELTA
from tests.sinklog.streams import LINE, Stream, make_log, policies, rewritten

pytestmark = pytest.mark.spark
HEADER = {"header": "true"}


@pytest.fixture(scope="module")
def few(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """4 batches, of which the log's compaction has three."""
    stream = Stream(spark, tmp_path_factory.mktemp("few"))
    with policies(spark, {Kind.SINK: Policy(3)}):
        stream.run(4)
    return stream


def rows_of(spark: SparkSession, table: Path) -> list[tuple[object, ...]]:
    return sorted(
        tuple(row) for row in spark.read.format("delta").load(str(table)).select("id", "p").collect()
    )


@pytest.fixture(scope="module")
def partitioned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """Three batches of JSON in folders by p ("p 0", "p 1"), and a file that no batch committed."""
    stream = Stream(spark, tmp_path_factory.mktemp("json stream"), "json", ("p",))
    stream.run(3)
    (stream.output / "p=p 0" / "part-00000-leftover.json").write_text('{"id":99}\n')
    return stream


def test_only_what_the_log_lists_is_moved_and_the_stream_goes_on_in_the_table(
    spark: SparkSession, partitioned: Stream, tmp_path: Path
) -> None:
    before = listing(partitioned.output)
    plan = ck.sink_log(partitioned.output).plan_move(tmp_path / "table")
    assert (plan.format, plan.partition_by, len(plan.files)) == ("json", ("p",), 3)
    assert [Path(path).name for path in plan.leftovers["path"].to_pylist()] == ["part-00000-leftover.json"]
    assert "Left out: 1 file" in plan.explain()
    assert not (tmp_path / "table").exists()

    result = plan.run()
    assert result.verified
    assert result.fingerprint is not None
    assert result.fingerprint.num_rows == 3
    assert result.num_files_read == 3
    assert listing(partitioned.output) == before
    assert rows_of(spark, tmp_path / "table") == [(0, "p 0"), (1, "p 1"), (2, "p 0")]
    assert ck.open_table(tmp_path / "table").files().partition_columns == ("p",)
    # Who doesn't go by the log sees the leftover as well.
    globbed = spark.read.schema("id INT").json(f"{partitioned.output}/p=*")
    assert globbed.count() == 4
    with pytest.raises(InvalidArgumentError, match="exists already"):
        plan.run()

    # Before, Delta's sink refuses a stream whose id is of another type of integer.
    if DELTA >= (4, 0):
        partitioned.run(1, to=tmp_path / "table")
        assert [row[0] for row in rows_of(spark, tmp_path / "table")] == [0, 1, 2, 3]


def test_parquet_moves_with_other_partitions(spark: SparkSession, few: Stream, tmp_path: Path) -> None:
    plan = ck.sink_log(few.output).plan_move(tmp_path / "table", partition_by="p")
    assert plan.schema.simpleString() == "struct<id:int,p:string>"
    assert len(plan.leftovers) == 0
    result = plan.run()
    assert result.verified
    assert ck.open_table(tmp_path / "table").files().partition_columns == ("p",)
    assert "identical: 4 rows" in result._repr_html_()


def test_csv_moves_with_the_options_it_was_written_with(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "csv")
    stream.run(2, HEADER)
    log = ck.sink_log(stream.output)
    csv: Any = {"options": HEADER, "schema": "id BIGINT, p STRING"}
    plan = log.plan_move(tmp_path / "table", **csv)
    assert plan.format == "csv"
    stream.run(1, HEADER)
    with pytest.raises(StalePlanError, match="made at batch 1, and the log lists other files"):
        plan.run()
    assert not (tmp_path / "table").exists()
    result = ck.sink_log(stream.output).plan_move(tmp_path / "table", **csv).run(verify=False)
    assert result.verified is None
    assert rows_of(spark, tmp_path / "table") == [(0, "p 0"), (1, "p 1"), (2, "p 0")]


def test_what_can_not_be_moved_is_refused(few: Stream, tmp_path: Path) -> None:
    log = ck.sink_log(few.output)
    with pytest.raises(InvalidArgumentError, match="exists already"):
        log.plan_move(tmp_path)
    with pytest.raises(InvalidArgumentError, match="is inside of the output"):
        log.plan_move(few.output / "table")
    with pytest.raises(
        InvalidArgumentError, match="partition_by=q is not a column of the output: choose from id, p"
    ):
        log.plan_move(tmp_path / "table", partition_by="q")
    with pytest.raises(InvalidArgumentError, match="Spark can't read the output"):
        log.plan_move(tmp_path / "table", schema="id NUMBERS")
    empty = ck.sink_log(make_log(tmp_path / "empty" / "_spark_metadata", b0="v1"))
    with pytest.raises(EmptyTableError, match="lists no file"):
        empty.plan_move(tmp_path / "table")
    texts = make_log(
        tmp_path / "text" / "_spark_metadata",
        b0=f"v1\n{LINE.replace('/out/part-0.parquet', f'{tmp_path}/text/a.txt')}",
    )
    with pytest.raises(UnsupportedTableError, match=r"files are a\.txt"):
        ck.sink_log(texts).plan_move(tmp_path / "table")


def test_a_log_that_was_cut_off_where_spark_does_not_notice_is_not_moved(
    few: Stream, spark: SparkSession, tmp_path: Path
) -> None:
    file = few.folders[Kind.SINK] / "2.compact"
    text = file.read_text()
    with rewritten(file, text[: text.rindex("\n")]):
        assert spark.read.parquet(str(few.output)).count() == 3
        with pytest.raises(CorruptLogError, match=r"2\.compact differs from its checksums"):
            ck.sink_log(few.output).plan_move(tmp_path / "table")


def test_an_output_that_was_moved_to_another_folder_is_not_moved(few: Stream, tmp_path: Path) -> None:
    shutil.copytree(few.output, tmp_path / "output")
    with pytest.raises(CorruptLogError, match=r"lacks 4 files .* the log has absolute paths"):
        ck.sink_log(tmp_path / "output").plan_move(tmp_path / "table")
