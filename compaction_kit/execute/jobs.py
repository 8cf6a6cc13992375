"""Run Spark work so that its progress can be watched and it can be cancelled."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from py4j.protocol import Py4JNetworkError
from pyspark import InheritableThread, StatusTracker
from pyspark.sql import SparkSession

from compaction_kit.execute.jvm import job_span

T = TypeVar("T")
POLL_SECONDS = 0.1
# Errors of a session that has died: nobody cancelled its work.
_DEAD = (Py4JNetworkError, ConnectionError)
# How long to wait for tasks that were cancelled.
_ENDING_SECONDS = 30
# With these set, Spark would pass over rows of files that it can't read.
WHOLE_FILES = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
# For each setting of a session its value before all blocks that set it, and that of each block.
_values: dict[tuple[int, str], dict[object, str | None]] = {}
_CONFS = threading.RLock()


class WorkCancelled(Exception):
    """Work was stopped by its watcher, or by Ctrl-C; that is its cause."""


class SparkJob(NamedTuple):
    """A Spark job that is done: the name of its last stage, and when it began and ended.

    Times are in seconds since 1970.
    """

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Watched:
    """How far Spark work is.

    Attributes:
        jobs: The jobs that are done.
        tasks: How many tasks are done of the jobs that run.
        num_tasks: How many tasks those have.
    """

    jobs: list[SparkJob]
    tasks: int
    num_tasks: int


def run_watched(
    spark: SparkSession, work: Callable[[], T], watch: Callable[[Watched], None], is_final: bool = True
) -> T:
    """Call `work` as `run_cancellable` does, with its jobs as the argument of `watch` instead of `tick`."""
    done: dict[int, SparkJob] = {}
    return run_cancellable(spark, work, lambda group: watch(_look(spark, group, done)), is_final)


def run_cancellable(
    spark: SparkSession, work: Callable[[], T], tick: Callable[[str], None], is_final: bool = True
) -> T:
    """Call `work` in a thread of its own, in a Spark job group, until it is done.

    Args:
        spark: The session that `work` uses.
        work: The Spark work.
        tick: Called about ten times a second, and once when all is done, with the group's name. When
            it raises, or Ctrl-C is pressed, the group's jobs are cancelled.
        is_final: Whether a cancellation that comes too late to stop `work` is ignored.

    Returns:
        What `work` returned.

    Raises:
        WorkCancelled: `tick` raised, and that stopped it.
        BaseException: What `work` raised.
    """
    group = f"compaction-kit-{uuid.uuid4().hex[:8]}"
    context = spark.sparkContext

    def body() -> T:
        context.setJobGroup(group, "compaction_kit", interruptOnCancel=True)
        return work()

    outcome = in_thread(body)
    stopped: BaseException | None = None
    is_done = False
    while not is_done:
        try:
            is_done = bool(wait([outcome], POLL_SECONDS).done)
            if stopped is None:
                tick(group)
            else:
                # Again and again: a cancellation before the first job starts is lost.
                context.cancelJobGroup(group)
        except BaseException as error:
            stopped = error
    failure = outcome.exception()
    if failure is not None:
        _end_tasks(spark, group)
    if failure is not None and isinstance(stopped, _DEAD):
        raise failure
    if stopped is not None and not (is_final and failure is None):
        raise WorkCancelled from stopped
    return outcome.result()


def _end_tasks(spark: SparkSession, group: str) -> None:
    """Cancel what is left of work that has failed or was cancelled, and wait until none of its tasks runs.

    They may still write files. Delta rewrites bins in threads of its own, whose jobs go on when the first has
    failed.
    """
    end = time.monotonic() + _ENDING_SECONDS
    with contextlib.suppress(Exception):
        while time.monotonic() < end:
            spark.sparkContext.cancelJobGroup(group)
            if not _runs(spark.sparkContext.statusTracker(), group):
                return
            time.sleep(POLL_SECONDS / 2)


def _runs(tracker: StatusTracker, group: str) -> bool:
    jobs = [job for job in map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)) if job is not None]
    stages = (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds)
    return any(job.status == "RUNNING" for job in jobs) or any(
        stage.numActiveTasks for stage in stages if stage is not None
    )


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Begin some work that may use Spark in a thread of its own, which ends with the program."""
    outcome = Future[T]()

    def body() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    InheritableThread(target=body, daemon=True).start()
    return outcome


def _look(spark: SparkSession, group: str, done: dict[int, SparkJob]) -> Watched:
    """Add the jobs that have succeeded meanwhile to those done; count the tasks of the others."""
    tracker = spark.sparkContext.statusTracker()
    tasks = num_tasks = 0
    for job in tracker.getJobIdsForGroup(group):
        info = None if job in done else tracker.getJobInfo(job)
        if info is None:
            continue
        stages = [tracker.getStageInfo(stage) for stage in sorted(info.stageIds)]
        span = job_span(spark, job) if info.status == "SUCCEEDED" else None
        if span is not None:
            done[job] = SparkJob(stages[-1].name if stages and stages[-1] is not None else "", *span)
        else:
            tasks += sum(stage.numCompletedTasks for stage in stages if stage is not None)
            num_tasks += sum(stage.numTasks for stage in stages if stage is not None)
    return Watched(list(done.values()), tasks, num_tasks)


@contextlib.contextmanager
def session_confs(spark: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """Set session settings for the time of a `with` block, then put the old ones back.

    With blocks in several threads, the last one entered and not yet left counts.
    """
    with contextlib.ExitStack() as stack:
        for key, value in confs.items():
            stack.enter_context(_session_conf(spark, key, value))
        yield


@contextlib.contextmanager
def _session_conf(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    block = object()
    with _CONFS:
        values = _values.setdefault((id(spark), key), {None: spark.conf.get(key, None)})
        values[block] = value
    try:
        with _CONFS:
            spark.conf.set(key, value)
        yield
    finally:
        with _CONFS:
            del values[block]
            *_, last = values.values()
            if last is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, last)
            if len(values) == 1:
                del _values[id(spark), key]
