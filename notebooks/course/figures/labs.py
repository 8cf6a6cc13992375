"""Figures of the lessons' labs; each has one size, whatever it shows."""

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from compaction_kit.plots import style
from compaction_kit.plots.style import INK, LIVE, NEW, SMALL, SMALL_HATCH, Chart
from compaction_kit.text import format_count, format_seconds, format_size

_DAY = 24 * 60 * 60.0
_TICKS = {1e-3: "1 ms", 1.0: "1 s", 60.0: "1 min", 3_600.0: "1 h", _DAY: "1 day", 365 * _DAY: "1 year"}
_SHORTEST, _LONGEST = 1e-3, 3_650 * _DAY
_LOG_KINDS = ("checkpoint", "commit")
# A file and what its bin held before, or why it stays.
_PIECES: dict[str, style.Look] = {
    "this file": (NEW, ""),
    "in the bin already": (style.PALE, ""),
    "stays: alone in its bin": (SMALL, SMALL_HATCH),
    "stays: not small": (LIVE, "..."),
}


def waiting(tables: Mapping[str, tuple[int, float]]) -> Chart:
    """How long a reader waits until all files of a table are open, on one scale for all settings.

    Args:
        tables: The number of files, and the seconds until they are open, by what the table is; at least
            two, of which the last is the compacted table.
    """
    texts = {
        name: f"{format_count(files, 'file')}, {_wait(seconds)}" for name, (files, seconds) in tables.items()
    }
    sentences = [f"{name}: {text}" for name, text in texts.items()]
    title = f"{sentences[-2].capitalize()} until open; {sentences[-1]}"
    figure = style.chart(style.LAB_WIDTH, 1.0 + 0.32 * len(tables), title, *sentences)
    axis = figure.subplots()
    axis.set_xscale("log")
    axis.set_xlim(_SHORTEST, _LONGEST)
    ends = [max(seconds, _SHORTEST) for _, seconds in tables.values()]
    axis.barh(list(texts), ends, 0.7, left=_SHORTEST, color=[*[LIVE] * (len(texts) - 1), NEW])
    for row, (end, text) in enumerate(zip(ends, texts.values(), strict=True)):
        style.note(axis, text, (end, row), va="center", fontsize=9)
    axis.set_xticks(list(_TICKS), list(_TICKS.values()))
    axis.minorticks_off()
    axis.invert_yaxis()
    axis.set_xlabel("until all files are open")
    style.calm(axis, "x")
    axis.tick_params(labelsize=9)
    axis.tick_params(axis="y", length=0)
    return figure


def reading(lives: pa.Table, listing: pa.Table, needed: Collection[str], version: int) -> Chart:
    """Which files are live at a version, and which files of the log say so.

    Args:
        lives: added and removed of each file's life, as `TransactionLog.lifetimes` returns them.
        listing: name, kind and version of the log's files, as `TransactionLog.listing` returns them.
        needed: The names of those that a reader of the version reads.
        version: The version that is read.
    """
    is_of_log = pc.is_in(listing["kind"], value_set=pa.array(_LOG_KINDS))
    logs = listing.filter(is_of_log).select(["name", "kind", "version"]).to_pylist()
    latest = max(row["version"] for row in logs)
    added, removed = lives["added"].to_numpy(), pc.fill_null(lives["removed"], latest + 1).to_numpy()
    is_live = (added <= version) & (version < removed)
    title = (
        f"Version {version}: {format_count(int(is_live.sum()), 'live file')}, "
        f"known from {format_count(len(needed), 'file')} of the log"
    )
    figure = style.chart(style.LAB_WIDTH, 4.6, title)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    bottom = np.arange(len(lives))
    for mine, colour in ((is_live, LIVE), (~is_live, style.PALE)):
        sides = [side[mine] for side in (added - 0.5, removed - 0.5, bottom, bottom + 1)]
        style.boxes(above, sides, (colour, ""), "white", 0.6)
    for row in logs:
        _draw_log_file(below, row["version"], _LOG_KINDS.index(row["kind"]), row["name"] in needed)
    for axis in (above, below):
        axis.axvline(version, color=INK, linewidth=1, linestyle="--")
        style.calm(axis, "x")
        axis.tick_params(labelsize=9)
    above.set(ylabel="data files", xlim=(-0.5, latest + 0.5), ylim=(max(len(lives), 1), 0))
    style.count_ticks(above.yaxis)
    below.set(xlabel="version", ylim=(len(_LOG_KINDS) - 0.5, -0.5))
    below.set_yticks(range(len(_LOG_KINDS)), [f"{kind}s" for kind in _LOG_KINDS])
    below.xaxis.set_major_locator(MaxNLocator(15, integer=True))
    looks = {"live, or read for it": (LIVE, ""), "not": (style.PALE, "")}
    style.legend(figure, "outside upper right", looks, fontsize=9)
    return figure


def packing(steps: pa.Table, max_file_size: int, num_seen: int) -> Chart:
    """How bins fill, file by file, up to one of the files.

    Args:
        steps: size_bytes, outcome and bin_id of each file, as a plan's `steps` has them.
        max_file_size: What a bin holds, in bytes.
        num_seen: How many of the files have been looked at.
    """
    sizes, outcomes = steps["size_bytes"].to_numpy(), steps["outcome"].to_pylist()
    before = held_before(steps)
    num_bins = len(steps["bin_id"].slice(0, num_seen).unique().drop_null())
    seen = f"{num_seen:,} of {format_count(len(steps), 'file')} looked at"
    title = f"{seen}: {format_count(num_bins, 'bin')} so far"
    figure = style.chart(style.LAB_WIDTH, 3.8, title, f"A bin holds at most {format_size(max_file_size)}")
    axis = figure.subplots()
    looks = {"large": "stays: not small", "alone": "stays: alone in its bin"}
    for number, (size, base, outcome) in enumerate(zip(sizes, before, outcomes, strict=True), 1):
        if number > num_seen:
            axis.bar(number, size, 0.86, facecolor="none", edgecolor=style.MUTED, linestyle=":")
            continue
        axis.bar(number, base, 0.86, **style.fill(_PIECES["in the bin already"]))
        # That a bin stays with one file is known when the next file does not fit.
        known = number < num_seen or num_seen == len(steps) or outcome == "large"
        piece = looks.get(outcome, "this file") if known else "this file"
        axis.bar(number, size, 0.86, bottom=base, **style.fill(_PIECES[piece]))
    axis.axhline(max_file_size, color=INK, linestyle="--", linewidth=1)
    style.note(axis, f"a bin is full: {format_size(max_file_size)}", (0.5, max_file_size), (0, 3), fontsize=9)
    axis.set(xlabel="file, in the order of packing", xlim=(0.4, len(steps) + 0.6))
    axis.set_ylim(0, 1.2 * max(max_file_size, sizes.max(initial=1)))
    style.size_ticks(axis.yaxis, axis.get_ylim()[1], 6)
    style.count_ticks(axis.xaxis)
    style.calm(axis, "y")
    axis.tick_params(labelsize=9)
    style.legend(figure, "outside lower right", _PIECES, fontsize=9)
    return figure


def held_before(steps: pa.Table) -> np.ndarray:
    """What each file's bin holds before it, in bytes; 0 for a file that opens one, or that stays."""
    sizes = steps["size_bytes"].to_numpy()
    bins = pc.fill_null(steps["bin_id"], -1).to_numpy()
    before = np.cumsum(sizes) - sizes
    starts = np.flatnonzero(np.r_[True, bins[1:] != bins[:-1]]) if len(bins) else np.array([], np.int64)
    opened = np.repeat(before[starts], np.diff(np.r_[starts, len(bins)]))
    return np.where(bins < 0, 0, before - opened)


def _draw_log_file(axis: Axes, version: int, row: int, is_needed: bool) -> None:
    sides = (version - 0.36, version + 0.36, row - 0.36, row + 0.36)
    look = (LIVE if is_needed else style.PALE, "")
    style.boxes(axis, [np.array([side]) for side in sides], look, "white", 0.6)


def _wait(seconds: float) -> str:
    """Write seconds, and more than two days as days."""
    return f"{seconds / _DAY:,.0f} days" if seconds > 2 * _DAY else format_seconds(seconds)
