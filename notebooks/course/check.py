"""Check answers to a lesson's exercises, without showing the solution."""

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import isclose
from numbers import Real
from typing import Any

from pyspark.sql import Row

from compaction_kit.errors import CompactionKitError, InvalidArgumentError, show_value
from compaction_kit.plots import style
from compaction_kit.text import Html, element, format_list, shown
from course import cases  # noqa: F401, it adds the museum's exercises
from course.answers import EXERCISES, Unfinished

_PLACES = ("the first", "the second", "the third")
_OPEN, _WRONG, _RIGHT = "Not answered yet", "Not right yet", "Right"
# Relative tolerance of floats. A float above 1 may also be rounded to one decimal, as the kit shows it;
# whole numbers are exact.
_TOLERANCE = 0.03
_COLOURS = {_OPEN: style.TOMBSTONED, _WRONG: style.LOST, _RIGHT: style.NEW}


@dataclass(frozen=True)
class Checked:
    """The verdict on an answer, without the right answer; `marks` are those of a right answer, or 0."""

    verdict: str
    sentence: str = ""
    marks: int = 0

    @property
    def is_right(self) -> bool:
        """Whether the answer is right."""
        return self.verdict == _RIGHT

    @property
    def earned(self) -> int:
        """The marks of this answer."""
        return self.marks * self.is_right

    def _repr_html_(self) -> Html:
        look = f"border-left: 4px solid {_COLOURS[self.verdict]}; padding-left: 8px"
        text = repr(self).removeprefix(self.verdict)
        return shown(element("p", element("b", self.verdict), text, role="status", style=look))

    def __repr__(self) -> str:
        marks = f" {self.earned} of {self.marks} marks." if self.marks else ""
        return f"{self.verdict}{self.sentence}{marks}"


def check(exercise: str, answer: Any, *given: Any) -> Checked:
    """Say whether an answer is right, or why a typical wrong answer is wrong.

    Args:
        exercise: Lesson and exercise, such as "01.2".
        answer: The answer; None if there is none yet.
        given: The objects from which the right answer is computed, such as a table; None if missing.

    Raises:
        InvalidArgumentError: There is no such exercise.

    Examples:
        >>> from course.check import check
        >>> check("10.1", None)
        Not answered yet: give two numbers of files, rewritten and left alone, such as (8, 9).
    """
    if exercise not in EXERCISES:
        known = format_list(sorted(EXERCISES), most=len(EXERCISES))
        raise InvalidArgumentError(f"exercise={show_value(exercise)} is unknown: give one of {known}.")
    kind, _, marks = EXERCISES[exercise]
    if answer is None:
        return Checked(_OPEN, f": give {kind}.", marks)
    if any(one is None for one in given):
        return Checked(_OPEN, ": another name in this cell is None; its comment says what to assign.", marks)
    mistake = _mistake(exercise, answer, given)
    return Checked(_WRONG, f": {mistake}.", marks) if mistake else Checked(_RIGHT, ".", marks)


def _mistake(exercise: str, answer: Any, given: Sequence[Any]) -> str:
    """Return what is wrong with an answer, or missing in the given objects; empty if the answer is right."""
    kind, find, _ = EXERCISES[exercise]
    try:
        (truth, _), *mistakes = find(*given)
    except (Unfinished, CompactionKitError) as missing:
        return str(missing).removesuffix(".")
    except Exception as error:
        types = " and ".join(type(one).__name__ for one in given)
        given_here = f"the {types} that this cell gives" if types else "no argument"
        return f"it can't be checked with {given_here} ({error}): see the comments in this cell"
    found, right = _plain(answer), _plain(truth)
    if not _is_alike(found, right):
        return f"this is of type {type(answer).__name__}; give {kind}"
    if _is_same(found, right):
        return ""
    meaning = next((means for wrong, means in mistakes if _is_same(found, wrong)), "")
    form = ""
    if isinstance(right, (Real, str)):
        form = f"this {'text' if isinstance(right, str) else 'number'} is not right: "
    elif isinstance(right, list) and len(found) == len(right):
        form = "none of these is right: "
    return meaning or _difference(found, right) or f"{form}give {kind}"


def _difference(answer: Any, truth: Any) -> str:
    """Say how many values of a set are wrong or missing, or which values of a list are not right."""
    if isinstance(truth, list) and len(answer) == len(truth):
        if _is_same([*answer][::-1], truth):
            return "the values are in the wrong order"
        wrong = [place for place, *pair in zip(_PLACES, answer, truth, strict=False) if not _is_same(*pair)]
        return f"check {' and '.join(wrong)} of these" if len(wrong) < len(truth) else ""
    if not isinstance(truth, set) or not all(isinstance(value, Hashable) for value in answer):
        return ""
    found = set(answer)
    return f"{len(found - truth):,} of these don't belong there, and {len(truth - found):,} are missing"


def _plain(value: Any) -> Any:
    """Convert values of NumPy, pandas, Arrow and Spark to Python's, and classes and types to their names."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, list):
        # `collect` returns a row for each value.
        return [one[0] if isinstance(one, Row) and len(one) == 1 else one for one in value]
    names = ("tolist", "to_pylist", "as_py", "simpleString")
    return next((getattr(value, name)() for name in names if hasattr(value, name)), value)


def _is_alike(answer: Any, truth: Any) -> bool:
    """Whether both are numbers, both strings, or both collections (ordered if the right answer is)."""
    if isinstance(truth, (Real, str)):
        # In Python True is a number too.
        return isinstance(answer, Real if isinstance(truth, Real) else str) and not isinstance(answer, bool)
    kinds = (Sequence, Set, Mapping) if isinstance(truth, set) else Sequence
    return isinstance(answer, kinds) and not isinstance(answer, str)


def _is_same(answer: Any, truth: Any) -> bool:
    if not _is_alike(answer, truth):
        return False
    if isinstance(truth, str):
        return answer.strip().lower() in truth.lower().split("|")
    if isinstance(truth, float):
        return isclose(answer, truth, rel_tol=_TOLERANCE) or (truth > 1 and answer == round(truth, 1))
    if isinstance(truth, Real):
        return answer == truth
    if isinstance(truth, set):
        return all(isinstance(value, Hashable) for value in answer) and set(answer) == truth
    return len(answer) == len(truth) and all(map(_is_same, answer, truth))
