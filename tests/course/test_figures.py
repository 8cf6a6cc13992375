"""The course's figures also say in words what they show, and are as legible as the kit's."""

import re

import numpy as np
import pyarrow as pa
import pytest
from course import figures

from compaction_kit import plots
from tests.plots.conftest import _every_text_is_legible  # noqa: F401

LONGEST = "ConcurrentDeleteDeleteException"


def drawn(*own: tuple[int, int | None, str], exception: str | None = None) -> plots.Chart:
    """Draw a delete that commits version 5, and a compaction with these attempts."""
    rows = [("delete", 4, 5, "committed"), *(("compaction", *one) for one in own)]
    names = ("writer", "read_version", "version", "outcome")
    attempts = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
    return figures.concurrency(attempts, ("compaction", "delete"), "Who won", exception)


@pytest.mark.parametrize(
    ("own", "exception", "texts"),
    [
        ([(4, 5, "taken"), (4, 6, "committed")], None, {"no conflict", "version 6", "commits 6"}),
        ([(4, 5, "refused")], LONGEST, {LONGEST}),
        ([(4, 5, "refused"), (5, 6, "committed")], None, {"conflict", "reads 5", "version 6", "commits 6"}),
        ([(4, 5, "refused"), (5, None, "gave up")], LONGEST, {"conflict", "reads 5", LONGEST}),
        ([(4, 5, "unknown")], None, {"?"}),
    ],
    ids=["taken", "refused", "began again", "gave up", "before it is played"],
)
def test_each_ending_is_drawn(
    own: list[tuple[int, int | None, str]], exception: str | None, texts: set[str]
) -> None:
    figure = drawn(*own, exception=exception)
    shown = {text.get_text() for text in figure.axes[0].texts}
    assert texts | {"version 4", "version 5", "commits 5", "tries 5:\ntaken"} <= shown
    only_then = {"no conflict", "conflict", "reads 5", "version 6", "commits 6", "?"}
    assert only_then & shown == only_then & texts
    label = str(figure.get_label())
    assert label.startswith("Who won. delete read version 4, tried to commit version 5: committed. comp")
    assert label.count("compaction read version") == len(own)
    assert ("tried no commit" in label) == (own[-1][2] == "gave up")


def test_texts_on_boxes_keep_their_colours_in_a_dark_theme() -> None:
    svg = plots.to_svg(drawn((4, 5, "refused")))
    styles = {text: style for style, text in re.findall(r'<text style="([^"]*)"[^>]*>([^<]*)</text>', svg)}
    for text in ("version 4", "at work", "paused before its commit", "conflict check"):
        assert "var(" not in styles[text], text
    assert "var(" in styles["reads 4"]


def test_the_files_of_a_log_are_drawn_as_spans_of_batches_in_rows_that_stay() -> None:
    states = ["removed", "kept, not needed", *["a reader needs it"] * 2]
    names = ["0", "1", "2.compact", "3"]
    files = pa.table({"name": names, "first": [0, 1, 0, 3], "batch": range(4), "state": states})
    figure = figures.log_files(files, 12)
    axis = figure.axes[0]
    spans = [[path.get_extents().extents for path in boxes.get_paths()] for boxes in axis.collections]
    needed, kept, removed = (np.round(sorted(map(list, boxes)), 1).tolist() for boxes in spans)
    assert needed == [[-0.5, 1.1, 2.5, 1.9], [2.5, 0.1, 3.5, 0.9]]
    assert (kept, removed) == ([[0.5, 0.1, 1.5, 0.9]], [[-0.5, 0.1, 0.5, 0.9]])
    assert [label.get_text() for label in axis.get_yticklabels()] == ["batches' own files", "2.compact"]
    assert (axis.get_xlim(), axis.get_ylim()) == ((-0.5, 59.5), (6, 0))
    assert str(figure.get_label()) == "After batch 3: 3 of 4 files left, a reader needs 2"


def test_rows_of_a_manifest_are_drawn_by_where_they_are_from() -> None:
    counts = {"num_rows": [10, 20, 30, 5], "old_rows": [0, 20, 30, 0], "new_rows": [10, 0, 30, 0]}
    counts["num_gone"] = [0, 0, 0, 0]
    groups = pa.table({"name": ["batch 1", "batch 2", "batch 3", "appended"]} | counts)
    figure = figures.manifest_rows(groups, 1)
    axis = figure.axes[0]
    # Rows that are live, compacted, read twice and missed.
    heights = [[bar.get_height() for bar in container] for container in axis.containers]
    assert heights == [[10, 0, 30, 0], [0, 20, 0, 0], [0, 0, 30, 0], [0, 0, 0, 5]]
    assert np.array_equal(axis.lines[0].get_xdata(), [0.5, 0.5])
    assert "30 rows read twice, 5 rows missed" in str(figure.get_label())


def test_all_waits_are_drawn_on_one_scale() -> None:
    waits = [figures.waiting({"a": (1, seconds), "b": (1, 0.0)}) for seconds in (0.0, 1.0, 1e9)]
    assert len({figure.axes[0].get_xlim() for figure in waits}) == 1
    # A wait of 0 s has a bar of no width, so that its text isn't on a bar.
    ends = [[bar.get_x() + bar.get_width() for bar in figure.axes[0].containers[0]] for figure in waits[:2]]
    assert np.allclose(ends, [[0.001, 0.001], [1.0, 0.001]])
    assert "A: 1 file, 11,574 days until open" in str(waits[-1].get_label())
