"""Figures say what they show: titles and labels are read, pixels are not."""

import html
import re
from concurrent.futures import ThreadPoolExecutor

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from compaction_kit import plots
from compaction_kit.histogram import Histogram
from compaction_kit.text import KIB, MIB

SIZES = np.array([10 * KIB, 12 * KIB, 3 * MIB, 40 * MIB])


def label_of(figure: Figure) -> str:
    return str(figure.get_label())


def heights(axes: Axes) -> float:
    bars = [np.asarray(path.vertices)[:, 1] for bars in axes.collections for path in bars.get_paths()]
    return sum(float(np.ptp(bar)) for bar in bars)


def widths(axes: Axes) -> float:
    return sum(patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle))


def test_the_sizes_figure_says_how_many_are_small_and_draws_every_file() -> None:
    figure = plots.file_sizes(Histogram.of(SIZES), 16 * MIB)
    assert label_of(figure) == "3 of 4 files are under 16 MiB"
    files, size = figure.axes
    assert heights(files) == 4
    assert heights(size) == SIZES.sum()


def test_the_sizes_figure_of_nothing_says_so() -> None:
    figure = plots.file_sizes(Histogram.of(np.array([], np.int64)), MIB)
    assert label_of(figure) == "The table has no files"
    assert plots.to_png(figure).startswith(b"\x89PNG")


def test_before_and_after_are_on_one_scale() -> None:
    figure = plots.before_after(SIZES, np.array([44 * MIB]))
    assert label_of(figure).startswith("4 → 1 files, 43.0 MiB → 44 MiB")
    before, after = figure.axes[0], figure.axes[1]
    assert before.get_xlim() == after.get_xlim()
    assert before.get_ylim() == after.get_ylim()
    assert (heights(before), heights(after)) == (4, 1)


def test_a_prediction_says_that_it_is_one() -> None:
    figure = plots.before_after(SIZES, SIZES[2:], min_file_size=MIB, max_file_size=4 * MIB, predicted=True)
    assert label_of(figure).startswith("4 → 2 files, ")
    assert " → about " in label_of(figure)
    assert "predicted" in figure.axes[1].get_title(loc="left")


@pytest.mark.parametrize("after", [[], [MIB]], ids=["none", "one"])
def test_no_files_before_are_drawn_too(after: list[int]) -> None:
    nothing = np.array([], np.int64)
    figure = plots.before_after(nothing, np.array(after, np.int64), min_file_size=MIB, max_file_size=MIB)
    assert label_of(figure).startswith(f"0 → {len(after)} files")
    assert plots.to_png(figure, dpi=50).startswith(b"\x89PNG")


def bins_table(sizes: list[int], bin_ids: list[int]) -> pa.Table:
    return pa.table({"size_bytes": pa.array(sizes, pa.int64()), "bin_id": pa.array(bin_ids, pa.int64())})


def test_the_bins_figure_has_a_segment_a_file() -> None:
    figure = plots.bins(bins_table([10, 20, 30, 40], [0, 0, 1, 1]), np.array([25, 60]), 100)
    assert label_of(figure) == "4 files in 2 bins of at most 100 B"
    assert len(figure.axes[0].patches) == 4
    assert widths(figure.axes[0]) == 100


def test_the_bins_figure_says_when_it_shows_only_the_first() -> None:
    figure = plots.bins(bins_table([1] * 200, [i // 2 for i in range(200)]), np.full(100, 2), 2)
    assert "in 100 bins" in label_of(figure)
    assert "(the first 60)" in label_of(figure)


def test_the_bins_figure_of_an_empty_plan_is_drawn() -> None:
    figure = plots.bins(bins_table([], []), np.array([]), MIB)
    assert label_of(figure).startswith("0 files in 0 bins")
    assert plots.to_png(figure, dpi=50).startswith(b"\x89PNG")


def ledger(counts: list[int | None]) -> pa.Table:
    return pa.table(
        {
            "version": pa.array(range(len(counts)), pa.int64()),
            "num_files": pa.array(counts, pa.int64()),
            "num_small_files": pa.array(counts, pa.int64()),
            "data_change": pa.array([i != 2 for i in range(len(counts))], pa.bool_()),
            "num_removed": [5 * (i == 2) for i in range(len(counts))],
            "operation": ["OPTIMIZE" if i == 2 else "WRITE" for i in range(len(counts))],
        }
    )


def test_the_history_figure_says_the_most_and_the_last_and_marks_compactions() -> None:
    figure = plots.history(ledger([3, 1_500, 2, 4]))
    assert label_of(figure) == "Up to 1,500 live files, 4 now"
    assert [text.get_text() for text in figure.axes[0].texts] == ["OPTIMIZE\nversion 2"]


def test_the_history_figure_leaves_out_versions_that_can_t_be_read() -> None:
    assert label_of(plots.history(ledger([None, 7, 2]))) == "Up to 7 live files, 2 now"
    assert label_of(plots.history(ledger([]))) == "Up to 0 live files, 0 now"


def test_html_holds_the_picture_and_its_words() -> None:
    figure = plots.file_sizes(Histogram.of(SIZES), MIB)
    figure.set_label('1 < 2 & "so"')
    page = plots.to_html(figure)
    assert 'aria-label="1 &lt; 2 &amp; &quot;so&quot;"' in page
    assert page.startswith("<svg ")


def test_html_follows_the_pages_theme_and_leaves_the_page_alone() -> None:
    first, second = (plots.to_svg(plots.file_sizes(Histogram.of(SIZES), MIB)) for _ in range(2))
    assert "var(--jp-ui-font-color1, " in first
    assert "<style" not in first
    assert " fill: #333333" not in first
    ids = [set(re.findall(r' id="([^"]+)"', drawn)) for drawn in (first, second)]
    assert not ids[0] & ids[1]
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', first)) == ids[0]


def test_a_figure_of_many_parts_is_shown_as_pixels() -> None:
    figure = plots.file_sizes(Histogram.of(SIZES), MIB)
    figure.axes[0].scatter(range(9_000), range(9_000), s=range(9_000))
    assert 'src="data:image/png;base64,' in plots.to_html(figure)


ODD_NAMES = {
    "mathematics": "price $x$ and $y_1$",
    "wrong mathematics": "a$b_{$c",
    "TeX": r"\frac{1}{2} 50% of #1 & ~",
    "a colour": "#333333 'DejaVu Sans' id=\"a_1\"",
    "HTML": "</text><script>&lt;",
    "lines": "one\ntwo\r\nthree\tfour",
    "controls": "\x00\x1b[31m \u202e",
    "not Unicode": "\udc80",
    "another script": "値段 цена",
    "an underscore": "_hidden",
    "long": "x" * 400,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
def test_a_name_is_drawn_as_it_is(name: str, caplog: pytest.LogCaptureFixture) -> None:
    # Arrow holds Unicode alone.
    told = name.encode("utf-8", "replace").decode()
    layouts = {"layout": ["now", f"by {told}"], "num_files": [9, 3], "range_files": [9.0, None]}
    spans = {"step": [told], "label": [told], "bin_id": [0], "start": [0.0], "seconds": [1.0]}
    ledger = pa.table(
        {
            "version": [0, 1],
            "operation": ["WRITE", told],
            "num_files": [2, 1],
            "num_small_files": [2, 1],
            "num_removed": [0, 2],
            "data_change": [True, False],
        }
    )
    for figure in (
        plots.layouts(pa.table(layouts), name),
        plots.timelines({name: pa.table(spans)}),
        plots.history(ledger),
    ):
        drawn = plots.to_svg(figure)
        plots.to_png(figure, dpi=40)
        said = [html.unescape(text) for text in re.findall(r">([^<]+)</text>", drawn)]
        assert name[:9] in "".join(said) or not name.isprintable() or len(name) > 36
        assert "$\\mathdefault" not in drawn
        label = re.search(r'aria-label="([^"]*)"', drawn)
        assert label is not None
    assert not caplog.records


def test_settings_of_matplotlib_are_left_alone_by_figures_drawn_at_once() -> None:
    before = dict(mpl.rcParams)
    figures = [plots.file_sizes(Histogram.of(SIZES), MIB) for _ in range(6)]
    with ThreadPoolExecutor(3) as pool:
        drawn = list(pool.map(plots.to_svg, figures))
    assert all("</text>" in svg for svg in drawn)
    assert dict(mpl.rcParams) == before
