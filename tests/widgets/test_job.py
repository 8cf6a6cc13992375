import logging
import subprocess
import sys
import threading

import pytest
from traitlets import Int, observe

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.widgets.job import Job, Watched
from compaction_kit.widgets.parts import JobBar

SECONDS = 10


def test_a_job_reports_progress_that_never_goes_back() -> None:
    job, seen = Job(), []
    job.observe(lambda change: seen.append(change.new), "progress")

    def work(running: Job) -> str:
        for fraction in (0.2, 0.6, 0.4, 0.9):
            running.report(fraction, "working")
        return "made"

    assert job.start(work)
    job.wait(SECONDS)
    assert (job.status, job.result, job.progress) == ("done", "made", 1.0)
    assert seen == sorted(seen)


def test_a_cancelled_job_stops_at_its_next_report() -> None:
    job, begun, go = Job(), threading.Event(), threading.Event()
    bar = JobBar(job, "bar")

    def work(running: Job) -> None:
        begun.set()
        go.wait(SECONDS)
        running.report(0.5, "working")
        raise AssertionError("went on")

    job.start(work)
    assert begun.wait(SECONDS)
    assert not bar.cancel_button.disabled
    bar.cancel_button.click()
    go.set()
    job.wait(SECONDS)
    assert job.status == "cancelled"
    assert bar.cancel_button.disabled
    assert "nothing was changed" in bar.error.value


def test_a_job_runs_one_work_at_a_time() -> None:
    job, go = Job(), threading.Event()
    assert job.start(lambda running: go.wait(SECONDS))
    assert not job.start(lambda running: None)
    go.set()
    job.wait(SECONDS)
    assert job.start(lambda running: None)
    job.wait(SECONDS)


def test_our_errors_are_shown_as_they_are() -> None:
    job = Job()
    bar = JobBar(job, "bar")

    def work(running: Job) -> None:
        raise InvalidArgumentError("a <sentence> of ours.")

    job.start(work)
    job.wait(SECONDS)
    assert job.status == "failed"
    assert bar.error.value == '<div role="alert">a &lt;sentence&gt; of ours.</div>'


def test_a_surprise_gets_a_sentence_with_the_rest_folded() -> None:
    job = Job()
    bar = JobBar(job, "bar")

    def work(running: Job) -> None:
        raise RuntimeError("first line\n\tat java.Trace")

    job.start(work)
    job.wait(SECONDS)
    assert "Unexpected RuntimeError: first line</div><details>" in bar.error.value
    assert "at java.Trace" in bar.error.value


def test_who_asks_last_is_next() -> None:
    job, begun, go, done = Job(), threading.Event(), threading.Event(), []

    def first(running: Job) -> None:
        begun.set()
        go.wait(SECONDS)

    job.start(first)
    assert begun.wait(SECONDS)
    job.start_next(lambda running: done.append("passed over"))
    job.start_next(lambda running: done.append("last"))
    assert done == []
    go.set()
    job.wait(SECONDS)
    assert done == ["last"]
    job.start_next(lambda running: done.append("at once"))
    job.wait(SECONDS)
    assert done == ["last", "at once"]


def test_a_cancelled_job_has_nothing_next() -> None:
    job, begun, done = Job(), threading.Event(), []

    def work(running: Job) -> None:
        while True:
            running.report(0.5, "working")
            begun.set()

    job.start(work)
    assert begun.wait(SECONDS)
    job.start_next(lambda running: done.append("next"))
    job.cancel()
    job.wait(SECONDS)
    assert (job.status, done) == ("cancelled", [])


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


def _fail(_: object) -> None:
    raise OSError("no such file")


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is logged on purpose is no failure of the test."""
    monkeypatch.setattr(logging.getLogger("traitlets"), "disabled", True)


@pytest.mark.usefixtures("quiet")
def test_a_view_that_fails_stops_no_other_and_nobody_who_sets() -> None:
    seen, told = _Seen(), []
    for name in ("number", "double"):
        seen.observe(_fail, name)
        seen.observe(lambda change: told.append((change.name, change.new)), name)
    seen.number = 3
    assert sorted(told) == [("double", 6), ("number", 3)]


@pytest.mark.usefixtures("quiet")
def test_a_job_whose_view_fails_ends_and_can_be_started_again() -> None:
    job = Job()
    job.observe(_fail, "status")
    for _ in range(2):
        assert job.start(lambda running: "made")
        job.wait(SECONDS)
        assert (job.status, job.result) == ("done", "made")
