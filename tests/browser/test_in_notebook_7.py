"""The workbench in Notebook 7: the beginning of the path; the tests in JupyterLab run all of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.analyst import FirstLook
from tests.browser.jupyter import NothingLeaks, open_window
from tests.browser.servers import notebook_7

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    for window in open_window(notebook_7, root, tmp_path_factory.mktemp("jupyter")):
        yield window.run("notebooks/workbench.ipynb")


class TestInNotebook7(NothingLeaks, FirstLook):
    """Steps of one path."""
