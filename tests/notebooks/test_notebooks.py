"""What the notebooks look like in the repository; that they run is nbval's part."""

import ast
import builtins
import re
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks.lessons import parts

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").rglob("*.ipynb"))
NO_MORE_LINES_THAN = 20


def code_cells(cells: list[Any]) -> list[Any]:
    return [cell for cell in cells if cell.cell_type == "code"]


def code_of(cells: list[Any]) -> str:
    return "\n".join(cell.source for cell in code_cells(cells))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stripped_and_has_a_title_short_cells_and_imports_that_are_there(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    code = code_cells(cells)
    assert cells[0].source.startswith("# ")
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    absolute = re.compile(r"""["'(](/(?:home|root|Users|work|tmp|var|opt)/|[A-Z]:\\)""")
    assert not [cell.source for cell in cells if absolute.search(cell.source)]
    assert all(len(cell.source.splitlines()) <= NO_MORE_LINES_THAN for cell in code)
    assert "ccc" not in "".join("c" if cell.cell_type == "code" else "m" for cell in cells)
    sources = (cell.source for cell in code if not cell.source.startswith(("%", "!")))
    for node in chain.from_iterable(ast.walk(ast.parse(source)) for source in sources):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("compaction_kit", "course")):
            for name in node.names:
                exec(f"from {node.module} import {name.name}", {})


def in_sight(code: list[Any]) -> list[Any]:
    """Cells of code that aren't folded."""
    return [cell for cell in code if "source_hidden" not in cell.metadata.get("jupyter", {})]


LESSONS = [path for path in NOTEBOOKS if path.name[:2].isdigit() and path.parent.name == "notebooks"]


each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


@each_lesson
def test_a_lesson_ends_with_three_exercises_that_have_solutions(lesson: Path) -> None:
    cells = parts(lesson)["Exercises"]
    numbered = [cell.source for cell in cells if re.search(r"(?m)^\d\. ", cell.source)]
    places = [cell.source for cell in cells if cell.source.startswith("# Solution goes here\n")]
    assert (len(numbered), len(places)) == (3, 3)
    assert all("<details><summary>Hint</summary>\n\n" in text for text in numbered)
    solution = lesson.parent / "solutions" / f"{lesson.stem}_solution.ipynb"
    solved = nbformat.read(solution, as_version=4).cells
    for number in (1, 2, 3):
        exercise = f"{lesson.name[:2]}.{number}"
        assert f"answer_{number} = None" in places[number - 1]
        assert places[number - 1].splitlines()[-1].startswith(f'check("{exercise}", answer_{number}')
        assert any(re.search(rf"(?m)^## Exercise {number}\b", cell.source) for cell in solved)
        # That it runs is nbval's part.
        shown = next(cell.source for cell in solved if f'check("{exercise}", ' in cell.source)
        assert re.fullmatch(r"checked = check\(.*\)\nassert checked\.is_right\nchecked", shown, re.DOTALL)


def test_the_index_of_the_course_names_sections_that_there_are() -> None:
    index = (NOTEBOOKS[0].parent / "README.md").read_text(encoding="utf-8")
    lessons = {path.name[:2]: path for path in LESSONS}
    assert len(lessons) == 10
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


def names_bound(code: str) -> set[str]:
    """Names that the code of a notebook imports or assigns."""
    nodes = list(ast.walk(ast.parse(code)))
    imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    bound = {alias.asname or alias.name for node in imports for alias in node.names}
    return bound | {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def test_a_lesson_imports_what_its_exercises_name() -> None:
    lessons = [nbformat.read(lesson, as_version=4).cells for lesson in LESSONS]
    bound = [names_bound(code_of(cells)) for cells in lessons]
    known = set().union(*bound)
    for path, names in zip(LESSONS, bound, strict=True):
        text = "\n".join(cell.source for cell in parts(path)["Exercises"])
        named = set(re.findall(r"(?<![\w.])(\w+)\.\w+", text)) & known
        told = {name.strip() for line in re.findall(r"import ([\w, ]+)", text) for name in line.split(",")}
        told |= set(re.findall(r"(\w+) = ", text))
        assert named - names - told == set(), path.name


@each_lesson
def test_what_is_predicted_is_computed_right_after_it(lesson: Path) -> None:
    code = code_cells(nbformat.read(lesson, as_version=4).cells)
    asked = [i for i, cell in enumerate(code) if "predict(" in cell.source and "import" not in cell.source]
    assert len(asked) >= 2
    for i in asked:
        assert code[i].metadata["jupyter"]["source_hidden"]
        if name := re.match(r"(\w+) = predict\(", code[i].source):
            assert any(f"{name[1]}.answer" in cell.source for cell in code[i + 1 : i + 3]), name[1]


@each_lesson
def test_an_assert_with_the_answer_right_under_a_question_is_folded(lesson: Path) -> None:
    for before, cell in pairwise(nbformat.read(lesson, as_version=4).cells):
        if before.cell_type == "markdown" and before.source.endswith("?") and in_sight(code_cells([cell])):
            found = [
                ast.unparse(node) for node in ast.parse(cell.source).body if isinstance(node, ast.Assert)
            ]
            # That an answer is a prediction's says nothing yet.
            assert [one for one in found if ".answer" not in one] == []


def path_of(lesson: Path) -> list[Any]:
    """The cells that everybody works through: the lesson and its exercises, without "Going further"."""
    found = parts(lesson)
    return found["Lesson"] + found["Exercises"]


def minutes_of(cells: list[Any]) -> float:
    """120 words of text a minute, without folded text; half a minute for a cell of code, one to predict."""
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    words = len(re.findall(r"\w[\w'’.]*", re.sub(r"(?s)<details>.*?</details>", "", text)))
    code = code_cells(cells)
    return words / 120 + len(in_sight(code)) / 2 + sum("predict(" in cell.source for cell in code)


def minutes(lesson: Path) -> int:
    """How long a lesson takes with its exercises, estimated in steps of five minutes.

    Its cells, two minutes more for the lab, and five for each of three exercises.
    """
    return 5 * round((minutes_of(path_of(lesson)) + 2 + 3 * 5) / 5)


@each_lesson
def test_a_lesson_takes_40_minutes_and_35_cells_at_most(lesson: Path) -> None:
    assert minutes(lesson) <= 40
    assert len(path_of(lesson)) <= 35


DELTA_OR_SPARK = re.compile(
    r"spark\.(sql|read|readStream|table|catalog|createDataFrame|range)\b|DeltaTable|\.write\b|\.writeStream\b"
    r"|write_deltalake|json\.loads|pq\.(read|Parquet)"
)


@each_lesson
def test_half_of_a_lesson_s_code_is_what_one_meets_without_the_kit(lesson: Path) -> None:
    """Count SQL, PySpark, Delta and the JSON of the log in cells that are neither set-up nor folded."""
    code = code_cells(parts(lesson)["Lesson"])[2:]
    shown = in_sight(code)
    assert sum(bool(DELTA_OR_SPARK.search(cell.source)) for cell in shown) >= len(shown) / 2


@each_lesson
def test_a_lesson_has_a_frame(lesson: Path) -> None:
    found = parts(lesson)
    title, _, objectives = found["Lesson"][0].source.partition("\nAfter this lesson you can\n\n")
    assert title.splitlines()[0].endswith("?")
    assert len(re.findall(r"(?m)^- ", objectives)) == 3
    points, recall, errors, links = (
        cell.source for cell in found["Key points"] if cell.cell_type == "markdown"
    )
    assert len(re.findall(r"(?m)^- ", points)) == 5
    assert recall.startswith("## Recall\n")
    assert re.findall(r"(?m)^(\d)\. ", recall) == ["1", "2", "3", "4", "5"]
    assert recall.count("<details><summary>Answer</summary>\n\n") == 5
    assert errors.startswith("## Common errors\n\n| ")
    assert len(re.findall(r"(?m)^\| ", errors)) >= 5  # head, rule, three errors
    assert links.startswith("## Where next\n")
    assert f"](solutions/{lesson.stem}_solution.ipynb)" in links
    assert "](https://docs.delta.io/" in links or "](https://spark.apache.org/docs/" in links
    assert lesson == LESSONS[-1] or f"]({LESSONS[LESSONS.index(lesson) + 1].name})" in links
    cells = [cell for part in found.values() for cell in part]
    assert not re.search(r"compaction_kit[\w.]*\._\w|import _\w", code_of(cells))
    labs = [i for i, cell in enumerate(cells) if re.match(r"labs\.|lab = labs\.", cell.source)]
    assert labs
    assert all("<details><summary>What the lab shows</summary>\n\n" in cells[i + 1].source for i in labs)


def test_the_minutes_of_a_lesson_are_the_same_on_all_pages_and_by_one_rule() -> None:
    root = NOTEBOOKS[0].parents[1]
    readme, lecturers, index = (
        (root / name).read_text(encoding="utf-8")
        for name in ("README.md", "docs/book/lecturers.md", "docs/book/index.md")
    )
    expected = {lesson.name[:2]: str(minutes(lesson)) for lesson in LESSONS}
    assert dict(re.findall(r"(?m)^\| \[(\d\d) .*\| (\d+) \|$", readme)) == expected
    assert dict(re.findall(r"(?m)^\| (\d\d) \|[^|]*\| (\d+) \|", lecturers)) == expected
    bounds = f"{min(expected.values())} to {max(expected.values())} minutes"
    for page in (readme, lecturers, index):
        assert bounds in page
        assert "estimate" in page


def lecturers_page() -> str:
    return (NOTEBOOKS[0].parents[1] / "docs/book/lecturers.md").read_text(encoding="utf-8")


def test_the_lessons_of_a_sitting_take_two_hours_at_most() -> None:
    rows = re.findall(r"(?m)^\| \d \| (\d\d(?:, \d\d)*) \|", lecturers_page())
    sittings = [[LESSONS[int(number) - 1] for number in row.split(", ")] for row in rows]
    assert sorted(chain.from_iterable(sittings)) == LESSONS
    assert all(sum(map(minutes, sitting)) <= 120 for sitting in sittings)


def sections(lesson: Path) -> dict[str, list[Any]]:
    """The cells of a lesson by section; those before the first one have no name."""
    found, section = dict[str, list[Any]](), ""
    for cell in parts(lesson)["Lesson"]:
        heading = re.search(r"(?m)^## (.+)$", cell.source) if cell.cell_type == "markdown" else None
        section = heading[1] if heading else section
        found.setdefault(section, []).append(cell)
    return found


def names_missing(code: str) -> set[str]:
    """Names that code uses and nothing in it defines."""
    nodes = list(ast.walk(ast.parse(code)))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    defined = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ExceptHandler))}
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)} | names_bound(code)
    return used - {str(name) for name in defined} - set(dir(builtins))


def test_the_short_class_fits_90_minutes_and_needs_no_section_that_it_leaves_out() -> None:
    rows = re.findall(r"(?m)^\| (\d+) to (\d+) \| (\d\d) \| ([^|]+) \| ([^|]+) \|$", lecturers_page())
    assert [row[2] for row in rows] == ["01", "03", "04", "06"]
    assert [row[0] for row in rows] == ["0", *(row[1] for row in rows[:-1])]
    assert rows[-1][1] == "90"
    for begin, end, number, played, left_out in rows:
        found = sections(LESSONS[int(number) - 1])
        kept = played.split("; ")
        assert {*kept, *left_out.split("; ")} == found.keys() - {""}, number
        cells = [cell for name in ("", *kept) for cell in found[name]]
        first = code_cells(parts(LESSONS[int(number) - 1])["Exercises"])[0]
        assert names_missing(code_of([*cells, first])) == set(), number
        # Two minutes for the lab, if it is played, and five for one exercise.
        time = minutes_of(cells) + 2 * any(cell.source.startswith("labs.") for cell in cells) + 5
        assert time <= int(end) - int(begin), number
