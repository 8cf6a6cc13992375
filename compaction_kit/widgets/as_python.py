"""Write the Python that does what a part of the page does."""

import os
from collections.abc import Iterable

from compaction_kit.storage import is_folder
from compaction_kit.text import format_size, parse_size


def absolute(name: str) -> str:
    """Return a folder's absolute path, so that code runs in any folder; other names as they are."""
    path = os.path.abspath(name)
    return path if is_folder(path) else name


def exact_size(size_bytes: int) -> str | int:
    """Return a size as text if that says it exactly, else in bytes."""
    text = format_size(size_bytes)
    return text if parse_size(text) == size_bytes else size_bytes


def call(function: str, **options: object) -> str:
    """Return the Python code of a call with the options that are not None."""
    given = (f"{name}={value!r}" for name, value in options.items() if value is not None)
    return f"{function}({', '.join(given)})"


def python(*lines: str, imports: Iterable[str] = ()) -> str:
    """Return lines of Python after the imports of the kit and these."""
    kit = ["import compaction_kit as ck", *(line for line in imports if "compaction_kit" in line)]
    others = [line for line in imports if line not in kit]
    return "\n\n".join("\n".join(block) for block in (others, kit, lines) if block)
