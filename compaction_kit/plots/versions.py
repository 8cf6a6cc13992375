"""Figures over versions: files and lifetimes, files in a manifest, bytes stored, readable versions."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

import compaction_kit.plots.style as style
from compaction_kit.plots.style import INK, LIVE, LOST, NEW, OTHER, SMALL, SMALL_HATCH, TOMBSTONED, Chart
from compaction_kit.text import format_count, format_size

# Looks by the kind of operation that added a file.
_ADDED_BY: style.Looks = {
    "written": (LIVE, ""),
    "compacted": (NEW, ""),
    "changed": (SMALL, SMALL_HATCH),
    "restored": (OTHER, "xxx"),
    "there before": (LIVE, "..."),
}
_KINDS = {"OPTIMIZE": "compacted", "REORG": "compacted", "RESTORE": "restored", "CLONE": "restored"}
_KINDS |= dict.fromkeys(("DELETE", "UPDATE", "MERGE"), "changed")
# With more files than this, files with the same lifetime share a bar.
_MOST_BARS = 60
# Steps of the axis of versions: about one per pixel.
_MOST_STEPS = 600
# Names of consecutive compactions.
_MOST_NAMES = 5
_READABLE: style.Looks = {
    "yes": (LIVE, ""),
    "blocked": (OTHER, SMALL_HATCH),
    "missing files": (LOST, "xxx"),
    "log gone": (TOMBSTONED, "..."),
}
_AT_VACUUM: style.Looks = {
    "readable": _READABLE["yes"],
    "lost": _READABLE["missing files"],
    "blocked": _READABLE["blocked"],
    "gone before": _READABLE["log gone"],
}
_STORED: style.Looks = {
    "live": (LIVE, ""),
    "deletion vectors": (LIVE, "..."),
    "tombstoned": (TOMBSTONED, ""),
    "orphaned": (style.ORPHANED, "\\\\\\"),
}


def history(ledger: pa.Table) -> Chart:
    """Draw live files after each version of `Table.history()`, and mark versions that changed no data."""
    known = ledger.filter(ledger["num_files"].is_valid())
    versions, counts = known["version"].to_numpy(), known["num_files"].to_numpy()
    last, most = int(counts[-1]) if len(counts) else 0, counts.max(initial=0)
    figure = style.chart(style.WIDTH, 3.2, f"Up to {format_count(int(most), 'live file')}, {last:,} now")
    axis = figure.subplots()
    axis.fill_between(versions, counts, step="post", color=LIVE, alpha=0.25, linewidth=0)
    axis.step(versions, counts, where="post", color=LIVE, linewidth=1.5, label="live files")
    small = known["num_small_files"].to_numpy()
    axis.step(versions, small, where="post", color=SMALL, linewidth=1.5, linestyle="--", label="small files")
    marked = known.filter(pc.invert(known["data_change"])).filter(pc.field("num_removed") > 0)
    for version in marked["version"].to_pylist():
        axis.axvline(version, color=NEW, linewidth=1, linestyle=":")
    # Write names as far as there is room, the newest first.
    free = np.inf
    for row in reversed(marked.to_pylist()):
        if row["version"] <= free:
            text = f"{style.short(row['operation'] or '')}\nversion {row['version']}".strip()
            style.note(axis, text, (row["version"], most * 1.12), color=NEW, va="top", annotation_clip=False)
            free = row["version"] - np.ptp(versions) / _MOST_NAMES
    _count_axis(axis, max(most, 1) * 1.15, 6)
    return figure


def lifetimes(lives: pa.Table, history: pa.Table, version: int | None = None) -> Chart:
    """Draw each file from the version that added it to the version that removed it; a line marks a version.

    `lives` is the table of `TransactionLog.lifetimes`, `history` that of `Table.history()` or
    `Table.versions()`. A file that was added back, or got a deletion vector, keeps its row.
    """
    latest = max([*history["version"].to_pylist(), *lives["added"].to_pylist(), 0])
    num_files, live = len(pc.unique(lives["path"])), lives["removed"].null_count
    known = format_count(len(history) - history["num_files"].null_count, "version")
    title = f"{format_count(num_files, 'file')} in {known}, {live:,} live now"
    figure = style.chart(style.WIDTH, 3.2, title if len(lives) else "No version has a file")
    axis = figure.subplots()
    kinds, is_fine = _kinds_of(history), len(lives) > _MOST_BARS
    # Boxes that begin and end in the same pixels are drawn as one.
    step = latest // _MOST_STEPS + 1 if is_fine else 1
    added, removed = (pc.fill_null(lives[name], latest + 1).to_numpy() for name in ("added", "removed"))
    names = np.array([kinds.get(version, "written") for version in added.tolist()], str)
    added, removed = added - added % step, -(-removed // step) * step
    paths = lives["path"].take(pa.array(np.lexsort((names, removed, added)))).unique()
    rows = pc.index_in(lives["path"], value_set=paths).to_numpy()
    order = np.lexsort((rows, names, removed, added))
    sides = [side[order] for side in (added, removed, names, rows)]
    # With many files, neighbouring rows with the same lifetime share a bar; few files have a bar each.
    runs = [*sides[:3], sides[3] - np.arange(len(lives)) * is_fine]
    begins = np.any([run[1:] != run[:-1] for run in runs], axis=0)
    starts = np.flatnonzero(np.append(True, begins)[: len(lives)])
    counts = np.diff(np.append(starts, len(lives)))
    added, removed, names, bottom = (side[starts] for side in sides)
    for name, look in _ADDED_BY.items():
        mine = names == name
        sides = [side[mine] for side in (added - 0.5, removed - 0.5, bottom, bottom + counts)]
        # Without edges in their colour, bars of less than a pixel would have visible gaps.
        edge = look[0] if is_fine and not look[1] else "white"
        style.boxes(axis, sides, look, edge, 0.4 if is_fine else 0.6)
    if version is not None:
        axis.axvline(version, color=INK, linewidth=1, linestyle="--")
        style.note(axis, f"version {version}", (version, 0), (3, 3), annotation_clip=False)
    first = min(*(lives["added"].to_pylist() or [0]), latest if version is None else version)
    xlim = first - 0.5, latest + 0.5
    axis.set(ylabel="files, by when first added", xlim=xlim, ylim=(max(num_files, 1), 0))
    _version_axis(axis)
    style.count_ticks(axis.yaxis)
    style.calm(axis, "x")
    looks = {name: look for name, look in _ADDED_BY.items() if name in names}
    style.legend(figure, "outside lower right", looks)
    return figure


def _kinds_of(history: pa.Table) -> dict[int, str]:
    """Return the kind of operation that added the files of each version."""
    operations = zip(history["version"].to_pylist(), history["operation"].to_pylist(), strict=True)
    kinds = {version: _KINDS.get(operation or "", "written") for version, operation in operations}
    known = history.filter(history["num_files"].is_valid())["version"].to_pylist()
    # The first version that can be read has the files that cleaned-up versions added.
    return kinds | ({known[0]: "there before"} if known and known[0] > 0 else {})


def manifest(by_version: pa.Table, version: int | None) -> Chart:
    """Draw how many of each version's live files a manifest lists; at its own version all of them.

    `by_version` has version, num_live and num_listed; `version` has exactly the listed files, None for none.
    """
    versions, live, listed = (by_version[name].to_numpy() for name in ("version", "num_live", "num_listed"))
    num_live = format_count(int(live[-1]), "live file")
    which = "no version exactly" if version is None else f"version {version}"
    title = f"The manifest matches {which}: it lists {listed[-1]:,} of {num_live} now"
    if version == versions[-1]:
        title = f"The manifest lists the {num_live} of the current version"
    figure = style.chart(style.WIDTH, 2.8, title)
    axis = figure.subplots()
    # Each version's count holds from half a step before it to half a step after.
    edges = np.append(versions - 0.5, versions[-1] + 0.5)
    axis.stairs(live, edges, baseline=listed, fill=True, color=LOST, alpha=0.2)
    axis.stairs(live, edges, baseline=None, color=LIVE, linewidth=1.5, label="live")
    how: dict[str, Any] = {"color": NEW, "linewidth": 1.5, "linestyle": "--"}
    axis.stairs(listed, edges, baseline=None, label="of them listed", **how)
    most = live.max(initial=1)
    if version is not None:
        axis.axvline(version, color=NEW, linewidth=1, linestyle=":")
        x, side = (-4, "right") if version > versions.mean() else (4, "left")
        text = f"the manifest's version: {version}"
        style.note(axis, text, (version, most * 1.3), (x, 0), NEW, ha=side, va="top")
    _count_axis(axis, most * 1.35, 10)
    return figure


def storage(rows: pa.Table, orphaned_bytes: int, versions: pa.Table) -> Chart:
    """Draw the bytes of each version (see `Storage`), and which of `Table.versions()` can be read."""
    numbers = rows["version"].to_numpy()
    stacks = [rows[name].to_numpy() for name in ("live_bytes", "tombstoned_bytes", "gone_bytes")]
    live, tombstoned, gone = (int(stack[-1]) for stack in stacks)
    title = f"{format_size(live)} live, {format_size(tombstoned)} tombstoned"
    for size, kind in ((gone, "gone"), (orphaned_bytes, "orphaned")):
        title += f", {format_size(size)} {kind}" if size else ""
    figure = style.chart(style.WIDTH, 3.9, title)
    axis, strip = figure.subplots(2, 1, sharex=True, height_ratios=[1, 0.11])
    edges = np.append(numbers, numbers[-1] + 1) - 0.5
    top = np.zeros(len(edges))
    looks = {"live": _STORED["live"], "tombstoned, on disk": _STORED["tombstoned"], "gone": ("none", "...")}
    for stack, (label, look) in zip(stacks, looks.items(), strict=True):
        height = np.append(stack, stack[-1])
        if height.any():
            how = style.fill(look) | {"edgecolor": TOMBSTONED}
            axis.fill_between(edges, top, top + height, step="post", linewidth=0, label=label, **how)
            top = top + height
    width, right = max(len(numbers) / 40, 0.5), edges[-1]
    if orphaned_bytes:
        axis.bar(right + width, orphaned_bytes, width, label="orphaned", **style.fill(_STORED["orphaned"]))
        right += 2 * width
    largest = max(float(top.max(initial=0)), orphaned_bytes, 1.0)
    axis.set(ylabel="data files", ylim=(0, largest * 1.05))
    style.size_ticks(axis.yaxis, largest, 4)
    if top.any() or orphaned_bytes:
        style.legend(axis, "upper left")
    style.calm(axis, "y")
    _draw_strip(figure, strip, versions)
    start = min(edges[0], versions["version"][0].as_py() - 0.5)
    ticks = MaxNLocator(integer=True, min_n_ticks=1).tick_values(start + 0.5, numbers[-1])
    _version_axis(strip)
    strip.set_xlim(start, right)
    strip.set_xticks([tick for tick in ticks if start < tick <= numbers[-1]])
    return figure


def readability(versions: pa.Table) -> Chart:
    """Draw a strip of `Table.versions()`, coloured by whether each can be read."""
    readable = versions["readable"].to_pylist().count("yes")
    title = f"{readable:,} of {format_count(len(versions), 'version')} can be read"
    if readable == len(versions) > 1:
        title = f"All {readable:,} versions can be read"
    figure = style.chart(style.WIDTH, 1.5, title)
    axis = figure.subplots()
    _draw_strip(figure, axis, versions)
    _version_axis(axis)
    return figure


def vacuum(storage: pa.Table, versions: pa.Table, finding: str) -> Chart:
    """Draw which versions can be read now and after, and the storage; see the tables of `VacuumPlan`."""
    before, after = (np.array(versions[name].to_pylist()) for name in ("readable", "readable_after"))
    now, then = before == "yes", after == "yes"
    refused = before == "blocked", after == "blocked"
    states = [
        np.select([now, refused[0]], ["readable", "blocked"], "gone before"),
        np.select([then, now, refused[1]], ["readable", "lost", "blocked"], "gone before"),
    ]
    lost = f"{int(then.sum()):,} after, {int((now & ~then).sum()):,} lost"
    counts = f"{format_count(int(now.sum()), 'version')} can be read now, {lost}"
    columns = zip(*storage.to_pydict().values(), strict=True)
    stored = [f"{kind} {format_size(now)} now and {format_size(after)} after" for kind, now, after in columns]
    rows, totals = storage.to_pylist(), np.zeros(2)
    figure = style.titled(Chart((style.WIDTH, 3.6)), finding, counts, f"Stored: {', '.join(stored)}")
    # Placed by hand, so that the axes keep their place below a title of one or two lines.
    figure.subplots_adjust(left=0.07, right=0.98, top=0.76, bottom=0.13, hspace=0.9)
    upper, lower = figure.subplots(2, 1, height_ratios=(1, 1.25))
    numbers = versions["version"].to_numpy()
    for position, names in enumerate(states):
        _draw_runs(upper, numbers, names, (position - 0.35, position + 0.35), _AT_VACUUM)
    upper.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
    _version_axis(upper)
    _now_and_after(upper, {name: look for name, look in _AT_VACUUM.items() if name in np.append(*states)})
    upper.grid(False)
    for row in rows:
        sizes = np.array([row["size_bytes"], row["size_bytes_after"]])
        lower.barh([0, 1], sizes, left=totals, height=0.7, linewidth=0, **style.fill(_STORED[row["kind"]]))
        totals = totals + sizes
    for position, total in enumerate(totals):
        style.note(lower, format_size(total), (total, position), va="center")
    largest = totals.max(initial=1)
    lower.set(xlim=(0, largest * 1.12), xlabel="stored")
    style.size_ticks(lower.xaxis, largest, 8)
    _now_and_after(lower, {row["kind"]: _STORED[row["kind"]] for row in rows if row["size_bytes"]})
    return figure


def _version_axis(axis: Axes) -> None:
    axis.set_xlabel("version")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.xaxis.set_major_formatter("{x:.0f}")


def _count_axis(axis: Axes, top: float, most_ticks: int) -> None:
    """Lay out numbers of files over versions, from 0 to `top`."""
    axis.set(ylabel="files", ylim=(0, top))
    axis.margins(x=0.08)
    _version_axis(axis)
    style.count_ticks(axis.yaxis, most_ticks)
    style.legend(axis, "upper left")
    style.calm(axis, "y")


def _now_and_after(axis: Axes, looks: style.Looks) -> None:
    style.rows(axis, ["now", "after"])
    if looks:
        style.legend(axis, "lower right", looks, bbox_to_anchor=(1, 1), borderaxespad=0)


def _draw_strip(figure: Chart, axis: Axes, versions: pa.Table) -> None:
    """Draw a strip of the versions, coloured by whether they can be read, and count them."""
    numbers, readable = versions["version"].to_numpy(), versions["readable"].to_pylist()
    _draw_runs(axis, numbers, np.array(readable), (0, 1), _READABLE)
    axis.set(xlim=(numbers[0] - 0.5, numbers[-1] + 0.5), ylim=(0, 1), yticks=[])
    style.calm(axis, "x")
    axis.grid(False)
    axis.spines[["left", "bottom"]].set_visible(False)
    counts = Counter(readable)
    looks = {f"{name} ({counts[name]:,})": look for name, look in _READABLE.items() if counts[name]}
    style.legend(figure, "outside lower right", looks, title="Can it be read?")
    said = ", ".join(f"{name}: {counts[name]:,}" for name in _READABLE if counts[name])
    figure.set_label(f"{figure.get_label()}. {said}")


def _draw_runs(
    axis: Axes, numbers: np.ndarray, names: np.ndarray, rows: tuple[float, float], looks: style.Looks
) -> None:
    """Draw a box for each run of neighbouring versions with the same name; `rows` is its bottom and top."""
    ends = np.flatnonzero(np.append((names[1:] != names[:-1]) | (np.diff(numbers) != 1), True))
    starts = np.append(0, ends[:-1] + 1)
    for name, look in looks.items():
        mine = names[starts] == name
        if mine.any():
            sides = (numbers[starts[mine]] - 0.5, numbers[ends[mine]] + 0.5, *rows)
            style.boxes(axis, sides, look, "white", 0)
