"""The workbench in Notebook 7: the beginning of the path, the rest of which is JupyterLab's."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.analyst import SECOND, Days, FirstLook, figure
from tests.browser.jupyter import NothingLeaks, Window, open_window, write_notebook
from tests.browser.servers import notebook_7

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(scope="module")
def browser(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    yield from open_window(notebook_7, root, tmp_path_factory.mktemp("jupyter"))


@pytest.fixture(scope="module")
def page(browser: Window) -> Page:
    return browser.run("notebooks/workbench.ipynb")


class TestInNotebook7(NothingLeaks, FirstLook):
    """Steps of one path."""

    def test_parts_alone_work_without_the_workbench(self, browser: Window, root: Path, days: Days) -> None:
        lines = "import compaction_kit as ck\n\nck.widgets.{}('../data/flights')"
        write_notebook(root / "notebooks" / "parts.ipynb", map(lines.format, ("plan", "history")))
        page = browser.run("notebooks/parts.ipynb")
        plan = page.locator(".ck-workbench").filter(has=page.locator(".ck-plan"))
        expect(plan.locator(".ck-plan")).to_contain_text("fill 3 bins of at most 1 GiB", timeout=60 * SECOND)
        plan.get_by_label("Target file size", exact=True).focus()
        for _ in range(2):
            page.keyboard.press("ArrowLeft")
        expect(plan.locator(".ck-plan")).to_contain_text(f"(files of about {days.target})")
        finding = re.compile(f"^{days.files} → {days.files_after} files, ")
        expect(figure(page, "ck-plan-figure")).to_have_attribute("aria-label", finding)
        figure(page, "ck-lifetimes-figure")
