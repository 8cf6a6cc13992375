"""The workbench in Notebook 7: the beginning of the path, the rest of which is JupyterLab's."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.analyst import SECOND, FirstLook, figure, shoot
from tests.browser.jupyter import NothingLeaks, open_notebook, run_all_cells
from tests.browser.servers import notebook_7

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    yield from open_notebook(notebook_7, root, tmp_path_factory.mktemp("jupyter"))


class TestInNotebook7(NothingLeaks, FirstLook):
    """Steps of one path."""

    def test_parts_alone_work_without_the_workbench(self, page: Page) -> None:
        run_all_cells(page, page.url.replace("workbench.ipynb", "parts.ipynb"))
        plan = page.locator(".ck-workbench").filter(has=page.locator(".ck-plan"))
        expect(plan.locator(".ck-about")).to_contain_text("1,095 files", timeout=60 * SECOND)
        expect(plan.locator(".ck-plan")).to_contain_text("fill 3 bins of at most 1 GiB")
        plan.get_by_label("Target file size", exact=True).focus()
        for _ in range(2):
            page.keyboard.press("ArrowLeft")
        expect(plan.locator(".ck-plan")).to_contain_text("fill 11 bins of at most 2 MiB")
        finding = re.compile("^1,095 → 11 files, 19.1 MiB → about ")
        expect(figure(page, "ck-plan-figure")).to_have_attribute("aria-label", finding)
        figure(page, "ck-lifetimes-figure")
        shoot(page, "parts", whole=True)
