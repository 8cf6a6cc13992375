"""The notebooks, and the parts that each lesson has."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))
LESSONS = [path for path in NOTEBOOKS if path.name[:2].isdigit() and path.parent.name == "notebooks"]


@cache
def cells_of(notebook: Path) -> Any:
    return nbformat.read(notebook, as_version=4).cells


def code_cells(cells: list[Any]) -> list[Any]:
    return [cell for cell in cells if cell.cell_type == "code"]


def split(cells: list[Any], heading: str, first: str) -> dict[str, list[Any]]:
    """Group cells by the headings that a pattern finds; cells before the first heading are named `first`."""
    found, part = dict[str, list[Any]](), first
    for cell in cells:
        match = re.search(heading, cell.source) if cell.cell_type == "markdown" else None
        part = match[1] if match else part
        found.setdefault(part, []).append(cell)
    return found


def parts(lesson: Path) -> dict[str, list[Any]]:
    """Return the cells of a lesson by part: "Lesson", and the parts that each lesson has after it."""
    return split(cells_of(lesson), r"^## (Exercises|Going further|Key points)\n", "Lesson")
