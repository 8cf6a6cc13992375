"""What is said of an exercise's answer; that each solution is right is shown by its notebook."""

import numpy as np
import pytest
from course.check import check
from course.truths import TRUTHS

from compaction_kit import open_table
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.sinklog import Policy

POLICY = Policy(default_interval=3, min_batches_to_retain=2)


def test_every_exercise_of_the_course_has_a_truth() -> None:
    assert sorted(TRUTHS) == [f"{lesson:02}.{number}" for lesson in range(1, 11) for number in (1, 2, 3)]


@pytest.mark.parametrize("exercise", TRUTHS)
def test_an_exercise_without_an_answer_is_open(exercise: str) -> None:
    shown = check(exercise, None)
    assert repr(shown).startswith("Not answered yet: expected is ")
    assert not shown.is_right
    assert repr(check(exercise, 1, None)) == repr(shown)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [(4, "Right."), (np.int64(4), "Right."), (5, "Not right yet: expected is the number of a batch.")],
)
def test_an_answer_is_right_or_not_and_the_answer_isnt_shown(answer: int, verdict: str) -> None:
    shown = check("08.1", answer, POLICY)
    assert repr(shown) == verdict
    assert verdict.partition(":")[0].rstrip(".") in shown._repr_html_()
    assert 'role="status"' in shown._repr_html_()


@pytest.mark.parametrize("answer", ["4", [4], {4: 4}])
def test_an_answer_of_another_type_says_what_is_expected(answer: object) -> None:
    said = repr(check("08.1", answer, POLICY))
    assert (
        said
        == f"Not right yet: this is of type {type(answer).__name__}, and expected is the number of a batch."
    )


def test_collections_are_compared_value_by_value_and_floats_about(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = shaped_table(tmp_path_factory.mktemp("check") / "table", partitions=0, files=4, rows=10, commits=1)
    plan = open_table(path).plan_compaction()
    paths = open_table(path).files().to_arrow()["path"].to_pylist()
    assert check("02.3", paths, open_table(path).files()).is_right
    assert not check("02.3", paths[1:], open_table(path).files()).is_right
    assert check("03.3", np.array([1.01, 1.0, 1.0]), plan).is_right
    assert not check("03.3", (1.2, 1.0, 1.0), plan).is_right
    assert not check("03.3", (1.0, 1.0), plan).is_right
    assert not check("03.3", ("1", 1.0, 1.0), plan).is_right


def test_what_cant_be_checked_is_a_sentence() -> None:
    said = repr(check("03.2", 1, "no table", 128))
    assert said.startswith("Not right yet: it can't be checked with what is given ('str' object has no")


def test_an_exercise_that_isnt_there_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r'"11\.1" is unknown: give one of 01'):
        check("11.1", 1)
