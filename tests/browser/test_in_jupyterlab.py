"""The workbench in JupyterLab."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.analyst import AnalystsPath
from tests.browser.jupyter import NothingLeaks, open_notebook
from tests.browser.servers import jupyterlab

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    yield from open_notebook(jupyterlab, root, tmp_path_factory.mktemp("jupyter"))


class TestInJupyterLab(NothingLeaks, AnalystsPath):
    """Steps of one path."""
