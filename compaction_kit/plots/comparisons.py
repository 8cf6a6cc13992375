"""Figures with one row per layout of a table, per version of a query, or per table of a survey."""

import os
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

import compaction_kit.plots.style as style
from compaction_kit.errors import shortened
from compaction_kit.plots.style import INK, LIVE, MUTED, NEW, Chart
from compaction_kit.text import format_count, format_seconds, format_size

_LONGEST_QUERY, _LONGEST_TABLE = 95, 24
_MOST_TABLES, _MOST_IN_LABEL = 30, 10


def layouts(
    finding: str, files: Mapping[str, float | None], texts: Mapping[str, str], what: str, query: str = ""
) -> Chart:
    """Draw how many files a query would open in each layout of a table, one bar each, and the query below.

    `files` maps the name of each layout, beginning with today's, to a number, or None if unknown; `texts` are
    written beside the bars; `what` names the counted things.
    """
    about = [f"The query is {' '.join(query.split())}"] if query else []
    about.append("; ".join(f"{name}: {text}" for name, text in texts.items()))
    figure = style.chart(style.WIDTH, 1.2 + 0.2 * bool(query) + 0.38 * len(files), finding, *about)
    axis = figure.subplots()
    _draw_bars(axis, list(files), [value or 0 for value in files.values()], list(texts.values()), what, 2.0)
    style.count_ticks(axis.xaxis, 4)
    _write_query(figure, query)
    return figure


def reads(
    query: str,
    finding: str,
    versions: tuple[int, int],
    runs: Sequence[Sequence[float]],
    files_read: Sequence[int],
    bytes_read: Sequence[int | None],
) -> Chart:
    """Draw median seconds as bars with the single runs as points, and the files read, before and after.

    Each version has the seconds of its runs, the number of files that it reads, and their bytes, None if
    unknown.
    """
    figure = style.chart(style.WIDTH, 2.3, finding, f"The query is {' '.join(query.split())}")
    seconds, files = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    names = [f"version {version}" for version in versions]
    for row, times in enumerate(runs):
        # Points are one above another, because they could hide each other.
        offsets = [row + 0.36 * ((i + 0.5) / len(times) - 0.5) for i in range(len(times))]
        seconds.scatter(times, offsets, s=14, color="white", edgecolors=INK, linewidths=0.8, zorder=3)
    medians, ends = [median(times) for times in runs], [max(times) for times in runs]
    texts = [f"median {format_seconds(value)}" for value in medians]
    _draw_bars(seconds, names, medians, texts, "seconds, with each run", 1.35, ends)
    seconds.xaxis.set_major_locator(MaxNLocator(5))
    sizes = ["" if size is None else f", {format_size(size)}" for size in bytes_read]
    texts = [format_count(count, "file") + size for count, size in zip(files_read, sizes, strict=True)]
    _draw_bars(files, names, files_read, texts, "files read", 1.8)
    style.count_ticks(files.xaxis, 2)
    _write_query(figure, query)
    return figure


def _draw_bars(
    axis: Axes,
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    label: str,
    room: float,
    ends: Sequence[float] = (),
) -> None:
    """Draw a bar per row, today's layout first, with a text where each bar ends."""
    axis.barh(range(len(names)), values, color=[LIVE, *[NEW] * (len(names) - 1)], height=0.7)
    for row, (end, text) in enumerate(zip(ends or values, texts, strict=True)):
        style.note(axis, text, (end, row), (6, 0), va="center")
    style.rows(axis, list(map(style.short, names)))
    axis.set(xlim=(0, max(ends or [*values, 1]) * room), xlabel=label)


def _write_query(figure: Chart, query: str) -> None:
    style.remark(figure, shortened(" ".join(query.split()), _LONGEST_QUERY), MUTED, family="monospace")


def survey(tables: pa.Table, finding: str) -> Chart:
    """Draw the files of each table now and after compaction; equal lengths are equal factors.

    `tables` is the table of `Survey.to_arrow()`; tables with an error are counted, not drawn.
    """
    rows = tables.filter(tables["error"].is_null()).to_pylist()
    shown = rows[:_MOST_TABLES]
    names = _without_shared_folder([row["table"] for row in shown])
    now = [row["num_files"] for row in shown]
    after = [row["num_files"] - row["files_removed"] + row["files_added"] for row in shown]
    notes = []
    if len(shown) < len(rows):
        notes.append(f"the first {len(shown)} of {format_count(len(rows), 'table')} are shown")
    if len(rows) < len(tables):
        notes.append(f"{format_count(len(tables) - len(rows), 'table')} can't be surveyed, or not in full")
    sentences = [
        f"{name}: {format_count(row['num_files'], 'file')}, {row['num_small_files']:,} of them small, "
        f"{left:,} after compaction"
        for row, name, left in zip(shown[:_MOST_IN_LABEL], names, after, strict=False)
    ]
    height = 1.4 + 0.26 * len(shown) + 0.2 * bool(notes)
    figure = style.chart(style.WIDTH, height, finding, *sentences, *notes)
    style.remark(figure, "; ".join(notes))
    if shown:
        axis = figure.subplots()
        _draw_tables(axis, now, after, [row["files_removed"] > 0 for row in shown])
        style.rows(axis, names)
    return figure


def _draw_tables(axis: Axes, now: Sequence[int], after: Sequence[int], is_compacted: Sequence[bool]) -> None:
    positions = range(len(now))
    axis.hlines(positions, after, now, color=NEW, alpha=0.35, linewidth=4, zorder=2)
    axis.scatter(now, positions, s=34, color=LIVE, marker="o", zorder=3, label="files now")
    compacted = [position for position in positions if is_compacted[position]]
    left = [after[position] for position in compacted]
    axis.scatter(left, compacted, s=34, color=NEW, marker="D", zorder=4, label="after compaction")
    # A table may have no file left, and a logarithmic scale has no zero.
    axis.set_xscale("symlog", linthresh=1)
    axis.set(xlabel="files", xlim=(0.8 if min(after) else -0.1, max(*now, 10) * 1.3))
    most = int(np.log10(axis.get_xlim()[1]))
    axis.set_xticks([0] * (not min(after)) + [10**power for power in range(0, most + 1, most // 4 + 1)])
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.xaxis.set_minor_locator(NullLocator())
    near: dict[str, Any] = {"borderaxespad": 1.8, "borderpad": 0.2, "handletextpad": 0.2}
    style.legend(axis, "lower left", bbox_to_anchor=(0, 1), ncols=2, **near)
    for position in positions:
        text, color = f"{now[position]:,} → {after[position]:,}", INK
        if not is_compacted[position]:
            text, color = f"{now[position]:,}, nothing to do", MUTED
        where = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
        style.note(axis, text, (1, position), (6, 0), color, **where)


def _without_shared_folder(names: list[str]) -> list[str]:
    """Return paths without the folder that all are in; of long names only the end."""
    try:
        shared = os.path.commonpath({os.path.dirname(name) for name in names})
    except ValueError:
        # There are no names, or some paths are relative and others are not.
        shared = ""
    return [style.short(os.path.relpath(name, shared) if shared else name, _LONGEST_TABLE) for name in names]
