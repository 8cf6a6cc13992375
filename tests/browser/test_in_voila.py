"""The workbench as a page of its own, by Voilà."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.analyst import SECOND, AnalystsPath, open_browser
from tests.browser.servers import voila

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with voila(root / "notebooks" / "workbench.ipynb", tmp_path_factory.mktemp("jupyter")) as address:
        for opened in open_browser():
            opened.goto(address, wait_until="domcontentloaded")
            expect(opened.locator(".ck-workbench")).to_be_visible(timeout=90 * SECOND)
            yield opened


class TestInVoila(AnalystsPath):
    @pytest.fixture(autouse=True)
    def _nothing_leaks(self, page: Page) -> Iterator[None]:
        """Whatever a test does, no trace and no stray print lands on the page."""
        yield
        assert page.locator('[data-mime-type$="stderr"], [data-mime-type$="error"]').count() == 0
