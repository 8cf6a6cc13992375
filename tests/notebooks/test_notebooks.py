"""What the notebooks look like in the repository; that they run is nbval's part."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").rglob("*.ipynb"))
NO_MORE_LINES_THAN = 20


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.name)
def notebook(request: pytest.FixtureRequest) -> Any:
    return nbformat.read(request.param, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_outputs_are_stripped(notebook: Any) -> None:
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(notebook))


def test_no_cell_names_a_path_of_somebody_s_machine(notebook: Any) -> None:
    absolute = re.compile(r"""["'(](/(?:home|root|Users|work|tmp|var|opt)/|[A-Z]:\\)""")
    assert not [cell.source for cell in notebook.cells if absolute.search(cell.source)]


def test_cells_are_short_and_never_three_in_a_row(notebook: Any) -> None:
    assert all(len(cell.source.splitlines()) <= NO_MORE_LINES_THAN for cell in code_cells(notebook))
    kinds = "".join("c" if cell.cell_type == "code" else "m" for cell in notebook.cells)
    assert "ccc" not in kinds


def test_it_starts_with_a_title(notebook: Any) -> None:
    assert notebook.cells[0].source.startswith("# ")


LESSONS = [path for path in NOTEBOOKS if path.name[:2].isdigit() and path.parent.name == "notebooks"]


def test_the_course_has_ten_lessons() -> None:
    assert [path.name[:2] for path in LESSONS] == [f"{number:02}" for number in range(1, 11)]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_ends_with_three_exercises_that_have_solutions(lesson: Path) -> None:
    cells = nbformat.read(lesson, as_version=4).cells
    begin = next(i for i, cell in enumerate(cells) if "## Exercises\n" in cell.source)
    numbered = [cell.source for cell in cells[begin:] if re.search(r"(?m)^\d\. ", cell.source)]
    places = [cell.source for cell in cells if cell.source.startswith("# Solution goes here\n")]
    checks = [cell.source for cell in cells if re.match(r"check\(", cell.source)]
    assert (len(numbered), len(places), len(checks)) == (3, 3, 3)
    assert all("<details><summary>Hint</summary>\n\n" in text for text in numbered)
    solution = lesson.parent / "solutions" / f"{lesson.stem}_solution.ipynb"
    solved = nbformat.read(solution, as_version=4).cells
    for number in (1, 2, 3):
        exercise = f"{lesson.name[:2]}.{number}"
        assert f"answer_{number} = None" in places[number - 1]
        assert checks[number - 1].startswith(f'check("{exercise}", answer_{number}')
        assert any(re.search(rf"(?m)^## Exercise {number}\b", cell.source) for cell in solved)
        # That it runs is nbval's part.
        shown = next(cell.source for cell in solved if f'check("{exercise}", ' in cell.source)
        assert re.fullmatch(r"checked = check\(.*\)\nassert checked\.is_right\nchecked", shown, re.DOTALL)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_asks_a_question_first_and_never_peeks_behind_the_public_names(lesson: Path) -> None:
    cells = nbformat.read(lesson, as_version=4).cells
    assert cells[0].source.splitlines()[0].endswith("?")
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert not re.search(r"compaction_kit[\w.]*\._\w|import _\w", code)


def test_the_index_of_the_course_names_sections_that_there_are() -> None:
    index = (NOTEBOOKS[0].parent / "README.md").read_text(encoding="utf-8")
    lessons = {path.name[:2]: path for path in LESSONS}
    assert dict(re.findall(r"(?m)^\[(\d\d)\]: (\S+)$", index)) == {
        no: path.name for no, path in lessons.items()
    }
    sections = {
        (number, heading)
        for number, path in lessons.items()
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
        for heading in re.findall(r"(?m)^##? (.+)$", cell.source)
    }
    rows = "\n".join(line for line in index.splitlines() if line.startswith("|"))
    named = set(re.findall(r"\[(\d\d)\] ([^;|]+?) *[;|]", rows))
    assert len(named) == len(set(re.findall(r"\[\d\d\][^;|]*", rows.replace(" |", "|"))))
    assert {number for number, _ in named} == lessons.keys()
    assert named - sections == set()
