"""The analyst's path through the workbench, by mouse and keyboard, in JupyterLab."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

import compaction_kit as ck
from compaction_kit.datasets import shaped_table
from compaction_kit.sizes import format_size
from tests.browser.jupyterlab import CHROMIUM_ARGUMENTS, find_chromium, jupyterlab, run_all_cells, trouble

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "workbench.ipynb"
SECOND = 1_000


@pytest.fixture(scope="module")
def root(flights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to serve: the notebook, the flights, a shaped table, an empty folder."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "notebooks").mkdir()
    shutil.copy(NOTEBOOK, folder / "notebooks")
    shutil.copytree(flights, folder / "data" / "flights")
    shaped_table(folder / "data" / "shaped", partitions=4, files=6, rows=50)
    (folder / "empty").mkdir()
    return folder


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The workbench, open and run in a real browser."""
    chromium = find_chromium()
    if chromium is None:
        message = "no Chromium is installed: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    scratch = tmp_path_factory.mktemp("jupyter")
    with jupyterlab(root, scratch) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS)
        opened = browser.new_page(viewport={"width": 1500, "height": 1300})
        opened.set_default_timeout(20 * SECOND)
        # A busy machine takes longer than the 5 s of the default to draw a large figure.
        expect.set_options(timeout=20 * SECOND)
        run_all_cells(opened, address.format("notebooks/workbench.ipynb"))
        yield opened
        if shots := os.environ.get("SCREENSHOTS"):
            opened.screenshot(path=str(Path(shots) / "last.png"))
        browser.close()


@pytest.fixture(autouse=True)
def _nothing_leaks(page: Page) -> Iterator[None]:
    """Whatever a test does, no trace and no stray print lands under the cell."""
    yield
    assert trouble(page) == []


def shoot(page: Page, name: str) -> None:
    """Keep a picture, where one is asked for."""
    if shots := os.environ.get("SCREENSHOTS"):
        page.locator(".ck-workbench").screenshot(path=str(Path(shots) / f"{name}.png"))


def part(page: Page, name: str) -> None:
    """Choose a part of the workbench."""
    page.locator(".ck-rail").get_by_role("button", name=name).click()


def figure(page: Page, css_class: str) -> Locator:
    """A picture that is on screen."""
    image = page.locator(f".{css_class} img")
    expect(image).to_be_visible()
    return image


def type_into(page: Page, selector: str, value: str) -> None:
    """Replace what a field holds, and press Enter."""
    field = page.locator(f"{selector} input[type=text]").first
    field.fill(value)
    field.press("Enter")


def wait_until_settled(page: Page) -> None:
    """Wait until the plan is the one for where the slider stands."""
    for _ in range(100):
        exponent = page.locator(".ck-max .noUi-handle").get_attribute("aria-valuenow")
        chosen = format_size(2 ** round(float(exponent or 0)))
        if f"bins of at most {chosen}" in page.locator(".ck-plan").inner_text():
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"the slider stands at {chosen}, the plan says otherwise")


def open_table(page: Page, name: str) -> None:
    """Choose one of the tables found."""
    page.locator(".ck-table select").select_option(label=name)


def test_tables_are_found_and_the_first_is_shown(page: Page) -> None:
    options = page.locator(".ck-table select option")
    expect(options.filter(has_text="data/flights")).to_have_count(1)
    expect(options.filter(has_text="data/shaped")).to_have_count(1)
    expect(page.locator(".ck-about")).to_contain_text("version 365 · 1,095 files")
    expect(page.locator(".ck-about")).to_contain_text("3 partitions")


def test_the_histogram_says_what_it_shows(page: Page) -> None:
    image = figure(page, "ck-files-figure")
    expect(image).to_have_attribute("alt", "1,095 of 1,095 files are under 16 MiB")
    shoot(page, "files")


def test_a_slider_moved_by_keyboard_changes_plan_and_figure(page: Page) -> None:
    part(page, "Plan")
    sentence = page.locator(".ck-plan")
    expect(sentence).to_contain_text("fill 3 bins of at most 1 GiB in 3 partitions")
    image = figure(page, "ck-plan-figure")
    before = image.get_attribute("src")
    handle = page.locator(".ck-max .noUi-handle")
    handle.focus()
    for _ in range(9):
        page.keyboard.press("ArrowLeft")
    expect(sentence).to_contain_text("fill 11 bins of at most 2 MiB")
    expect(page.locator(".ck-max input[type=text]")).to_have_value("2 MiB")
    expect(image).to_have_attribute("alt", re.compile("^1,095 → 11 files, 19.1 MiB → about "))
    assert image.get_attribute("src") != before
    shoot(page, "plan")


def test_a_slider_dragged_by_mouse_changes_the_plan(page: Page) -> None:
    box = page.locator(".ck-max .noUi-handle").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 40, y, steps=4)
    page.mouse.up()
    expect(page.locator(".ck-plan")).not_to_contain_text("at most 2 MiB")
    wait_until_settled(page)


def test_a_typed_size_is_taken_and_a_bad_one_gets_a_sentence(page: Page) -> None:
    type_into(page, ".ck-max", "12 parsecs")
    error = page.locator(".ck-max .ck-error")
    expect(error).to_contain_text('"12 parsecs" is not a size')
    type_into(page, ".ck-max", "1 GiB")
    expect(error).to_be_hidden()
    expect(page.locator(".ck-plan")).to_contain_text("fill 3 bins of at most 1 GiB")


def test_where_narrows_the_plan_and_a_data_column_gets_a_sentence(page: Page) -> None:
    type_into(page, ".ck-where", "month = 1")
    error = page.locator(".ck-where-error")
    expect(error).to_contain_text("month, which is no partition column", timeout=60 * SECOND)
    type_into(page, ".ck-where", "origin = 'JFK'")
    expect(page.locator(".ck-plan")).to_contain_text("365 live files where origin = 'JFK'")
    expect(error).to_be_hidden()
    type_into(page, ".ck-where", "")
    expect(page.locator(".ck-plan")).to_contain_text("1,095 live files, 1,095 under")


def test_a_run_can_be_cancelled_and_changes_nothing(page: Page, root: Path) -> None:
    page.locator("button.ck-to-run").click()
    page.locator("button.ck-run").click()
    cancel = page.get_by_role("button", name="Cancel")
    expect(cancel.last).to_be_enabled()
    expect(page.locator(".ck-progress .ck-status")).to_contain_text("Rewriting, 0 of", timeout=60 * SECOND)
    cancel.last.click()
    expect(page.locator(".ck-progress .ck-error")).to_contain_text(
        "cancelled: nothing was committed", timeout=60 * SECOND
    )
    shoot(page, "cancelled")
    assert ck.open_table(root / "data" / "flights").version == 365


def test_run_again_compacts_and_proves(page: Page, root: Path) -> None:
    page.locator("button.ck-run").click()
    outcome = page.locator(".ck-outcome")
    expect(outcome).to_contain_text("identical: 336,776 rows", timeout=180 * SECOND)
    expect(outcome).to_contain_text("1,095 → 3")
    image = figure(page, "ck-result-figure")
    alt = image.get_attribute("alt")
    assert alt is not None
    assert alt.startswith("1,095 → 3 files")
    expect(page.locator(".ck-footer-text")).to_contain_text("content identical")
    expect(page.locator(".ck-run-plan")).to_contain_text("nothing to do")
    shoot(page, "done")
    assert ck.open_table(root / "data" / "flights").files().num_files == 3


def test_another_table_can_be_chosen(page: Page) -> None:
    open_table(page, "../data/shaped")
    expect(page.locator(".ck-about")).to_contain_text("24 files")
    expect(page.locator(".ck-run-plan")).to_contain_text("fill 4 bins")
    expect(page.locator(".ck-outcome")).to_be_hidden()


def test_a_table_that_was_deleted_meanwhile_gets_a_sentence(page: Page, root: Path) -> None:
    shutil.rmtree(root / "data" / "shaped")
    page.locator("button.ck-run").click()
    expect(page.locator(".ck-progress .ck-error")).to_contain_text("is gone")


def test_a_path_that_does_not_exist_gets_a_sentence(page: Page) -> None:
    type_into(page, ".ck-root", "../data/typo")
    expect(page.locator(".ck-table-error")).to_contain_text("the path does not exist")


def test_an_empty_folder_says_what_to_do(page: Page) -> None:
    type_into(page, ".ck-root", "../empty")
    expect(page.locator(".ck-empty")).to_contain_text("There is no Delta table under ../empty yet")
    expect(page.locator("button.ck-make")).to_be_visible()
    shoot(page, "empty")


def test_a_newcomer_makes_a_table_by_one_click(page: Page, root: Path) -> None:
    page.locator("button.ck-make").click()
    expect(page.locator(".ck-making .ck-status")).to_contain_text("Ingesting a year of flights")
    expect(page.locator(".ck-about")).to_contain_text("1,095 files", timeout=120 * SECOND)
    assert ck.find_tables(root / "empty") == [str(root / "empty" / "flights")]
