"""Streams over a table that is compacted meanwhile; and the table's own cures, auto compaction and
optimized writes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from course import streams
from course.streams import StreamStory
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute.jobs import session_confs
from tests import handmade
from tests.conftest import QUICK_STREAMS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("quick")]

# Lesson 7 plays "optimize".
STRATEGIES = [
    pytest.param("optimize", marks=pytest.mark.nightly),
    pytest.param("rewrite", marks=pytest.mark.nightly),
    "arrow",
]


@pytest.fixture(scope="module")
def quick(spark: SparkSession) -> Iterator[None]:
    with session_confs(spark, QUICK_STREAMS):
        yield


class Stories(dict[str, StreamStory]):
    """Each is played when it is first asked for."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self._folder, self._spark = folder, spark

    def __missing__(self, way: str) -> StreamStory:
        self[way] = streams.compact_while_streaming(self._folder, way, spark=self._spark)
        return self[way]


@pytest.fixture(scope="module")
def stories(quick: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stories:
    return Stories(tmp_path_factory.mktemp("streams"), spark)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_compaction_in_the_midst_of_a_stream_delivers_each_row_once(stories: Stories, strategy: str) -> None:
    story = stories[strategy]
    assert story.error is None
    assert (story.rows_missing, story.rows_doubled) == (0, 0)
    assert story.ids_delivered == tuple(range(80))
    # The compaction took the files of all 70 rows, of which 30 had been delivered.
    compaction = story.commits.to_pylist()[2]
    assert (compaction["data_change"], compaction["num_removed"], compaction["num_added"]) == (False, 7, 1)
    assert compaction["records_added"] == 70
    assert story.batches["num_rows"].to_pylist() == [30, 30, 20]
    assert story.finding == f"{strategy}: all 80 rows delivered once"


@pytest.mark.nightly
def test_appends_with_data_change_are_delivered_and_one_without_never(
    stories: Stories,
) -> None:
    story = stories["append"]
    assert story.error is None
    assert story.commits["data_change"].to_pylist() == [True, True, False, True]
    assert story.commits["records_added"].to_pylist() == [60, 10, 10, 10]
    assert (story.rows_missing, story.rows_doubled) == (10, 0)
    assert set(story.ids_written) - set(story.ids_delivered) == set(range(1_000, 1_010))


@pytest.mark.nightly
def test_an_ordinary_overwrite_ends_the_stream(stories: Stories) -> None:
    story = stories["overwrite"]
    assert story.error is not None
    assert story.error.startswith("DELTA_SOURCE_TABLE_IGNORE_CHANGES: Detected a data update")
    assert story.commits["data_change"].to_pylist() == [True] * 4
    assert story.rows_missing == 50
    assert "failed" in story.finding
    assert "DELTA_SOURCE_TABLE_IGNORE_CHANGES" in story._repr_html_()


def test_the_finding_names_the_options_of_the_reader(stories: Stories) -> None:
    read_so = replace(stories["overwrite"], options={"ignoreChanges": "true"}, error=None)
    assert read_so.finding.startswith("overwrite, ignoreChanges=true: ")


@pytest.mark.nightly  # The solution of exercise 07.2 counts what each option delivers.
@pytest.mark.parametrize(("option", "doubled"), [("ignoreChanges", 70), ("skipChangeCommits", 0)])
def test_what_an_ordinary_overwrite_delivers_depends_on_the_option(
    spark: SparkSession, tmp_path: Path, option: str, doubled: int
) -> None:
    story = streams.compact_while_streaming(tmp_path, "overwrite", {option: "true"}, spark)
    assert story.error is None
    assert (story.rows_doubled, story.rows_missing) == (doubled, 0)
    assert f"{option}=true" in story.finding


def test_a_batch_that_is_repeated_after_a_crash_is_not_delivered_again(
    spark: SparkSession, stories: Stories
) -> None:
    story = stories["arrow"]
    assert story.batches["batch_id"].to_pylist() == [0, 1, 2]
    assert story.batches["sink_version"].to_pylist() == [0, 1, 2]
    assert len(pc.unique(story.batches["app_id"])) == 1
    again = streams.repeat_last_batch(story, spark)
    # Batch 2 was run twice, and is in the sink's version 2 alone.
    assert again.batches["batch_id"].to_pylist() == [0, 1, 2, 2]
    assert again.batches["sink_version"].to_pylist() == [0, 1, 2, 2]
    assert open_table(story.folder / "sink").version == 2
    assert again.ids_delivered == story.ids_delivered


def test_an_unknown_way_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match='strategy="magic" is unknown: use one of optimize, '):
        streams.compact_while_streaming(tmp_path, "magic")
    assert list(tmp_path.iterdir()) == []


COLUMNS = {"id": "long", "p": "long"}


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 files with rows of both values of p."""
    folder = tmp_path_factory.mktemp("feed") / "table"
    rows = [pa.table({"id": range(first, first + 10), "p": 5 * [0, 1]}) for first in range(0, 40, 10)]
    adds = [handmade.write_data(folder, f"{number}.parquet", some) for number, some in enumerate(rows)]
    return handmade.write_log(folder, [handmade.metadata(COLUMNS), *adds])


@pytest.mark.parametrize(
    ("properties", "num_files", "operations"),
    [
        # Lesson 7 counts what a stream leaves without them.
        pytest.param([], 8, ["STREAMING UPDATE"] * 2, marks=pytest.mark.nightly),
        (["optimizeWrite"], 4, ["STREAMING UPDATE"] * 2),
        (["autoCompact"], 2, ["STREAMING UPDATE", "OPTIMIZE"] * 2),
    ],
    ids=["neither", "optimized writes", "auto compaction"],
)
@pytest.mark.nightly
def test_the_tables_own_cures_work_on_a_stream(
    spark: SparkSession,
    feed: Path,
    tmp_path: Path,
    confs: Callable[[str, str], None],
    properties: list[str],
    num_files: int,
    operations: list[str],
) -> None:
    """Two batches by two tasks each, which write both partitions; by the log.

    Auto compaction takes a partition that it doesn't know yet whatever the number of its files, and after
    that one that has minNumFiles: here those of the second batch, and the one that the first left.
    """
    confs("spark.databricks.delta.autoCompact.minNumFiles", "3")
    settings = {f"delta.autoOptimize.{name}": "true" for name in properties}
    sink = handmade.write_log(tmp_path / "sink", [handmade.metadata(COLUMNS, ["p"], settings)])
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", 2).load(str(feed))
    writer = rows.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(sink)).awaitTermination()
    table = open_table(sink)
    assert table.log.commits()["operation"].to_pylist()[1:] == operations
    files = table.files()
    assert files.num_files == num_files
    assert pc.sum(files.to_arrow()["num_records"]).as_py() == 40
    if "autoCompact" in properties:
        assert dict(table.log.commits()["parameters"].to_pylist()[-1])["auto"] == "true"
