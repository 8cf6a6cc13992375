"""Jobs in the background and how they are shown; fields for sizes; grids."""

import threading
import time
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from compaction_kit.errors import InvalidArgumentError, RunFailedError
from compaction_kit.text import GIB, MIB
from compaction_kit.widgets.fields import Grid, SizeSlider
from compaction_kit.widgets.job import Job, Lookup
from compaction_kit.widgets.parts import JobBar
from tests.processes import run_python
from tests.widgets.pages import SECONDS, held


def test_a_job_does_one_work_at_a_time_whose_progress_never_goes_back() -> None:
    job, seen, go = Job(), [], threading.Event()
    job.observe(lambda change: seen.append(change.new), "progress")

    def work(running: Job) -> str:
        for fraction in (0.2, 0.6, 0.4, 0.9):
            running.report(fraction, "working")
        go.wait(SECONDS)
        return "made"

    assert job.start(work)
    assert not job.start(lambda running: None)
    go.set()
    job.wait(SECONDS)
    assert (job.status, job.result, job.progress) == ("done", "made", 1.0)
    assert seen == sorted(seen)
    started = list[bool]()

    def start_again(change: Any) -> None:
        if change.new == "done" and not started:
            started.extend(job.start(work, "again") for _ in range(2))

    # An observer that sees the end of a job may start the next one.
    job.observe(start_again, "status")
    assert job.start(lambda running: None)
    job.wait(SECONDS)
    assert (started, job.result, job.about) == ([True, False], "made", "again")


def test_a_cancelled_job_stops_at_its_next_report_and_has_nothing_next() -> None:
    job, done = Job(), list[str]()
    bar = JobBar(job, "bar")
    with held(job, reports=True):
        job.start_next(lambda running: done.append("next"))
        assert not bar.cancel_button.disabled
        bar.cancel_button.click()
    assert (job.status, job.result, done, bar.cancel_button.disabled) == ("cancelled", None, [], True)
    assert "nothing was changed" in bar.error.value


def test_an_error_is_a_sentence_with_the_rest_folded() -> None:
    job = Job()
    bar = JobBar(job, "bar")

    def shown(error: Exception) -> str:
        def work(_: Job) -> None:
            raise error

        job.start(work)
        job.wait(SECONDS)
        assert job.status == "failed"
        return str(bar.error.value)

    own = shown(InvalidArgumentError("a <sentence> of ours."))
    assert '<div role="alert">a &lt;sentence&gt; of ours.</div>' in own
    # The page names its own part instead of a call in the message.
    assert "; History says" in shown(RunFailedError("The run failed: a; table.versions() says b."))
    other = shown(RuntimeError("first line\n\tat java.Trace"))
    assert "Unexpected RuntimeError: first line</div><details>" in other
    assert "at java.Trace" in other
    for error in (ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("Java side is empty")):
        assert "Java has ended: restart the kernel" in shown(error)


def test_a_lookup_answers_the_last_question_once_and_keeps_the_former_answer_meanwhile() -> None:
    lookup, go, asked = Lookup(), threading.Event(), list[str]()
    one, other = object(), object()

    def work(job: Job, name: str) -> str:
        asked.append(name)
        if len(asked) > 1:
            go.wait(SECONDS)
            job.report(0.5, "working")
        return name

    lookup.ask(lambda job: work(job, "first"), one, 1)
    lookup.ask(lambda job: work(job, "first"), one, 1)
    lookup.wait(SECONDS)
    assert (lookup.value, lookup.get(one, 1), lookup.get(other, 1)) == ("first", "first", None)
    assert asked == ["first"]
    lookup.ask(lambda job: work(job, "second"), other, 1)
    lookup.ask(lambda job: work(job, "third"), other, 2)
    assert (lookup.value, lookup.get(other, 2)) == ("first", None)
    go.set()
    lookup.wait(SECONDS)
    assert (lookup.get(other, 2), lookup.error) == ("third", "")
    lookup.ask(lambda job: 1 / 0, one)
    lookup.wait(SECONDS)
    assert (lookup.value, lookup.error) == (None, "Unexpected ZeroDivisionError: division by zero")
    lookup.forget()
    assert (lookup.value, lookup.status) == (None, "idle")


def test_a_view_may_ask_again_as_soon_as_an_answer_is_forgotten() -> None:
    lookup, one = Lookup(), object()

    def reported(job: Job) -> str:
        time.sleep(0.1)
        job.report(0.5, "Looking")
        return "found"

    lookup.ask(reported, one)
    lookup.wait(SECONDS)
    lookup.observe(lambda change: lookup.ask(reported, one) if change.new.value is None else None, "answer")
    lookup.forget()
    lookup.wait(SECONDS)
    assert (lookup.value, lookup.error) == ("found", "")


def test_a_late_answer_is_not_taken_for_the_same_question_about_something_else() -> None:
    lookup, answers = Lookup(), list[object]()
    lookup.observe(lambda change: answers.append(change.new.value), "answer")
    with held(lookup, 0, 1, found="of the table before"):
        lookup.forget()
        lookup.ask(lambda job: "of this table", 0, 1)
    assert answers == [None, "of this table"]


def test_a_lookup_is_cancelled_at_once_and_what_is_found_later_is_no_answer() -> None:
    lookup = Lookup()
    bar = JobBar(lookup, "bar")
    assert bar.cancel_button.tooltip == "Stop; nothing is changed"
    with held(lookup, "one", found="late"):
        bar.cancel_button.click()
        assert (lookup.status, bar.cancel_button.disabled) == ("cancelled", True)
    assert (lookup.status, lookup.value) == ("cancelled", None)
    # A second question waits until the first one has ended.
    with held(lookup, "two"):
        lookup.cancel()
        lookup.ask(lambda job: "found", "three")
        assert (lookup.status, lookup.value) == ("running", None)
    assert (lookup.status, lookup.value) == ("done", "found")
    # A question that was cancelled while it waited can be asked again.
    with held(lookup, "four"):
        lookup.ask(lambda job: "first", "five")
        lookup.cancel()
    assert lookup.value == "found"
    lookup.ask(lambda job: "second", "five")
    lookup.wait(SECONDS)
    assert lookup.value == "second"


def test_the_end_of_a_program_stops_work_and_waits_for_it() -> None:
    lines = """
import threading, time
from compaction_kit.widgets.job import Job

def work(running, begun):
    try:
        while True:
            running.report(0.5, "working")
            begun.set()
            time.sleep(0.01)
    finally:
        time.sleep(0.5)
        print("ended")

for _ in range(2):
    begun = threading.Event()
    Job().start(lambda running: work(running, begun))
    begun.wait()
"""
    assert run_python("-c", lines).stdout == "ended\n" * 2


@pytest.mark.parametrize(
    ("typed", "size_bytes", "shown", "place"),
    [("100 MB", 100_000_000, "100 MB", 26), ("1 TiB", 1024 * GIB, "1 TiB", 32), ("", None, "", 24)],
)
def test_a_size_is_typed_or_moved(typed: str, size_bytes: int | None, shown: str, place: int) -> None:
    slider = SizeSlider("Size", "size")
    slider.size_bytes = 16 * MIB
    assert (slider.slider.value, slider.field.value) == (24, "16 MiB")
    # The message that a browser sends.
    slider.field.set_state({"value": typed})
    assert (slider.size_bytes, slider.field.value, slider.slider.value) == (size_bytes, shown, place)
    assert (slider.error.layout.display == "none") is (size_bytes is not None)
    slider.slider.set_state({"value": 20})
    assert (slider.size_bytes, slider.field.value) == (MIB, "1 MiB")
    assert slider.error.layout.display == "none"


ROWS: list[Any] = [
    [["9", 9], ["WRITE", "WRITE"], ["+10", 10]],
    [["8", 8], ["OPTIMIZE", "OPTIMIZE"], ["", None]],
    [["7", 7], ["write", "write"], ["−3", -3]],
    [["6", 6], ["DELETE", "DELETE"], ["+10", 10]],
]


def grid_of(rows: list[Any], page_size: int = 50) -> Grid:
    grid = Grid("Versions", ["version", "operation", "rows"], lambda _: None, page_size=page_size)
    grid.all_rows = rows
    return grid


def names(grid: Grid) -> list[int]:
    return [row[0][1] for row in grid.rows]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, [9, 8, 7, 6]),
        ({"order": [0, 1]}, [6, 7, 8, 9]),
        # Equal rows keep their order, and rows without a value are last.
        ({"order": [2, -1]}, [9, 6, 7, 8]),
        ({"order": [2, 1]}, [7, 9, 6, 8]),
        # Upper and lower case are equal.
        ({"order": [1, 1]}, [6, 8, 9, 7]),
        ({"words": "write"}, [9, 7]),
        ({"words": "DEL 6"}, [6]),
        ({"words": "6 optimize"}, []),
        ({"words": "+10"}, [9, 6]),
    ],
)
def test_rows_are_sorted_by_a_column_and_are_those_with_all_the_words(
    state: dict[str, Any], expected: list[int]
) -> None:
    grid = grid_of(ROWS)
    grid.set_state(state)
    assert (names(grid), grid.counts) == (expected, [len(expected), 4])


def test_a_page_is_in_the_browser_and_turned_to_the_row_that_is_chosen() -> None:
    rows: list[Any] = [[[str(n), n], ["WRITE", "WRITE"], ["", None]] for n in range(10_000)]
    grid = grid_of(rows, 50)
    assert (names(grid), grid.counts) == ([*range(50)], [10_000, 10_000])
    grid.set_state({"first": 50})
    assert names(grid) == [*range(50, 100)]
    grid.chosen = 9_980
    assert (grid.first, names(grid)) == (9_950, [*range(9_950, 10_000)])
    # A search begins at the first page of its rows; to choose a row that isn't among them turns no page.
    grid.set_state({"words": "77"})
    assert (grid.first, names(grid)[:2]) == (0, [77, 177])
    grid.chosen = 3
    assert grid.first == 0
    assert grid.still().count("<tr>") == 51


def test_rows_that_are_gone_are_ticked_no_more_and_the_same_rows_keep_their_page() -> None:
    grid = grid_of(ROWS, 2)
    grid.set_state({"ticked": [9, 6], "first": 2})
    grid.all_rows = [list(row) for row in ROWS]
    assert (grid.first, grid.ticked) == (2, [9, 6])
    grid.all_rows = ROWS[1:]
    assert (grid.first, grid.ticked, names(grid)) == (0, [6], [8, 7])
    grid.chosen, grid.all_rows = 6, ROWS
    assert names(grid) == [7, 6]
