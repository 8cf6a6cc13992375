"""Notebooks that are run in JupyterLab or Notebook 7, in a real browser."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import nbformat
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
_OPEN_BESIDE = """async path => {
    const { commands, shell } = window.jupyterapp;
    const { id } = shell.currentWidget.sessionContext.session.kernel;
    await commands.execute('docmanager:open', { path, factory: 'Notebook', kernel: { id } });
}"""
_OUTPUTS = """() => window.jupyterapp.shell.currentWidget.context.model.toJSON()
    .cells.flatMap(cell => cell.outputs ?? [])"""


class Window(NamedTuple):
    """A browser's window on a server of notebooks."""

    page: Page
    address: str

    def run(self, notebook: str) -> Page:
        """Open a notebook, wait for its kernel, and run every cell."""
        self.page.goto(self.address.format(notebook), wait_until="domcontentloaded")
        self.page.wait_for_function(
            "() => window.jupyterapp?.shell?.currentWidget?.sessionContext", timeout=90_000
        )
        return self._run_all_cells()

    def run_beside(self, notebook: str) -> Page:
        """Run a notebook beside the open one in the same page of JupyterLab, and in the same kernel."""
        self.page.evaluate(_OPEN_BESIDE, notebook)
        return self._run_all_cells()

    def _run_all_cells(self) -> Page:
        self.page.evaluate(_READY)
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        return self.page


def open_window(
    server: Callable[[Path, Path], AbstractContextManager[str]], root: Path, scratch: Path
) -> Iterator[Window]:
    """Serve a folder and open a window on it."""
    with server(root, scratch) as address:
        for page in open_browser():
            yield Window(page, address)


def write_notebook(path: Path, cells: Iterable[str]) -> None:
    """Write a notebook of these cells."""
    # Without a kernelspec, a front end asks for the kernel.
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)), metadata=kernel)
    nbformat.write(notebook, path)


def trouble(page: Page) -> list[str]:
    """Return the errors, warnings and stray prints in the outputs of the notebook's cells."""
    outputs = page.evaluate(_OUTPUTS)
    errors = [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]
    return errors + ["".join(o["text"]) for o in outputs if o["output_type"] == "stream"]


class NothingLeaks:
    """Tests of a page that shows no errors but the workbench's own."""

    @pytest.fixture(autouse=True)
    def _nothing_leaks(self, page: Page) -> Iterator[None]:
        """Check after each test that no traceback and no stray print is under the cell."""
        yield
        assert trouble(page) == []
        assert page.locator(".ck-drawing-error:visible").count() == 0
