"""Figures of runs: where the time went, step by step and bin by bin."""

import heapq
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from compaction_kit.plots import style
from compaction_kit.plots.style import INK, NEW, ON_LIGHT, Chart
from compaction_kit.text import format_count, format_factor, format_seconds

_REWRITE = "rewrite"
_NO_SPANS = "No time was recorded, so there is nothing to draw"
# What a step is called in a sentence, and how it is drawn.
_WORDS = {_REWRITE: "rewriting", "plan": "planning", "commit": "committing", "proof": "proof"}
_LOOKS: dict[str, style.Look] = {
    _REWRITE: (NEW, ""),
    "commit": (style.OTHER, ""),
    "proof": (style.OTHER, "///"),
    "plan": (style.OTHER, "..."),
}
_OTHER_LOOK: style.Look = (style.OTHER, "xxx")
_WIDTH = style.WIDTH
# How high, in inches, a step's row is, and a lane; lanes get thinner where there are many.
_STEP_HEIGHT, _LANE_HEIGHT, _MOST_LANES_HEIGHT = 0.28, 0.23, 3.6
_BAR = 0.78
# The width of the axes and of a digit, in points: what a label needs room for.
_AXES_POINTS, _DIGIT_POINTS = 400.0, 5.4
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
    figure = style.chart(_WIDTH, 1.15 + _height(spans), title or finding(spans), _times(spans))
    axis = figure.subplots()
    _draw(axis, spans, _end(spans))
    _seconds_axis(axis, _end(spans))
    return figure


def timelines(named: Mapping[str, pa.Table], title: str | None = None) -> Chart:
    """Runs one above another on the same seconds.

    Args:
        named: The spans of each run, as `timeline` takes them, by what the run is called.
        title: None for the finding: how long each took.

    Returns:
        The figure; runs without spans are named in its label alone.
    """
    runs = {name: spans for name, spans in named.items() if len(spans)}
    if not runs:
        return _nothing(title)
    heights = [_height(spans) + 0.35 for spans in runs.values()]
    sentences = [f"{name}: {finding(spans)}. {_times(spans)}" for name, spans in runs.items()]
    sentences += [f"{name}: no time was recorded" for name in named if name not in runs]
    figure = style.chart(_WIDTH, 0.9 + sum(heights), title or _comparison(runs), *sentences)
    axes = figure.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    end = max(map(_end, runs.values()))
    for axis, (name, spans) in zip(axes, runs.items(), strict=True):
        _draw(axis, spans, end)
        axis.set_title(f"{style.short(name)}: {finding(spans)}", loc="left", fontsize=9, color=INK)
        axis.axvline(_end(spans), color=INK, linewidth=0.8, linestyle=":", zorder=1)
        axis.tick_params(axis="x", length=0)
    _seconds_axis(axes[-1], end)
    return figure


def finding(spans: pa.Table) -> str:
    """How many bins a run rewrote, in how long, and the steps that were at work the longest.

    A share is of the run's time, up to the end of its last span: that in which at least one span of
    the step was at work. They may come to more than 100 % where steps overlap.
    """
    end, parts = _end(spans), _by_step(spans)
    shares = {step: _covered(part) / end if end else 0.0 for step, part in parts.items()}
    shown = [
        f"{100 * shares[step]:.0f} % {_WORDS.get(step, style.short(step))}"
        + (f" on {format_count(_num_lanes(parts[step]), 'slot')}" if step == _REWRITE else "")
        for step in sorted(shares, key=lambda step: -shares[step])[:_SHARES_IN_TITLE]
    ]
    took = format_seconds(end)
    if _REWRITE in parts:
        num_bins = len(pc.unique(parts[_REWRITE]["bin_id"].drop_null())) or len(parts[_REWRITE])
        took = f"{format_count(num_bins, 'bin')} in {took}"
    return f"{took}: {', '.join(shown)}"


def _times(spans: pa.Table) -> str:
    """Each step's time, for the label."""
    return "; ".join(
        f"{_WORDS.get(step, step)}: {format_seconds(_covered(part))} in {format_count(len(part), 'span')}, "
        f"from {format_seconds(min(part['start'].to_pylist()))} to {format_seconds(_end(part))}"
        for step, part in _by_step(spans).items()
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
    figure = style.chart(_WIDTH, 1.2, title or "No timeline", _NO_SPANS)
    figure.text(0.5, 0.4, f"{_NO_SPANS}.", ha="center", va="center", fontsize=9, color=INK)
    return figure


def _draw(axis: Axes, spans: pa.Table, end: float) -> None:
    """A row a step in the order in which they began; the rewrites' row is as high as they have lanes.

    `end` is where the axis of seconds ends, which other runs may share.
    """
    top, ticks, names = 0.0, [], []
    for step, part in _by_step(spans).items():
        height = _row_height(step, part)
        lane = lanes(*_starts_ends(part)) if step == _REWRITE else np.zeros(len(part), dtype=np.int64)
        count = int(lane.max()) + 1
        _draw_bars(axis, part, step, top + lane * height / count, height / count, end)
        ticks.append(top + height / 2)
        names.append(f"rewrite\n{format_count(count, 'slot')}" if step == _REWRITE else style.short(step))
        top += height
    axis.set_yticks(ticks, names)
    axis.set_ylim(top, 0)
    style.calm(axis, "x")
    axis.tick_params(axis="y", length=0)


def _draw_bars(axis: Axes, part: pa.Table, step: str, tops: np.ndarray, height: float, end: float) -> None:
    """One collection for a step, however many spans it has."""
    starts, ends = _starts_ends(part)
    margin = height * (1 - _BAR) / 2
    points_a_second = _AXES_POINTS / end if end else 0.0
    # White edges tell neighbours apart, and would hide spans that are hardly wider than they are.
    edge = 0.5 if np.median(ends - starts) * points_a_second >= 3 else 0.0
    sides = (starts, ends, tops + margin, tops + margin + height * _BAR)
    bars = style.boxes(axis, sides, _LOOKS.get(step, _OTHER_LOOK), "white", edge)
    # On whole pixels, gaps of less than one would show by chance, here and there.
    bars.set_snap(bool(edge))
    if height * _BAR * 72 >= _LABEL_POINTS:
        _draw_labels(axis, part, tops + height / 2, points_a_second)


def _draw_labels(axis: Axes, part: pa.Table, middles: np.ndarray, points_a_second: float) -> None:
    """A span's label, or else its bin's number, where there is room for it."""
    rows = part.select(["step", "label", "bin_id", "start", "seconds"]).to_pylist()
    for row, middle in zip(rows, middles, strict=True):
        text = style.short(row["label"] or "") or ("" if row["bin_id"] is None else str(row["bin_id"]))
        if not text or row["seconds"] * points_a_second < len(text) * _DIGIT_POINTS + 8:
            continue
        _, hatch = _LOOKS.get(row["step"], _OTHER_LOOK)
        axis.text(
            row["start"] + row["seconds"] / 2,
            middle,
            text,
            ha="center",
            va="center_baseline",
            fontsize=8.25,
            color=INK if hatch else ON_LIGHT,
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"} if hatch else None,
        )


def _seconds_axis(axis: Axes, end: float) -> None:
    axis.set_xlim(0, end * 1.01 or 1)
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


def _by_step(spans: pa.Table) -> dict[str, pa.Table]:
    """The spans of each step, in the order in which the steps began."""
    began = spans.group_by("step", use_threads=False).aggregate([("start", "min")])
    steps = began.sort_by("start_min")["step"].to_pylist()
    return {step: spans.filter(pc.equal(spans["step"], step)) for step in steps}


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


def _num_lanes(spans: pa.Table) -> int:
    return int(lanes(*_starts_ends(spans)).max(initial=-1)) + 1


def _row_height(step: str, part: pa.Table) -> float:
    """In inches."""
    if step != _REWRITE:
        return _STEP_HEIGHT
    return min(_LANE_HEIGHT * max(_num_lanes(part), 2), _MOST_LANES_HEIGHT)


def _height(spans: pa.Table) -> float:
    return sum(_row_height(step, part) for step, part in _by_step(spans).items())
