"""Figures of a table's versions: what they take on disk, which can be read, what a vacuum changes of both."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from compaction_kit.plots import style
from compaction_kit.plots.style import LIVE, LOST, TOMBSTONED, Chart
from compaction_kit.text import format_count, format_size

_READABLE: dict[str, style.Look] = {
    "yes": (LIVE, ""),
    "blocked": (style.OTHER, style.SMALL_HATCH),
    "unsupported": (style.OTHER, "xxx"),
    "missing files": (LOST, "xxx"),
    "log gone": (TOMBSTONED, "..."),
}
_AFTER_VACUUM: dict[str, style.Look] = {
    "readable": _READABLE["yes"],
    "lost": _READABLE["missing files"],
    "blocked": _READABLE["blocked"],
    "gone before": _READABLE["log gone"],
}
_STORED: dict[str, style.Look] = {
    "live": (LIVE, ""),
    "tombstoned": (TOMBSTONED, ""),
    "orphaned": (style.ORPHANED, "\\\\\\"),
}


def storage(rows: pa.Table, orphaned_bytes: int, versions: pa.Table) -> Chart:
    """Draw the bytes that each version left, and which versions can be read.

    Args:
        rows: version, live_bytes, tombstoned_bytes, gone_bytes; see `Storage.versions`.
        orphaned_bytes: Of the files on disk that no version has.
        versions: What `Table.versions()` returns.
    """
    numbers = rows["version"].to_numpy()
    stacks = [rows[name].to_numpy() for name in ("live_bytes", "tombstoned_bytes", "gone_bytes")]
    now = [*(int(stack[-1]) for stack in stacks), orphaned_bytes]
    kinds = ("live", "tombstoned", "gone", "orphaned")
    parts = [
        f"{format_size(size)} {kind}"
        for kind, size in zip(kinds, now, strict=True)
        if size or kind in kinds[:2]
    ]
    figure = style.chart(style.WIDTH, 3.9, ", ".join(parts), _counts(versions))
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
    width = max(len(numbers) / 40, 0.5)
    last = numbers[-1] + 0.5 + width
    if orphaned_bytes:
        axis.bar(last, orphaned_bytes, width, label="orphaned", **style.fill(_STORED["orphaned"]))
    largest = max(float(top.max(initial=0)), orphaned_bytes, 1.0)
    axis.set(ylabel="data files", ylim=(0, largest * 1.05))
    style.size_ticks(axis.yaxis, largest, 4)
    style.legend(axis, "upper left")
    style.calm(axis, "y")
    _draw_strip(strip, versions)
    strip.set_xlabel("version")
    _readable_legend(figure, [versions])
    start = min(edges[0], versions["version"][0].as_py() - 0.5)
    strip.set_xlim(start, last + width if orphaned_bytes else edges[-1])
    ticks = MaxNLocator(integer=True).tick_values(start + 0.5, numbers[-1])
    strip.set_xticks([tick for tick in ticks if start < tick <= numbers[-1]])
    return figure


def readability(named: dict[str, pa.Table]) -> Chart:
    """Draw which versions can be read, a strip a state of the table: before and after a vacuum, say.

    Args:
        named: Tables with version and readable, as `Table.versions()` returns them, by the name of the state.
    """
    counts = [f"{name}: {_count(versions, 'yes'):,}" for name, versions in named.items()]
    sentences = [f"{name}: {_counts(versions)}" for name, versions in named.items()]
    title = f"Versions that can be read, {', '.join(counts)}"
    figure = style.chart(style.WIDTH, 1.0 + 0.5 * len(named), title, *sentences)
    axes = figure.subplots(len(named), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, versions) in zip(axes, named.items(), strict=True):
        _draw_strip(axis, versions)
        axis.set_yticks([0.5], [style.short(name)])
        axis.tick_params(axis="both", length=0)
    axes[-1].set_xlabel("version")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    _readable_legend(figure, list(named.values()))
    return figure


def vacuum(storage: pa.Table, versions: pa.Table, finding: str) -> Chart:
    """Draw the versions that can be read now and after, and the storage now and after.

    Args:
        storage: Bytes by kind: kind, size_bytes, size_bytes_after; see `VacuumPlan.storage`.
        versions: version, readable, readable_after; see `VacuumPlan.versions`.
        finding: The title.
    """
    before, after = (np.array(versions[name].to_pylist()) for name in ("readable", "readable_after"))
    now, then = before == "yes", after == "yes"
    refused = [np.isin(names, ["blocked", "unsupported"]) for names in (before, after)]
    states = [
        np.select([now, refused[0]], ["readable", "blocked"], "gone before"),
        np.select([then, now, refused[1]], ["readable", "lost", "blocked"], "gone before"),
    ]
    counts = (
        f"{format_count(int(now.sum()), 'version')} can be read now, {int(then.sum()):,} after, "
        f"{int((now & ~then).sum()):,} are lost"
    )
    rows, totals = storage.to_pylist(), np.zeros(2)
    stored = [
        f"{row['kind']} {format_size(row['size_bytes'])} now and {format_size(row['size_bytes_after'])} after"
        for row in rows
    ]
    figure = style.chart(style.WIDTH, 3.6, finding, counts, f"Stored: {', '.join(stored)}")
    upper, lower = figure.subplots(2, 1, height_ratios=(1, 1.25))
    numbers = versions["version"].to_numpy()
    for position, names in enumerate(states):
        _draw_runs(upper, numbers, names, (position - 0.35, 0.7), _AFTER_VACUUM)
    upper.set(xlim=(numbers[0] - 0.5, numbers[-1] + 0.5), xlabel="version")
    upper.xaxis.set_major_locator(MaxNLocator(integer=True))
    _now_and_after(
        upper, {name: look for name, look in _AFTER_VACUUM.items() if name in np.concatenate(states)}
    )
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


def _now_and_after(axis: Axes, looks: Mapping[str, style.Look]) -> None:
    axis.set_yticks([0, 1], ["now", "after"])
    axis.set_ylim(1.5, -0.5)
    style.calm(axis, "x")
    axis.tick_params(axis="y", length=0)
    if looks:
        style.legend(axis, "lower right", looks, bbox_to_anchor=(1, 1), borderaxespad=0)


def _draw_strip(axis: Axes, versions: pa.Table) -> None:
    """Draw a strip of the versions across, coloured by whether they can be read."""
    numbers = versions["version"].to_numpy()
    _draw_runs(axis, numbers, np.array(versions["readable"].to_pylist()), (0, 1), _READABLE)
    axis.set(xlim=(min(numbers) - 0.5, max(numbers) + 0.5), ylim=(0, 1), yticks=[])
    style.calm(axis, "x")
    axis.grid(False)
    axis.spines[["left", "bottom"]].set_visible(False)


def _draw_runs(
    axis: Axes,
    numbers: np.ndarray,
    names: np.ndarray,
    rows: tuple[float, float],
    looks: Mapping[str, style.Look],
) -> None:
    """Draw a box for each run of neighbouring versions with one name; `rows` is its bottom and height."""
    ends = np.flatnonzero(np.append((names[1:] != names[:-1]) | (np.diff(numbers) != 1), True))
    starts = np.append(0, ends[:-1] + 1)
    for name, look in looks.items():
        mine = names[starts] == name
        if mine.any():
            left = numbers[starts[mine]] - 0.5
            spans = list(zip(left, numbers[ends[mine]] + 0.5 - left, strict=True))
            axis.broken_barh(spans, rows, linewidth=0, **style.fill(look))


def _readable_legend(figure: Chart, tables: Sequence[pa.Table]) -> None:
    """Say what the colours of strips mean, and how many versions there are of each."""
    looks = {}
    for status, look in _READABLE.items():
        counts = [_count(versions, status) for versions in tables]
        if any(counts):
            looks[f"{status} ({' → '.join(f'{count:,}' for count in counts)})"] = look
    style.legend(figure, "outside lower right", looks, title="Can it be read?", title_fontsize=8.25)


def _counts(versions: pa.Table) -> str:
    counts = {status: _count(versions, status) for status in _READABLE}
    return ", ".join(f"{status}: {count:,}" for status, count in counts.items() if count)


def _count(versions: pa.Table, status: str) -> int:
    return versions["readable"].to_pylist().count(status)
