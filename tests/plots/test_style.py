"""What all figures share: exact names, the theme of the page, and no change to settings of the process."""

import html
import re
from concurrent.futures import ThreadPoolExecutor

import matplotlib as mpl
import numpy as np
import pytest

from compaction_kit import plots
from compaction_kit.text import KIB, MIB

SIZES = np.array([10 * KIB, 12 * KIB, 3 * MIB, 40 * MIB])


def test_html_has_the_figures_words_follows_the_pages_theme_and_leaves_the_page_alone() -> None:
    figures = [plots.file_sizes(SIZES, MIB) for _ in range(2)]
    figures[0].set_label('1 < 2 & "so"')
    first, second = map(plots.to_html, figures)
    assert first.startswith("<svg ")
    assert 'aria-label="1 &lt; 2 &amp; &quot;so&quot;"' in first
    assert "var(--jp-ui-font-color1, " in first
    assert "<style" not in first
    assert " fill: #333333" not in first
    ids = [set(re.findall(r' id="([^"]+)"', drawn)) for drawn in (first, second)]
    assert not ids[0] & ids[1]
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', first)) == ids[0]


def test_a_figure_of_many_parts_is_shown_as_pixels() -> None:
    figure = plots.file_sizes(SIZES, MIB)
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
    # Arrow takes only valid Unicode.
    names = ["now", f"by {name.encode('utf-8', 'replace').decode()}"]
    files = dict(zip(names, (9.0, None), strict=True))
    about = dict.fromkeys(names, "few")
    figure = plots.layouts(f"Fewest: {name[:60]}", files, about, "files opened", name)
    drawn = plots.to_svg(figure)
    plots.to_png(figure, dpi=40)
    said = [html.unescape(text) for text in re.findall(r">([^<]+)</text>", drawn)]
    assert name[:9] in "".join(said) or not name.isprintable() or len(name) > 36
    assert "$\\mathdefault" not in drawn
    assert not caplog.records


def test_settings_of_matplotlib_are_left_alone_by_figures_drawn_at_once() -> None:
    before = dict(mpl.rcParams)
    figures = [plots.file_sizes(SIZES, MIB) for _ in range(6)]
    with ThreadPoolExecutor(3) as pool:
        drawn = list(pool.map(plots.to_svg, figures))
    assert all("</text>" in svg for svg in drawn)
    assert dict(mpl.rcParams) == before


def test_a_title_breaks_between_no_number_and_its_unit() -> None:
    files: dict[str, float | None] = {"now": 9.0, "after": 1.0}
    about = dict.fromkeys(files, "few")
    for length in range(30, 90):
        title = f"{'i' * length} 6.3 MiB → 1.8 MiB, 28 % as much as 3 files"
        figure = plots.layouts(title, files, about, "files opened")
        lines = figure.get_suptitle().split("\n")
        assert not any(re.search(r"\d$|^(MiB|%|files)", line) for line in lines), lines
