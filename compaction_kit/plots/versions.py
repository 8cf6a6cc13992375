"""Figures of a table's versions: what they take on disk, and which can be read."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from compaction_kit.plots.style import (
    INK,
    LIVE,
    LOST,
    NEW,
    SMALL,
    TOMBSTONED,
    Chart,
    calm,
    short,
    size_ticks,
    titled,
)
from compaction_kit.text import format_size

# Colour and hatch say the same.
STATUSES = {
    "yes": (NEW, ""),
    "blocked": (SMALL, "///"),
    "missing files": (LOST, "xxx"),
    "log gone": (TOMBSTONED, "..."),
}
ORPHANED = ("#CC79A7", "\\\\\\")


def storage(rows: pa.Table, orphaned_bytes: int, versions: pa.Table) -> Chart:
    """The bytes that each version left, and which versions can be read.

    Args:
        rows: version, live_bytes, tombstoned_bytes, gone_bytes; see `Storage.versions`.
        orphaned_bytes: Of the files on disk that no version has.
        versions: What `Table.versions()` returns.
    """
    figure = Chart(figsize=(7.6, 3.9), layout="constrained")
    axis, strip = figure.subplots(2, 1, sharex=True, height_ratios=[1, 0.11])
    numbers = rows["version"].to_numpy()
    stacks = [rows[name].to_numpy() for name in ("live_bytes", "tombstoned_bytes", "gone_bytes")]
    edges = np.append(numbers, numbers[-1] + 1) - 0.5
    top = np.zeros(len(edges))
    looks = ((LIVE, "", "live"), (TOMBSTONED, "", "tombstoned, on disk"), ("none", "...", "gone"))
    for stack, (colour, hatch, label) in zip(stacks, looks, strict=True):
        height = np.append(stack, stack[-1])
        if not height.any():
            continue
        axis.fill_between(
            edges, top, top + height, step="post", facecolor=colour, edgecolor=TOMBSTONED, hatch=hatch,
            linewidth=0, label=label,
        )  # fmt: skip
        top = top + height
    width = max(len(numbers) / 40, 0.5)
    last = numbers[-1] + 0.5 + width
    if orphaned_bytes:
        colour, hatch = ORPHANED
        axis.bar(
            last,
            orphaned_bytes,
            width,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label="orphaned",
        )
    largest = max(float(top.max(initial=0)), orphaned_bytes, 1.0)
    axis.set(ylabel="data files", ylim=(0, largest * 1.05))
    size_ticks(axis.yaxis, largest, 4)
    axis.legend(loc="upper left", frameon=False, fontsize=8)
    calm(axis, "y")
    _strip(strip, versions)
    strip.set_xlabel("version")
    _legend(figure, [versions])
    start = min(edges[0], versions["version"][0].as_py() - 0.5)
    strip.set_xlim(start, last + width if orphaned_bytes else edges[-1])
    ticks = MaxNLocator(integer=True).tick_values(start + 0.5, numbers[-1])
    strip.set_xticks([tick for tick in ticks if start < tick <= numbers[-1]])
    live, dead, gone = (int(stack[-1]) for stack in stacks)
    parts = [f"{format_size(live)} live", f"{format_size(dead)} tombstoned"]
    parts += [f"{format_size(gone)} gone"] if gone else []
    parts += [f"{format_size(orphaned_bytes)} orphaned"] if orphaned_bytes else []
    titled(figure, ", ".join(parts))
    figure.set_label(f"{figure.get_label()}. {in_words(versions)}")
    return figure


def readability(named: dict[str, pa.Table]) -> Chart:
    """Which versions can be read, a strip a state of the table: before and after a vacuum, say.

    Args:
        named: Tables with version and readable, as `Table.versions()` returns them, by what they are of.
    """
    figure = Chart(figsize=(7.6, 1.0 + 0.5 * len(named)), layout="constrained")
    axes = figure.subplots(len(named), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, versions) in zip(axes, named.items(), strict=True):
        _strip(axis, versions)
        axis.set_yticks([0.5], [short(name)])
        axis.tick_params(axis="both", length=0)
    axes[-1].set_xlabel("version")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(figure, list(named.values()))
    counts = [f"{name}: {_count(versions, 'yes'):,}" for name, versions in named.items()]
    titled(figure, f"Versions that can be read, {', '.join(counts)}")
    words = (f"{name}: {in_words(versions)}" for name, versions in named.items())
    figure.set_label(". ".join([str(figure.get_label()), *words]))
    return figure


def in_words(versions: pa.Table) -> str:
    """How many versions are of which kind, in words."""
    counts = {status: _count(versions, status) for status in STATUSES}
    return ", ".join(f"{status}: {count:,}" for status, count in counts.items() if count)


def _strip(axis: Axes, versions: pa.Table) -> None:
    """A coloured strip: the versions across, what an attempt to read each comes to."""
    for status, start, end in _runs(versions):
        colour, hatch = STATUSES[status]
        corner, width = (start - 0.5, 0), end - start + 1
        axis.add_patch(
            Rectangle(corner, width, 1, facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0)
        )
    numbers = versions["version"].to_pylist()
    axis.set(xlim=(min(numbers) - 0.5, max(numbers) + 0.5), ylim=(0, 1), yticks=[])
    calm(axis, "x")
    axis.grid(False)
    axis.spines[["left", "bottom"]].set_visible(False)


def _legend(figure: Chart, tables: Sequence[pa.Table]) -> None:
    """What the colours of strips mean, and how many versions there are of each."""
    handles = []
    for status in STATUSES:
        counts = [_count(versions, status) for versions in tables]
        if any(counts):
            numbers = " → ".join(f"{count:,}" for count in counts)
            handles.append(_patch(status, f"{status} ({numbers})"))
    figure.legend(
        handles=handles,
        title="Can it be read?",
        loc="outside lower right",
        ncols=len(handles) or 1,
        frameon=False,
        fontsize=8,
        title_fontsize=8,
        labelcolor=INK,
    )


def _patch(status: str, label: str) -> Patch:
    colour, hatch = STATUSES[status]
    return Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=label)


def _runs(versions: pa.Table) -> Sequence[tuple[str, int, int]]:
    """Neighbours of one status: status, first and last version."""
    runs: list[tuple[str, int, int]] = []
    for version, status in zip(
        versions["version"].to_pylist(), versions["readable"].to_pylist(), strict=True
    ):
        if runs and runs[-1][0] == status and runs[-1][2] == version - 1:
            runs[-1] = (status, runs[-1][1], version)
        else:
            runs.append((status, version, version))
    return runs


def _count(versions: pa.Table, status: str) -> int:
    return versions["readable"].to_pylist().count(status)
