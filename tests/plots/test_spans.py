"""Timelines say where the time went, and draw every span."""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from compaction_kit import plots
from compaction_kit.execute.work import TIMELINE
from compaction_kit.plots.spans import lanes

Row = tuple[str, str | None, int | None, float, float]


def spans_of(*rows: Row) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(TIMELINE)
    return pa.table(list(map(list, columns)), TIMELINE)


SMALL_RUN = spans_of(
    ("proof", "before", None, 0.0, 2.0),
    ("rewrite", None, 0, 2.0, 5.0),
    ("rewrite", None, 1, 2.0, 2.0),
    ("rewrite", None, 2, 4.0, 3.0),
    ("commit", None, None, 7.0, 1.0),
    ("proof", "after", None, 8.0, 2.0),
)


def many_bins(count: int) -> pa.Table:
    rows: list[Row] = [("rewrite", None, i, (i // 2) * 0.001, 0.001) for i in range(count)]
    return spans_of(*rows)


def num_bars(axis: Axes) -> int:
    return sum(len(bars.get_paths()) for bars in axis.collections if isinstance(bars, PolyCollection))


def test_the_title_says_where_the_time_went_and_every_span_is_drawn() -> None:
    figure = plots.timeline(SMALL_RUN)
    assert figure.get_suptitle() == "3 bins in 10 s: 50 % rewriting on 2 slots, 40 % proof"
    assert "committing: 1.0 s in 1 span, from 7.0 s to 8.0 s" in str(figure.get_label())
    (axis,) = figure.axes
    assert num_bars(axis) == 6
    assert {text.get_text() for text in axis.texts} == {"before", "after", "0", "1", "2"}
    assert [label.get_text() for label in axis.get_yticklabels()] == ["proof", "rewrite\n2 slots", "commit"]


def test_shares_count_overlapping_spans_once_and_gaps_not_at_all() -> None:
    first: Row = ("rewrite", None, 0, 0.0, 3.0)
    spans = spans_of(first, ("rewrite", None, 1, 1.0, 1.0), ("rewrite", None, 2, 6.0, 4.0))
    assert plots.timeline(spans).get_suptitle() == (
        "3 bins in 10 s: 70 % rewriting on 2 slots, 30 % before and between\nsteps"
    )
    spans = spans_of(first, ("join", None, 0, 3.0, 1.0))
    assert plots.timeline(spans).get_suptitle() == "1 bin in 4.0 s: 75 % rewriting on 1 slot, 25 % joining"
    spans = spans_of(("rewrite", None, 0, 0.0, 99.7), ("join", None, 0, 99.7, 0.3))
    assert plots.timeline(spans).get_suptitle() == "1 bin in 100 s: 99 % rewriting on 1 slot, 1 % joining"
    jobs = spans_of(*(("rewrite", name, None, 0.0, 1.0) for name in "ab"))
    assert plots.timeline(jobs).get_suptitle().startswith("2 jobs in 1.0 s")
    # Several tasks of a bin count as one bin, and so does a task without a bin.
    for rows in ((first, ("rewrite", None, 0, 1.0, 1.0)), (("rewrite", None, None, 0.0, 3.0),)):
        assert plots.timeline(spans_of(*rows)).get_suptitle().startswith("1 bin in ")


def test_no_spans_are_a_sentence_and_a_run_of_no_length_is_drawn() -> None:
    figure = plots.timeline(spans_of())
    assert any(text.get_text().startswith("No time was recorded") for text in figure.texts)
    assert str(figure.get_label()).startswith("No timeline")
    assert plots.timelines({"arrow": spans_of()}).get_label() == figure.get_label()
    figure = plots.timeline(spans_of(("commit", None, None, 0.0, 0.0)))
    assert figure.get_suptitle() == "0 s: 0 % committing"


def test_runs_are_drawn_on_the_same_seconds() -> None:
    figure = plots.timelines({"OPTIMIZE": SMALL_RUN, "arrow": many_bins(2_000), "rewrite": spans_of()})
    assert str(figure.get_label()).endswith("rewrite: no time was recorded")
    assert figure.get_suptitle() == "arrow took 1.0 s instead of 10 s: 10 times as fast as OPTIMIZE"
    upper, lower = figure.axes
    assert upper.get_xlim() == lower.get_xlim()
    assert upper.get_title(loc="left").startswith("OPTIMIZE: 3 bins in 10 s: ")
    # If there are thousands of bins, no bar has a number.
    assert [(num_bars(axis), len(axis.texts)) for axis in figure.axes] == [(6, 5), (2_000, 0)]


@pytest.mark.parametrize("names", ["ab", "a", "abc"], ids=["as long", "one", "three"])
def test_runs_that_can_t_be_ranked_are_told_one_by_one(names: str) -> None:
    title = ", ".join(f"{name} took 10 s" for name in names)
    assert plots.timelines(dict.fromkeys(names, SMALL_RUN)).get_suptitle() == title


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=40))
def test_lanes_never_overlap_and_are_as_few_as_can_be(times: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in times], float)
    ends = np.array([start + length for start, length in times], float)
    found = lanes(starts, ends)
    at_once = [int(((starts <= moment) & (moment < ends)).sum()) for moment in starts]
    assert len(set(found.tolist())) == max(at_once, default=0)
    for lane in set(found.tolist()):
        mine = np.argsort(starts[found == lane])
        assert (ends[found == lane][mine][:-1] <= starts[found == lane][mine][1:]).all()


def test_numbers_on_bars_keep_their_colours_in_a_dark_theme() -> None:
    drawn = plots.to_svg(plots.timeline(SMALL_RUN))
    styles = {text: style for style, text in re.findall(r'<text style="([^"]*)"[^>]*>([^<]*)</text>', drawn)}
    # The ticks of the axis are even numbers, so "1" is the number on a bar.
    assert "var(" in styles["10"]
    assert "var(" not in styles["1"]
