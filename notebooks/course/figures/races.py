"""Figures of two writers at once: a lane each, and the log between them."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from compaction_kit.plots import style
from compaction_kit.plots.style import INK, LIVE, LOST, NEW, ON_DARK, ON_LIGHT, SMALL, TOMBSTONED, Chart

_FIRST, _LOG, _SECOND = 2.0, 1.0, 0.0
_HALF = 0.17
_HELD = "#BBD7EA"
# Where in the order of time, which is not to scale, each thing is.
_BEGINS, _JOINS, _COMMITS, _TRIES, _CHECKED = 0.0, 0.9, 2.5, 3.3, 4.7
_ANEW, _LOOKED, _END = 5.5, 6.8, 9.4


def concurrency(
    attempts: pa.Table, names: tuple[str, str], title: str, exception: str | None = None
) -> Chart:
    """Two writers of one table, from left to right in order of time, not to scale.

    Args:
        attempts: The commits tried: writer, read_version, version (null where none was tried),
            outcome ("committed", "taken", "refused", "gave up", or "unknown": not played yet).
        names: The writer who is held, drawn above the log, and the one who commits in between.
        title: The finding.
        exception: The first writer's exception; None if it committed.

    Returns:
        The figure; its label lists the commits tried.
    """
    first = [row for row in attempts.to_pylist() if row["writer"] == names[0]]
    second = next(row for row in attempts.to_pylist() if row["writer"] == names[1])
    figure = style.chart(style.LAB_WIDTH, 2.9, title, *map(_sentence, attempts.to_pylist()))
    axis = figure.subplots()
    _box(axis, _FIRST, _BEGINS, _JOINS, LIVE, "at work")
    _box(axis, _FIRST, _JOINS, _TRIES, _HELD, "held before its commit")
    _read(axis, _FIRST, _BEGINS, first[0])
    _box(axis, _SECOND, _JOINS, _COMMITS, LIVE, "at work")
    _read(axis, _SECOND, _JOINS, second)
    _commit(axis, _SECOND, _COMMITS, second)
    starts = {second["read_version"]: -0.3, second["version"]: _COMMITS}
    end = _draw_tries(axis, first, exception)
    if first[-1]["outcome"] == "committed":
        starts[first[-1]["version"]] = end
    _draw_log(axis, starts)
    axis.set(xlim=(-0.4, _END), ylim=(-0.3, 2.3))
    axis.set_yticks(
        [_FIRST, _LOG, _SECOND],
        [style.short(names[0]), "the log", style.short(names[1])],
        fontsize=9,
        color=INK,
    )
    axis.set_xticks([])
    axis.set_xlabel("order of time →", fontsize=9, color=INK, loc="right")
    axis.tick_params(axis="y", length=0)
    axis.spines[:].set_visible(False)
    return figure


def _draw_tries(axis: Axes, tries: list[dict[str, Any]], exception: str | None) -> float:
    """What the first writer does once it is let go; returns where it ends."""
    taken = tries[0]["version"]
    _arrow(axis, _TRIES, _FIRST, _LOG, SMALL)
    _note(axis, _TRIES - 0.06, 1.5, f"tries {taken}:\ntaken", SMALL, "right")
    _box(axis, _FIRST, _TRIES, _CHECKED, SMALL, f"conflict check\nof version {taken}")
    last = tries[-1]
    if last["outcome"] == "unknown":
        axis.text(_CHECKED + 0.2, _FIRST, "?", va="center", fontsize=16, fontweight="bold", color=INK)
        return _CHECKED
    if tries[0]["outcome"] == "taken":
        _note(axis, _CHECKED - 0.06, 1.5, "no conflict", NEW, "right")
        _commit(axis, _FIRST, _CHECKED, last)
        return _CHECKED
    if len(tries) == 1:
        _refused(axis, _CHECKED, exception)
        return _CHECKED
    _cross(axis, _CHECKED + 0.25)
    _note(axis, _CHECKED + 0.25, _FIRST - 0.33, "conflict", LOST, "center")
    _read(axis, _FIRST, _ANEW, last)
    found = last["outcome"] == "committed"
    text = "looks again: its\nfiles are there" if found else "looks again: its\nfiles are gone"
    _box(axis, _FIRST, _ANEW, _LOOKED, LIVE if found else TOMBSTONED, text)
    if found:
        _commit(axis, _FIRST, _LOOKED, last)
    else:
        _refused(axis, _LOOKED, exception)
    return _LOOKED


def _draw_log(axis: Axes, starts: Mapping[int, float]) -> None:
    """A box a version, from its commit to the next."""
    ends = [*list(starts.values())[1:], _END - 0.1]
    for (version, start), end in zip(starts.items(), ends, strict=True):
        axis.add_patch(
            Rectangle(
                (start, _LOG - _HALF), end - start, 2 * _HALF, facecolor="#EEEEEE", edgecolor="white", lw=2
            )
        )
        axis.text(start + 0.12, _LOG, f"version {version}", va="center", fontsize=8.5, color=ON_LIGHT)


def _box(axis: Axes, lane: float, start: float, end: float, colour: str, text: str) -> None:
    axis.add_patch(
        Rectangle((start, lane - _HALF), end - start, 2 * _HALF, facecolor=colour, edgecolor="white")
    )
    ink = ON_DARK if colour in (LIVE, TOMBSTONED) else ON_LIGHT
    axis.text(
        (start + end) / 2, lane, text, ha="center", va="center", fontsize=8.25, color=ink, linespacing=0.95
    )


def _read(axis: Axes, lane: float, x: float, row: Mapping[str, Any]) -> None:
    _arrow(axis, x, _LOG, lane, TOMBSTONED, line=":")
    _note(axis, x + 0.07, (lane + _LOG) / 2, f"reads {row['read_version']}", INK, "left")


def _commit(axis: Axes, lane: float, x: float, row: Mapping[str, Any]) -> None:
    _arrow(axis, x, lane, _LOG, NEW)
    _note(axis, x + 0.07, (lane + _LOG) / 2, f"commits {row['version']}", NEW, "left", bold=True)


def _refused(axis: Axes, x: float, exception: str | None) -> None:
    _cross(axis, x + 0.25)
    _note(axis, x + 0.12, _FIRST - 0.36, style.short(exception or "refused"), LOST, "left", bold=True)


def _cross(axis: Axes, x: float) -> None:
    axis.plot([x], [_FIRST], marker="X", markersize=12, color=LOST, markeredgecolor="white")


def _arrow(axis: Axes, x: float, start: float, end: float, colour: str, line: str = "-") -> None:
    inset = _HALF if end > start else -_HALF
    look = {"arrowstyle": "-|>", "color": colour, "linestyle": line, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", (x, end - inset), (x, start + inset), arrowprops=look)


def _note(axis: Axes, x: float, y: float, text: str, colour: str, side: str, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    axis.text(x, y, text, ha=side, va="center", fontsize=8.5, color=colour, fontweight=weight)


def _sentence(row: Mapping[str, Any]) -> str:
    tried = "tried no commit" if row["version"] is None else f"tried to commit version {row['version']}"
    return f"{row['writer']} read version {row['read_version']}, {tried}: {row['outcome']}"
