"""Figures of runs: the time of each step and of each bin."""

import heapq
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

import compaction_kit.plots.style as style
from compaction_kit.plots.style import INK, NEW, ON_LIGHT, OTHER, Chart
from compaction_kit.text import format_count, format_factor, format_seconds, format_share

_REWRITE = "rewrite"
_NO_SPANS = "No time was recorded, so there is nothing to draw"
# The name of a step in a sentence, and its look.
_WORDS = {_REWRITE: "rewriting", "join": "joining", "commit": "committing", "proof": "proof"}
_LOOKS: style.Looks = {
    _REWRITE: (NEW, ""),
    "commit": (OTHER, ""),
    "proof": (OTHER, "///"),
    "join": (OTHER, "..."),
}
# The height of a step's row and of a lane, in inches; many lanes are thinner.
_STEP_HEIGHT, _LANE_HEIGHT, _MOST_LANES_HEIGHT = 0.28, 0.23, 3.6
_BAR = 0.78
# The width of the axes and of a digit, and the height of a label, in points.
_AXES_POINTS, _DIGIT_POINTS, _LABEL_POINTS = 400.0, 5.4, 9
# The part of a run's or a step's name that fits before its finding or its bars.
_short = partial(style.short, most=24)
# Sums of seconds may differ by this rounding error.
_INSTANT = 1e-9


class _Step(NamedTuple):
    """The spans of a step: their starts, ends and lanes, and the time in which at least one was at work."""

    name: str
    spans: pa.Table
    starts: np.ndarray
    ends: np.ndarray
    lanes: np.ndarray
    num_lanes: int
    inches: float
    covered: float


def timeline(spans: pa.Table) -> Chart:
    """Draw the timeline of a run: rewrites by task slot, the other steps with one row each.

    The title names the two steps that took the most time: the share of time in which one of their spans was
    at work. `spans` has one row per piece of work: step ("rewrite", "join", "commit", "proof" or another),
    label (its text) and bin_id, both nullable, start (float64, since the run began) and seconds.
    """
    return timelines({"": spans})


def timelines(named: Mapping[str, pa.Table]) -> Chart:
    """Draw runs one above another on the same seconds, each with its spans, as `timeline` takes them."""
    runs = {name: _steps_of(spans) for name, spans in named.items() if len(spans)}
    if not runs:
        figure = style.chart(style.WIDTH, 1.2, "No timeline", _NO_SPANS)
        figure.text(0.5, 0.4, f"{_NO_SPANS}.", ha="center", va="center", fontsize=9, color=INK)
        return figure
    lasted = {name: max(float(step.ends.max()) for step in steps) for name, steps in runs.items()}
    findings = {name: _finding(steps, lasted[name], not name) for name, steps in runs.items()}
    title = findings.get("") or _comparison(lasted)
    times = {name: _times(steps) for name, steps in runs.items()}
    sentences = [f"{name}: {findings[name]}. {times[name]}" if name else times[name] for name in runs]
    sentences += [f"{name}: no time was recorded" for name in named if name not in runs]
    heights = [sum(step.inches for step in steps) + 0.35 for steps in runs.values()]
    figure = style.chart(style.WIDTH, 0.9 + sum(heights), title, *sentences)
    axes = figure.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    end = max(lasted.values())
    for axis, (name, steps) in zip(axes, runs.items(), strict=True):
        _draw_run(axis, steps, _AXES_POINTS / end if end else 0.0)
        if name:
            axis.set_title(f"{_short(name)}: {findings[name]}", loc="left", fontsize=9, color=INK)
            axis.axvline(lasted[name], color=INK, linewidth=0.8, linestyle=":", zorder=1)
            axis.tick_params(axis="x", length=0)
    axes[-1].set(xlim=(0, end * 1.01 or 1), xlabel="seconds since the run began")
    axes[-1].xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 2.5, 5, 10]))
    return figure


def lanes(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return a lane from 0 for each span: the lowest free lane when it begins."""
    found = np.zeros(len(starts), dtype=np.int64)
    free, busy = list[int](), list[tuple[float, int]]()
    for position in np.argsort(starts, kind="stable"):
        while busy and busy[0][0] <= starts[position] + _INSTANT:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (float(ends[position]), lane))
        found[position] = lane
    return found


def _steps_of(spans: pa.Table) -> list[_Step]:
    """Return the steps in the order in which they began."""
    steps, spans = [], spans.sort_by("start")
    for name in pc.unique(spans["step"]).to_pylist():
        part = spans.filter(pc.equal(spans["step"], name))
        starts = part["start"].to_numpy()
        ends = starts + part["seconds"].to_numpy()
        reached = np.append(-np.inf, np.maximum.accumulate(ends)[:-1])
        covered = float(np.maximum(ends - np.maximum(starts, reached), 0).sum())
        lane, inches = np.zeros(len(part), np.int64), _STEP_HEIGHT
        if name == _REWRITE:
            lane = lanes(starts, ends)
            inches = min(_LANE_HEIGHT * max(int(lane.max()) + 1, 2), _MOST_LANES_HEIGHT)
        steps.append(_Step(name, part, starts, ends, lane, int(lane.max()) + 1, inches, covered))
    return steps


def _finding(steps: Sequence[_Step], end: float, with_rest: bool) -> str:
    took, shares = format_seconds(end), []
    for step in sorted(steps, key=lambda step: -step.covered):
        slots = ""
        if step.name == _REWRITE:
            slots = f" on {format_count(step.num_lanes, 'slot')}"
            # An overwrite doesn't rewrite bin by bin: its spans are Spark's jobs, which have names.
            bins, jobs = (len(pc.unique(step.spans[name].drop_null())) for name in ("bin_id", "label"))
            what = format_count(len(step.spans), "job") if jobs and not bins else ""
            took = f"{what or format_count(bins or len(step.spans), 'bin')} in {took}"
        share = format_share(step.covered, end)
        shares.append(f"{share} {_WORDS.get(step.name, _short(step.name))}{slots}")
    rest = end - sum(step.covered for step in steps)
    waiting = [f"{format_share(rest, end)} before and between steps"] if with_rest and rest > end / 10 else []
    return f"{took}: {', '.join(shares[:2] + waiting)}"


def _times(steps: Sequence[_Step]) -> str:
    """Return each step's time, for the label."""
    return "; ".join(
        f"{_WORDS.get(step.name, step.name)}: {format_seconds(step.covered)} in "
        f"{format_count(len(step.spans), 'span')}, from {format_seconds(step.starts.min())} to "
        f"{format_seconds(step.ends.max())}"
        for step in steps
    )


def _comparison(lasted: Mapping[str, float]) -> str:
    """Return how long each run took; for two runs, how many times as fast the faster one was."""
    slow, fast = max(lasted, key=lambda name: lasted[name]), min(lasted, key=lambda name: lasted[name])
    factor = lasted[slow] / lasted[fast] if lasted[fast] else 1.0
    if len(lasted) != 2 or factor < 1.05:
        return ", ".join(f"{_short(name)} took {format_seconds(seconds)}" for name, seconds in lasted.items())
    took = f"{format_seconds(lasted[fast])} instead of {format_seconds(lasted[slow])}"
    return f"{_short(fast)} took {took}: {format_factor(factor)} times as fast as {_short(slow)}"


def _draw_run(axis: Axes, steps: Sequence[_Step], points_a_second: float) -> None:
    """Draw one row per step; the row of rewrites is as high as its lanes."""
    top, ticks, names = 0.0, [], []
    for step in steps:
        look, height = _LOOKS.get(step.name, (OTHER, "xxx")), step.inches / step.num_lanes
        tops = top + step.lanes * height
        margin = height * (1 - _BAR) / 2
        # White edges separate neighbours, but would hide spans that are hardly wider than the edges.
        edge = 0.5 if np.median(step.ends - step.starts) * points_a_second >= 3 else 0.0
        sides = (step.starts, step.ends, tops + margin, tops + margin + height * _BAR)
        # With snapping to pixels, gaps of less than a pixel would appear at random.
        style.boxes(axis, sides, look, "white", edge).set_snap(bool(edge))
        if height * _BAR * 72 >= _LABEL_POINTS:
            _draw_labels(axis, step, look, tops + height / 2, points_a_second)
        ticks.append(top + step.inches / 2)
        slots = f"\n{format_count(step.num_lanes, 'slot')}" if step.name == _REWRITE else ""
        names.append(_short(step.name) + slots)
        top += step.inches
    axis.set_yticks(ticks, names)
    axis.set_ylim(top, 0)
    style.calm(axis, "x")


def _draw_labels(
    axis: Axes, step: _Step, look: style.Look, middles: np.ndarray, points_a_second: float
) -> None:
    """Write a span's label, or else its bin's number, where there is room for it."""
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"} if look[1] else None
    how = {"ha": "center", "va": "center_baseline", "bbox": box}
    for row, middle in zip(step.spans.to_pylist(), middles, strict=True):
        text = style.short(row["label"] or "") or ("" if row["bin_id"] is None else str(row["bin_id"]))
        if text and row["seconds"] * points_a_second >= len(text) * _DIGIT_POINTS + 8:
            at = row["start"] + row["seconds"] / 2, middle
            style.note(axis, text, at, (0, 0), INK if box else ON_LIGHT, **how)
