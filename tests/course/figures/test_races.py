"""The lanes say what was tried, in words too."""

import re

import pyarrow as pa
import pytest
from course import figures

from compaction_kit import plots

NAMES = ("compaction", "delete")


def tries(*rows: tuple[str, int, int | None, str]) -> pa.Table:
    names = ("writer", "read_version", "version", "outcome")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


OTHER = ("delete", 4, 5, "committed")


@pytest.mark.parametrize(
    ("own", "exception", "texts"),
    [
        (
            [("compaction", 4, 5, "taken"), ("compaction", 4, 6, "committed")],
            None,
            {"no conflict", "commits 6"},
        ),
        ([("compaction", 4, 5, "refused")], "SomeException", {"SomeException"}),
        (
            [("compaction", 4, 5, "refused"), ("compaction", 5, 6, "committed")],
            None,
            {"conflict", "reads 5", "looks again: its\nfiles are there", "commits 6"},
        ),
        (
            [("compaction", 4, 5, "refused"), ("compaction", 5, None, "gave up")],
            "SomeException",
            {"conflict", "looks again: its\nfiles are gone", "SomeException"},
        ),
    ],
    ids=["taken", "refused", "began anew", "gave up"],
)
def test_each_ending_is_drawn(
    own: list[tuple[str, int, int | None, str]], exception: str | None, texts: set[str]
) -> None:
    figure = figures.concurrency(tries(OTHER, *own), NAMES, "Who won", exception)
    drawn = {text.get_text() for text in figure.axes[0].texts}
    assert texts | {"version 4", "version 5", "commits 5", "tries 5:\ntaken"} <= drawn
    assert ("version 6" in drawn) == (own[-1][3] == "committed")
    assert (exception in drawn) == (exception is not None)
    label = str(figure.get_label())
    assert label.startswith(
        "Who won. delete read version 4, tried to commit version 5: committed. compaction"
    )
    assert label.count("compaction read version") == len(own)
    assert ("tried no commit" in label) == (own[-1][3] == "gave up")
    assert plots.to_png(figure, dpi=50).startswith(b"\x89PNG")


def test_before_it_is_played_the_end_is_open() -> None:
    figure = figures.concurrency(tries(OTHER, ("compaction", 4, 5, "unknown")), NAMES, "Who wins?")
    drawn = {text.get_text() for text in figure.axes[0].texts}
    assert {"?", "version 4", "version 5", "commits 5", "tries 5:\ntaken"} <= drawn
    assert not {"version 6", "no conflict"} & drawn
    assert str(figure.get_label()).endswith("compaction read version 4, tried to commit version 5: unknown")


def test_texts_on_boxes_keep_their_colours_in_a_dark_theme() -> None:
    refused = tries(OTHER, ("compaction", 4, 5, "refused"))
    drawn = plots.to_svg(figures.concurrency(refused, NAMES, "Who wins?"))
    styles = {text: style for style, text in re.findall(r'<text style="([^"]*)"[^>]*>([^<]*)</text>', drawn)}
    for text in ("version 4", "at work", "held before its commit", "conflict check"):
        assert "var(" not in styles[text], text
    assert "var(" in styles["reads 4"]
