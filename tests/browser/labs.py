"""The lessons' labs and questions on one page of JupyterLab, by mouse and keyboard."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect

from compaction_kit.datasets import shaped_table
from tests.browser.analyst import SECOND, box_of, partly_deleted, shoot


class OnPage(NamedTuple):
    """A lab: the lines that show it, the slider that changes its figure, and where the mouse clicks on it."""

    lines: str
    slider: str
    click: float = 1 / 3


IMPORTS = """\
import deltalake

import compaction_kit as ck
from compaction_kit.datasets import shaped_table
from course import labs
from course.predict import predict"""
DELETED_FROM = """\
path = shaped_table("../lessons/deleted-from", partitions=0, files=4, rows=100, commits=4)
deltalake.DeltaTable(path).delete("id < 150")
labs.vacuum(ck.open_table(path))"""
IN_BATCHES = """\
plan = ck.open_table("../lessons/shaped").plan_compaction(batch_size="1 B")
labs.manifest(plan)"""
# A timeline such as that of a run of 16 bins.
TIMELINE = """\
import pyarrow as pa

def timeline(threads, repartition):
    rows = [("rewrite", None, i, 1 + i // threads * 0.3, 0.3) for i in range(16)]
    columns = zip(*rows, ("commit", None, None, 6.0, 0.2))
    return pa.table(dict(zip(("step", "label", "bin_id", "start", "seconds"), map(pa.array, columns))))"""
LABS = {
    "feed": OnPage("labs.feed()", "A commit every"),
    "log": OnPage("labs.log(ck.open_table('../lessons/aged'))", "Version"),
    "packing": OnPage("labs.packing(ck.open_table('../lessons/shaped'), size=4096)", "Files looked at"),
    "slots": OnPage(
        TIMELINE + "\n\nlabs.slots(timeline, {(4, False): timeline(4, False)})", "Bins at once, max_threads"
    ),
    "vacuum": OnPage(DELETED_FROM, "VACUUM runs in", 0.02),
    "sink-log": OnPage("labs.sink_log()", "After batch"),
    "manifest": OnPage(IN_BATCHES, "GENERATE after batch"),
    "budget": OnPage("labs.budget(ck.open_table('../lessons/shaped'), 'event_time', '8 KiB')", "Budget"),
}
RACE = 'labs.race("../lessons/stories", "append with append")'
QUESTIONS = """\
predict("How many files?", 365 * 3, unit="files", why="Each day writes a file in each of three partitions.")
predict("What takes the time?", "the footers", ["the bytes", "the footers"])
predict("How many times as fast?", 40, unit="times")"""
CELLS = [IMPORTS, *(lab.lines for lab in LABS.values()), RACE, *QUESTIONS.splitlines()]
# By day all labs are shown but only two are moved; at night all are moved.
MOVED = [
    name if name in ("packing", "vacuum") else pytest.param(name, marks=pytest.mark.nightly) for name in LABS
]
FITS = """lab => [...lab.querySelectorAll('svg text')].map(text => {
    const [box, frame] = [text, text.closest('svg')].map(one => one.getBoundingClientRect());
    const inside = box.left >= frame.left - 1 && box.right <= frame.right + 1;
    return inside ? '' : text.textContent;
}).filter(Boolean)"""


def make_tables(folder: Path) -> None:
    """Make the tables that the cells use."""
    partly_deleted(folder / "aged")
    shaped_table(folder / "shaped", partitions=4, files=6, rows=50)


def figure_of(lab: Locator) -> str:
    return str(lab.locator(".ck-lab-figure svg[role=img]").get_attribute("aria-label"))


class Labs:
    """Steps that run in order on one page, which runs `CELLS`."""

    @pytest.mark.parametrize("name", MOVED)
    def test_a_lab_follows_keyboard_and_mouse_and_has_its_lines_of_python(
        self, page: Page, name: str
    ) -> None:
        lab = page.locator(".ck-lab").nth(list(LABS).index(name))
        slider = lab.get_by_label(LABS[name].slider, exact=True)
        heights, labels = [], [figure_of(lab)]
        slider.focus()
        for key in ("Home", "End"):
            heights.append(box_of(lab)["height"])
            page.keyboard.press(key)
            expect(lab.locator("svg[role=img]")).not_to_have_attribute("aria-label", labels[-1])
            labels.append(figure_of(lab))
        box = box_of(slider)
        page.mouse.click(box["x"] + box["width"] * LABS[name].click, box["y"] + box["height"] / 2)
        expect(lab.locator("svg[role=img]")).not_to_have_attribute("aria-label", labels[-1])
        heights.append(box_of(lab)["height"])
        assert max(heights) - min(heights) <= 1, "the page jumps"
        assert lab.evaluate(FITS) == []
        expect(lab.locator(".ck-error:visible")).to_have_count(0)
        expect(lab.locator(".ck-code pre")).to_be_hidden()
        lab.get_by_text("As Python").click()
        expect(lab.locator(".ck-code pre")).to_contain_text(re.compile(r"(plots?|figures)[.(]"))
        shoot(lab, f"lab-{name}")

    @pytest.mark.nightly
    def test_a_story_is_chosen_and_played_by_keyboard(self, page: Page) -> None:
        lab = page.locator(".ck-lab").nth(len(LABS))
        assert figure_of(lab).startswith("append with append: who wins?")
        lab.get_by_label("Story").focus()
        page.keyboard.press("ArrowDown")
        drawn = lab.locator(".ck-lab-figure svg[role=img]")
        expect(drawn).to_have_attribute("aria-label", re.compile("^one batch by two runs: who wins"))
        page.keyboard.press("Tab")
        expect(lab.get_by_role("button", name="Play")).to_be_focused()
        page.keyboard.press("Enter")
        won = re.compile("^one batch by two runs: the second run won, the first run was refused")
        expect(drawn).to_have_attribute("aria-label", won, timeout=120 * SECOND)
        expect(lab.get_by_role("status")).to_contain_text("second run committed.")

    def test_an_answer_comes_after_a_guess_by_keyboard(self, page: Page) -> None:
        asked = page.locator(".ck-predict").nth(0)
        guess, reveal = asked.get_by_label("Your guess"), asked.get_by_role("button", name="Reveal")
        expect(reveal).to_be_disabled()
        expect(asked).not_to_contain_text("1,095")
        guess.focus()
        page.keyboard.type("1000")
        expect(reveal).to_be_enabled()
        page.keyboard.press("Tab")
        expect(reveal).to_be_focused()
        page.keyboard.press("Enter")
        outcome = asked.get_by_role("status")
        expect(outcome).to_contain_text("the answer is 1,095 files, you said 1,000. Each day writes a file")
        expect(outcome).to_contain_text("0 of 1 right")
        expect(guess).to_be_disabled()

    def test_the_score_goes_on_with_a_choice_and_with_a_number(self, page: Page) -> None:
        asked = page.locator(".ck-predict").nth(1)
        asked.get_by_label("the bytes").focus()
        page.keyboard.press("ArrowDown")
        expect(asked.get_by_label("the footers")).to_be_checked()
        page.keyboard.press("Enter")
        expect(asked.get_by_role("status")).to_contain_text("Right: the footers. 1 of 2 right")
        asked = page.locator(".ck-predict").nth(2)
        asked.get_by_label("Your guess").fill("40")
        asked.get_by_role("button", name="Reveal").click()
        right = re.compile(r"^Right: 40 times\.\s+2 of 3 right$")
        expect(asked.get_by_role("status")).to_contain_text(right)
