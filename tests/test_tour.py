"""The tour without a browser, on small notebooks; nbval runs the real one."""

import re
from pathlib import Path

import nbformat
import pytest

from compaction_kit.tour import main

PLOT = (
    "from compaction_kit import plots\nfrom compaction_kit.histogram import Histogram\nimport numpy as np\n"
)
PLOT += "plots.file_sizes(Histogram.of(np.array([100, 200])), 1024)"


def notebook_of(folder: Path, *cells: str) -> Path:
    content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    path = folder / "small.ipynb"
    nbformat.write(content, path)
    return path


def test_the_page_holds_figures_and_needs_no_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = notebook_of(tmp_path, PLOT, 'print("the summary")', "1 + 1")
    page = tmp_path / "page.html"
    assert main([str(notebook), str(page)]) == 0
    text = page.read_text()
    assert 'aria-label="2 of 2 files are under 1 KiB"' in text
    assert not re.search(r"""(?:src|href)=["']https?://""", text)
    assert "the summary" in capsys.readouterr().out


def test_a_cell_that_fails_ends_the_tour_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = notebook_of(tmp_path, 'raise ValueError("no luck")')
    assert main([str(notebook), str(tmp_path / "page.html")]) == 1
    assert capsys.readouterr().err.strip() == "The tour stopped: ValueError: no luck"
