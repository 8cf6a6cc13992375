"""The parts that each lesson has."""

import re
from pathlib import Path
from typing import Any

import nbformat


def parts(lesson: Path) -> dict[str, list[Any]]:
    """The cells of a lesson: what is taught ("Lesson"), and the parts that each lesson has after it."""
    found, part = dict[str, list[Any]](), "Lesson"
    for cell in nbformat.read(lesson, as_version=4).cells:
        heading = re.match(r"## (Exercises|Going further|Key points)\n", cell.source)
        part = heading[1] if heading else part
        found.setdefault(part, []).append(cell)
    return found
