"""Lines that lessons print: what of them is compared, and that a changed number is found."""

import json
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.outputs import FOLDER, compare_or_accept, difference, in_order, lines_with_a_number
from tests.notebooks.test_notebooks import LESSONS

PRINTED = ["42 files, 7 bins", "0 airport 14", "1 centre 14"]


def test_a_changed_number_a_lost_line_and_another_order_are_differences() -> None:
    assert difference(PRINTED, PRINTED) == ""
    assert difference(PRINTED, ["1 job", *PRINTED]) == ""
    changed = difference(PRINTED, ["42 files, 8 bins", *PRINTED[1:]])
    assert changed.split() == ["expected", "42", "files,", "7", "bins", "got", "42", "files,", "8", "bins"]
    assert PRINTED[2] in difference(PRINTED, PRINTED[:2])
    assert difference(PRINTED, PRINTED[::-1])
    assert "no line with a number" in difference(PRINTED, [])


def test_what_is_of_one_run_is_left_out() -> None:
    stream = {
        "name": "stdout",
        "text": "version  6, 2.1 MiB in 1.8 s\nno number\nat 12:30:01\nin 3 h 4 min\n/tmp/x",
    }
    text = "   files  bytes\n0     14  440705  0.123456"
    table = {"data": {"text/plain": text, "text/html": "<table>15</table>"}}
    figure = {"data": {"text/plain": "<Figure size 640x480>", "image/png": "1"}}
    warning = {"name": "stderr", "text": "WARN 7"}
    assert lines_with_a_number([stream, table, figure, warning]) == ["version 6, … in …", "0 14 … …"]


def test_what_is_accepted_is_what_is_printed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.notebooks.outputs.FOLDER", tmp_path)
    runs = [[{"name": "stdout", "text": f"42 files\n{number} tasks\n7 bins"}] for number in (1, 2, 3)]
    lesson = Path("01_lesson.ipynb")
    assert compare_or_accept(lesson, "cell", runs[0], "printed") == ""
    assert "1 tasks" in compare_or_accept(lesson, "cell", runs[1], None)
    assert compare_or_accept(lesson, "cell", runs[1], "stable") == ""
    assert compare_or_accept(lesson, "cell", runs[2], None) == ""
    assert in_order(PRINTED, PRINTED[1:]) == PRINTED[1:]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_each_lesson_has_lines_to_compare_and_none_of_cells_that_are_gone(lesson: Path) -> None:
    kept = json.loads((FOLDER / f"{lesson.stem}.json").read_text("utf-8"))
    cells = nbformat.read(lesson, as_version=4).cells
    assert kept
    assert kept.keys() <= {cell["id"] for cell in cells if cell.cell_type == "code"}
