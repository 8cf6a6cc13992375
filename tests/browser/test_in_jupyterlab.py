"""The workbench in JupyterLab, and then the lessons' labs in a notebook beside it and in the same kernel."""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from compaction_kit.datasets import shaped_table
from tests.browser.analyst import SECOND, AnalystsPath, part
from tests.browser.jupyter import NothingLeaks, Window, open_window, write_notebook
from tests.browser.labs import CELLS, Labs, make_tables
from tests.browser.servers import jupyterlab
from tests.test_project import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser(root: Path, tmp_path_factory: pytest.TempPathFactory, by_night: bool) -> Iterator[Window]:
    """A window on JupyterLab; at night its kernel starts a JVM of its own, as users' kernels do."""
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


_SAVE_AND_RESTART = """async () => {
    const { commands, shell } = window.jupyterapp;
    await commands.execute('docmanager:save');
    await shell.currentWidget.sessionContext.session.kernel.restart();
}"""
_BEFORE = "one => getComputedStyle(one, '::before').content"
_KEPT = """words => {
    const notebook = window.jupyterapp.shell.currentWidget.context.model.toJSON();
    return JSON.stringify(notebook).replaceAll("\\u00a0", " ").includes(words);
}"""


@pytest.mark.nightly
class TestRestart:
    """A notebook that is opened again after a restart of its kernel; last, because no Spark is left."""

    def test_the_last_page_is_shown_and_asks_to_run_the_cell_again(self, browser: Window, root: Path) -> None:
        lines = (
            "from compaction_kit.widgets.state import WorkbenchState",
            "from compaction_kit.widgets.workbench import Workbench",
            "Workbench(WorkbenchState('../later'))",
        )
        write_notebook(root / "notebooks" / "restart.ipynb", ["\n".join(lines)])
        page = browser.run("notebooks/restart.ipynb")
        expect(page.locator(".ck-empty")).to_contain_text("There is no ../later yet")
        expect(page.locator(".ck-again")).to_be_hidden()
        shaped_table(root / "later" / "made", partitions=2, files=3, rows=20)
        page.locator("button.ck-refresh").click()
        expect(page.locator(".ck-verdict b")).to_contain_text("6 files where 2 would do")
        part(page, "Plan")
        page.wait_for_function(_KEPT, arg="6 live files, 6 under 1 GiB")
        page.evaluate(_SAVE_AND_RESTART)
        lost = page.locator(".ck-workbench.jupyter-widgets-disconnected")
        assert "run the cell again" in lost.evaluate(_BEFORE)
        assert lost.locator(".jupyter-widgets-disconnected").first.evaluate(_BEFORE) == "none"
        page.goto(browser.address.format("notebooks/restart.ipynb"), wait_until="domcontentloaded")
        still = page.locator(".ck-still")
        expect(page.get_by_text("Error displaying widget")).to_be_visible()
        # The still has no height before it is drawn.
        page.wait_for_function("() => document.querySelector('.ck-still').clientHeight > 100")
        expect(still.locator(".ck-again")).to_contain_text("run this cell again")
        for words in ("6 files where 2 would do", "6 live files, 6 under 1 GiB"):
            expect(still).to_contain_text(words)
        expect(still).not_to_contain_text("There is no")
