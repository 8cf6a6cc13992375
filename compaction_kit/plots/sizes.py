"""Figures of file sizes: one table's, or before and after."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.ticker import FuncFormatter, MaxNLocator

from compaction_kit.histogram import Histogram
from compaction_kit.plots.style import (
    INK,
    LIVE,
    LOST,
    NEW,
    SMALL,
    SMALL_HATCH,
    Chart,
    F,
    calm,
    size_ticks,
    titled,
)
from compaction_kit.text import format_size

# Doublings of the size, above which numbers on bars would run into each other.
_MOST_LABELLED = 18
# How much of a bucket its bar fills.
_BAR = 0.92


def file_sizes(histogram: Histogram, small_file_size: int) -> Chart:
    """Files above and bytes below, by size; buckets below the threshold are marked as small."""
    small = histogram.edges[1:] <= small_file_size
    num_small, total = int(histogram.num_files[small].sum()), int(histogram.num_files.sum())
    figure = Chart(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _size_axis(axes[1], [histogram], [small_file_size])
    _panel(axes, histogram, small, _tops([histogram]))
    _threshold(axes, small_file_size, "small")
    title = f"{num_small:,} of {total:,} files are under {format_size(small_file_size)}"
    return titled(figure, title if total else "The table has no files")


def before_after(
    before: np.ndarray,
    after: np.ndarray,
    *,
    min_file_size: int | None = None,
    max_file_size: int | None = None,
    predicted: bool = False,
) -> Chart:
    """Two histograms side by side on one scale.

    Args:
        before: Bytes of each live file now.
        after: Bytes of each live file afterwards.
        min_file_size: A line where files begin to be left alone; what is below is marked.
        max_file_size: A line at the largest size of a bin.
        predicted: Whether "after" is a plan's prediction.
    """
    # Laid out by hand: it is drawn anew while a slider moves, and matplotlib's own way takes as long
    # as the drawing.
    figure = Chart(figsize=(9.6, 3.8))
    figure.subplots_adjust(left=0.075, right=0.99, top=0.85, bottom=0.075, hspace=0.14, wspace=0.07)
    return draw_before_after(figure, before, after, min_file_size, max_file_size, predicted)


def draw_before_after(
    figure: F,
    before: np.ndarray,
    after: np.ndarray,
    min_file_size: int | None = None,
    max_file_size: int | None = None,
    predicted: bool = False,
) -> F:
    """Draw `before_after` into a figure, or a part of one."""
    histograms = [Histogram.of(before), Histogram.of(after)]
    grid = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(3, 2))
    small = histograms[0].edges[1:] <= (min_file_size or 0)
    limits = [size for size in (min_file_size, max_file_size) if size is not None]
    _size_axis(grid[1, 0], histograms, limits)
    tops = _tops(histograms)
    _panel(grid[:, 0], histograms[0], small, tops)
    _panel(grid[:, 1], histograms[1], np.zeros(len(histograms[1].num_files), dtype=bool), tops, NEW)
    for column in (0, 1):
        if min_file_size is not None:
            _threshold(grid[:, column], min_file_size, "min")
        if max_file_size is not None and max_file_size != min_file_size:
            _threshold(grid[:, column], max_file_size, "max")
    names = ("now", "after (predicted)") if predicted else ("before", "after")
    for axis, name in zip(grid[0], names, strict=True):
        # Told where to be, a title isn't laid out anew by what the axis has.
        axis.set_title(name, loc="left", y=1.0, fontsize=9, color=INK)
    for axis in grid[:, 1]:
        axis.set_ylabel("")
    about = "about " if predicted else ""
    sizes = f"{format_size(before.sum())} → {about}{format_size(after.sum())}"
    return titled(figure, f"{len(before):,} → {len(after):,} files, {sizes}")


def _panel(
    axes: Sequence[Axes], histogram: Histogram, small: np.ndarray, tops: Sequence[float], colour: str = LIVE
) -> None:
    """Files upwards in the first axes, bytes downwards in the second, on an axis that has been set up.

    `tops` are the greatest numbers of files and of bytes in a bucket that there is to be room for.
    """
    left, right = np.log2(histogram.edges[:-1].astype(float)), np.log2(histogram.edges[1:].astype(float))
    files, size = axes
    for axis, heights in ((files, histogram.num_files), (size, histogram.size_bytes)):
        _bars(axis, left[~small], right[~small], heights[~small], colour, "")
        _bars(axis, left[small], right[small], heights[small], SMALL, SMALL_HATCH)
        calm(axis, "y")
    low, high = files.get_xlim()
    for x, width, count in zip(left, right - left, histogram.num_files, strict=True):
        if count and high - low <= _MOST_LABELLED:
            files.annotate(
                f"{count:,}", (x + width / 2, count), ha="center", va="bottom", fontsize=8, color=INK
            )
    files.set(ylabel="files", ylim=(0, 1.18 * max(tops[0], 1)))
    files.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    files.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    size.set(ylabel="bytes", ylim=(1.05 * max(tops[1], 1), 0))
    size_ticks(size.yaxis, 1.05 * max(tops[1], 1), 3)


def _bars(
    axis: Axes, left: np.ndarray, right: np.ndarray, heights: np.ndarray, colour: str, hatch: str
) -> None:
    """All bars of a kind as one: each by itself takes several times as long to draw."""
    ends = left + _BAR * (right - left)
    corners = [
        [(x, 0), (x, height), (end, height), (end, 0)]
        for x, end, height in zip(left, ends, heights, strict=True)
        if height
    ]
    edge = "white" if hatch else colour
    width = 0 if hatch else 0.5
    bars = PolyCollection(corners, facecolors=colour, edgecolors=edge, linewidths=width, hatch=hatch or None)
    axis.add_collection(bars, autolim=False)


def _tops(histograms: Sequence[Histogram]) -> tuple[float, float]:
    counts, sizes = ([h.num_files for h in histograms], [h.size_bytes for h in histograms])
    return float(np.concatenate(counts).max(initial=0)), float(np.concatenate(sizes).max(initial=0))


def _threshold(axes: Sequence[Axes], size_bytes: int, name: str) -> None:
    x = float(np.log2(size_bytes))
    for axis in axes:
        axis.axvline(x, color=LOST, linestyle="--" if name != "max" else ":", linewidth=1)
    axes[0].annotate(
        f"{name} {format_size(size_bytes)}",
        (x, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-3, -2),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=8,
        color=LOST,
        rotation=90 if name == "max" else 0,
    )


def _size_axis(axis: Axes, histograms: Sequence[Histogram], limits: Sequence[int]) -> None:
    """A log₂ axis in binary units that has room for everything drawn."""
    ends = [edge for h in histograms if h.num_files.any() for edge in (h.edges[0], h.edges[-1])]
    low, high = np.log2(float(min([*ends, *limits]))), np.log2(float(max([*ends, *limits])))
    axis.set_xlim(low - 0.5, high + 0.5)
    step = max(1, int(np.ceil((high - low) / 7)))
    ticks = np.arange(np.floor(low), np.ceil(high) + 1, step)
    axis.set_xticks(ticks, [format_size(2**tick) for tick in ticks], fontsize=8)
