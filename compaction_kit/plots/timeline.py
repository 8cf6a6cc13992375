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
    """Draw where the time of a run went: rewrites by task slot, the other steps a row each.

    Args:
        spans: One row a piece of work: step (string: "plan", "proof", "rewrite", "commit" or
            another), label (string, nullable: what to write on it), bin_id (int64, nullable),
            start, seconds (float64; start counts from when the run began).
        title: None for the finding: how many bins in how long, and what took the most time.

    Returns:
        The figure; if there are no spans, one that says so.
    """
    return _draw({"": spans}, title or (finding(spans) if len(spans) else None))


def timelines(named: Mapping[str, pa.Table], title: str | None = None) -> Chart:
    """Draw runs one above another on the same seconds.

    Args:
        named: The spans of each run, as `timeline` takes them, by what the run is called.
        title: None for the finding: how long each took.

    Returns:
        The figure; runs without spans are named in its label alone.
    """
    runs = {name: spans for name, spans in named.items() if len(spans)}
    return _draw(named, title or (_comparison(runs) if runs else None))


def finding(spans: pa.Table) -> str:
    """Say how many bins a run rewrote, in how long, and the steps that were at work the longest.

    A share is of the run's time, up to the end of its last span: that in which at least one span of
    the step was at work. They may come to more than 100 % where steps overlap.
    """
    end, parts = _end(spans), _by_step(spans)
    shares = {step: _covered(part) / end if end else 0.0 for step, part in parts.items()}
    largest = sorted(shares, key=lambda step: -shares[step])[:_SHARES_IN_TITLE]
    slots = (
        {_REWRITE: f" on {format_count(_num_lanes(parts[_REWRITE]), 'slot')}"} if _REWRITE in parts else {}
    )
    sentences = [
        f"{100 * shares[step]:.0f} % {_WORDS.get(step, style.short(step))}{slots.get(step, '')}"
        for step in largest
    ]
    took = format_seconds(end)
    if _REWRITE in parts:
        num_bins = len(pc.unique(parts[_REWRITE]["bin_id"].drop_null())) or len(parts[_REWRITE])
        took = f"{format_count(num_bins, 'bin')} in {took}"
    return f"{took}: {', '.join(sentences)}"


def lanes(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Put spans into lanes, so that no two in a lane overlap and as few as possible are used.

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


def _draw(named: Mapping[str, pa.Table], title: str | None) -> Chart:
    runs = {name: spans for name, spans in named.items() if len(spans)}
    if not runs:
        figure = style.chart(style.WIDTH, 1.2, title or "No timeline", _NO_SPANS)
        figure.text(0.5, 0.4, f"{_NO_SPANS}.", ha="center", va="center", fontsize=9, color=INK)
        return figure
    sentences = [
        f"{name}: {finding(spans)}. {_times(spans)}" if name else _times(spans)
        for name, spans in runs.items()
    ]
    sentences += [f"{name}: no time was recorded" for name in named if name not in runs]
    heights = [sum(_heights(spans).values()) + 0.35 for spans in runs.values()]
    figure = style.chart(style.WIDTH, 0.9 + sum(heights), title or "", *sentences)
    axes = figure.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    end = max(map(_end, runs.values()))
    for axis, (name, spans) in zip(axes, runs.items(), strict=True):
        _draw_run(axis, spans, end)
        if name:
            axis.set_title(f"{style.short(name)}: {finding(spans)}", loc="left", fontsize=9, color=INK)
            axis.axvline(_end(spans), color=INK, linewidth=0.8, linestyle=":", zorder=1)
            axis.tick_params(axis="x", length=0)
    axes[-1].set(xlim=(0, end * 1.01 or 1), xlabel="seconds since the run began")
    axes[-1].xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 2.5, 5, 10]))
    return figure


def _draw_run(axis: Axes, spans: pa.Table, end: float) -> None:
    """Draw a row a step in the order in which they began; the rewrites' row is as high as they have lanes."""
    top, ticks, names, heights = 0.0, [], [], _heights(spans)
    points_a_second = _AXES_POINTS / end if end else 0.0
    for step, part in _by_step(spans).items():
        starts, ends = _starts_ends(part)
        lane = lanes(starts, ends) if step == _REWRITE else np.zeros(len(part), dtype=np.int64)
        count = int(lane.max()) + 1
        height = heights[step] / count
        tops = top + lane * height
        margin = height * (1 - _BAR) / 2
        # White edges tell neighbours apart, and would hide spans that are hardly wider than they are.
        edge = 0.5 if np.median(ends - starts) * points_a_second >= 3 else 0.0
        sides = (starts, ends, tops + margin, tops + margin + height * _BAR)
        bars = style.boxes(axis, sides, _LOOKS.get(step, _OTHER_LOOK), "white", edge)
        # On whole pixels, gaps of less than one would show by chance, here and there.
        bars.set_snap(bool(edge))
        if height * _BAR * 72 >= _LABEL_POINTS:
            _draw_labels(axis, part, tops + height / 2, points_a_second)
        ticks.append(top + heights[step] / 2)
        names.append(f"rewrite\n{format_count(count, 'slot')}" if step == _REWRITE else style.short(step))
        top += heights[step]
    axis.set_yticks(ticks, names)
    axis.set_ylim(top, 0)
    style.calm(axis, "x")
    axis.tick_params(axis="y", length=0)


def _draw_labels(axis: Axes, part: pa.Table, middles: np.ndarray, points_a_second: float) -> None:
    """Write a span's label, or else its bin's number, where there is room for it."""
    for row, middle in zip(part.to_pylist(), middles, strict=True):
        text = style.short(row["label"] or "") or ("" if row["bin_id"] is None else str(row["bin_id"]))
        if text and row["seconds"] * points_a_second >= len(text) * _DIGIT_POINTS + 8:
            hatched = bool(_LOOKS.get(row["step"], _OTHER_LOOK)[1])
            box = (
                {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"} if hatched else None
            )
            at, color = (row["start"] + row["seconds"] / 2, middle), INK if hatched else ON_LIGHT
            style.note(axis, text, at, (0, 0), color, ha="center", va="center_baseline", bbox=box)


def _times(spans: pa.Table) -> str:
    """Each step's time, for the label."""
    return "; ".join(
        f"{_WORDS.get(step, step)}: {format_seconds(_covered(part))} in {format_count(len(part), 'span')}, "
        f"from {format_seconds(min(part['start'].to_pylist()))} to {format_seconds(_end(part))}"
        for step, part in _by_step(spans).items()
    )


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
    starts, ends = (times[np.argsort(spans["start"].to_numpy())] for times in _starts_ends(spans))
    reached = np.concatenate([[-np.inf], np.maximum.accumulate(ends)[:-1]])
    return float(np.maximum(ends - np.maximum(starts, reached), 0).sum())


def _num_lanes(spans: pa.Table) -> int:
    return int(lanes(*_starts_ends(spans)).max(initial=-1)) + 1


def _heights(spans: pa.Table) -> dict[str, float]:
    """How high the row of each step is, in inches."""
    heights = dict.fromkeys(_by_step(spans), _STEP_HEIGHT)
    if _REWRITE in heights:
        lane_heights = _LANE_HEIGHT * max(_num_lanes(_by_step(spans)[_REWRITE]), 2)
        heights[_REWRITE] = min(lane_heights, _MOST_LANES_HEIGHT)
    return heights
