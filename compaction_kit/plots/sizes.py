"""Figures of file sizes: of one table, before and after a run, and in the bins of a plan."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch
from matplotlib.transforms import ScaledTranslation

import compaction_kit.plots.style as style
from compaction_kit.file_stats import Histogram
from compaction_kit.plots.style import INK, LIVE, MUTED, NEW, SMALL, SMALL_HATCH, Chart
from compaction_kit.text import format_count, format_size

# With more doublings of the size than this, numbers on bars would overlap.
_MOST_LABELLED = 18
# The share of a bucket that its bar fills.
_BAR = 0.92
_MOST_BINS, _BINS_WIDTH_PIXELS = 60, 500
# The height of the axes of files as a multiple of the highest bar: with room for its number, and for the name
# of a threshold above that.
_ROOM_FOR_NUMBER, _ROOM_FOR_BOTH = 1.18, 1.6
# In inches; and the width of sizes beside an axis, such as "512 MiB".
BEFORE_AFTER_HEIGHT, _TICKS_WIDTH = 3.6, 0.66


def file_sizes(sizes: np.ndarray, small_file_size: int) -> Chart:
    """Draw files above and bytes below, by size; buckets below the threshold are marked as small."""
    histogram, num_small = Histogram.of(sizes), int((sizes < small_file_size).sum())
    small, verb = histogram.edges[1:] <= small_file_size, "is" if num_small == 1 else "are"
    title = f"{num_small:,} of {format_count(len(sizes), 'file')} {verb} under {format_size(small_file_size)}"
    figure = style.chart(6.4, 3.6, title if len(sizes) else "The table has no files")
    axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _size_axis(axes[1], [histogram], [small_file_size])
    _panel(axes, histogram, small, _tops([histogram], _ROOM_FOR_BOTH))
    _threshold(axes, small_file_size, "small files are under")
    return figure


def before_after(
    before: np.ndarray,
    after: np.ndarray | None,
    *,
    min_file_size: int | None = None,
    max_file_size: int | None = None,
    largest: int | None = None,
    former: np.ndarray | None = None,
    figure: Chart | None = None,
) -> Chart:
    """Draw two histograms of the bytes of each live file, one above the other, on one scale.

    Lines mark the minimum, below which files are marked too, and the target. `after` is None if there is
    nothing to do. `largest` is the size of the largest possible bin if "after" is a plan's prediction, so
    that the axes have room for every plan of these files; else None. `former` are the files after the
    previous plan, drawn as an outline. `figure` may be a part of a figure; None for a new one.
    """
    finding = f"Nothing to do: {format_count(len(before), 'file')}, {format_size(before.sum())}"
    if after is not None:
        about = "" if largest is None else "about "
        sizes = f"{format_size(before.sum())} → {about}{format_size(after.sum())}"
        finding = f"{len(before):,} → {format_count(len(after), 'file')}, {sizes}"
    after = before if after is None else after
    figure, upper, lower = _place_sizes(figure)
    now, then = Histogram.of(before), Histogram.of(after)
    histograms = [now, then] if former is None else [now, then, Histogram.of(former)]
    limits = [size for size in (min_file_size, max_file_size) if size is not None]
    _size_axis(lower[1], histograms, limits if largest is None else [largest])
    # Without sharex, because hidden ticks take time too.
    for axis in (*upper, lower[0]):
        axis.set(xlim=lower[1].get_xlim(), xticks=[])
    room = _ROOM_FOR_BOTH if limits else _ROOM_FOR_NUMBER
    tops = _tops(histograms, room, now if largest is not None else None)
    _panel(upper, now, now.edges[1:] <= (min_file_size or 0), tops)
    _panel(lower, then, np.zeros(len(then.num_files), dtype=bool), tops, NEW)
    if former is not None:
        _outline(lower, histograms[2])
    names = ("before", "after") if largest is None else ("now", "after (predicted)")
    for axes, name in zip((upper, lower), names, strict=True):
        axes[0].set_title(name, loc="left", y=1.0, pad=3, fontsize=9, color=INK)
    if min_file_size is not None:
        _threshold(upper, min_file_size, "minimum")
    if max_file_size is not None:
        _threshold(lower, max_file_size, "target")
    return style.titled(figure, finding)


def _place_sizes(figure: Chart | None) -> tuple[Chart, list[Axes], list[Axes]]:
    """Place the axes of files and bytes now and, below a gap, afterwards; the lowest has labels."""
    if figure is None:
        # Placed by hand: a moving slider redraws it, and matplotlib's layout takes as long as the drawing.
        figure = Chart(figsize=(style.SIZES_WIDTH, BEFORE_AFTER_HEIGHT))
        figure.subplots_adjust(left=0.165, right=0.985, top=0.86, bottom=0.07, hspace=0.12)
    grid = figure.add_gridspec(5, 1, height_ratios=(3, 1.4, 0.65, 3, 1.4))
    lowest, *others = (figure.add_subplot(grid[i]) for i in (4, 0, 1, 3))
    return figure, others[:2], [others[2], lowest]


def _outline(axes: Sequence[Axes], former: Histogram) -> None:
    how: dict[str, Any] = {"edgecolor": MUTED, "linestyle": (0, (3, 2)), "linewidth": 1, "fill": False}
    for axis, heights in zip(axes, (former.num_files, former.size_bytes), strict=True):
        axis.add_artist(StepPatch(heights, np.log2(former.edges.astype(float)), **how))
    what = "dashed: the plan before this one"
    style.note(axes[0], what, (1, 1), (0, 3), MUTED, xycoords="axes fraction", ha="right")


def bins(
    files: pa.Table,
    outputs: np.ndarray,
    max_file_size: int,
    names: Sequence[str],
    limit: str,
    figure: Chart | None = None,
) -> Chart:
    """Draw one bar per bin, one segment per file, the predicted output as a mark, the target as a line.

    `files` have size_bytes and bin_id, `outputs` are the predicted bytes of each bin, `names` the name of
    each bin. The title ends with `limit`: how large a bin may be, as in " of at most 128 MiB". `figure` may
    be a part of a figure; None for a new one.
    """
    figure = figure or Chart(figsize=(style.WIDTH, bins_height(len(outputs))), layout="constrained")
    sizes, bin_ids = files["size_bytes"].to_numpy(), files["bin_id"].to_numpy()
    num_bins, shown = len(outputs), min(len(outputs), _MOST_BINS)
    axis = figure.subplots()
    packed = [sizes[bin_ids == bin_id] for bin_id in range(shown)]
    notes = [f"{format_count(len(members), 'file')}, {format_size(members.sum())}" for members in packed]
    fullest = int(np.bincount(bin_ids, sizes).max(initial=1))
    right = style.packed(axis, list(map(style.short, names[:shown])), notes, fullest, max_file_size)
    for bin_id, members in enumerate(packed):
        # Segments that would be too thin to tell apart are drawn as one.
        is_fine = members.mean() < 3 * right / _BINS_WIDTH_PIXELS
        segments = members.sum(keepdims=True) if is_fine else members
        starts, places = np.cumsum(segments) - segments, [bin_id] * len(segments)
        axis.barh(places, segments, left=starts, color=SMALL, edgecolor="white", linewidth=0.4, height=0.8)
    marks: dict[str, Any] = {"marker": "D", "markersize": 6, "color": NEW, "markeredgecolor": "white"}
    axis.plot(outputs[:shown], range(shown), linestyle="none", label="output, as predicted", **marks)
    style.legend(axis, "lower right", bbox_to_anchor=(1, 1), borderaxespad=0)
    more = f" (the first {shown})" if shown < num_bins else ""
    what = f"{format_count(len(sizes), 'file')} in {format_count(num_bins, 'bin')}"
    return style.titled(figure, f"{what}{limit}{more}")


def bins_height(num_bins: int) -> float:
    """Return the height of `bins`, in inches."""
    return 1.4 + 0.22 * min(max(num_bins, 3), _MOST_BINS)


def _panel(
    axes: Sequence[Axes], histogram: Histogram, small: np.ndarray, tops: Sequence[float], colour: str = LIVE
) -> None:
    """Draw files upwards in the first axes, bytes downwards in the second, on a common axis; see `_tops`."""
    edges, (files, size) = np.log2(histogram.edges.astype(float)), axes
    left, right = edges[:-1], edges[1:]
    ends = left + _BAR * (right - left)
    for axis, heights in ((files, histogram.num_files), (size, histogram.size_bytes)):
        large, low = ~small & (heights > 0), small & (heights > 0)
        style.boxes(axis, (left[large], ends[large], 0, heights[large]), (colour, ""), colour, 0.5)
        style.boxes(axis, (left[low], ends[low], 0, heights[low]), (SMALL, SMALL_HATCH), "white", 0)
        style.calm(axis, "y")
        # Without fixed coordinates, matplotlib would lay out the ticks twice to place the label.
        beside = axis.transAxes + ScaledTranslation(-_TICKS_WIDTH, 0, axis.figure.dpi_scale_trans)
        axis.yaxis.set_label_coords(0, 0.5, beside)
    if np.ptp(files.get_xlim()) <= _MOST_LABELLED:
        for x, count in zip((left + right) / 2, histogram.num_files, strict=True):
            if count:
                style.note(files, f"{count:,}", (x, count), (0, 0), ha="center", va="bottom")
    files.set(ylabel="files", ylim=(0, tops[0]))
    style.count_ticks(files.yaxis, 4)
    size.set(ylabel="bytes", ylim=(tops[1], 0))
    style.size_ticks(size.yaxis, tops[1], 3, with_zero=False)


def _tops(histograms: Sequence[Histogram], room: float, now: Histogram | None = None) -> tuple[float, float]:
    """Return the ends of both axes, with room for the fullest bucket of these, and of any plan for `now`."""
    counts, sizes = ([h.num_files for h in histograms], [h.size_bytes for h in histograms])
    if now is not None:
        # A bin has at least two files, and a file that it adds to a bucket comes from the buckets below.
        below = [np.append(0, np.cumsum(values)) for values in (now.num_files, now.size_bytes)]
        counts.append(np.append(now.num_files, 0) + np.minimum(below[0] / 2, below[1] / now.edges))
        sizes.append(now.size_bytes.sum(keepdims=True))
    most, largest = (float(np.concatenate(values).max(initial=1)) for values in (counts, sizes))
    return room * most, 1.05 * largest


def _threshold(axes: Sequence[Axes], size_bytes: int, name: str) -> None:
    """Draw a line at a size, or at the end of the axis if the size is beyond."""
    low, high = axes[0].get_xlim()
    size, text = float(np.log2(size_bytes)), f"{name} {format_size(size_bytes)}"
    x = min(max(size, low), high)
    for axis in axes:
        axis.axvline(x, color=INK, linestyle="--", linewidth=1)
    text = f"← {text}" if size < low else f"{text} →" if size > high else text
    offset, side = (4, "left") if x < low + 0.3 * (high - low) else (-4, "right")
    where = {"xycoords": ("data", "axes fraction"), "ha": side, "va": "top"}
    style.note(axes[0], text, (x, 1), (offset, -1), INK, **where)


def _size_axis(axis: Axes, histograms: Sequence[Histogram], limits: Sequence[int]) -> None:
    """Lay out a log₂ axis in binary units with room for everything drawn."""
    ends = [edge for h in histograms if h.num_files.any() for edge in (h.edges[0], h.edges[-1])]
    low, high = np.log2(float(min([*ends, *limits]))), np.log2(float(max([*ends, *limits])))
    axis.set_xlim(np.floor(low) - 0.5, np.ceil(high) + 0.5)
    step = max(1, int(np.ceil((high - low) / 7)))
    ticks = np.arange(np.floor(low), np.ceil(high) + 1, step)
    axis.set_xticks(ticks, [format_size(2**tick) for tick in ticks])
