"""Ctrl-C while a thread starts: work that has not begun never begins, and other work is waited for."""

import threading
import time
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import errors, open_table
from compaction_kit.arrow import strategy
from compaction_kit.execute import jobs
from tests.execute.meanwhile import wait_until
from tests.refusals import refused

IN_THREAD = jobs.in_thread


class Interrupted:
    """Starts threads as `in_thread` does; Ctrl-C comes after the start, or before a late start."""

    def __init__(self, is_late: bool):
        self.is_late, self.threads = is_late, list[threading.Timer]()

    def __call__(self, spark: SparkSession, work: Any, outcome: Future[Any] | None = None) -> Future[Any]:
        if outcome is None:
            return IN_THREAD(spark, work)
        if self.is_late:
            self.threads.append(threading.Timer(0.5, IN_THREAD, (spark, work, outcome)))
            self.threads[-1].start()
        else:
            IN_THREAD(spark, work, outcome)
            wait_until(lambda: outcome.running() or outcome.done())
        raise KeyboardInterrupt

    def wait(self) -> None:
        for thread in self.threads:
            thread.join()
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("is_late", "is_final", "ends"),
    [
        (True, True, pytest.raises(KeyboardInterrupt)),
        (False, False, pytest.raises(jobs.WorkCancelled)),
        (False, True, nullcontext()),
    ],
)
def test_work_is_stopped_or_waited_for(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    is_late: bool,
    is_final: bool,
    ends: AbstractContextManager[Any],
) -> None:
    interrupted, done = Interrupted(is_late), list[int]()
    monkeypatch.setattr(jobs, "in_thread", interrupted)
    with ends:
        jobs.run_cancellable(spark, lambda: done.append(1), lambda: None, is_final)
    interrupted.wait()
    assert done == [1] * (not is_late)


@pytest.mark.parametrize(
    ("is_late", "version", "said"),
    [
        (True, 4, "The run was cancelled: nothing was committed"),
        (
            False,
            5,
            "The run was cancelled: the compaction is committed, as version 5, and its content is the",
        ),
    ],
)
def test_an_error_says_whether_the_commit_of_arrow_is_made(
    spark: SparkSession,
    changed: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_late: bool,
    version: int,
    said: str,
) -> None:
    interrupted, plan = Interrupted(is_late), open_table(changed, spark).plan_compaction()
    monkeypatch.setattr(strategy, "in_thread", interrupted)
    refused(plan.run, errors.RunCancelled, said, strategy="arrow")
    interrupted.wait()
    assert open_table(changed).version == version
