"""The workbench in JupyterLab, and then the lessons' labs in a notebook beside it and in the same kernel."""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.analyst import SECOND, AnalystsPath
from tests.browser.jupyter import NothingLeaks, Window, open_window, write_notebook
from tests.browser.labs import CELLS, Labs, make_tables
from tests.browser.servers import jupyterlab
from tests.test_project import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser(root: Path, tmp_path_factory: pytest.TempPathFactory, by_night: bool) -> Iterator[Window]:
    """Where there is time, the kernel starts a JVM of its own, as users' kernels do."""
    server = partial(jupyterlab, lend=not by_night)
    yield from open_window(server, root, tmp_path_factory.mktemp("jupyter"))


class TestInJupyterLab(NothingLeaks, AnalystsPath):
    """Steps of one path."""

    @pytest.fixture(scope="class")
    @classmethod
    def page(cls, browser: Window) -> Page:
        return browser.run("notebooks/workbench.ipynb")


class TestLabs(NothingLeaks, Labs):
    """The labs and questions of the lessons, one after another on one page."""

    @pytest.fixture(scope="class")
    @classmethod
    def page(cls, browser: Window, root: Path) -> Page:
        make_tables(root / "lessons")
        shutil.copytree(ROOT / "notebooks" / "course", root / "notebooks" / "course")
        write_notebook(root / "notebooks" / "labs.ipynb", CELLS)
        page = browser.run_beside("notebooks/labs.ipynb")
        expect(page.locator(".ck-predict")).to_have_count(3, timeout=120 * SECOND)
        return page
