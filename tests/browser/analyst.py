"""The analyst's path through the workbench, by mouse and keyboard, in any front end."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest
from playwright.sync_api import FloatRect, Locator, Page, ViewportSize, expect, sync_playwright

import compaction_kit as ck
from compaction_kit.datasets import shaped_table
from compaction_kit.text import format_size
from tests import folders
from tests.handmade import write_sink_log

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "workbench.ipynb"
SECOND = 1_000
_WINDOW: ViewportSize = {"width": 1500, "height": 1400}
# Find the controls that Tab must reach, in the order of the page; return their number.
_CONTROLS = """() => {
    const kinds = 'input, select, button, textarea, summary, a[href], .jupyter-widget-Collapse-header';
    const all = document.querySelectorAll(`.ck-workbench :is(${kinds})`);
    window.controls = [...all].filter(control => control.checkVisibility() && !control.disabled);
    return window.controls.length;
}"""

# Controls and boxes that extend beyond the page or their container, except those that scroll on purpose.
_CUT_OFF = """() => {
    const page = document.querySelector('.ck-workbench'), right = page.getBoundingClientRect().right;
    return [...page.querySelectorAll('*')].filter(element => element.checkVisibility()
        && !element.closest('.ck-frame, .ck-code, .ck-rows, svg, datalist')
        && (element.getBoundingClientRect().right > right + 1
            || (element.matches('.widget-box, button') && element.scrollWidth > element.clientWidth + 1))
    ).map(element => element.className);
}"""
# The elements that keep their place while a plan is chosen, and a script that returns places in the page.
_PLACED = [".ck-max", ".ck-min", ".ck-where", ".ck-order", ".ck-budget", "button.ck-to-run", ".ck-place"]
_PLACES = """selectors => {
    const page = document.querySelector('.ck-workbench'), { left, top } = page.getBoundingClientRect();
    return selectors.map(selector => {
        const box = page.querySelector(selector).getBoundingClientRect();
        return [selector, ...[box.left - left, box.top - top, box.width, box.height].map(Math.round)];
    });
}"""
# In pixels of the page, whatever the rotation of the texts.
_TEXT_SIZES = """svg => [...svg.querySelectorAll('text')].map(text => {
    const { a, b, c, d } = text.getScreenCTM();
    return parseFloat(getComputedStyle(text).fontSize) * Math.sqrt(Math.abs(a * d - b * c));
})"""

# The contrast of each field's placeholder, by WCAG's formula; a canvas blends the colours.
_CONTRASTS = """() => {
    const page = document.querySelector('.ck-workbench'), canvas = document.createElement('canvas');
    const paint = canvas.getContext('2d');
    const luminance = (...colours) => {
        for (paint.fillStyle of colours) paint.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data].map(value => value / 255)
            .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    return [...page.querySelectorAll(':is(input, textarea)[placeholder]')].map(field => {
        const paper = [page, field].map(one => getComputedStyle(one).backgroundColor);
        const ink = getComputedStyle(field, '::placeholder').color;
        const [dark, light] = [luminance(...paper), luminance(...paper, ink)].sort((a, b) => a - b);
        return [field.placeholder, (light + 0.05) / (dark + 0.05)];
    });
}"""

# Record the place of the list of versions in the page at each frame, until the history has been read again,
# and how far the progress bar extends beyond its box.
_WATCH_THE_LIST = """() => {
    const page = document.querySelector('.ck-workbench'), list = page.querySelector('.ck-versions');
    const isBusy = () => page.querySelector('.ck-reading progress').checkVisibility();
    let begun = false;
    const box = page.querySelector('.ck-reading .widget-hbox');
    [window.tops, window.tooWide] = [[], 0];
    const look = () => {
        window.tooWide = Math.max(window.tooWide, box.scrollWidth - box.clientWidth);
        window.tops.push(Math.round(list.getBoundingClientRect().top - page.getBoundingClientRect().top));
        begun ||= isBusy();
        if (begun && !isBusy()) window.wasRead = true;
        else requestAnimationFrame(look);
    };
    look();
}"""


def serve_folder(flights: Path, folder: Path) -> Path:
    """Make the folder to serve: the notebook, three tables, a sink's log, an empty folder."""
    (folder / "notebooks").mkdir()
    shutil.copy(NOTEBOOK, folder / "notebooks")
    folders.copy(flights, folder / "data" / "flights")
    partly_deleted(folder / "data" / "aged")
    shaped_table(folder / "data" / "shaped", partitions=4, files=6, rows=50)
    write_sink_log(folder / "data" / "clicks", 12)
    (folder / "empty").mkdir()
    return folder


def partly_deleted(table: Path) -> None:
    """Make a table of six files, three of which are removed by its last version."""
    shaped_table(table, partitions=2, files=3, rows=50)
    deltalake.DeltaTable(str(table)).delete("part = 'p0000'")


def open_browser() -> Iterator[Page]:
    """Open a page in the machine's Chromium or Chrome; without a browser, fail in CI and skip elsewhere."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        message = "no Chromium is installed: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        # Playwright turns off what makes the browser call home, which a closed network would refuse.
        arguments = ["--disable-gpu", "--disable-quic"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page(viewport=_WINDOW)
        page.set_default_timeout(20 * SECOND)
        # The default of 5 s is too little for a plan, a restore or a large figure on a busy machine.
        expect.set_options(timeout=60 * SECOND)
        yield page
        browser.close()


def shoot(place: Locator, name: str) -> None:
    """Save a picture for README and book if SCREENSHOTS is set."""
    if shots := os.environ.get("SCREENSHOTS"):
        place.screenshot(path=Path(shots) / f"{name}.png")


def shoot_workbench(page: Page, name: str) -> None:
    shoot(page.locator(".ck-workbench"), f"workbench-{name}")


def part(page: Page, name: str) -> None:
    """Choose a part of the workbench, and wait until it is visible: its content is in the page earlier."""
    page.locator(".ck-rail").get_by_role("button", name=name).click()
    expect(page.locator(f".ck-part-{name.replace(' ', '-').lower()}")).to_be_visible()


def figure(page: Page, css_class: str, finding: str = "") -> None:
    """Wait until a figure is on screen whose label begins with `finding`, a regular expression."""
    drawn = page.locator(f".{css_class} svg[role=img]").first
    expect(drawn).to_be_visible(timeout=120 * SECOND)
    expect(drawn).to_have_attribute("aria-label", re.compile(f"^{finding}"))


def type_into(page: Page, selector: str, value: str) -> None:
    """Replace what a field holds, and press Enter."""
    field = page.locator(f"{selector} input[type=text]").first
    field.fill(value)
    field.press("Enter")


def open_table(page: Page, name: str) -> None:
    """Choose one of the tables found."""
    page.locator(".ck-table select").select_option(label=name)


def theme(page: Page, name: str) -> None:
    """Choose JupyterLab's theme."""
    page.evaluate(f"() => window.jupyterapp.commands.execute('apputils:change-theme', {{theme: '{name}'}})")
    light = "true" if name.endswith("Light") else "false"
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", light)
    expect(page.locator("#jupyterlab-splash")).to_have_count(0)


def places_when_still(page: Page) -> list[list[str | int]]:
    """Return places and sizes of the fields in the page, once the layout has stopped changing."""
    places: list[list[str | int]] = []
    for _ in range(50):
        former, places = places, page.evaluate(_PLACES, _PLACED)
        if places == former:
            break
        page.wait_for_timeout(300)
    return places


def top_of(page: Page, selector: str) -> int:
    """Return the distance of an element from the top of the workbench."""
    return int(page.evaluate(_PLACES, [selector])[0][2])


def tops_of_rail(page: Page) -> list[int]:
    """Return the distance of the rail from the top, in windows from wide to narrow."""
    tops = []
    for width in (_WINDOW["width"], 1280, 1200, 1000, 900, 820):
        page.set_viewport_size({"width": width, "height": 720})
        places_when_still(page)
        # The layout follows the size of the window a little later.
        page.wait_for_timeout(300)
        tops.append(top_of(page, ".ck-rail"))
    page.set_viewport_size(_WINDOW)
    return tops


def press_tab_until(page: Page, selector: str, key: str = "Tab") -> None:
    """Go from control to control by a key until the focus is on an element that matches."""
    for _ in range(60):
        page.keyboard.press(key)
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{key} does not come to {selector}")


def box_of(place: Locator) -> FloatRect:
    """Return the place of an element in the window."""
    box = place.bounding_box()
    assert box is not None
    return box


class FirstLook:
    """Steps that run in order on one page; `page` and `root` are fixtures."""

    # In a narrower window there is no space beside JupyterLab's side bar.
    narrowest = 800

    @pytest.fixture
    def window(self, page: Page, request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
        """A window of another size, for one step."""
        width, height = request.param
        if width < self.narrowest:
            pytest.skip("a phone opens the page by Voilà")
        page.set_viewport_size({"width": width, "height": height})
        yield request.param
        page.set_viewport_size(_WINDOW)

    def test_the_sickest_table_is_shown_with_its_verdict_above_all_parts(self, page: Page) -> None:
        options = page.locator(".ck-table select option")
        for name in ("aged", "flights", "shaped"):
            expect(options.filter(has_text=f"../data/{name}")).to_have_count(1)
        # The workbench opens the table that gains the most from compaction.
        expect(page.locator(".ck-about")).to_contain_text("version 365 · 1,095 files")
        verdict = page.locator(".ck-verdict [role=status]")
        expect(verdict.locator("b")).to_contain_text("1,095 files where 3 would do: a full scan")
        above, below = box_of(verdict), box_of(page.locator(".ck-rail"))
        assert above["y"] + above["height"] <= below["y"]
        # The text has two lines; its place has room for three.
        assert box_of(verdict.locator("> div"))["height"] < 45
        figure(page, "ck-files-figure", "1,095 of 1,095 files are under 16 MiB")
        shoot_workbench(page, "files")

    def test_the_sickest_table_is_first_and_a_click_opens_it(self, page: Page) -> None:
        part(page, "Survey")
        rows = page.locator(".ck-tables tbody tr")
        expect(rows.first).to_contain_text("flights")
        expect(rows).to_have_count(3)
        shoot_workbench(page, "survey")
        files = page.locator(".ck-tables th").filter(has_text=re.compile("^files$"))
        for order, first in (("descending", "flights"), ("ascending", "aged")):
            files.get_by_role("button").click()
            expect(files).to_have_attribute("aria-sort", order)
            expect(rows.first).to_contain_text(first)
        page.locator(".ck-tables").get_by_label("Filter", exact=True).fill("sha")
        expect(page.locator(".ck-tables [role=status]")).to_have_text("1 of 3")
        rows.get_by_text("shaped").click()
        expect(page.locator(".ck-about")).to_contain_text("24 files")
        figure(page, "ck-files-figure")
        open_table(page, "../data/flights")
        expect(page.locator(".ck-about")).to_contain_text("1,095 files")

    def test_a_dropdown_keeps_the_arrows(self, page: Page) -> None:
        tables = page.locator(".ck-table select")
        tables.focus()
        page.keyboard.press("ArrowDown")
        expect(tables).to_be_focused()
        expect(page.locator(".ck-about")).to_contain_text("24 files")
        page.keyboard.press("ArrowUp")
        expect(tables).to_be_focused()
        expect(page.locator(".ck-about")).to_contain_text("1,095 files")

    def test_a_slider_moved_by_keyboard_changes_plan_and_figure(self, page: Page) -> None:
        steps = page.locator(".ck-next button")
        leads = box_of(steps.and_(page.get_by_role("button", name="Plan it →")))
        part(page, "Plan")
        # "Plan it" leads to this part, so the button is hidden, but it keeps its place.
        expect(steps.locator("visible=true")).to_have_count(0)
        assert box_of(page.locator("button.ck-next-plan")) == leads
        sentence = page.locator(".ck-plan")
        expect(sentence).to_contain_text("fill 3 bins of at most 1 GiB in 3 partitions")
        # The slider ends at the size that holds the largest partition, because larger sizes change nothing.
        slider = page.get_by_label("Target file size", exact=True)
        end = slider.input_value()
        # After a touch that scrolls the page, the slider isn't held any more.
        for event in ("pointerdown", "pointercancel"):
            slider.dispatch_event(event)
        for typed, place in (("2 MiB", str(int(end) - 2)), ("1 GiB", end)):
            type_into(page, ".ck-max", typed)
            expect(slider).to_have_value(place)
        expect(sentence).to_contain_text("of at most 1 GiB")
        slider.focus()
        for _ in range(2):
            page.keyboard.press("ArrowLeft")
        filled = re.compile(r"fill 3\sbins of at most [\d.]+\s\w+ \(files of about 2\sMiB\)")
        expect(sentence).to_contain_text(filled)
        expect(page.locator(".ck-max input[type=text]")).to_have_value("2 MiB")
        figure(page, "ck-plan-figure", "1,095 → 3 files, 19.1 MiB → about ")
        shoot_workbench(page, "plan")

    @pytest.mark.parametrize("window", [(1280, 720), (1440, 900)], indirect=True)
    def test_controls_and_figure_are_in_one_window_and_no_text_is_small(
        self, page: Page, window: tuple[int, int]
    ) -> None:
        # A front end scrolls by itself while it adds parts of the page.
        places_when_still(page)
        page.locator(".ck-workbench").evaluate("element => element.scrollIntoView()")
        for place in (".ck-controls", ".ck-plan-figure", ".ck-plan", "button.ck-to-run"):
            expect(page.locator(place)).to_be_in_viewport(ratio=0.98)
        sizes = page.locator(".ck-plan-figure svg").evaluate(_TEXT_SIZES)
        assert min(sizes) > 10.9, sorted(sizes)

    @pytest.mark.parametrize(
        "window",
        [
            (1280, 720),
            *(pytest.param(s, marks=pytest.mark.nightly) for s in ((1440, 900), (900, 720), (390, 844))),
        ],
        indirect=True,
    )
    @pytest.mark.usefixtures("window")
    def test_no_text_and_no_figure_moves_a_field(self, page: Page) -> None:
        figure(page, "ck-plan-figure")
        places = places_when_still(page)
        assert all(int(height) > 0 for *_, height in places), places
        long = " OR ".join(f"origin = 'JFK' AND origin LIKE '%{number}'" for number in range(9))
        for selector, typed, place in (
            (".ck-max", "12x MiB", ".ck-place .ck-error"),
            (".ck-max", "16 KiB", ".ck-plan"),
            (".ck-max", "2 MiB", ".ck-plan"),
            (".ck-where", "no_such_column > 3", ".ck-where-error"),
            (".ck-where", f"{long} OR origin = 'JFK'", ".ck-plan"),
            (".ck-where", "", ".ck-plan"),
        ):
            type_into(page, selector, typed)
            expect(page.locator(place).locator("visible=true").first).to_be_visible()
            about = f"{'365' if 'JFK' in typed else '1,095'} files"
            expect(page.locator(".ck-about")).to_contain_text(about)
            assert places_when_still(page) == places, typed

    def test_a_stream_s_log_is_drawn(self, page: Page) -> None:
        part(page, "Streams")
        expect(page.locator(".ck-sink-log")).to_contain_text("batch 11, 12 entries")
        figure(page, "ck-sink-figure")
        shoot_workbench(page, "streams")

    def test_a_part_that_was_left_is_not_made_again(self, page: Page) -> None:
        # Otherwise the browser would keep the removed elements each time.
        streams = page.locator(".ck-part-streams")
        streams.evaluate("one => one.wasLeft = true")
        part(page, "Plan")
        expect(streams).to_be_hidden()
        part(page, "Streams")
        expect(streams).to_be_visible()
        assert streams.evaluate("one => one.wasLeft")

    def test_what_is_on_the_page_is_kept_as_a_report(self, page: Page, root: Path) -> None:
        page.locator("button.ck-export").click()
        with page.expect_download() as download:
            page.locator(".ck-saved a").click()
        written = root / "notebooks" / "flights-v365.html"
        assert download.value.path().read_bytes() == written.read_bytes()
        report = written.read_text(encoding="utf-8").replace("\xa0", " ")
        assert report.index("<b>1,095 files where 3 would do") < report.index("<svg")
        part(page, "Plan")

    def test_every_control_has_a_name(self, page: Page) -> None:
        for control in page.locator(".ck-workbench").locator("input, select, button").all():
            if control.is_visible():
                name = control.evaluate(
                    "e => e.labels?.[0]?.innerText || e.getAttribute('aria-label') || e.innerText"
                )
                assert name, control.evaluate("e => e.outerHTML")

    def test_the_part_on_screen_is_named_to_screen_readers(self, page: Page) -> None:
        for name in ("Files", "Plan"):
            part(page, name)
            pressed = page.locator(".ck-rail").get_by_role("button", pressed=True)
            expect(pressed).to_have_text([name])

    def test_a_field_is_explained_under_the_mouse(self, page: Page) -> None:
        for place in (".ck-by-output label", ".ck-by-output span", ".ck-by-output input", ".ck-where input"):
            title = page.locator(place).first.evaluate("one => one.closest('[title]')?.title")
            assert len(title or "") > 30, (place, title)

    def test_tab_goes_through_all_controls_in_the_order_of_the_page(self, page: Page) -> None:
        count = page.evaluate(_CONTROLS)
        assert count > 15
        page.evaluate("() => window.controls[0].focus()")
        for number in range(count):
            focused = page.evaluate("() => window.controls.indexOf(document.activeElement)")
            assert focused == number, page.evaluate("() => document.activeElement.outerHTML")
            outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid", page.evaluate("() => document.activeElement.outerHTML")
            page.keyboard.press("Tab")

    def test_what_is_folded_is_opened_and_closed_by_keys(self, page: Page) -> None:
        bins = page.locator(".jupyter-widget-Collapse-header").filter(has_text="Bins")
        expect(bins).to_have_attribute("aria-expanded", "false")
        press_tab_until(page, ".jupyter-widget-Collapse-header")
        expect(bins).to_be_focused()
        for key, is_open in (("Enter", "true"), ("Space", "false")):
            page.keyboard.press(key)
            expect(bins).to_have_attribute("aria-expanded", is_open)
            expect(bins).to_be_focused()
            expect(page.locator(".ck-bins-figure svg")).to_be_visible(visible=is_open == "true")

    @pytest.mark.parametrize(
        "window",
        [(853, 480), *(pytest.param(s, marks=pytest.mark.nightly) for s in ((900, 720), (390, 844)))],
        indirect=True,
    )
    def test_nothing_is_cut_off_where_the_window_is_narrow(self, page: Page, window: tuple[int, int]) -> None:
        # By default a dropdown is as wide as its longest option.
        page.locator(".ck-table select").evaluate("one => one.append(new Option('long '.repeat(40)))")
        for name in ("Survey", "Files", "My query", "Run", "History", "Vacuum", "Streams", "Plan"):
            part(page, name)
            for _ in range(20):
                cut_off = page.evaluate(_CUT_OFF)
                if not cut_off:
                    break
                # The page is still being laid out.
                page.wait_for_timeout(100)
            assert cut_off == [], (name, cut_off)
        if window[0] < 600:
            drawn = page.locator(".ck-plan-figure .widget-html-content")
            scrolls = "e => [e.scrollWidth > e.clientWidth, getComputedStyle(e).maskImage != 'none']"
            assert drawn.evaluate(scrolls) == [True, True]


class AnalystsPath(FirstLook):
    """The whole path to the end of a vacuum, and what may go wrong on it."""

    def test_a_slider_dragged_by_mouse_changes_the_plan(self, page: Page) -> None:
        slider = page.locator(".ck-max input[type=range]")
        # The window was smaller before, so the toolbar may cover the slider.
        page.locator(".ck-workbench").evaluate("element => element.scrollIntoView()")
        box = box_of(slider)
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2, steps=4)
        page.mouse.up()
        size, plan = format_size(2 ** int(slider.input_value())), page.locator(".ck-plan")
        assert size != "2 MiB"
        expect(plan).to_contain_text(re.compile(f"(at most|about) {size}".replace(" ", r"\s")))
        expect(page.locator(".ck-max input[type=text]")).to_have_value(size)

    def test_the_lines_of_python_are_there(self, page: Page) -> None:
        page.locator(".ck-as-python").get_by_text("As Python").click()
        expect(page.locator(".ck-code pre")).to_contain_text("table.plan_compaction(")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.locator("button.ck-copy").click()
        expect(page.locator("button.ck-copy")).to_have_text("Copied")
        copied = page.evaluate("() => navigator.clipboard.readText()")
        assert copied == page.locator(".ck-code pre").inner_text()
        assert "plan.run()" in copied
        page.locator(".ck-as-python").get_by_text("As Python").click()

    @pytest.mark.nightly
    def test_the_files_of_a_query_are_counted_before_anything_is_run(self, page: Page) -> None:
        part(page, "Plan")
        type_into(page, ".ck-max", "512 KiB")
        expect(page.locator(".ck-plan")).to_contain_text("(files of about 512 KiB)")
        part(page, "My query")
        page.get_by_label("Query", exact=True).fill(
            "SELECT carrier, avg(dep_delay) FROM flights\n"
            "WHERE time_hour BETWEEN '2013-06-01' AND '2013-06-08' GROUP BY carrier"
        )
        page.locator("button.ck-count").click()
        finding = "The query opens 24 of 1,095 files now; compacted by .*, 3 of 13: "
        figure(page, "ck-prediction-figure", finding)
        shoot_workbench(page, "query")

    def test_a_run_compacts_and_proves(self, page: Page, root: Path) -> None:
        part(page, "Plan")
        type_into(page, ".ck-max", "1 GiB")
        expect(page.locator(".ck-plan")).to_contain_text("fill 3 bins of at most 1 GiB")
        page.locator("button.ck-to-run").click()
        tops = tops_of_rail(page)
        page.locator("button.ck-run").click()
        outcome = page.locator(".ck-outcome").first
        expect(outcome).to_contain_text("identical: 336,776 rows", timeout=180 * SECOND)
        figure(page, "ck-result-figure", "1,095 → 3 files")
        expect(page.locator(".ck-footer")).to_contain_text("content identical")
        expect(page.locator(".ck-verdict b")).to_contain_text("1,095 files became 3: 19.1 MiB → ")
        after = tops_of_rail(page)
        assert after == tops, (tops, after)
        shoot_workbench(page, "run")
        assert ck.open_table(root / "data" / "flights").files().num_files == 3

    def test_the_history_is_walked_by_keyboard(self, page: Page) -> None:
        part(page, "History")
        sentence, last = page.locator(".ck-version-text"), 366
        expect(sentence).to_contain_text(f"Version {last - 1} has the same content")
        listed = page.get_by_role("grid", name="Versions")
        rows = listed.locator("tbody tr")
        expect(rows.first).to_have_text(re.compile(rf"^{last}.*OPTIMIZE\+3 −1,095.*0proved$"))
        press_tab_until(page, ".ck-versions tbody tr")
        expect(rows.first).to_be_focused()
        page.keyboard.press("Space")
        for _ in range(2):
            page.keyboard.press("ArrowDown")
        expect(rows.nth(2)).to_be_focused()
        page.keyboard.press("Enter")
        expect(sentence).to_contain_text(f"Version {last - 2}")
        expect(rows.nth(2)).to_have_attribute("aria-current", "true")
        figure(page, "ck-lifetimes-figure")
        figure(page, "ck-readable-figure")
        page.keyboard.press("Space")
        expect(page.locator(".ck-diff")).to_contain_text(f"{last - 2} → {last}")
        expect(listed.get_by_label(f"Compare {last - 2}")).to_be_checked()
        shoot_workbench(page, "history")
        top = top_of(page, ".ck-versions")
        page.locator("button.ck-ask-restore:visible").click()
        expect(page.locator(".ck-restore-choice:visible")).to_be_visible()
        assert top_of(page, ".ck-versions") == top
        page.locator("button.ck-keep-table:visible").click()
        page.get_by_text("Actions of this commit").click()
        expect(page.locator(".ck-actions")).to_contain_text('{"add": {"path": "origin=EWR/')

    def test_a_history_that_is_read_again_keeps_its_place(self, page: Page) -> None:
        page.evaluate(_WATCH_THE_LIST)
        page.locator("button.ck-refresh").click()
        page.wait_for_function("() => window.wasRead")
        assert len(set(page.evaluate("() => window.tops"))) == 1
        assert page.evaluate("() => window.tooWide") == 0

    @pytest.mark.parametrize("window", [(1280, 720)], indirect=True)
    @pytest.mark.usefixtures("window")
    def test_no_column_is_cut_off(self, page: Page) -> None:
        for name, listed in (("Survey", "Tables"), ("History", "Versions")):
            part(page, name)
            grid = page.get_by_role("grid", name=listed)
            expect(grid.locator("tbody tr").first).to_be_visible()
            places_when_still(page)
            sideways = grid.evaluate("one => one.parentElement.scrollWidth - one.parentElement.clientWidth")
            assert sideways == 0, name

    def test_a_vacuum_says_what_it_will_cost(self, page: Page) -> None:
        part(page, "Vacuum")
        plan = page.locator(".ck-vacuum-plan")
        expect(plan).to_contain_text("would delete nothing")
        page.get_by_label("Preview on a later day", exact=True).focus()
        for _ in range(8):
            page.keyboard.press("ArrowRight")
        expect(page.locator(".ck-vacuum-cost")).to_contain_text("would be lost")
        lost = "365 of 367 readable versions"
        figure(page, "ck-vacuum-figure", f"VACUUM would lose {lost} and free 19.1 MiB")
        expect(page.locator("button.ck-vacuum")).to_be_hidden()
        shoot_workbench(page, "vacuum")
        page.keyboard.press("Home")
        expect(plan).to_contain_text("would delete nothing")

    @pytest.mark.nightly
    def test_the_query_is_timed_before_and_after_the_run(self, page: Page) -> None:
        part(page, "My query")
        query = "SELECT avg(distance) FROM {} WHERE origin = 'JFK'"
        page.get_by_label("Query", exact=True).fill(query.format("flights"))
        tops = tops_of_rail(page)
        page.locator("button.ck-measure").click()
        figure(page, "ck-reads-figure", ".*365 → 1 file")
        expect(page.locator(".ck-verdict")).to_contain_text("Your query: ")
        # The query's sentence in the verdict moves nothing, in a narrow page either.
        after = tops_of_rail(page)
        assert after == tops, (tops, after)
        page.locator(".ck-as-python").get_by_text("As Python").click()
        measured = "measure_reads(table.spark, table.location, 365, 366, "
        expect(page.locator(".ck-code pre")).to_contain_text(measured)
        page.locator(".ck-as-python").get_by_text("As Python").click()

    def test_an_undo_says_what_it_does_line_by_line_and_is_left(self, page: Page) -> None:
        part(page, "Run")
        page.locator("button.ck-ask-restore:visible").click()
        plan = page.locator(".ck-restore-plan:visible")
        expect(plan).to_contain_text("RESTORE to version 365 would add back 1,095 files")
        assert "\nA stream that reads the table" in plan.inner_text()
        shoot_workbench(page, "undo")
        page.locator("button.ck-keep-table:visible").click()
        expect(plan).to_be_hidden()

    @pytest.mark.parametrize(
        ("window", "shade"),
        # The steps before use the light theme.
        [((1280, 720), "Dark"), pytest.param((1440, 900), "Light", marks=pytest.mark.nightly)],
        indirect=["window"],
    )
    def test_a_table_is_opened_planned_compacted_and_put_back_by_keys_alone(
        self, page: Page, root: Path, window: tuple[int, int], shade: str
    ) -> None:
        verdict = page.locator(".ck-verdict b")
        theme(page, f"JupyterLab {shade}")
        faint = [(words, contrast) for words, contrast in page.evaluate(_CONTRASTS) if contrast < 4.5]
        assert faint == []

        def press(selector: str, key: str = "Tab") -> None:
            expect(page.locator(selector).locator("visible=true").first).to_be_enabled()
            press_tab_until(page, selector, key)
            page.keyboard.press("Enter")

        page.locator(".ck-root input").focus()
        press(".ck-rail button")
        # The text that the first look typed is still in the field.
        expect(page.locator(".ck-tables [role=status]")).to_have_text("1 of 3")
        press_tab_until(page, ".ck-tables input")
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        expect(page.locator(".ck-tables [role=status]")).to_have_text("3 of 3")
        page.keyboard.type("shaped")
        # The list makes `expect` wait until there is one row; the first letters alone match two.
        expect(page.locator(".ck-tables tbody tr")).to_have_text([re.compile("shaped")])
        press_tab_until(page, ".ck-tables tbody tr")
        page.keyboard.press("Enter")
        expect(verdict).to_contain_text("24 files where 4 would do")
        press(".ck-rail button:nth-child(3)", "Shift+Tab")
        expect(page.locator(".ck-plan")).to_contain_text("fill 4 bins")
        press_tab_until(page, ".ck-max input[type=range]")
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".ck-plan")).not_to_contain_text("at most 1 GiB")
        page.keyboard.press("End")
        press("button.ck-to-run")
        press("button.ck-run")
        expect(verdict).to_contain_text("24 files became 4", timeout=180 * SECOND)
        expect(page.locator(".ck-outcome").first).to_contain_text("identical: 1,200 rows")
        press("button.ck-ask-restore")
        plan, undone = page.locator(".ck-restore-plan:visible"), page.locator(".ck-restored:visible")
        expect(plan).to_contain_text("add back 24 files")
        press("button.ck-restore")
        expect(undone).to_contain_text("with the content of")
        expect(verdict).to_contain_text("24 files where 4 would do")
        expect(page.locator(".ck-footer")).to_contain_text("restore done")
        assert ck.open_table(root / "data" / "shaped").files().num_files == 24
        theme(page, "JupyterLab Light")

    @pytest.mark.nightly
    def test_a_newcomer_makes_the_flights_of_a_year_by_one_click(self, page: Page, root: Path) -> None:
        type_into(page, ".ck-root", "../empty")
        expect(page.locator(".ck-empty")).to_contain_text("There is no Delta table under ../empty yet")
        page.locator("button.ck-make").click()
        expect(page.locator(".ck-making .ck-status")).to_contain_text("Ingesting a year of flights")
        expect(page.locator(".ck-about")).to_contain_text("version 365 · 1,095 files", timeout=120 * SECOND)
        expect(page.locator(".ck-verdict b")).to_contain_text("1,095 files where 3 would do")
        assert ck.find_tables(root / "empty") == [str(root / "empty" / "flights")]

    @pytest.mark.nightly
    def test_a_run_can_be_cancelled_and_changes_nothing(self, page: Page, root: Path) -> None:
        expect(page.locator(".ck-run-plan")).to_contain_text("fill 3 bins")
        page.locator("button.ck-run").click()
        working = page.locator(".ck-progress .ck-status")
        expect(working).to_contain_text(re.compile("Preparing|Rewriting, 0 of"))
        page.locator(".ck-progress").get_by_role("button", name="Cancel").click()
        cancelled = page.get_by_text("cancelled: nothing was committed").locator("visible=true")
        expect(page.locator(".ck-progress .ck-error")).to_contain_text("cancelled: nothing was committed")
        expect(cancelled).to_have_count(1)
        assert ck.open_table(root / "empty" / "flights").version == 365
