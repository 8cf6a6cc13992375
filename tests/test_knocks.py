"""The judge of `make knocks` finds damage to tables and bad errors."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit.errors import RunFailedError
from tests import handmade
from tests.chance import nightly
from tests.knocks import faults, races
from tests.knocks.oracle import Before, Case, Outcome, Wrong, judge_error, rows_of


@pytest.mark.parametrize(
    ("play", "seed"),
    [
        # A race of a delete by Spark with a run by arrow.
        (races.play, 1),
        *nightly((races.clustered, 4), (faults.codecs, 4)),
    ],
)
def test_random_cases_have_an_outcome(
    spark: SparkSession, tmp_path: Path, play: Callable[[Case], Outcome], seed: int
) -> None:
    assert play(Case(spark, tmp_path, random.Random(seed))) in Outcome


def lose_a_row(table: Path) -> None:
    (add, *_) = handmade.actions_of(table, 1, "add")
    handmade.write_commit(table, 5, [handmade.remove(add["path"])])


@pytest.mark.parametrize(
    ("told", "act"),
    {
        "50 rows lost, 0 rows more": lose_a_row,
        "files are gone": lambda table: min(table.rglob("*.parquet")).unlink(),
        "touched outside of the table": lambda table: (table.parent / "other").touch(),
        "strange files in the log": lambda table: (table / "_delta_log" / "note.txt").touch(),
        "not written by Delta": lambda table: handmade.write_commit(table, 5, [{"commitInfo": {}}]),
    }.items(),
)
def test_the_judge_finds_damage(
    spark: SparkSession, changed: Path, told: str, act: Callable[[Path], object]
) -> None:
    rows = rows_of(spark, changed) if act is lose_a_row else None
    before = Before.of(changed, rows)
    before.check(rows, rows)
    act(changed)
    found = rows_of(spark, changed) if act is lose_a_row else None
    with pytest.raises(Wrong, match=told):
        before.check(found, rows)


def test_an_error_that_is_no_sentence_or_hides_files_is_wrong(changed: Path) -> None:
    before = Before.of(changed, None)
    assert judge_error(RunFailedError("It failed."), before) is Outcome.FAILED
    (changed / "left.parquet").write_bytes(b"")
    with pytest.raises(Wrong, match=r"left\.parquet"):
        judge_error(RunFailedError("It failed."), before)
    for error in (ValueError("It failed."), RunFailedError("It\nfailed.")):
        with pytest.raises(Wrong, match="no sentence"):
            judge_error(error, before)
