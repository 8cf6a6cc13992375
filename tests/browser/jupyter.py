"""A notebook that is run in JupyterLab or Notebook 7, in a real browser."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.analyst import open_browser

_READY = """async () => {
    const app = window.jupyterapp;
    await app.restored;
    const panel = app.shell.currentWidget;
    await panel.revealed;
    await panel.context.ready;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
}"""
_OUTPUTS = """() => window.jupyterapp.shell.currentWidget.context.model.toJSON()
    .cells.flatMap(cell => cell.outputs ?? [])"""


def open_notebook(
    server: Callable[[Path, Path], AbstractContextManager[str]], root: Path, scratch: Path
) -> Iterator[Page]:
    """The workbench's notebook in a folder, all its cells run."""
    with server(root, scratch) as address:
        for page in open_browser():
            run_all_cells(page, address.format("notebooks/workbench.ipynb"))
            yield page


def run_all_cells(page: Page, address: str) -> None:
    """Open a notebook, wait for its kernel, and run every cell."""
    page.goto(address, wait_until="domcontentloaded")
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.sessionContext", timeout=90_000)
    page.evaluate(_READY)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")


def trouble(page: Page) -> list[str]:
    """What the notebook's cells show of errors, warnings and stray prints."""
    outputs = page.evaluate(_OUTPUTS)
    errors = [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]
    return errors + ["".join(o["text"]) for o in outputs if o["output_type"] == "stream"]


class NothingLeaks:
    """Tests of a page on which all errors are the workbench's own."""

    @pytest.fixture(autouse=True)
    def _nothing_leaks(self, page: Page) -> Iterator[None]:
        """Whatever a test does, no trace and no stray print lands under the cell."""
        yield
        assert trouble(page) == []
