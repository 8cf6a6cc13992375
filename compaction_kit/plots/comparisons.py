"""Figures with a row a thing: layouts of a table, one query at two versions, the tables of a survey."""

import os
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from compaction_kit.plots import style
from compaction_kit.plots.style import INK, LIVE, MUTED, NEW, Chart
from compaction_kit.text import format_count, format_seconds, format_size, shortened

_LONGEST_QUERY = 95
_MOST_TABLES, _MOST_IN_LABEL, _LONGEST_TABLE = 30, 10, 24
# Where the columns of text beside a survey's lines end, in points from the axes.
_COLUMN_ENDS = 34, 112, 178


def layouts(table: pa.Table, column: str) -> Chart:
    """Draw how many files a narrow range of a column touches, a bar a layout.

    Args:
        table: Layouts as `plan.compare` gives them.
        column: The column.
    """
    names, touched = table["layout"].to_pylist(), table["range_files"].to_pylist()
    values = [value or 0 for value in touched]
    best = names[values.index(min(values))]
    title = f"A narrow range of {style.short(column)} touches the fewest files {style.short(best)}"
    figure = style.chart(style.WIDTH, 1.2 + 0.4 * len(names), title)
    texts = [
        "unknown" if value is None else f"{value:,.1f} of {count:,} files"
        for value, count in zip(touched, table["num_files"].to_pylist(), strict=True)
    ]
    touches = "; ".join(f"{name}: {text}" for name, text in zip(names, texts, strict=True))
    figure.set_label(f"A narrow range of {column} touches the fewest files {best}. {touches}")
    _draw_layouts(figure.subplots(), names, values, texts, "files touched")
    return figure


def predicted_reads(query: str, table: pa.Table, finding: str) -> Chart:
    """Draw how many files a query opens now, and would open in other layouts, a bar each.

    Args:
        query: The query.
        table: Layouts as `plan.predict_reads` gives them.
        finding: The title.
    """
    rows = table.to_pylist()
    texts = [
        f"{row['files_opened']:,} of {format_count(row['num_files'], 'file')}, "
        f"{format_size(row['bytes_opened'])}"
        for row in rows
    ]
    query = " ".join(query.split())
    figure = style.chart(style.WIDTH, 1.4 + 0.34 * len(rows), finding, f"The query is {query}")
    names, opened = [row["layout"] for row in rows], [row["files_opened"] for row in rows]
    label = "files opened; all but now are predicted" if len(rows) > 1 else "files opened"
    _draw_layouts(figure.subplots(), names, opened, texts, label)
    _write_query(figure, query)
    return figure


def _write_query(figure: Chart, query: str) -> None:
    """Write the beginning of a query below a figure."""
    figure.supxlabel(
        shortened(query, _LONGEST_QUERY), x=0.01, ha="left", fontsize=8.25, color=MUTED, family="monospace"
    )


def _draw_layouts(
    axis: Axes, names: Sequence[str], values: Sequence[float], texts: Sequence[str], label: str
) -> None:
    """A bar a layout, the first of which is that of now."""
    axis.barh(range(len(names)), values, color=[LIVE, *[NEW] * (len(names) - 1)], height=0.7)
    for row, (value, text) in enumerate(zip(values, texts, strict=True)):
        style.note(axis, text, (value, row), va="center")
    axis.set_yticks(range(len(names)), list(map(style.short, names)))
    axis.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, max([*values, 1]) * 1.8), xlabel=label)
    style.count_ticks(axis.xaxis, 4)
    style.calm(axis, "x")


def reads(
    query: str,
    finding: str,
    versions: tuple[int, int],
    runs: Sequence[Sequence[float]],
    files_read: Sequence[int],
    bytes_read: Sequence[int | None],
) -> Chart:
    """Draw median seconds as bars with the single runs as points, and the files read, before and after.

    Args:
        query: The query.
        finding: The title.
        versions: Those that were read.
        runs: For each version the seconds of each run.
        files_read: How many files each reads.
        bytes_read: The bytes of these files; None where they are not known.
    """
    query = " ".join(query.split())
    figure = style.chart(style.WIDTH, 2.3, finding, f"The query is {query}")
    seconds, files = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    medians, ends = [median(times) for times in runs], [max(times) for times in runs]
    for row, times in enumerate(runs):
        # One above another where they would hide each other.
        offsets = [row + 0.36 * ((i + 0.5) / len(times) - 0.5) for i in range(len(times))]
        seconds.scatter(times, offsets, s=14, color="white", edgecolors=INK, linewidths=0.8, zorder=3)
    _draw_two_bars(seconds, medians, ends, [f"median {format_seconds(value)}" for value in medians])
    seconds.set(xlim=(0, max(ends) * 1.35), xlabel="seconds, with each run")
    seconds.xaxis.set_major_locator(MaxNLocator(5))
    texts = [
        format_count(count, "file") + ("" if size is None else f", {format_size(size)}")
        for count, size in zip(files_read, bytes_read, strict=True)
    ]
    _draw_two_bars(files, files_read, files_read, texts)
    files.set(xlim=(0, max([*files_read, 1]) * 1.75), xlabel="files read")
    style.count_ticks(files.xaxis, 2)
    seconds.set_yticks([0, 1], [f"version {version}" for version in versions])
    seconds.set_ylim(1.55, -0.55)
    _write_query(figure, query)
    return figure


def _draw_two_bars(axis: Axes, values: Sequence[float], ends: Sequence[float], texts: Sequence[str]) -> None:
    """Before and after, each with a text from where it ends."""
    axis.barh([0, 1], values, color=[LIVE, NEW], height=0.6)
    for row, (end, text) in enumerate(zip(ends, texts, strict=True)):
        style.note(axis, text, (end, row), (6, 0), va="center", fontweight="bold")
    style.calm(axis, "x")
    axis.tick_params(axis="y", length=0)


def survey(tables: pa.Table, finding: str) -> Chart:
    """Draw the files of each table now and after compaction, and say how many of them are small.

    Args:
        tables: What `Survey.to_arrow()` returns; those with an error are counted, not drawn.
        finding: The title.
    """
    rows = tables.filter(tables["error"].is_null()).to_pylist()
    shown = rows[:_MOST_TABLES]
    names = _without_shared_folder([row["table"] for row in shown])
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
    if shown:
        _draw_survey(figure.subplots(), shown, names, after)
    if notes:
        figure.supxlabel("; ".join(notes), x=0.01, ha="left", fontsize=8.25, color=INK)
    return figure


def _without_shared_folder(names: list[str]) -> list[str]:
    """Paths without the folder that all are in, and of long names the end."""
    try:
        shared = os.path.commonpath({os.path.dirname(name) for name in names})
    except ValueError:
        # There are none, or some are relative and others are not.
        shared = ""
    return [style.short(os.path.relpath(name, shared) if shared else name, _LONGEST_TABLE) for name in names]


def _draw_survey(axis: Axes, rows: list[dict[str, Any]], names: list[str], after: list[int]) -> None:
    """Draw a line a table on a scale on which equal lengths are equal factors, and numbers beside it."""
    positions, now = range(len(rows)), [row["num_files"] for row in rows]
    axis.hlines(positions, after, now, color=NEW, alpha=0.35, linewidth=4, zorder=2)
    axis.scatter(now, positions, s=34, color=LIVE, marker="o", zorder=3, label="files now")
    compacted = [position for position in positions if rows[position]["files_removed"]]
    left = [after[position] for position in compacted]
    axis.scatter(left, compacted, s=34, color=NEW, marker="D", zorder=4, label="after compaction")
    # If there is a table of which no row is left: a logarithm has no zero.
    if min(after):
        axis.set_xscale("log")
    else:
        axis.set_xscale("symlog", linthresh=1)
    axis.set_xlim(0.8 if min(after) else -0.1, max(*now, 10) * 1.3)
    most = int(np.log10(axis.get_xlim()[1]))
    axis.set_xticks([0] * (not min(after)) + [10**power for power in range(0, most + 1, most // 4 + 1)])
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set(xlabel="files", ylim=(len(rows) - 0.4, -0.6))
    axis.set_yticks(positions, names)
    style.calm(axis, "x")
    axis.tick_params(axis="y", length=0)
    near: dict[str, Any] = {"borderaxespad": 1.8, "borderpad": 0.2, "handletextpad": 0.2}
    style.legend(axis, "lower left", bbox_to_anchor=(0, 1), ncols=2, **near)
    columns = [(-0.9, ("small", "now → after", "fewer"), MUTED)]
    for position, row in zip(positions, rows, strict=True):
        files, small = (
            row["num_files"],
            100 * row["num_small_files"] / row["num_files"] if row["num_files"] else 0,
        )
        texts = (f"{small:.0f} %", f"{files:,} → {after[position]:,}", f"{files - after[position]:,}")
        is_done = not row["files_removed"]
        columns.append(
            (position, (texts[0], f"{files:,}", "nothing") if is_done else texts, MUTED if is_done else INK)
        )
    where = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "center", "annotation_clip": False}
    for y, words, color in columns:
        for text, end in zip(words, _COLUMN_ENDS, strict=True):
            style.note(axis, text, (1, y), (end, 0), color, **where)
