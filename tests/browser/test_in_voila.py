"""The workbench as a page of its own, by Voilà: a first look and a run; JupyterLab has the whole path."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import compaction_kit as ck
from tests.browser.analyst import SECOND, FirstLook, figure, open_browser, open_table, part
from tests.browser.servers import voila
from tests.execute.meanwhile import clustered_table

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with voila(root / "notebooks" / "workbench.ipynb", tmp_path_factory.mktemp("jupyter")) as address:
        for opened in open_browser():
            opened.goto(address, wait_until="domcontentloaded")
            expect(opened.locator(".ck-workbench")).to_be_visible(timeout=90 * SECOND)
            yield opened


class TestInVoila(FirstLook):
    narrowest = 390

    @pytest.fixture(autouse=True)
    def _nothing_leaks(self, page: Page) -> Iterator[None]:
        """Check after each test that no traceback and no stray print is on the page."""
        yield
        assert page.locator('[data-mime-type$="stderr"], [data-mime-type$="error"]').count() == 0

    def test_a_clustered_table_by_mouse_from_verdict_to_undo(self, page: Page, root: Path) -> None:
        table = clustered_table(root / "data" / "events", files=6, rows=200)
        page.locator("button.ck-refresh").click()
        open_table(page, "../data/events")
        verdict = page.locator(".ck-verdict [role=status]")
        expect(verdict.locator("b")).to_have_text("6 files of 6 are not clustered by id, value yet.")
        part(page, "Plan")
        figure(page, "ck-plan-figure", r"All \S+ KiB is new and rewritten$")
        part(page, "My query")
        page.get_by_label("Query", exact=True).fill("id < 150")
        page.locator("button.ck-count").click()
        figure(page, "ck-prediction-figure", "The query opens 1 of 6 files now")
        part(page, "Run")
        page.locator("button.ck-run").click()
        outcome = page.locator(".ck-outcome").first
        expect(outcome).to_contain_text("identical: 1,200 rows", timeout=180 * SECOND)
        expect(verdict).to_contain_text("Nothing more to do.")
        page.get_by_role("button", name="Undo this run").click()
        page.locator("button.ck-restore").first.click()
        expect(verdict).to_contain_text("6 files of 6 are not clustered")
        assert ck.open_table(table).files().num_files == 6
