"""Print which part of the kit works where, from the tests that show it: python docs/works.py [--write].

With --write the table goes to the book.

A test says what it shows by `@pytest.mark.works(place, *parts)`, or that it is refused there in a sentence by
`@pytest.mark.refused(place, *parts)`; `when` names the only one of its parameters that does.
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
# Pytest doesn't collect it by itself: it is run in a process of its own.
_CONNECT = "tests/over_connect.py"


class _Collected:
    """What pytest finds, without running it."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)


def claims() -> dict[tuple[str, str], str]:
    """What tests show of each part and place, "yes" or "no"."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if ".works(" in path.read_text("utf-8")]
    found = _Collected()
    options = ["--collect-only", "--nightly", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    # What reads notebooks takes three seconds to import.
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
    """The table in Markdown; what no test shows is left empty."""
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
