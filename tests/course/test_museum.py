"""Feedback on wrong answers in the museum. Its solution shows that the right answers are right."""

import re
from collections.abc import Callable
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import deltalake
import pytest
from course import museum
from course.answers import EXERCISES
from course.check import check
from pyspark.sql import SparkSession

from compaction_kit import open_table, sink_log
from tests.notebooks.lessons import ROOT, cells_of

MAKE: list[Callable[..., Path]] = [museum.deliveries, museum.revenue, museum.accounts, museum.telemetry]
MAKE += [museum.clicks, museum.archive, museum.feed, museum.exports]
# By case: wrong answers, made from the right one, and a part of the feedback on each.
WRONG: dict[int, Callable[[Any], dict[Any, str]]] = {
    1: lambda _: {6: "in no version", 7: "are still there", 3: "still there", 0: "time of the removal"},
    2: lambda _: {
        (2, 3_000): "has each row once",
        (4, 3_000): "doubled before",
        (3, 6_000): "half of them",
        (3, 3_050): "the last append",
        (3, 17): "check the second of these",
        (0, 0): "give a version and a number of rows",
    },
    3: lambda _: {
        ("path", 90): "have this field",
        ("deletionVector", 100): "some of them are deleted",
        ("deletionVector", 10): "no reader gets them",
        ("deletionVector", 380): "all rows that a reader gets",
    },
    4: lambda right: {1 / right: "bytes divided by", right - 1: "rewritten as well", 1.5: "these are files"},
    5: lambda _: {68: "only some of them", 64: "no auto compaction", 50: "is the limit"},
    6: lambda right: {(right[1], right[1]): "kept for a week", (0, 0): "for more than a week"},
    7: lambda _: {(1, 70): "only adds rows", (2, 150): "all rows of the sink", (2, 80): "should have"},
    8: lambda _: {
        ("deletion", 720): "entries stay",
        ("retention", 600): "batches after that file",
        ("retention", 36): "files of the log",
        ("retention", 20): "one batch",
    },
}
BY_NIGHT = (3, 4, 5, 6, 7)
NUMBERS = [pytest.param(n, marks=pytest.mark.nightly) if n in BY_NIGHT else n for n in WRONG]


@pytest.mark.parametrize("number", NUMBERS)
def test_wrong_answers_get_no_marks_and_a_reason(number: int, tmp_path: Path, spark: SparkSession) -> None:
    exercise, make = f"museum.{number}", MAKE[number - 1]
    made = make(tmp_path, spark) if "spark" in signature(make).parameters else make(tmp_path)
    folders = [made / "source", made / "sink"] if number == 7 else [made]
    tables = [sink_log(one) if number == 8 else open_table(one, spark) for one in folders]
    _, find, marks = EXERCISES[exercise]
    right, _ = next(find(*tables))
    assert repr(check(exercise, right, *tables)) == f"Right. {marks} of {marks} marks."
    for answer, meaning in WRONG[number](right).items():
        shown = check(exercise, answer, *tables)
        assert (shown.is_right, shown.earned) == (False, 0)
        for text in (repr(shown), shown._repr_html_()):
            assert meaning in text, answer
            assert f" 0 of {marks} marks." in text


def test_a_case_is_open_until_it_has_an_answer_and_stays_right_after_the_repair(tmp_path: Path) -> None:
    assert repr(check("museum.1", None)) == "Not answered yet: give a number of files. 0 of 5 marks."
    table = museum.revenue(tmp_path)
    deltalake.DeltaTable(table).restore(2)
    assert check("museum.2", (3, 3_000), open_table(table)).is_right
    # A table that was optimized meanwhile has to be made again.
    deltalake.DeltaTable(table).optimize.compact()
    assert "make the table again" in repr(check("museum.4", 1.5, open_table(table)))


def test_the_vacuum_took_files_too_early_by_the_log_alone(tmp_path: Path) -> None:
    """Delta's retention would have kept the files, and the log says when they were removed."""
    table = open_table(museum.deliveries(tmp_path))
    versions = table.versions().to_pylist()
    assert [row["readable"] for row in versions] == ["missing files"] * 7 + ["yes"] * 3
    assert table.plan_vacuum().is_empty
    assert versions[-1]["timestamp"] - versions[6]["timestamp"] < timedelta(days=7)


def test_each_case_has_a_check_a_folded_story_a_solution_and_marks() -> None:
    text = {cell.id: cell.source for cell in cells_of(ROOT / "notebooks/museum.ipynb")}
    solved = cells_of(ROOT / "notebooks/solutions/museum_solution.ipynb")
    titles = {cell.id: cell.source.splitlines()[0] for cell in solved}
    lecturers = (ROOT / "docs/book/lecturers.md").read_text(encoding="utf-8")
    marks = dict(re.findall(r"(?m)^\| (\d) [^|]*\|.*\| (\d) \|$", lecturers))
    assert sum(marks for _, _, marks in EXERCISES.values()) == 40
    for number in range(1, 9):
        place = text[f"check-{number}"].splitlines()
        assert place[0] == "# Solution goes here"
        assert place[1].startswith(f"answer_{number} = None  # ")
        assert place[2].startswith(f'checked_{number} = check("museum.{number}", answer_{number}, ')
        assert text[f"story-{number}"].startswith("<details><summary>What happened")
        assert text[f"case-{number}"].splitlines()[0] == titles[f"case-{number}"]
        assert marks[str(number)] == str(EXERCISES[f"museum.{number}"][2])
