"""Lines that lessons print: which lines are compared, and that a changed number is found."""

import json
from pathlib import Path

import pytest

from tests.notebooks.lessons import LESSONS, cells_of, code_cells
from tests.notebooks.outputs import FOLDER, difference

PRINTED = ["42 files, 7 bins", "0 airport 14", "1 centre 14"]


def test_a_changed_number_a_lost_line_and_another_order_are_differences() -> None:
    assert difference(PRINTED, PRINTED) == ""
    assert difference(PRINTED, ["1 job", *PRINTED]) == ""
    changed = difference(PRINTED, ["42 files, 8 bins", *PRINTED[1:]])
    assert changed.split() == ["expected", "42", "files,", "7", "bins", "got", "42", "files,", "8", "bins"]
    assert PRINTED[2] in difference(PRINTED, PRINTED[:2])
    assert difference(PRINTED, PRINTED[::-1])
    assert "no line with a number" in difference(PRINTED, [])


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_each_lesson_has_lines_to_compare_and_none_of_cells_that_are_gone(lesson: Path) -> None:
    kept = json.loads((FOLDER / f"{lesson.stem}.json").read_text("utf-8"))
    assert kept
    assert kept.keys() <= {cell["id"] for cell in code_cells(cells_of(lesson))}
