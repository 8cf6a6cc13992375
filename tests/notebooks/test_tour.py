"""The tour without a browser, on small notebooks; nbval runs the real one."""

import re
from pathlib import Path

import nbformat
import pytest
import tour

PLOT = "from compaction_kit import plots\nimport numpy as np\nplots.file_sizes(np.array([100, 200]), 1024)"


def run_tour(folder: Path, *cells: str) -> int:
    content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(content, folder / "small.ipynb")
    return tour.main(str(folder / "small.ipynb"), str(folder / "page.html"))


def test_the_page_holds_figures_and_needs_no_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tour(tmp_path, PLOT, 'print("the summary")', "1 + 1") == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'aria-label="2 of 2 files are under 1 KiB"' in page
    assert not re.search(r"""(?:src|href)=["']https?://""", page)
    assert "\nthe summary\n" in capsys.readouterr().out


def test_a_cell_that_fails_ends_the_tour_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tour(tmp_path, 'raise ValueError("no luck")') == 1
    assert "The tour stopped: ValueError: no luck" in capsys.readouterr().err.splitlines()
    assert (tmp_path / "page.html").exists()
