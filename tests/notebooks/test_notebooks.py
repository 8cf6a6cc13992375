"""Check the form of the notebooks in the repository; nbval runs them."""

import ast
import builtins
import re
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.lessons import LESSONS, NOTEBOOKS, ROOT, cells_of, code_cells, parts, split

each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def in_sight(cells: list[Any]) -> list[Any]:
    """Return the cells of code that aren't folded."""
    return [cell for cell in code_cells(cells) if "source_hidden" not in cell.metadata.get("jupyter", {})]


def code_of(cells: list[Any]) -> str:
    return "\n".join(cell.source for cell in code_cells(cells))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stripped_and_has_a_title_short_cells_and_imports_that_are_there(path: Path) -> None:
    cells = cells_of(path)
    code = code_cells(cells)
    assert cells[0].source.startswith("# ")
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    absolute = re.compile(r"""["'(](/(?:home|root|Users|work|tmp|var|opt)/|[A-Z]:\\)""")
    assert not [cell.source for cell in cells if absolute.search(cell.source)]
    assert all(len(cell.source.splitlines()) <= 20 for cell in code)
    assert "ccc" not in "".join("c" if cell.cell_type == "code" else "m" for cell in cells)
    sources = (cell.source for cell in code if not cell.source.startswith(("%", "!")))
    for node in chain.from_iterable(ast.walk(ast.parse(source)) for source in sources):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("compaction_kit", "course")):
            exec(ast.unparse(node), {})


@each_lesson
def test_a_lesson_ends_with_three_exercises_that_have_solutions(lesson: Path) -> None:
    sources = [cell.source for cell in parts(lesson)["Exercises"]]
    numbered = [source for source in sources if re.search(r"(?m)^\d\. ", source)]
    places = [source for source in sources if source.startswith("# Solution goes here\n")]
    assert (len(numbered), len(places)) == (3, 3)
    assert all("<details><summary>Hint</summary>\n\n" in text for text in numbered)
    solved = [cell.source for cell in cells_of(lesson.parent / f"solutions/{lesson.stem}_solution.ipynb")]
    for number, place in enumerate(places, 1):
        exercise = f"{lesson.name[:2]}.{number}"
        assert f"answer_{number} = None" in place
        assert place.splitlines()[-1].startswith(f'check("{exercise}", answer_{number}')
        assert any(re.search(rf"(?m)^## Exercise {number}\b", source) for source in solved)
        # nbval runs this cell.
        shown = next(source for source in solved if f'check("{exercise}", ' in source)
        assert re.fullmatch(r"checked = check\(.*\)\nassert checked\.is_right\nchecked", shown, re.DOTALL)


def test_the_index_of_the_course_names_sections_that_there_are() -> None:
    index = page("notebooks/README.md")
    lessons = {path.name[:2]: path for path in LESSONS}
    assert len(lessons) == 10
    links = dict(re.findall(r"(?m)^\[(\d\d)\]: (\S+)$", index))
    assert links == {number: path.name for number, path in lessons.items()}
    sections = {
        (number, heading)
        for number, path in lessons.items()
        for cell in cells_of(path)
        if cell.cell_type == "markdown"
        for heading in re.findall(r"(?m)^##? (.+)$", cell.source)
    }
    rows = "\n".join(line for line in index.splitlines() if line.startswith("|"))
    named = set(re.findall(r"\[(\d\d)\] ([^;|]+?) *[;|]", rows))
    assert len(named) == len(set(re.findall(r"\[\d\d\][^;|]*", rows.replace(" |", "|"))))
    assert {number for number, _ in named} == lessons.keys()
    assert named - sections == set()


def names_in(code: str) -> tuple[set[str], set[str]]:
    """Return the names that code imports or assigns, and the names that it uses without defining them."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    bound |= {alias.asname or alias.name for alias in nodes if isinstance(alias, ast.alias)}
    defined = {str(node.name) for node in nodes if isinstance(node, (ast.FunctionDef, ast.ExceptHandler))}
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)} | bound | set(dir(builtins))
    return bound, {node.id for node in names} - defined


def test_a_lesson_imports_what_its_exercises_name() -> None:
    bound = [names_in(code_of(cells_of(lesson)))[0] for lesson in LESSONS]
    known = set().union(*bound)
    for path, names in zip(LESSONS, bound, strict=True):
        text = "\n".join(cell.source for cell in parts(path)["Exercises"])
        named = set(re.findall(r"(?<![\w.])(\w+)\.\w+", text)) & known
        told = {name.strip() for line in re.findall(r"import ([\w, ]+)", text) for name in line.split(",")}
        told |= set(re.findall(r"(\w+) = ", text))
        assert named - names - told == set(), path.name


@each_lesson
def test_what_is_predicted_is_computed_right_after_it(lesson: Path) -> None:
    code = code_cells(cells_of(lesson))
    asked = [i for i, cell in enumerate(code) if "predict(" in cell.source and "import" not in cell.source]
    assert len(asked) >= 2
    for i in asked:
        assert code[i].metadata["jupyter"]["source_hidden"]
        if name := re.match(r"(\w+) = predict\(", code[i].source):
            assert any(f"{name[1]}.answer" in cell.source for cell in code[i + 1 : i + 3]), name[1]


@each_lesson
def test_an_assert_with_the_answer_right_under_a_question_is_folded(lesson: Path) -> None:
    for before, cell in pairwise(cells_of(lesson)):
        if before.cell_type == "markdown" and before.source.endswith("?") and in_sight([cell]):
            nodes = ast.parse(cell.source).body
            found = [ast.unparse(node) for node in nodes if isinstance(node, ast.Assert)]
            # An assert that compares with the answer of a prediction doesn't show the answer.
            assert [one for one in found if ".answer" not in one] == []


def path_of(lesson: Path) -> list[Any]:
    """The cells that everybody works through: the lesson and its exercises, without "Going further"."""
    return parts(lesson)["Lesson"] + parts(lesson)["Exercises"]


def minutes_of(cells: list[Any]) -> float:
    """Estimate minutes: 120 words of unfolded text a minute, half a minute a code cell, one a prediction."""
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    words = len(re.findall(r"\w[\w'’.]*", re.sub(r"(?s)<details>.*?</details>", "", text)))
    predicted = sum("predict(" in cell.source for cell in code_cells(cells))
    return words / 120 + len(in_sight(cells)) / 2 + predicted


def minutes(lesson: Path) -> int:
    """How long a lesson takes with its exercises, estimated in steps of five minutes.

    The sum of the time for its cells, two minutes for the lab, and five for each of three exercises.
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
def test_half_of_a_lesson_s_code_is_spark_or_delta(lesson: Path) -> None:
    """Count SQL, PySpark, Delta and the JSON of the log in cells that are neither set-up nor folded."""
    shown = in_sight(code_cells(parts(lesson)["Lesson"])[2:])
    assert sum(bool(DELTA_OR_SPARK.search(cell.source)) for cell in shown) >= len(shown) / 2


@each_lesson
def test_a_lesson_has_its_standard_sections(lesson: Path) -> None:
    found = parts(lesson)
    title, _, objectives = found["Lesson"][0].source.partition("\nAfter this lesson you can\n\n")
    assert title.splitlines()[0].endswith("?")
    assert len(re.findall(r"(?m)^- ", objectives)) == 3
    texts = (cell.source for cell in found["Key points"] if cell.cell_type == "markdown")
    points, recall, errors, links = texts
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
    cells = cells_of(lesson)
    assert not re.search(r"compaction_kit[\w.]*\._\w|import _\w", code_of(cells))
    labs = [i for i, cell in enumerate(cells) if re.match(r"labs\.|lab = labs\.", cell.source)]
    assert labs
    assert all("<details><summary>What the lab shows</summary>\n\n" in cells[i + 1].source for i in labs)


def test_the_minutes_of_a_lesson_are_the_same_on_all_pages_and_by_one_rule() -> None:
    readme, lecturers, index = map(page, ("README.md", "docs/book/lecturers.md", "docs/book/index.md"))
    expected = {lesson.name[:2]: str(minutes(lesson)) for lesson in LESSONS}
    assert dict(re.findall(r"(?m)^\| \[(\d\d) .*\| (\d+) \|$", readme)) == expected
    assert dict(re.findall(r"(?m)^\| (\d\d) \|[^|]*\| (\d+) \|", lecturers)) == expected
    bounds = f"{min(expected.values())} to {max(expected.values())} minutes"
    for text in (readme, lecturers, index):
        assert bounds in text
        assert "estimate" in text


def test_the_lessons_of_a_sitting_take_two_hours_at_most() -> None:
    rows = re.findall(r"(?m)^\| \d \| (\d\d(?:, \d\d)*) \|", page("docs/book/lecturers.md"))
    sittings = [[LESSONS[int(number) - 1] for number in row.split(", ")] for row in rows]
    assert sorted(chain.from_iterable(sittings)) == LESSONS
    assert all(sum(map(minutes, sitting)) <= 120 for sitting in sittings)


def test_the_short_class_fits_90_minutes_and_needs_no_section_that_it_leaves_out() -> None:
    row = r"(?m)^\| (\d+) to (\d+) \| (\d\d) \| ([^|]+) \| ([^|]+) \|$"
    rows = re.findall(row, page("docs/book/lecturers.md"))
    assert [row[2] for row in rows] == ["01", "03", "04", "06"]
    assert [row[0] for row in rows] == ["0", *(row[1] for row in rows[:-1])]
    assert rows[-1][1] == "90"
    for begin, end, number, played, left_out in rows:
        lesson = parts(LESSONS[int(number) - 1])
        # The cells before the first section have no name.
        sections = split(lesson["Lesson"], r"(?m)^## (.+)$", "")
        kept = played.split("; ")
        assert {*kept, *left_out.split("; ")} == sections.keys() - {""}, number
        cells = [cell for name in ("", *kept) for cell in sections[name]]
        exercise = code_cells(lesson["Exercises"])[0]
        assert names_in(code_of([*cells, exercise]))[1] == set(), number
        # Two minutes for the lab, if it is played, and five for one exercise.
        time = minutes_of(cells) + 2 * any(cell.source.startswith("labs.") for cell in cells) + 5
        assert time <= int(end) - int(begin), number
