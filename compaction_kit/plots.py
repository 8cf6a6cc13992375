"""Figures: records in, a matplotlib Figure out; nothing is computed here but the drawing.

Every figure's title is its finding, and its label (`get_label()`) says the same for people who
can't see it. Colours are Okabe and Ito's; hatches carry the same meaning.
"""

import base64
import html
import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from compaction_kit.histogram import Histogram
from compaction_kit.sizes import format_size

LIVE = "#0072B2"
SMALL = "#E69F00"
NEW = "#009E73"
TOMBSTONED = "#999999"
LOST = "#D55E00"
_INK = "#333333"
_SMALL_HATCH = "///"
_MOST_BINS = 60
_BAR_PIXELS = 600


class Chart(Figure):
    """A matplotlib Figure that a notebook shows as it is, with its words for people who can't see it."""

    def _repr_html_(self) -> str:
        return to_html(self)


def file_sizes(histogram: Histogram, small_file_size: int) -> Chart:
    """Files above and bytes below, by size; buckets below the threshold are marked as small."""
    small = histogram.edges[1:] <= small_file_size
    num_small, total = int(histogram.num_files[small].sum()), int(histogram.num_files.sum())
    figure = Chart(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _panel(axes, histogram, small)
    _threshold(axes, small_file_size, "small")
    _size_axis(axes[1], [histogram], [small_file_size])
    title = f"{num_small:,} of {total:,} files are under {format_size(small_file_size)}"
    return _titled(figure, title if total else "The table has no files")


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
    histograms = [Histogram.of(before), Histogram.of(after)]
    figure = Chart(figsize=(9.6, 3.8), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(3, 2))
    small = histograms[0].edges[1:] <= (min_file_size or 0)
    _panel(grid[:, 0], histograms[0], small)
    _panel(grid[:, 1], histograms[1], np.zeros(len(histograms[1].num_files), dtype=bool), NEW)
    limits = [size for size in (min_file_size, max_file_size) if size is not None]
    for column in (0, 1):
        _size_axis(grid[1, column], histograms, limits)
        if min_file_size is not None:
            _threshold(grid[:, column], min_file_size, "min")
        if max_file_size is not None and max_file_size != min_file_size:
            _threshold(grid[:, column], max_file_size, "max")
    grid[0, 0].set_title("now" if predicted else "before", loc="left", fontsize=9, color=_INK)
    grid[0, 1].set_title(
        "after (predicted, sizes at most)" if predicted else "after", loc="left", fontsize=9, color=_INK
    )
    for axis in grid[:, 1]:
        axis.set_ylabel("")
    share = f"{format_size(before.sum())} → {format_size(after.sum())}"
    title = f"{len(before):,} → {len(after):,} files"
    return _titled(figure, title if predicted else f"{title}, {share}")


def bins(files: pa.Table, max_file_size: int) -> Chart:
    """A bar a bin, a segment a file, the target as a line.

    Args:
        files: A plan's files: size_bytes and bin_id of each.
        max_file_size: Bytes that a bin may hold.
    """
    sizes, bin_ids = files["size_bytes"].to_numpy(), files["bin_id"].to_numpy()
    num_bins = int(bin_ids.max(initial=-1)) + 1
    shown = min(num_bins, _MOST_BINS)
    figure = Chart(figsize=(7.2, 1.4 + 0.22 * max(shown, 3)), layout="constrained")
    axis = figure.subplots()
    fullest = int(np.bincount(bin_ids, sizes).max()) if num_bins else 1
    right = max(fullest, min(max_file_size, 4 * fullest)) * 1.02
    for bin_id in range(shown):
        members = sizes[bin_ids == bin_id]
        segments = _visible_segments(members, right / _BAR_PIXELS)
        axis.barh(
            [bin_id] * len(segments),
            segments,
            left=np.cumsum(segments) - segments,
            color=LIVE,
            edgecolor="white",
            linewidth=0.4,
            height=0.8,
        )
        axis.annotate(
            f"{len(members):,} files, {format_size(members.sum())}",
            (1.01, bin_id),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            color=_INK,
        )
    if max_file_size <= 4 * fullest:
        axis.axvline(max_file_size, color=LOST, linestyle="--", linewidth=1)
    axis.set(yticks=range(shown), ylim=(shown - 0.4, -0.6), ylabel="bin", xlim=(0, right))
    _size_ticks(axis.xaxis, axis.get_xlim()[1], 5)
    _calm(axis, "x")
    more = f" (the first {shown})" if shown < num_bins else ""
    target = format_size(max_file_size)
    return _titled(figure, f"{len(sizes):,} files in {num_bins:,} bins of at most {target}{more}")


def history(ledger: pa.Table) -> Chart:
    """Live files after each version, with the versions marked that changed no data.

    Args:
        ledger: What `Table.history()` returns.
    """
    known = ledger.filter(ledger["num_files"].is_valid())
    versions, counts = known["version"].to_numpy(), known["num_files"].to_numpy()
    small = known["num_small_files"].to_numpy()
    figure = Chart(figsize=(7.2, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.fill_between(versions, counts, step="post", color=LIVE, alpha=0.25, linewidth=0)
    axis.step(versions, counts, where="post", color=LIVE, linewidth=1.5, label="live files")
    axis.step(versions, small, where="post", color=SMALL, linewidth=1.5, linestyle="--", label="small files")
    for row in known.filter(pc.invert(known["data_change"])).to_pylist():
        if row["num_removed"]:
            label = f"{row['operation']}\nversion {row['version']}"
            axis.axvline(row["version"], color=NEW, linewidth=1, linestyle=":")
            axis.annotate(
                label,
                (row["version"], counts.max() * 1.12),
                xytext=(4, 0),
                textcoords="offset points",
                fontsize=8,
                color=NEW,
                va="top",
                annotation_clip=False,
            )
    axis.set(xlabel="version", ylabel="files", ylim=(0, counts.max(initial=1) * 1.15))
    axis.margins(x=0.08)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axis.legend(loc="upper left", frameon=False, fontsize=8)
    _calm(axis, "y")
    last = int(counts[-1]) if len(counts) else 0
    return _titled(figure, f"Up to {int(counts.max(initial=0)):,} live files, {last:,} now")


def _visible_segments(sizes: np.ndarray, bytes_per_pixel: float) -> np.ndarray:
    """The sizes themselves, or their sum where segments would be too thin to be seen apart."""
    return sizes if sizes.sum() / len(sizes) >= 3 * bytes_per_pixel else sizes.sum(keepdims=True)


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG image."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def to_html(figure: Figure) -> str:
    """The figure as an `img` element that needs no other file, with its words for people who can't see it."""
    data = base64.b64encode(to_png(figure)).decode()
    width = round(figure.get_figwidth() * 96)
    alt = html.escape(str(figure.get_label()), quote=True)
    return f'<img alt="{alt}" style="max-width:100%" width="{width}" src="data:image/png;base64,{data}">'


def _panel(axes: Sequence[Axes], histogram: Histogram, small: np.ndarray, colour: str = LIVE) -> None:
    """Files upwards in the first axes, bytes downwards in the second."""
    left, right = np.log2(histogram.edges[:-1].astype(float)), np.log2(histogram.edges[1:].astype(float))
    colours = np.where(small, SMALL, colour)
    for axis, heights in zip(axes, (histogram.num_files, histogram.size_bytes), strict=True):
        bars = axis.bar(
            left, heights, width=0.92 * (right - left), align="edge", color=colours, edgecolor=colours
        )
        for bar, is_small in zip(bars, small, strict=True):
            if is_small:
                bar.set_hatch(_SMALL_HATCH)
                bar.set_edgecolor("white")
                bar.set_linewidth(0)
    files, size = axes
    for x, width, count in zip(left, right - left, histogram.num_files, strict=True):
        if count and len(left) <= 16:
            files.annotate(
                f"{count:,}", (x + width / 2, count), ha="center", va="bottom", fontsize=8, color=_INK
            )
    files.margins(y=0.18)
    files.set_ylabel("files")
    files.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    files.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    size.set_ylabel("bytes")
    size.set_ylim(max(size.get_ylim()), 0)
    _size_ticks(size.yaxis, max(size.get_ylim()), 3)
    for axis in axes:
        _calm(axis, "y")


def _size_ticks(axis: Axis, largest: float, count: int) -> None:
    """Ticks at about so many sizes that are round in binary units."""
    step = 2 ** int(np.ceil(np.log2(max(largest, count) / count)))
    ticks = np.arange(0, largest + 1, step)
    axis.set_ticks(ticks, [format_size(tick) for tick in ticks])


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


def _calm(axis: Axes, grid: str) -> None:
    axis.grid(axis=grid, color="#DDDDDD", linewidth=0.6)  # type: ignore[arg-type]
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#BBBBBB")
    axis.tick_params(labelsize=8, colors=_INK, length=3, color="#BBBBBB")
    axis.xaxis.label.set(size=9, color=_INK)
    axis.yaxis.label.set(size=9, color=_INK)


def _titled(figure: Chart, title: str) -> Chart:
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=_INK)
    figure.set_label(title)
    return figure
