"""The workbench as a page of its own, by Voilà: a first look and a run; the whole path is JupyterLab's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import compaction_kit as ck
from tests.browser.analyst import SECOND, FirstLook, figure, open_browser, open_table, part, type_into
from tests.browser.servers import voila

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with voila(root / "notebooks" / "workbench.ipynb", tmp_path_factory.mktemp("jupyter")) as address:
        for opened in open_browser():
            opened.goto(address, wait_until="domcontentloaded")
            expect(opened.locator(".ck-workbench")).to_be_visible(timeout=90 * SECOND)
            yield opened


class TestInVoila(FirstLook):
    @pytest.fixture(autouse=True)
    def _nothing_leaks(self, page: Page) -> Iterator[None]:
        """Whatever a test does, no trace and no stray print lands on the page."""
        yield
        assert page.locator('[data-mime-type$="stderr"], [data-mime-type$="error"]').count() == 0

    def test_a_run_compacts_and_proves(self, page: Page, root: Path) -> None:
        open_table(page, "../data/shaped")
        part(page, "Run")
        page.locator("button.ck-run").click()
        outcome = page.locator(".ck-outcome").first
        expect(outcome).to_contain_text("identical: 1,200 rows", timeout=180 * SECOND)
        expect(outcome).to_contain_text("24 → 4")
        figure(page, "ck-result-figure")
        assert ck.open_table(root / "data" / "shaped").files().num_files == 4

    def test_a_schema_of_the_session_is_looked_into(self, page: Page) -> None:
        type_into(page, ".ck-root", "spark_catalog.default")
        empty = page.locator(".ck-empty")
        expect(empty).to_contain_text(
            "There is no Delta table in spark_catalog.default yet", timeout=60 * SECOND
        )
        expect(page.locator(".ck-verdict")).to_be_hidden()
