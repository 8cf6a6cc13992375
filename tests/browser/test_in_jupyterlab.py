"""The workbench in JupyterLab."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.analyst import AnalystsPath, open_browser, serve_folder
from tests.browser.servers import jupyterlab, run_all_cells, trouble

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def root(flights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serve_folder(flights, tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with jupyterlab(root, tmp_path_factory.mktemp("jupyter")) as address:
        for opened in open_browser():
            run_all_cells(opened, address.format("notebooks/workbench.ipynb"))
            yield opened


class TestInJupyterLab(AnalystsPath):
    @pytest.fixture(autouse=True)
    def _nothing_leaks(self, page: Page) -> Iterator[None]:
        """Whatever a test does, no trace and no stray print lands under the cell."""
        yield
        assert trouble(page) == []
