"""Two real writers at once: each scenario's outcome is Delta's, and no row is lost or doubled."""

import re
from pathlib import Path
from typing import Any

import deltalake
import pytest
from course import races
from course.writers import SCENARIOS, PausedWriter
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError, RunFailedError
from tests import folders
from tests.handmade import actions_of

pytestmark = pytest.mark.spark

# The first writer's attempts (version read, version tried, outcome), and its exception.
REFUSED = (0, 1, "refused")
BOTH = ([(0, 1, "taken"), (0, 2, "committed")], None)
RETRIED = ([REFUSED, (1, 2, "committed")], None)
READ_TOO_LITTLE = ([REFUSED], "ConcurrentAppendException")
GAVE_UP = ([REFUSED, (1, None, "gave up")], "ConcurrentDeleteReadException")
EXPECTED: dict[str, tuple[list[Any], str | None]] = {
    "append with append": BOTH,
    "one batch by two runs": ([REFUSED], "ConcurrentTransactionException"),
    "two deletes of the same rows": READ_TOO_LITTLE,
    "two deletes in two partitions": BOTH,
    "compaction with append": BOTH,
    "compaction with delete": GAVE_UP,
    "compaction with delete elsewhere": BOTH,
    "delete with compaction": READ_TOO_LITTLE,
    "two compactions": GAVE_UP,
    "compaction with ADD COLUMN": RETRIED,
    "append with ADD COLUMN": ([REFUSED], "MetadataChangedException"),
    "overwrite with append": READ_TOO_LITTLE,
    "delete with append": READ_TOO_LITTLE,
    "rewrite with append": BOTH,
    "rewrite with delete": ([REFUSED], "ConcurrentDeleteReadException"),
}
# By day, a compaction that gives up, one that commits at its second try, and a refused append.
BY_DAY = {"compaction with delete", "compaction with ADD COLUMN", "append with ADD COLUMN"}
NAMES = [name if name in BY_DAY else pytest.param(name, marks=pytest.mark.nightly) for name in EXPECTED]


def test_every_scenario_is_played() -> None:
    assert set(SCENARIOS) == set(EXPECTED)


@pytest.mark.parametrize("name", NAMES)
def test_a_story_ends_as_delta_rules_and_no_row_is_lost(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    story = races.play(tmp_path / "new", name, spark)
    attempts, exception = EXPECTED[name]
    tried = story.attempts.select(["read_version", "version", "outcome"]).to_pylist()
    assert [tuple(row.values()) for row in tried] == [(0, 1, "committed"), *attempts]
    first, second = story.scenario.first.name, story.scenario.second.name
    assert story.winners == ((second, first) if exception is None else (second,))
    assert (f"the {second} won" in story.finding) == (exception is not None)
    # The rows are as if the winners had committed one after another; a reader without Spark agrees.
    assert story.ids_after == story.ids_expected
    ids = deltalake.DeltaTable(story.table).to_pyarrow_table(columns=["id"])["id"]
    assert sorted(ids.to_pylist()) == list(story.ids_after)
    # A compaction that won left one file in each of two partitions, and the append added one.
    if story.winners[-1] in ("compaction", "rewrite") and name.endswith("append"):
        assert open_table(story.table).files().num_files == 2 + 1
    commits = [row for row in story.attempts.to_pylist() if row["outcome"] == "committed"]
    assert [row["version"] for row in commits] == [*range(1, open_table(story.table).version + 1)]
    for row in commits:
        (info,) = actions_of(story.table, row["version"], "commitInfo")
        assert (row["operation"], row["isolation_level"]) == (info["operation"], info["isolationLevel"])
        assert (row["read_version"], row["is_blind_append"]) == (info["readVersion"], info["isBlindAppend"])
    changes_no_data = re.search("compaction|rewrite", story.winners[-1])
    assert (commits[-1]["isolation_level"] == "SnapshotIsolation") == bool(changes_no_data)
    assert "{" not in repr(story)
    assert story.exception == exception


def test_an_unknown_story_is_refused_and_so_is_a_folder_within_a_table(
    spark: SparkSession, shaped: Path
) -> None:
    before = folders.listing(shaped)
    with pytest.raises(InvalidArgumentError, match='"coffee with tea" is not a story: choose one of app'):
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
