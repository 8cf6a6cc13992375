"""Two real writers at once: each scenario's outcome is Delta's, and no row is lost or doubled."""

import json
import re
from pathlib import Path

import delta.exceptions
import deltalake
import pytest
from course import races
from course.races import Story
from course.writers import SCENARIOS, PausedWriter
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError, RunFailedError
from tests import folders

pytestmark = pytest.mark.spark

# The outcomes of the first writer's attempts, and its exception.
BOTH = (["taken", "committed"], None)
RETRIED = (["refused", "committed"], None)
READ_TOO_LITTLE = (["refused"], "ConcurrentAppendException")
EXPECTED = {
    "append with append": BOTH,
    "one batch by two runs": (["refused"], "ConcurrentTransactionException"),
    "two deletes of the same rows": READ_TOO_LITTLE,
    "two deletes in two partitions": BOTH,
    "compaction with append": BOTH,
    "compaction with delete": (["refused", "gave up"], "ConcurrentDeleteReadException"),
    "compaction with delete elsewhere": BOTH,
    "delete with compaction": READ_TOO_LITTLE,
    "two compactions": (["refused", "gave up"], "ConcurrentDeleteReadException"),
    "compaction with ADD COLUMN": RETRIED,
    "append with ADD COLUMN": (["refused"], "MetadataChangedException"),
    "overwrite with append": READ_TOO_LITTLE,
    "delete with append": READ_TOO_LITTLE,
    "rewrite with append": BOTH,
    "rewrite with delete": (["refused"], "ConcurrentDeleteReadException"),
}
SNAPSHOT_ISOLATION = {
    "compaction with append",
    "compaction with delete elsewhere",
    "compaction with ADD COLUMN",
    "rewrite with append",
}
# Ruled as others are: one of the same rule is played at each change, here or in lesson 5 and its solution.
NIGHTLY = {
    "append with append",
    "compaction with append",
    "two deletes of the same rows",
    "two deletes in two partitions",
    "compaction with delete elsewhere",
    "delete with compaction",
    "delete with append",
    "two compactions",
    "overwrite with append",
    "rewrite with append",
}
NAMES = [pytest.param(name, marks=pytest.mark.nightly) if name in NIGHTLY else name for name in EXPECTED]
each_story = pytest.mark.parametrize("name", NAMES)


class Stories(dict[str, Story]):
    """Each is played when it is first asked for."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self._folder, self._spark = folder, spark

    def __missing__(self, name: str) -> Story:
        self[name] = races.play(self._folder, name, self._spark)
        return self[name]


@pytest.fixture(scope="module")
def stories(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stories:
    return Stories(tmp_path_factory.mktemp("stories") / "new", spark)


def test_every_scenario_is_played() -> None:
    assert set(SCENARIOS) == set(EXPECTED)


@each_story
def test_a_story_ends_as_delta_rules_and_no_row_is_lost(stories: Stories, name: str) -> None:
    story = stories[name]
    outcomes, exception = EXPECTED[name]
    assert story.attempts["outcome"].to_pylist() == ["committed", *outcomes]
    assert (None if story.refusal is None else story.refusal.exception) == exception
    first, second = story.scenario.first.name, story.scenario.second.name
    assert story.winners == ((second, first) if exception is None else (second,))
    assert story.versions == (0, 1 if exception else 2)
    assert (f"the {second} won" in story.finding) == (exception is not None)
    # The rows are as if the winners had come one after another, for a reader without Spark too.
    assert (story.rows_lost, story.rows_doubled) == (0, 0)
    assert story.ids_after == story.ids_expected
    ids = deltalake.DeltaTable(story.table).to_pyarrow_table(columns=["id"])["id"]
    assert sorted(ids.to_pylist()) == list(story.ids_after)
    # A compaction that won left one file in each of two partitions.
    if story.winners[-1] in ("compaction", "rewrite") and name.endswith("append"):
        assert open_table(story.table).files().num_files == 2 + 1
    # The commits are those of the log.
    commits = [row for row in story.attempts.to_pylist() if row["outcome"] == "committed"]
    files = sorted((story.table / "_delta_log").glob("*.json"))[1:]
    assert [row["version"] for row in commits] == [int(file.stem) for file in files]
    for row, file in zip(commits, files, strict=True):
        info = next(json.loads(line)["commitInfo"] for line in file.open() if '"commitInfo"' in line)
        assert (row["operation"], row["isolation_level"]) == (info["operation"], info["isolationLevel"])
        assert (row["read_version"], row["is_blind_append"]) == (info["readVersion"], info["isBlindAppend"])
    # The other one's version was taken when the first came to it.
    assert story.attempts["read_version"].to_pylist()[:2] == [0, 0]
    assert story.attempts["version"].to_pylist()[:2] == [1, 1]
    is_snapshot = commits[-1]["isolation_level"] == "SnapshotIsolation"
    assert is_snapshot == (name in SNAPSHOT_ISOLATION | {"two compactions", "delete with compaction"})


def test_optimize_commits_again_or_gives_up_if_its_files_are_gone(stories: Stories) -> None:
    tries = stories["compaction with ADD COLUMN"].attempts
    assert tries["read_version"].to_pylist() == [0, 0, 1]
    assert tries["version"].to_pylist() == [1, 1, 2]
    assert "in a new transaction" in stories["compaction with ADD COLUMN"].why
    story = stories["compaction with delete"]
    last = story.attempts.to_pylist()[-1]
    assert (last["read_version"], last["version"], last["outcome"]) == (1, None, "gave up")
    page = story._repr_html_()
    for text in ("ConcurrentDeleteReadException", "gave up", "<svg role="):
        assert text in page


@each_story
def test_a_story_has_deltas_own_words_in_values_that_json_has(stories: Stories, name: str) -> None:
    story = stories[name]
    values = json.loads(json.dumps(story.to_dict()))
    assert values["scenario"]["first"]["statement"] == story.scenario.first.statement
    if (refusal := story.refusal) is None:
        return
    assert hasattr(delta.exceptions, refusal.exception)
    # DELTA_CONCURRENT_APPEND is a ConcurrentAppendException.
    condition = refusal.condition.split(".")[0].removeprefix("DELTA_").replace("_", "")
    assert condition
    assert refusal.exception.upper().startswith(condition)
    assert re.search("concurrent|at the same time", refusal.message)
    assert "\n" not in refusal.message
    assert "{" not in story.why
    for words in (refusal.exception, refusal.condition, story.why):
        assert words in story.summary()


def test_an_unknown_story_is_refused_and_so_is_a_folder_within_a_table(
    spark: SparkSession, shaped: Path
) -> None:
    before = folders.listing(shaped)
    with pytest.raises(InvalidArgumentError, match='"coffee with tea" is not a scenario: choose one of app'):
        races.play(shaped.parent, "coffee with tea")
    for folder in (shaped, shaped / "part=p0000"):
        with pytest.raises(InvalidArgumentError, match=r"inside the Delta table .*: give another folder"):
            races.play(folder, "append with append", spark)
    assert folders.listing(shaped) == before


def test_a_writer_that_never_commits_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="ended before its commit: it changed nothing"):
        PausedWriter(spark, lambda: spark.range(3).collect())
    with pytest.raises(RunFailedError, match="ended before its commit: out of ink"):
        PausedWriter(spark, lambda: (_ for _ in ()).throw(OSError("out of ink")))
