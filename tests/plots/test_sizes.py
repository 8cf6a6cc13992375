"""The figures of sizes and bins say what they show: titles and labels are read, pixels are not."""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from compaction_kit import plots
from compaction_kit.text import GIB, KIB, MIB

SIZES = np.array([10 * KIB, 12 * KIB, 3 * MIB, 40 * MIB])


def heights(axes: Axes) -> float:
    bars = [np.asarray(path.vertices)[:, 1] for bars in axes.collections for path in bars.get_paths()]
    return sum(float(np.ptp(bar)) for bar in bars)


def test_the_sizes_figure_says_how_many_are_small_and_draws_every_file() -> None:
    figure = plots.file_sizes(SIZES, 16 * MIB)
    assert str(figure.get_label()) == "3 of 4 files are under 16 MiB"
    files, size = figure.axes
    assert heights(files) == 4
    assert heights(size) == SIZES.sum()


def test_before_and_after_are_on_one_scale_and_a_prediction_says_that_it_is_one() -> None:
    figure = plots.before_after(SIZES, np.array([44 * MIB]))
    assert str(figure.get_label()) == "4 → 1 file, 43.0 MiB → 44 MiB"
    before, after = figure.axes[1], figure.axes[3]
    assert (before.get_xlim(), before.get_ylim()) == (after.get_xlim(), after.get_ylim())
    assert (heights(before), heights(after)) == (4, 1)
    figure = plots.before_after(SIZES, SIZES[2:], min_file_size=MIB, max_file_size=4 * MIB, largest=44 * MIB)
    assert str(figure.get_label()) == "4 → 2 files, 43.0 MiB → about 43 MiB"
    assert "predicted" in figure.axes[3].get_title(loc="left")
    figure = plots.before_after(SIZES, None, min_file_size=MIB, max_file_size=4 * MIB, largest=44 * MIB)
    assert str(figure.get_label()) == "Nothing to do: 4 files, 43.0 MiB"
    assert heights(figure.axes[3]) == 4


def test_the_axes_are_those_of_the_files_whatever_the_plan() -> None:
    plans = (SIZES, 4 * KIB), (SIZES[2:], 4 * MIB), (SIZES.sum(keepdims=True), 64 * MIB)
    room: Any = {"largest": 44 * MIB, "former": SIZES}
    figures = [
        plots.before_after(SIZES, after, min_file_size=size, max_file_size=size, **room)
        for after, size in plans
    ]
    assert len({(axis.get_xlim(), axis.get_ylim()) for figure in figures for axis in figure.axes[1::2]}) == 1
    assert len({axis.get_ylim() for figure in figures for axis in figure.axes[::2]}) == 1
    assert "target 64 MiB" in plots.to_svg(figures[2])


def bins_table(sizes: list[int], bin_ids: list[int]) -> pa.Table:
    return pa.table({"size_bytes": pa.array(sizes, pa.int64()), "bin_id": pa.array(bin_ids, pa.int64())})


def test_figures_of_nothing_say_so() -> None:
    nothing = np.array([], np.int64)
    limits: Any = {"min_file_size": MIB, "max_file_size": MIB}
    for figure, says in (
        (plots.file_sizes(nothing, MIB), "The table has no files"),
        (plots.before_after(nothing, nothing, **limits), "0 → 0 files, "),
        (plots.before_after(nothing, np.array([MIB]), **limits), "0 → 1 file, "),
        (plots.bins(bins_table([], []), nothing, MIB, [], ""), "0 files in 0 bins"),
    ):
        assert str(figure.get_label()).startswith(says)


def plan_of(before: np.ndarray, after: np.ndarray, lower: int, upper: int, largest: int) -> Figure:
    limits: Any = {"min_file_size": lower, "max_file_size": upper, "largest": largest}
    draw_bins = partial(plots.bins, bins_table([10, 20], [0, 0]), np.array([25]), upper, ["0"], "")
    return plots.stacked([(3.6, partial(plots.before_after, before, after, **limits)), (2.1, draw_bins)])


@pytest.mark.parametrize("minimum", [KIB, 9 * KIB, MIB, 3 * MIB, 32 * MIB, 16 * GIB])
def test_names_of_thresholds_and_numbers_are_over_no_bar(minimum: int) -> None:
    sizes = np.repeat(SIZES, [300, 400, 500, 600])
    drawn = [
        plots.file_sizes(sizes, minimum),
        plots.before_after(sizes, SIZES, min_file_size=minimum, max_file_size=minimum, largest=GIB),
        plan_of(sizes, SIZES, minimum, minimum, GIB),
    ]
    for figure in drawn:
        figure.draw_without_rendering()
        for axis in figure.axes:
            paths = [path for bars in axis.collections for path in bars.get_paths()]
            bars = [path.get_extents(axis.transData) for path in paths]
            for text in axis.texts:
                assert text.get_window_extent().padded(-0.75).count_overlaps(bars) == 0, text.get_text()


def test_the_sizes_beside_the_axes_have_room_in_wider_fonts_too() -> None:
    """A page that has no DejaVu Sans shows an SVG's text in another font."""
    sizes = np.full(2_500, 128)
    for figure in (
        plots.before_after(sizes, sizes, min_file_size=KIB, max_file_size=GIB, largest=MIB),
        plan_of(sizes, sizes, KIB, GIB, MIB),
        plots.file_sizes(sizes, MIB),
    ):
        figure.draw_without_rendering()
        for axis in figure.axes[:4]:
            boxes = [tick.get_window_extent() for tick in axis.get_yticklabels()]
            room = min(box.x1 - 1.1 * box.width for box in boxes if axis.get_ylabel())
            assert axis.yaxis.label.get_window_extent().x1 < room


def test_the_bins_figure_has_a_segment_a_file_and_says_if_it_shows_the_first_bins_only() -> None:
    names = ["p=1, bin 1 of 1", "p=2, bin 1 of 1"]
    figure = plots.bins(bins_table([10, 20, 30, 40], [0, 0, 1, 1]), np.array([25, 60]), 100, names, " of 100")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == names
    assert str(figure.get_label()) == "4 files in 2 bins of 100"
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert (len(bars), sum(bar.get_width() for bar in bars)) == (4, 100)
    many = bins_table([1] * 200, [i // 2 for i in range(200)])
    figure = plots.bins(many, np.full(100, 2), 2, list(map(str, range(100))), "")
    assert str(figure.get_label()) == "200 files in 100 bins (the first 60)"
