"""Work in the background, what is shown of it, and sizes that are typed and moved."""

import logging
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from traitlets import Int, observe

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.text import GIB, MIB
from compaction_kit.widgets.fields import SizeSlider
from compaction_kit.widgets.job import Job, Lookup, Watched
from compaction_kit.widgets.parts import JobBar
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

    # Who sees that it has ended may start the next one.
    job.observe(start_again, "status")
    assert job.start(lambda running: None)
    job.wait(SECONDS)
    assert (started, job.result, job.about) == ([True, False], "made", "again")


def test_a_cancelled_job_stops_at_its_next_report_and_has_nothing_next() -> None:
    job, begun, go, done = Job(), threading.Event(), threading.Event(), []
    bar = JobBar(job, "bar")

    def work(running: Job) -> None:
        begun.set()
        go.wait(SECONDS)
        running.report(0.5, "working")
        raise AssertionError("went on")

    job.start(work)
    assert begun.wait(SECONDS)
    job.start_next(lambda running: done.append("next"))
    assert not bar.cancel_button.disabled
    bar.cancel_button.click()
    go.set()
    job.wait(SECONDS)
    assert (job.status, done, bar.cancel_button.disabled) == ("cancelled", [], True)
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
    other = shown(RuntimeError("first line\n\tat java.Trace"))
    assert "Unexpected RuntimeError: first line</div><details>" in other
    assert "at java.Trace" in other


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
    lookup, begun, go = Lookup(), threading.Event(), threading.Event()
    answers = list[object]()
    lookup.observe(lambda change: answers.append(change.new.value), "answer")

    def late(_: Job) -> str:
        begun.set()
        go.wait(SECONDS)
        return "of the table before"

    lookup.ask(late, 0, 1)
    assert begun.wait(SECONDS)
    lookup.forget()
    lookup.ask(lambda job: "of this table", 0, 1)
    go.set()
    lookup.wait(SECONDS)
    assert answers == [None, "of this table"]


def test_what_is_found_after_a_cancel_is_no_answer() -> None:
    lookup, begun, go = Lookup(), threading.Event(), threading.Event()
    bar = JobBar(lookup, "bar")
    assert bar.cancel_button.tooltip == "Stop; nothing is changed"

    def work(_: Job) -> str:
        begun.set()
        go.wait(SECONDS)
        return "found"

    lookup.ask(work, object())
    assert begun.wait(SECONDS)
    bar.cancel_button.click()
    # Not only when the call that is under way returns.
    assert (lookup.status, bar.cancel_button.disabled) == ("cancelled", True)
    go.set()
    lookup.wait(SECONDS)
    assert (lookup.status, lookup.value) == ("cancelled", None)


def test_another_question_after_a_cancel_waits_its_turn_and_is_seen_to() -> None:
    lookup = Lookup()
    with held(lookup):
        lookup.cancel()
        lookup.ask(lambda job: "found", object())
        assert (lookup.status, lookup.value) == ("running", None)
    assert (lookup.status, lookup.value) == ("done", "found")


def test_a_question_whose_turn_was_cancelled_can_be_asked_again() -> None:
    lookup, one = Lookup(), object()
    with held(lookup):
        lookup.ask(lambda job: "first", one)
        lookup.cancel()
    assert lookup.value is None
    lookup.ask(lambda job: "second", one)
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
    ended = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "ended\n" * 2), ended.stderr


class _Seen(Watched):
    number = Int(0)
    double = Int(0)

    @observe("number")
    def _make(self, _: object) -> None:
        self.double = 2 * self.number


def test_a_view_that_fails_stops_no_other_and_nobody_who_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise OSError("no such file")

    # What is logged on purpose is no failure of the test.
    monkeypatch.setattr(logging.getLogger("traitlets"), "disabled", True)
    seen, said, job = _Seen(), [], Job()
    for name in ("number", "double"):
        seen.observe(fail, name)
        seen.observe(lambda change: said.append((change.name, change.new)), name)
    seen.number = 3
    assert sorted(said) == [("double", 6), ("number", 3)]
    job.observe(fail, "status")
    for _ in range(2):
        assert job.start(lambda running: "made")
        job.wait(SECONDS)
        assert (job.status, job.result) == ("done", "made")


@pytest.mark.parametrize(
    ("typed", "size_bytes", "shown", "place"),
    [("100 MB", 100_000_000, "100 MB", 26), ("1 TiB", 1024 * GIB, "1 TiB", 32), ("", None, "", 24)],
)
def test_a_size_is_typed_or_moved(typed: str, size_bytes: int | None, shown: str, place: int) -> None:
    slider = SizeSlider("Size", "size")
    slider.size_bytes = 16 * MIB
    assert (slider.slider.value, slider.field.value) == (24, "16 MiB")
    # What a browser sends.
    slider.field.set_state({"value": typed})
    assert (slider.size_bytes, slider.field.value, slider.slider.value) == (size_bytes, shown, place)
    assert (slider.error.layout.display == "none") is (size_bytes is not None)
    slider.slider.set_state({"value": 20})
    assert (slider.size_bytes, slider.field.value) == (MIB, "1 MiB")
    assert slider.error.layout.display == "none"
