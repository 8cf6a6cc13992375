"""The figure of many tables."""

import os
from typing import Any

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from compaction_kit.plots.style import INK, LIVE, MUTED, NEW, SMALL, SMALL_HATCH, Chart, calm, short, titled
from compaction_kit.text import format_count, format_size

_MOST_TABLES = 30
_MOST_IN_WORDS = 10
# Where the columns of text beside the bars end, in points from the axes.
_FILES_END, _GAIN_END = 92, 158

Row = dict[str, Any]


def survey(tables: pa.Table, finding: str) -> Chart:
    """Of each table the share of small files, its files now and after compaction, and the gain.

    Args:
        tables: What `Survey.to_arrow()` returns; those with an error are counted, not drawn.
        finding: The title.
    """
    rows = tables.filter(tables["error"].is_null()).to_pylist()
    shown = rows[:_MOST_TABLES]
    names = short_names([row["table"] for row in shown])
    notes = _notes(len(shown), len(rows), len(tables) - len(rows))
    figure = Chart(figsize=(9.6, 1.3 + 0.26 * len(shown) + 0.2 * bool(notes)), layout="constrained")
    if shown:
        share, files = figure.subplots(1, 2, sharey=True, width_ratios=(1, 4.5))
        _draw_share(share, shown)
        _draw_files(files, shown)
        _draw_outcomes(files, shown)
        share.set_yticks(range(len(shown)), names)
        share.set_ylim(len(shown) - 0.4, -0.6)
        for axis in (share, files):
            axis.tick_params(axis="y", length=0)
    if notes:
        figure.supxlabel("; ".join(notes), x=0.01, ha="left", fontsize=8, color=INK)
    titled(figure, finding)
    figure.set_label(". ".join([finding, *_in_words(shown[:_MOST_IN_WORDS], names), *notes]))
    return figure


def short_names(names: list[str]) -> list[str]:
    """Paths without the folder that all are in, and of long names the end."""
    try:
        shared = os.path.commonpath({os.path.dirname(name) for name in names})
    except ValueError:
        # There are none, or some are relative and others are not.
        shared = ""
    return [short(os.path.relpath(name, shared) if shared else name) for name in names]


def _draw_share(axis: Axes, rows: list[Row]) -> None:
    """Which part of the files is small."""
    positions = range(len(rows))
    small = [row["num_small_files"] / row["num_files"] for row in rows]
    others = [1 - part for part in small]
    axis.barh(positions, small, color=SMALL, hatch=SMALL_HATCH, edgecolor="white", linewidth=0, height=0.6)
    axis.barh(positions, others, left=small, color=LIVE, height=0.6)
    axis.set(xlim=(0, 1), xlabel="small files")
    axis.set_xticks([0, 0.5, 1], ["0", "50", "100 %"])
    calm(axis, "x")
    axis.grid(False)


def _draw_files(axis: Axes, rows: list[Row]) -> None:
    """Files now and after compaction, on a scale on which equal lengths are equal factors."""
    positions = range(len(rows))
    now, after = [row["num_files"] for row in rows], [_after(row) for row in rows]
    axis.hlines(positions, after, now, color=NEW, alpha=0.35, linewidth=4, zorder=2)
    axis.scatter(now, positions, s=34, color=LIVE, marker="o", zorder=3, label="files now")
    helped = [position for position in positions if rows[position]["files_removed"]]
    left = [after[position] for position in helped]
    axis.scatter(left, helped, s=34, color=NEW, marker="D", zorder=4, label="after compaction")
    if min(after):
        axis.set_xscale("log")
        axis.set_xlim(0.8, max(*now, 10) * 1.3)
    else:
        # A table of which no row is left; a logarithm has no zero.
        axis.set_xscale("symlog", linthresh=1)
        axis.set_xlim(-0.1, max(*now, 10) * 1.3)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("files")
    calm(axis, "x")
    axis.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=2,
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        borderpad=0.2,
        handletextpad=0.2,
    )


def _draw_outcomes(axis: Axes, rows: list[Row]) -> None:
    """What becomes of each table, in two columns beside the bars."""
    _beside(axis, -0.9, "now → after", _FILES_END, MUTED)
    _beside(axis, -0.9, "spared", _GAIN_END, MUTED)
    for position, row in enumerate(rows):
        if row["files_removed"]:
            _beside(axis, position, f"{row['num_files']:,} → {_after(row):,}", _FILES_END, INK)
            _beside(axis, position, format_size(row["gain"]), _GAIN_END, INK, "bold")
        else:
            _beside(axis, position, f"{row['num_files']:,}", _FILES_END, MUTED)
            _beside(axis, position, "nothing", _GAIN_END, MUTED)


def _beside(axis: Axes, position: float, text: str, end: float, colour: str, weight: str = "normal") -> None:
    axis.annotate(
        text,
        (1, position),
        xycoords=("axes fraction", "data"),
        xytext=(end, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=8,
        color=colour,
        fontweight=weight,
        annotation_clip=False,
    )


def _notes(num_shown: int, num_surveyed: int, num_failed: int) -> list[str]:
    notes = []
    if num_shown < num_surveyed:
        notes.append(f"the first {num_shown} of {format_count(num_surveyed, 'table')} are shown")
    if num_failed:
        notes.append(f"{format_count(num_failed, 'table')} can't be surveyed, or not in full")
    return notes


def _in_words(rows: list[Row], names: list[str]) -> list[str]:
    return [
        f"{name}: {format_count(row['num_files'], 'file')}, {row['num_small_files']:,} of them small, "
        f"{_after(row):,} after compaction, which would spare {format_size(row['gain'])}"
        for row, name in zip(rows, names, strict=False)
    ]


def _after(row: Row) -> int:
    after: int = row["num_files"] - row["files_removed"] + row["files_added"]
    return after
