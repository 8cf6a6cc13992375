"""Figures of runs: where the time went, step by step and bin by bin."""

import heapq
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.ticker import MaxNLocator

from compaction_kit.plots.style import INK, LIVE, NEW, SMALL, TOMBSTONED, Chart, F, calm, short, titled
from compaction_kit.text import format_count, format_factor, format_seconds

_REWRITE = "rewrite"
_NO_SPANS = "No time was recorded, so there is nothing to draw"
# What a step is called in a sentence, and how it is drawn; other steps are drawn as the last.
_WORDS = {_REWRITE: "rewriting", "plan": "planning", "commit": "committing", "proof": "proof"}
_LOOKS = {_REWRITE: (LIVE, ""), "commit": (NEW, ""), "proof": (SMALL, "///"), "plan": (TOMBSTONED, "")}
_OTHER_LOOK = ("#56B4E9", "..")
_WIDTH = 9.6
# How high, in inches, a step's row is, and a lane; lanes get thinner where there are many.
_STEP_HEIGHT, _LANE_HEIGHT, _MOST_LANES_HEIGHT = 0.28, 0.23, 3.6
_BAR = 0.78
# The width of the axes and of a digit, in points: what a label needs room for.
_AXES_POINTS, _DIGIT_POINTS = 560.0, 4.6
_LABEL_POINTS = 9
_SHARES_IN_TITLE = 2
# Sums of seconds may miss each other by as much.
_INSTANT = 1e-9


def timeline(spans: pa.Table, title: str | None = None) -> Chart:
    """Where the time of a run went: rewrites by task slot, the other steps a row each.

    Args:
        spans: One row a piece of work: step (string: "plan", "proof", "rewrite", "commit" or
            another), label (string, nullable: what to write on it), bin_id (int64, nullable),
            start, seconds (float64; start counts from when the run began).
        title: None for the finding: how many bins in how long, and what took the most time.

    Returns:
        The figure; of no spans one that says so.
    """
    if not len(spans):
        return _nothing(title)
    figure = Chart(figsize=(_WIDTH, 1.15 + _height(spans)), layout="constrained")
    axis = figure.subplots()
    _draw(axis, spans, _end(spans))
    axis.set_xlim(0, _end(spans) * 1.01 or 1)
    _seconds_axis(axis)
    return _worded(figure, title or finding(spans), [in_words(spans)])


def timelines(named: Mapping[str, pa.Table], title: str | None = None) -> Chart:
    """Runs one above another on the same seconds.

    Args:
        named: The spans of each run, as `timeline` takes them, by what the run is called.
        title: None for the finding: how long each took.

    Returns:
        The figure; runs without spans are told in their place.
    """
    runs = {name: spans for name, spans in named.items() if len(spans)}
    if not runs:
        return _nothing(title)
    heights = [_height(spans) + 0.35 for spans in runs.values()]
    figure = Chart(figsize=(_WIDTH, 0.9 + sum(heights)), layout="constrained")
    axes = figure.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    end = max(map(_end, runs.values()))
    for axis, (name, spans) in zip(axes, runs.items(), strict=True):
        _draw(axis, spans, end)
        axis.set_title(f"{short(name)}: {finding(spans)}", loc="left", fontsize=9, color=INK)
        axis.axvline(_end(spans), color=INK, linewidth=0.8, linestyle=":", zorder=1)
        axis.tick_params(axis="x", length=0)
    axes[-1].set_xlim(0, end * 1.01 or 1)
    _seconds_axis(axes[-1])
    empty = [f"{name}: no time was recorded" for name in named if name not in runs]
    words = [f"{name}: {finding(spans)}. {in_words(spans)}" for name, spans in runs.items()]
    return _worded(figure, title or _comparison(runs), [*words, *empty])


def finding(spans: pa.Table) -> str:
    """How many bins a run rewrote, in how long, and the steps that were at work the longest.

    A share is of the run's time, up to the end of its last span: that in which at least one span of
    the step was at work. They may come to more than 100 % where steps overlap.
    """
    end = _end(spans)
    shares = {step: _covered(_of(spans, step)) / end if end else 0.0 for step in _steps(spans)}
    largest = sorted(shares, key=lambda step: -shares[step])[:_SHARES_IN_TITLE]
    parts = [
        f"{_percent(shares[step])} {_WORDS.get(step, short(step))}{_on_slots(spans, step)}"
        for step in largest
    ]
    bins = _num_bins(spans)
    what = f"{format_count(bins, 'bin')} in {format_seconds(end)}" if bins else format_seconds(end)
    return f"{what}: {', '.join(parts)}"


def in_words(spans: pa.Table) -> str:
    """Each step's time in words, for people who can't see the figure."""
    return "; ".join(
        f"{_WORDS.get(step, step)}: {format_seconds(_covered(part))} in {format_count(len(part), 'span')}, "
        f"from {format_seconds(min(part['start'].to_pylist()))} to {format_seconds(_end(part))}"
        for step in _steps(spans)
        for part in [_of(spans, step)]
    )


def lanes(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The lane of each span, so that no two in a lane overlap and as few as possible are used.

    Args:
        starts: When each begins, in seconds.
        ends: When each ends.

    Returns:
        A lane from 0 for each, in their order: each takes the lowest lane that is free when it begins.
    """
    found = np.zeros(len(starts), dtype=np.int64)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for position in np.argsort(starts, kind="stable"):
        while busy and busy[0][0] <= starts[position] + _INSTANT:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (float(ends[position]), lane))
        found[position] = lane
    return found


def _nothing(title: str | None) -> Chart:
    figure = Chart(figsize=(_WIDTH, 1.2), layout="constrained")
    figure.text(0.5, 0.4, f"{_NO_SPANS}.", ha="center", va="center", fontsize=9, color=INK)
    return _worded(figure, title or "No timeline", [_NO_SPANS])


def _worded(figure: F, title: str, words: Sequence[str]) -> F:
    titled(figure, title)
    figure.set_label(". ".join([title, *words]))
    return figure


def _draw(axis: Axes, spans: pa.Table, end: float) -> None:
    """A row a step in the order in which they began; the rewrites' row is as high as they have lanes.

    `end` is where the axis of seconds ends, which other runs may share.
    """
    top, ticks, names = 0.0, [], []
    for step in _steps(spans):
        part = _of(spans, step)
        height = _row_height(spans, step)
        count = _num_lanes(part) if step == _REWRITE else 1
        of_lanes = _lanes_of(part) if step == _REWRITE else np.zeros(len(part), dtype=np.int64)
        _draw_bars(axis, part, step, top + of_lanes * height / count, height / count, end)
        ticks.append(top + height / 2)
        names.append(f"rewrite\n{format_count(count, 'slot')}" if step == _REWRITE else short(step))
        top += height
    axis.set_yticks(ticks, names)
    axis.set_ylim(top, 0)
    calm(axis, "x")
    axis.tick_params(axis="y", length=0)


def _draw_bars(axis: Axes, part: pa.Table, step: str, tops: np.ndarray, height: float, end: float) -> None:
    """One collection for a step, however many spans it has."""
    starts, seconds = part["start"].to_numpy(), part["seconds"].to_numpy()
    margin = height * (1 - _BAR) / 2
    corners = [[0, 0, 1, 1], [0, 1, 1, 0]]
    xs = starts[:, None] + seconds[:, None] * np.array(corners[0])
    ys = (tops + margin)[:, None] + height * _BAR * np.array(corners[1])
    colour, hatch = _LOOKS.get(step, _OTHER_LOOK)
    points_a_second = _AXES_POINTS / end if end else 0.0
    # White edges tell neighbours apart, and would hide spans that are hardly wider than they are.
    edge = 0.5 if np.median(seconds) * points_a_second >= 3 else 0.0
    bars = PolyCollection(
        list(np.stack([xs, ys], axis=2)),
        facecolors=colour,
        edgecolors="white",
        linewidths=edge,
        hatch=hatch or None,
    )
    # On whole pixels, gaps of less than one would show by chance, here and there.
    bars.set_snap(bool(edge))
    axis.add_collection(bars, autolim=False)
    if height * _BAR * 72 >= _LABEL_POINTS:
        _draw_labels(axis, part, tops + height / 2, points_a_second)


def _draw_labels(axis: Axes, part: pa.Table, middles: np.ndarray, points_a_second: float) -> None:
    """A span's label, or else its bin's number, where there is room for it."""
    rows = part.select(["step", "label", "bin_id", "start", "seconds"]).to_pylist()
    for row, middle in zip(rows, middles, strict=True):
        text = short(row["label"] or "") or ("" if row["bin_id"] is None else str(row["bin_id"]))
        if not text or row["seconds"] * points_a_second < len(text) * _DIGIT_POINTS + 8:
            continue
        _, hatch = _LOOKS.get(row["step"], _OTHER_LOOK)
        axis.text(
            row["start"] + row["seconds"] / 2,
            middle,
            text,
            ha="center",
            va="center_baseline",
            fontsize=7,
            color=INK if hatch else "white",
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"} if hatch else None,
        )


def _seconds_axis(axis: Axes) -> None:
    axis.set_xlabel("seconds since the run began")
    axis.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 2.5, 5, 10]))


def _comparison(runs: Mapping[str, pa.Table]) -> str:
    """How long each run took; of two, how many times as fast the faster one was."""
    times = {name: _end(spans) for name, spans in runs.items()}
    slow, fast = max(times, key=lambda name: times[name]), min(times, key=lambda name: times[name])
    factor = times[slow] / times[fast] if times[fast] else 1.0
    if len(runs) != 2 or factor < 1.05:
        return ", ".join(f"{name} took {format_seconds(seconds)}" for name, seconds in times.items())
    took = f"{format_seconds(times[fast])} instead of {format_seconds(times[slow])}"
    return f"{fast} took {took}: {format_factor(factor)} times as fast as {slow}"


def _steps(spans: pa.Table) -> list[str]:
    """The steps in the order in which they began."""
    first: dict[str, float] = {}
    for step, start in zip(spans["step"].to_pylist(), spans["start"].to_pylist(), strict=True):
        first[step] = min(start, first.get(step, start))
    return sorted(first, key=lambda step: first[step])


def _of(spans: pa.Table, step: str) -> pa.Table:
    return spans.filter(pc.equal(spans["step"], step))


def _starts_ends(spans: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    starts = spans["start"].to_numpy()
    return starts, starts + spans["seconds"].to_numpy()


def _end(spans: pa.Table) -> float:
    return float(_starts_ends(spans)[1].max(initial=0.0))


def _covered(spans: pa.Table) -> float:
    """Seconds in which at least one of the spans was at work."""
    starts, ends = _starts_ends(spans)
    order = np.argsort(starts)
    starts, ends = starts[order], ends[order]
    reached = np.concatenate([[-np.inf], np.maximum.accumulate(ends)[:-1]])
    return float(np.maximum(ends - np.maximum(starts, reached), 0).sum())


def _lanes_of(spans: pa.Table) -> np.ndarray:
    return lanes(*_starts_ends(spans))


def _num_lanes(spans: pa.Table) -> int:
    return int(_lanes_of(spans).max(initial=-1)) + 1


def _num_bins(spans: pa.Table) -> int:
    rewrites = _of(spans, _REWRITE)
    return len(pc.unique(rewrites["bin_id"].drop_null())) or len(rewrites)


def _row_height(spans: pa.Table, step: str) -> float:
    """In inches."""
    if step != _REWRITE:
        return _STEP_HEIGHT
    return min(_LANE_HEIGHT * max(_num_lanes(_of(spans, step)), 2), _MOST_LANES_HEIGHT)


def _height(spans: pa.Table) -> float:
    return sum(_row_height(spans, step) for step in _steps(spans))


def _on_slots(spans: pa.Table, step: str) -> str:
    return f" on {format_count(_num_lanes(_of(spans, step)), 'slot')}" if step == _REWRITE else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
