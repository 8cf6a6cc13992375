"""Print which part of the kit works where, from the tests that show it: python docs/works.py [--write].

With --write the table goes to the book.

The mark `@pytest.mark.works(place, *parts)` says that a test shows that these parts work in a place, and
`@pytest.mark.refused(place, *parts)` that they raise an error there. `when` limits a mark to one parameter.
"""

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "book" / "elsewhere.md"
BEGIN, END = "<!-- works where: docs/works.py -->\n", "<!-- end -->"
PARTS = {
    "read": "log, files, plans, versions",
    "survey": "survey",
    "workbench": "workbench",
    "arrow": '`strategy="arrow"`',
    "optimize": '`strategy="optimize"`',
    "rewrite": '`strategy="rewrite"`',
    "proof": "proof",
    "restore": "restore",
    "vacuum": "vacuum",
    "manifests": "manifests",
    "convert": "conversion",
    "sink": "logs of file sinks",
}
PLACES = ("local disk", "S3", "Google's store", "HDFS", "cluster", "Spark Connect")
SAID = {"works": "yes", "refused": "no"}
# Name this file, because pytest doesn't collect it by itself: its tests run in a process of their own.
_CONNECT = "tests/over_connect.py"


class _Collected:
    """A plugin that keeps the tests that pytest collects."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)


def claims() -> dict[tuple[str, str], str]:
    """Return "yes" or "no" for each part and place that tests cover."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if ".works(" in path.read_text("utf-8")]
    found = _Collected()
    options = ["--collect-only", "--nightly", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    # Leave out nbval, which takes three seconds to import.
    options += ["-p", "no:nbval", "--override-ini=addopts=--strict-markers"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = pytest.main([*options, *map(str, files), str(ROOT / _CONNECT)], [found])
    assert code == 0, printed.getvalue()
    return {(part, place): said for item in found.items for part, place, said in _of(item)}


def _of(item: pytest.Item) -> Iterator[tuple[str, str, str]]:
    for kind, said in SAID.items():
        for mark in item.iter_markers(kind):
            place, *parts = mark.args
            if mark.kwargs.get("when", "") in item.name:
                assert place in PLACES, place
                assert PARTS.keys() >= set(parts), parts
                yield from ((part, place, said) for part in parts)


def table() -> str:
    """Return the table in Markdown; cells that no test covers are empty."""
    found = claims()
    rows = [[name, *(found.get((part, place), "") for place in PLACES)] for part, name in PARTS.items()]
    lines = [["", *PLACES], ["---"] * (len(PLACES) + 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    made = table()
    print(made, end="")
    if sys.argv[1:] == ["--write"]:
        head, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(head + BEGIN + made + END + rest.partition(END)[2], "utf-8")
