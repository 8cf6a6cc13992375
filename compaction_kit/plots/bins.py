"""Figures of bins and of what they make of a table."""

import numpy as np
import pyarrow as pa

from compaction_kit.plots.sizes import before_after, draw_before_after
from compaction_kit.plots.style import INK, LIVE, LOST, NEW, Chart, F, calm, short, size_ticks, titled
from compaction_kit.text import format_count, format_size

_MOST_BINS = 60
_BAR_PIXELS = 600


def bins(files: pa.Table, outputs: np.ndarray, max_file_size: int) -> Chart:
    """A bar a bin, a segment a file, the predicted output as a mark, the target as a line.

    Args:
        files: A plan's files: size_bytes and bin_id of each.
        outputs: The predicted bytes of each bin's output.
        max_file_size: Bytes that a bin may hold.
    """
    shown = _num_shown(files)
    figure = Chart(figsize=(7.2, _height(shown)), layout="constrained")
    return _draw_bins(figure, files, outputs, max_file_size)


def plan(
    before: np.ndarray,
    after: np.ndarray,
    files: pa.Table,
    outputs: np.ndarray,
    min_file_size: int,
    max_file_size: int,
) -> Chart:
    """A plan's sizes before and as predicted, and its bins below if it has any.

    Args:
        before: Bytes of each live file now.
        after: Bytes of each live file afterwards, as predicted.
        files: A plan's files: size_bytes and bin_id of each.
        outputs: The predicted bytes of each bin's output.
        min_file_size: Files below this size are rewritten.
        max_file_size: Bytes that a bin may hold.
    """
    if not len(files):
        return before_after(
            before, after, min_file_size=min_file_size, max_file_size=max_file_size, predicted=True
        )
    height = _height(_num_shown(files))
    figure = Chart(figsize=(9.6, 3.8 + height), layout="constrained")
    (upper,), (lower,) = figure.subfigures(2, 1, squeeze=False, height_ratios=(3.8, height))
    draw_before_after(upper, before, after, min_file_size, max_file_size, predicted=True)
    _draw_bins(lower, files, outputs, max_file_size)
    figure.set_label(f"{upper.get_label()}. {lower.get_label()}")
    return figure


def layouts(table: pa.Table, column: str) -> Chart:
    """How many files a narrow range of a column touches, a bar a layout.

    Args:
        table: Layouts as `plan.compare` gives them.
        column: The column.
    """
    names, touched = [short(name) for name in table["layout"].to_pylist()], table["range_files"].to_pylist()
    counts = table["num_files"].to_pylist()
    figure = Chart(figsize=(7.2, 1.2 + 0.4 * len(names)), layout="constrained")
    axis = figure.subplots()
    values = [value or 0 for value in touched]
    axis.barh(range(len(names)), values, color=[LIVE, *[NEW] * (len(names) - 1)], height=0.7)
    for row, (value, count) in enumerate(zip(touched, counts, strict=True)):
        text = "unknown" if value is None else f"{value:,.1f} of {count:,} files"
        axis.annotate(
            text,
            (values[row], row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
        )
    axis.set_yticks(range(len(names)), names)
    axis.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, max([*values, 1]) * 1.3), xlabel="files touched")
    calm(axis, "x")
    best = min(range(len(names)), key=lambda row: values[row])
    titled(figure, f"A narrow range of {short(column)} touches the fewest files {names[best]}")
    figure.set_label(f"A narrow range of {column} touches the fewest files {table['layout'][best]}")
    return figure


def _num_shown(files: pa.Table) -> int:
    return min(int(files["bin_id"].to_numpy().max(initial=-1)) + 1, _MOST_BINS)


def _height(num_bins: int) -> float:
    return 1.4 + 0.22 * max(num_bins, 3)


def _draw_bins(figure: F, files: pa.Table, outputs: np.ndarray, max_file_size: int) -> F:
    sizes, bin_ids = files["size_bytes"].to_numpy(), files["bin_id"].to_numpy()
    num_bins = int(bin_ids.max(initial=-1)) + 1
    shown = _num_shown(files)
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
            color=INK,
        )
    axis.plot(
        outputs[:shown],
        range(shown),
        linestyle="none",
        marker="D",
        markersize=6,
        color=NEW,
        markeredgecolor="white",
        label="output, as predicted",
    )
    axis.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, frameon=False, borderaxespad=0)
    if max_file_size <= 4 * fullest:
        axis.axvline(max_file_size, color=LOST, linestyle="--", linewidth=1)
    axis.set(yticks=range(shown), ylim=(shown - 0.4, -0.6), ylabel="bin", xlim=(0, right))
    size_ticks(axis.xaxis, axis.get_xlim()[1], 5)
    calm(axis, "x")
    more = f" (the first {shown})" if shown < num_bins else ""
    target = format_size(max_file_size)
    return titled(
        figure,
        f"{format_count(len(sizes), 'file')} in {format_count(num_bins, 'bin')} of at most {target}{more}",
    )


def _visible_segments(sizes: np.ndarray, bytes_per_pixel: float) -> np.ndarray:
    """The sizes themselves, or their sum where segments would be too thin to be seen apart."""
    return sizes if sizes.sum() / len(sizes) >= 3 * bytes_per_pixel else sizes.sum(keepdims=True)
