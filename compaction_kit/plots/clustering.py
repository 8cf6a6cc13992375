"""Figures of clustered tables: the sizes of cubes, and the values of a column in each file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes

import compaction_kit.plots.style as style
from compaction_kit.plots.style import INK, LIVE, MUTED, OTHER, PALE, SMALL, SMALL_HATCH, Chart
from compaction_kit.text import format_count, format_size

_NEW = (SMALL, SMALL_HATCH)
# Looks by the state of a plan's cubes.
_STATES: style.Looks = {
    "new": _NEW,
    "partial cube": (OTHER, "..."),
    "single cube": (OTHER, ""),
    "complete cube": (LIVE, ""),
    "other columns": (PALE, "xxx"),
    "other provider": (PALE, "\\\\\\"),
    "nothing to purge": (PALE, ""),
}
_IN_CUBES: style.Looks = {"in a cube": (LIVE, ""), "in no cube yet": _NEW}
_MOST_CUBES = 20
_MOST_FILES, _MOST_EDGED, _MOST_TICKS = 400, 60, 4
# In inches.
EXTENTS_HEIGHT = 2.9


def cubes_height(num_cubes: int) -> float:
    """Return the height of `cubes`, in inches."""
    return 1.6 + 0.24 * min(max(num_cubes, 3), _MOST_CUBES)


def cubes(cubes: pa.Table, complete: int, figure: Chart | None = None) -> Chart:
    """Draw one bar per cube, files without a cube first, and a line at the size of complete cubes.

    `cubes` is a plan's table: cube_id, num_files, size_bytes, logical_bytes, state, is_rewritten. From
    `complete` logical bytes on a cube is complete. `figure` may be a part of a figure; None for a new one.
    """
    figure = figure or Chart(figsize=(style.WIDTH, cubes_height(len(cubes))), layout="constrained")
    rows = sorted(cubes.to_pylist(), key=lambda row: (row["cube_id"] is not None, -row["size_bytes"]))
    shown, axis = rows[:_MOST_CUBES], figure.subplots()
    for place, row in enumerate(shown):
        axis.barh([place], [row["logical_bytes"]], height=0.75, **style.fill(_STATES[row["state"]]))
    names = [f"cube {row['cube_id'][:8]}" if row["cube_id"] else "no cube yet" for row in shown]
    notes = [f"{format_count(row['num_files'], 'file')}, {format_size(row['size_bytes'])}" for row in shown]
    right = style.packed(axis, names, notes, max(row["logical_bytes"] for row in shown), complete)
    arrow = " →" if complete > right else ""
    text = f"complete from {format_size(complete)}{arrow}"
    style.note(axis, text, (min(complete, right), 1), (0, 3), ha="right", xycoords=("data", "axes fraction"))
    present = {row["state"] for row in shown}
    looks = {name: look for name, look in _STATES.items() if name in present}
    style.legend(figure, "outside lower left", looks, ncols=3)
    more = f" (the largest {len(shown)} of {len(rows):,} are shown)" if len(shown) < len(rows) else ""
    return style.titled(figure, f"{_finding(rows)}{more}")


def _finding(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many bytes are new, are rewritten, and stay."""
    new = sum(row["size_bytes"] for row in rows if row["state"] == "new")
    rewritten = sum(row["size_bytes"] for row in rows if row["is_rewritten"])
    # All new files are rewritten.
    sizes = {"is new": new, "is rewritten": rewritten} if rewritten > new else {"is new and rewritten": new}
    sizes["stays"] = sum(row["size_bytes"] for row in rows) - rewritten
    found = [f"{format_size(size)} {what}" for what, size in sizes.items() if size]
    return f"All {found[0]}" if len(found) == 1 else ", ".join(found)


def extents(
    finding: str,
    column: str,
    values: np.ndarray,
    label: Callable[[float], str],
    panels: Mapping[str, pa.Table],
    figure: Chart | None = None,
) -> Chart:
    """Draw one bar per file from its minimum to its maximum of a column, one below another.

    `values` are the sorted values that bound the files, as numbers, and `label` formats one. `panels` have a
    name, and one row per file: low and high (positions in `values`), in_cube (bool). `figure` may be a part
    of a figure; None for a new one.
    """
    figure = figure or Chart(figsize=(style.WIDTH, EXTENTS_HEIGHT), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    has_cubes = any(pc.any(files["in_cube"]).as_py() for files in panels.values())
    for axis, (name, files) in zip(axes, panels.items(), strict=True):
        files = files.sort_by([("low", "ascending"), ("high", "ascending")])
        _draw_extents(axis, files, values, has_cubes)
        if len(values):
            ticks = np.linspace(values[0], values[-1], _MOST_TICKS // len(panels))
            # Values that are numbered, or whole, have no value between them.
            ticks = np.unique(ticks if (values % 1).any() else np.rint(ticks))
            axis.set_xticks(ticks, [style.short(label(tick), 16) for tick in ticks.tolist()])
            if len(ticks) > 1:
                # The first and last label stay within the figure, even if they are wide.
                first, *_, last = axis.get_xticklabels()
                first.set_horizontalalignment("left")
                last.set_horizontalalignment("right")
        axis.set_xlabel(style.short(column))
        if len(panels) > 1:
            axis.set_title(name, loc="left", fontsize=9, color=INK)
    axes[0].set_ylabel("files, by minimum")
    if has_cubes:
        style.legend(figure, "outside lower right", _IN_CUBES)
    return style.titled(figure, finding)


def _draw_extents(axis: Axes, files: pa.Table, values: np.ndarray, has_cubes: bool) -> None:
    places = np.unique(np.linspace(0, max(len(files) - 1, 0), _MOST_FILES).astype(int))[: len(files)]
    few = len(places) <= _MOST_EDGED
    table = files.take(pa.array(places))
    lows, highs = (values[table[name].to_numpy()] for name in ("low", "high"))
    # A file with one value must be visible too.
    least = 0.004 * (values[-1] - values[0] or abs(values[-1]) or 1) if len(values) else 1
    is_new = has_cubes & ~table["in_cube"].to_numpy()
    tops = np.arange(len(places)) + 0.1 * few
    for which, look in ((~is_new, _IN_CUBES["in a cube"]), (is_new, _NEW)):
        sides = lows[which] - least, highs[which] + least, tops[which], tops[which] + (0.8 if few else 1)
        style.boxes(axis, sides, look, "white", 0.4 if few else 0)
    axis.set(yticks=[], ylim=(max(len(places), 1), 0))
    if len(values):
        axis.set_xlim(values[0] - least, values[-1] + least)
    style.calm(axis, "x")
    if len(places) < len(files):
        text = f"{len(places):,} of {format_count(len(files), 'file')} are drawn"
        style.note(axis, text, (1, 1), (0, 3), MUTED, xycoords="axes fraction", ha="right")
