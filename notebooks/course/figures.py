"""Figures of the course: functions that take tables and plain values, and return a Figure of a fixed size."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from compaction_kit.plots import style
from compaction_kit.plots.style import INK, LIVE, LOST, NEW, PALE, SMALL, SMALL_HATCH, TOMBSTONED, Chart
from compaction_kit.text import format_count, format_seconds, format_size

_DAY = 24 * 60 * 60.0
_TICKS = {1e-3: "1 ms", 1.0: "1 s", 60.0: "1 min", 3_600.0: "1 h", _DAY: "1 day", 365 * _DAY: "1 year"}
_SHORTEST, _LONGEST = 1e-3, 3_650 * _DAY
_LOG_KINDS = ("checkpoint", "commit")
# The most names and labels on an axis.
_MOST_NAMES, _MOST_LABELS = 12, 8
# A file, the bytes that its bin held before, and the reasons why a file stays.
_PIECES: dict[str, style.Look] = {
    "this file": (NEW, ""),
    "in the bin already": (PALE, ""),
    "stays: alone in its bin": (SMALL, SMALL_HATCH),
    "stays: not small": (LIVE, "..."),
}
_ROWS_READ: dict[str, style.Look] = {
    "from live files": (LIVE, ""),
    "from replaced files": (TOMBSTONED, ""),
    "again, from replaced files": (SMALL, SMALL_HATCH),
    "missed": (LOST, "xxx"),
}
# States of files in a sink's log. White edges separate neighbours; removed files have only an edge.
LOG_STATES = ("a reader needs it", "kept, not needed", "removed")
_LOG_LOOKS = ((LIVE, "", "white"), (TOMBSTONED, "", "white"), ("none", "...", TOMBSTONED))
MOST_BATCHES = 60
# The lanes of the two writers and the log, and the place of each event in time, which is not to scale.
_FIRST, _LOG, _SECOND, _HALF = 2.0, 1.0, 0.0, 0.17
_BEGINS, _JOINS, _COMMITS, _TRIES, _CHECKED = 0.0, 0.9, 2.5, 3.3, 4.7
_RETRIES, _RECHECKED, _END = 5.5, 6.8, 9.8
_PAUSED, _VERSION = "#BBD7EA", "#EEEEEE"


def waiting(tables: Mapping[str, tuple[int, float]]) -> Chart:
    """Draw how long a reader waits until all files of a table are open, on one scale for all settings.

    `tables` maps the description of a table to its number of files and the seconds until they are open. It
    has at least two tables; the last one is compacted.
    """
    texts = {}
    for name, (files, seconds) in tables.items():
        time = f"{seconds / _DAY:,.0f} days" if seconds > 2 * _DAY else format_seconds(seconds)
        texts[name] = f"{format_count(files, 'file')}, {time}"
    sentences = [f"{name}: {text}" for name, text in texts.items()]
    title = f"{sentences[-2].capitalize()} until open; {sentences[-1]}"
    figure = style.chart(style.LAB_WIDTH, 1.0 + 0.32 * len(tables), title, *sentences)
    axis = figure.subplots()
    axis.set_xscale("log")
    axis.set_xlim(_SHORTEST, _LONGEST)
    ends = [max(seconds, _SHORTEST) for _, seconds in tables.values()]
    colours = [*[LIVE] * (len(texts) - 1), NEW]
    axis.barh(range(len(texts)), [end - _SHORTEST for end in ends], 0.7, left=_SHORTEST, color=colours)
    for row, (end, text) in enumerate(zip(ends, texts.values(), strict=True)):
        style.note(axis, text, (end, row), va="center")
    axis.set_xticks(list(_TICKS), list(_TICKS.values()))
    axis.minorticks_off()
    axis.set_xlabel("until all files are open")
    style.rows(axis, list(texts))
    return figure


def reading(lives: pa.Table, listing: pa.Table, needed: Collection[str], version: int) -> Chart:
    """Draw the live files of a version, and the log files that a reader needs to know them.

    `lives` and `listing` are what `TransactionLog.lifetimes` and `TransactionLog.listing` return; `needed`
    are the names of the log's files that a reader of the version reads.
    """
    logs = [row for row in listing.to_pylist() if row["kind"] in _LOG_KINDS]
    latest = max(row["version"] for row in logs)
    added, removed = lives["added"].to_numpy(), pc.fill_null(lives["removed"], latest + 1).to_numpy()
    is_live = (added <= version) & (version < removed)
    known = f"known from {format_count(len(needed), 'file')} of the log"
    title = f"Version {version}: {format_count(int(is_live.sum()), 'live file')}, {known}"
    figure = style.chart(style.LAB_WIDTH, 4.6, title)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    bottom = np.arange(len(lives))
    versions = np.array([row["version"] for row in logs])
    rows = np.array([_LOG_KINDS.index(row["kind"]) for row in logs])
    is_needed = np.array([row["name"] in needed for row in logs])
    for is_shown, colour in ((True, LIVE), (False, PALE)):
        mine, read = is_live == is_shown, is_needed == is_shown
        sides = [side[mine] for side in (added - 0.5, removed - 0.5, bottom, bottom + 1)]
        style.boxes(above, sides, (colour, ""), "white", 0.6)
        sides = [side[read] for side in (versions - 0.36, versions + 0.36, rows - 0.36, rows + 0.36)]
        style.boxes(below, sides, (colour, ""), "white", 0.6)
    for axis in (above, below):
        axis.axvline(version, color=INK, linewidth=1, linestyle="--")
        style.calm(axis, "x")
    above.set(ylabel="data files", xlim=(-0.5, latest + 0.5), ylim=(max(len(lives), 1), 0))
    style.count_ticks(above.yaxis)
    below.set(xlabel="version", ylim=(len(_LOG_KINDS) - 0.5, -0.5))
    below.set_yticks(range(len(_LOG_KINDS)), [f"{kind}s" for kind in _LOG_KINDS])
    below.xaxis.set_major_locator(MaxNLocator(15, integer=True))
    style.legend(figure, "outside upper right", {"live, or read": (LIVE, ""), "not": (PALE, "")})
    return figure


def packing(steps: pa.Table, max_file_size: int, num_seen: int) -> Chart:
    """Draw how bins fill, file by file, with the first `num_seen` of a plan's `steps` done.

    A bin holds at most `max_file_size` bytes.
    """
    sizes, outcomes = steps["size_bytes"].to_numpy(), steps["outcome"].to_pylist()
    num_bins = len(steps["bin_id"].slice(0, num_seen).unique().drop_null())
    seen = f"{num_seen:,} of {format_count(len(steps), 'file')} looked at"
    title = f"{seen}: {format_count(num_bins, 'bin')} so far"
    figure = style.chart(style.LAB_WIDTH, 3.8, title, f"A bin holds at most {format_size(max_file_size)}")
    axis = figure.subplots()
    looks = {"large": "stays: not small", "alone": "stays: alone in its bin"}
    for number, (size, base, outcome) in enumerate(zip(sizes, held_before(steps), outcomes, strict=True), 1):
        if number > num_seen:
            axis.bar(number, size, 0.86, facecolor="none", edgecolor=style.MUTED, linestyle=":")
            continue
        axis.bar(number, base, 0.86, **style.fill(_PIECES["in the bin already"]))
        # Whether a file stays alone in its bin is known only when the next file doesn't fit.
        known = number < num_seen or num_seen == len(steps) or outcome == "large"
        piece = looks.get(outcome, "this file") if known else "this file"
        axis.bar(number, size, 0.86, bottom=base, **style.fill(_PIECES[piece]))
    axis.axhline(max_file_size, color=INK, linestyle="--", linewidth=1)
    style.note(axis, f"a bin is full: {format_size(max_file_size)}", (0.5, max_file_size), (0, 3))
    axis.set(xlabel="file, in the order of packing", xlim=(0.4, len(steps) + 0.6))
    axis.set_ylim(0, 1.2 * max(max_file_size, sizes.max(initial=1)))
    style.size_ticks(axis.yaxis, axis.get_ylim()[1], 6)
    style.count_ticks(axis.xaxis)
    style.calm(axis, "y")
    style.legend(figure, "outside lower right", _PIECES)
    return figure


def held_before(steps: pa.Table) -> list[int]:
    """Return the bytes in each file's bin before that file; 0 for the first file in a bin, or if it stays."""
    before, held = [], Counter[int | None]()
    for size, bin_id in zip(steps["size_bytes"].to_pylist(), steps["bin_id"].to_pylist(), strict=True):
        before.append(0 if bin_id is None else held[bin_id])
        held[bin_id] += size
    return before


def log_files(files: pa.Table, interval: int) -> Chart:
    """Draw which batches each file of a log holds: a row for the files of batches, and one per compaction.

    `files` is what `labs.sink_log.log_files` returns; there is a compaction every `interval` batches.
    """
    first, batch = files["first"].to_numpy(), files["batch"].to_numpy()
    states, names = np.array(files["state"].to_pylist(), str), np.array(files["name"].to_pylist(), str)
    needed, removed = (int((states == state).sum()) for state in (LOG_STATES[0], LOG_STATES[2]))
    written = format_count(len(files), "file")
    left = f"{len(files) - removed} of {written} left, a reader needs {needed}"
    figure = style.chart(style.LAB_WIDTH, 3.2, f"After batch {len(files) - 1}: {left}")
    axis = figure.subplots()
    compacted = np.char.endswith(names, ".compact")
    rows = np.where(compacted, np.cumsum(compacted), 0)
    handles = []
    for state, (colour, hatch, edge) in zip(LOG_STATES, _LOG_LOOKS, strict=True):
        sides = [side[states == state] for side in (first - 0.5, batch + 0.5, rows + 0.1, rows + 0.9)]
        style.boxes(axis, sides, (colour, hatch), edge, 0.6)
        handles.append(Patch(label=state, facecolor=colour, hatch=hatch, edgecolor=edge))
    num_compactions = MOST_BATCHES // interval
    step = -(-(num_compactions + 1) // _MOST_LABELS)
    labels = ["batches' own files", *names[compacted]]
    axis.set_yticks(np.arange(len(labels))[::step] + 0.5, labels[::step])
    axis.set(xlabel="batches whose entries the file holds", xlim=(-0.5, MOST_BATCHES - 0.5))
    axis.set_ylim(num_compactions + 1, 0)
    style.count_ticks(axis.xaxis)
    style.calm(axis, "x")
    style.legend(figure, "outside lower left", handles=handles, ncols=len(handles))
    return figure


def manifest_rows(groups: pa.Table, generated: int) -> Chart:
    """Draw how often a reader of a manifest reads the rows of each group of files: once, twice, or never.

    `groups` is what `labs.manifest.read_manifest` returns; `generated` batches are committed before GENERATE.
    """
    total, old, new, gone = (groups[name].to_numpy() for name in groups.column_names[1:])
    both, missed = np.minimum(old, new), total - np.maximum(old, new)
    found = {
        f"{format_count(int(gone.sum()), 'file')} of the list gone": gone.sum(),
        f"{both.sum():,} rows read twice": both.sum(),
        f"{missed.sum():,} rows missed": missed.sum(),
    }
    names = [style.short(name) for name in groups["name"].to_pylist()]
    num_batches = sum(name.startswith("batch") for name in names)
    what = ", ".join(text for text, count in found.items() if count) or "each row is read once"
    title = f"GENERATE after {generated} of {num_batches} batches: {what}"
    figure = style.chart(style.LAB_WIDTH, 3.2, title)
    axis = figure.subplots()
    top, places = np.zeros(len(total)), np.arange(len(total))
    for look, counts in zip(_ROWS_READ.values(), (new, old - both, both, missed), strict=True):
        axis.bar(places, counts, 0.8, top, linewidth=0, **style.fill(look))
        top = top + counts
    most = max(top.max(initial=0), 2 * total.max(initial=0), 1)
    line = generated + ("not compacted" in names) - 0.5
    axis.axvline(line, color=INK, linewidth=1, linestyle="--")
    style.note(axis, "GENERATE", (line, most * 1.16), va="top", annotation_clip=False)
    step = -(-len(names) // _MOST_NAMES)
    axis.set_xticks(places[::step], names[::step])
    axis.set(ylabel="rows read", xlim=(-0.6, len(total) - 0.4), ylim=(0, most * 1.18))
    style.count_ticks(axis.yaxis, 5)
    style.calm(axis, "y")
    axis.tick_params(axis="x", length=0)
    style.legend(figure, "outside lower left", _ROWS_READ)
    return figure


def concurrency(attempts: pa.Table, names: Sequence[str], title: str, exception: str | None = None) -> Chart:
    """Draw two writers of one table in order of time: a lane for each writer, and the log between them.

    `attempts` come from a `races.Story`, with the outcome "unknown" if the story isn't played yet. `names`
    are the paused writer, drawn above the log, and the writer that commits in between. `exception` is the
    exception of the paused writer, None if it committed.
    """
    rows, sentences = attempts.to_pylist(), []
    for row in rows:
        tried = "tried no commit" if row["version"] is None else f"tried to commit version {row['version']}"
        sentences.append(f"{row['writer']} read version {row['read_version']}, {tried}: {row['outcome']}")
    figure = style.chart(style.LAB_WIDTH, 2.9, title, *sentences)
    axis = figure.subplots()
    second = next(row for row in rows if row["writer"] == names[1])
    _box(axis, _SECOND, _JOINS, _COMMITS, LIVE, "at work")
    _move(axis, _SECOND, _JOINS, f"reads {second['read_version']}")
    _move(axis, _SECOND, _COMMITS, f"commits {second['version']}")
    committed = _paused_writer(axis, [row for row in rows if row["writer"] == names[0]], exception)
    starts = {second["read_version"]: -0.3, second["version"]: _COMMITS} | committed
    for (version, start), stop in zip(starts.items(), [*list(starts.values())[1:], _END - 0.1], strict=True):
        _box(axis, _LOG, start, stop, _VERSION, f"version {version}")
    axis.set(xlim=(-0.4, _END), ylim=(-0.3, 2.3), xticks=[])
    lanes = [style.short(names[0]), "the log", style.short(names[1])]
    axis.set_yticks([_FIRST, _LOG, _SECOND], lanes, fontsize=9, color=INK)
    axis.set_xlabel("order of time →", fontsize=9, color=INK, loc="right")
    axis.tick_params(axis="y", length=0)
    axis.spines[:].set_visible(False)
    return figure


def _paused_writer(axis: Axes, tries: list[dict[str, Any]], exception: str | None) -> dict[int, float]:
    """Draw the paused writer; return the version that it committed, if any, and when."""
    first, last, end, taken = tries[0], tries[-1], _CHECKED, tries[0]["version"]
    _box(axis, _FIRST, _BEGINS, _JOINS, LIVE, "at work")
    _box(axis, _FIRST, _JOINS, _TRIES, _PAUSED, "paused before its commit")
    _box(axis, _FIRST, _TRIES, _CHECKED, SMALL, f"conflict check\nof version {taken}")
    _move(axis, _FIRST, _BEGINS, f"reads {first['read_version']}")
    _arrow(axis, _TRIES, _FIRST, _LOG, SMALL)
    _note(axis, _TRIES, 1.5, f"tries {taken}:\ntaken", SMALL, ha="right")
    if first["outcome"] == "taken":
        _note(axis, _CHECKED, 1.5, "no conflict", NEW, ha="right")
    elif len(tries) > 1:
        _refuse(axis, _CHECKED, "conflict")
        _move(axis, _FIRST, _RETRIES, f"reads {last['read_version']}")
        end, found = _RECHECKED, last["outcome"] == "committed"
        text = f"looks again: its\nfiles are {'there' if found else 'gone'}"
        _box(axis, _FIRST, _RETRIES, end, LIVE if found else TOMBSTONED, text)
    if last["outcome"] == "committed":
        _move(axis, _FIRST, end, f"commits {last['version']}")
        return {last["version"]: end}
    if last["outcome"] == "unknown":
        _note(axis, _CHECKED, _FIRST, "?", fontsize=16, fontweight="bold")
    else:
        _refuse(axis, end, style.short(exception or "refused"), fontweight="bold")
    return {}


def _box(axis: Axes, lane: float, start: float, end: float, colour: str, text: str) -> None:
    bar = axis.barh(lane, end - start, 2 * _HALF, left=start, color=colour, edgecolor="white")
    ink = style.ON_DARK if colour in (LIVE, TOMBSTONED) else style.ON_LIGHT
    axis.bar_label(bar, [text], label_type="center", fontsize=8.25, color=ink, linespacing=0.95)


def _move(axis: Axes, lane: float, x: float, text: str) -> None:
    """Draw that the writer of a lane reads or commits a version."""
    if text.startswith("reads"):
        _arrow(axis, x, _LOG, lane, TOMBSTONED, ":")
        _note(axis, x, (lane + _LOG) / 2, text)
    else:
        _arrow(axis, x, lane, _LOG, NEW)
        _note(axis, x, (lane + _LOG) / 2, text, NEW, fontweight="bold")


def _refuse(axis: Axes, x: float, text: str, **look: Any) -> None:
    axis.plot([x + 0.25], [_FIRST], marker="X", markersize=12, color=LOST, markeredgecolor="white")
    _note(axis, x, _FIRST - 0.35, text, LOST, **look)


def _arrow(axis: Axes, x: float, start: float, end: float, colour: str, line: str = "-") -> None:
    inset = _HALF if end > start else -_HALF
    look = {"arrowstyle": "-|>", "color": colour, "ls": line, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", (x, end - inset), (x, start + inset), arrowprops=look)


def _note(axis: Axes, x: float, y: float, text: str, colour: str = INK, **look: Any) -> None:
    """Write a text to the right of a place, or to its left with ha="right"."""
    offset = (-4 if "ha" in look else 4, 0)
    style.note(axis, text, (x, y), offset, colour, va="center", in_layout=False, **look)
