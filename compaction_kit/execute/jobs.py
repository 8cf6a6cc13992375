"""Run Spark work so that its progress can be watched and it can be cancelled.

Work runs in a job group, whose jobs the JVM's StatusTracker knows. Over Spark Connect it runs under a tag,
can be cancelled too, and shows no progress by jobs.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from compaction_kit.compat import has_jvm, inheriting_thread
from compaction_kit.execute.delta import job_span

T = TypeVar("T")
POLL_SECONDS = 0.1
# Errors of a session that has died: nobody cancelled its work.
_DEAD = (Py4JNetworkError, ConnectionError)
# How long to wait for tasks that were cancelled.
_ENDING_SECONDS = 30
# Otherwise Spark may pass over rows of files that it can't read.
WHOLE_FILES = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
# For each setting of a session, its value before all blocks that set it, and the value of each block.
_values: dict[tuple[int, str], dict[object, str | None]] = {}
_CONFS = threading.RLock()


class WorkCancelled(Exception):
    """Work was stopped by its watcher, or by Ctrl-C; that is its cause."""


class SparkJob(NamedTuple):
    """A Spark job that has succeeded.

    Attributes:
        name: The name of its last stage.
        start: When it began, in seconds since 1970.
        end: When it ended.
    """

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Watched:
    """How far Spark work is; over Spark Connect, one task that isn't done.

    Attributes:
        jobs: The jobs that are done.
        tasks: How many tasks of the running jobs are done.
        num_tasks: How many tasks these jobs have.
    """

    jobs: list[SparkJob]
    tasks: int
    num_tasks: int


class _Marked:
    """The Spark work of a thread, under a name by which it is watched and cancelled."""

    def __init__(self, spark: SparkSession):
        self._spark, self._has_jvm = spark, has_jvm(spark)
        self._name = f"compaction-kit-{uuid.uuid4().hex[:8]}"
        self._done: dict[int, SparkJob] = {}

    def begin(self) -> None:
        if self._has_jvm:
            self._spark.sparkContext.setJobGroup(self._name, "compaction_kit", interruptOnCancel=True)
        else:
            self._spark.addTag(self._name)

    def look(self) -> Watched:
        if not self._has_jvm:
            return Watched([], 0, 1)
        tracker = self._spark.sparkContext.statusTracker()
        tasks = num_tasks = 0
        for job in tracker.getJobIdsForGroup(self._name):
            info = None if job in self._done else tracker.getJobInfo(job)
            if info is None:
                continue
            stages = [
                stage for stage in map(tracker.getStageInfo, sorted(info.stageIds)) if stage is not None
            ]
            span = job_span(self._spark, job) if info.status == "SUCCEEDED" else None
            if span is not None:
                self._done[job] = SparkJob(stages[-1].name if stages else "", *span)
            else:
                tasks += sum(stage.numCompletedTasks for stage in stages)
                num_tasks += sum(stage.numTasks for stage in stages)
        return Watched(list(self._done.values()), tasks, num_tasks)

    def cancel(self) -> bool:
        """Cancel what runs now; returns whether nothing ran."""
        if not self._has_jvm:
            return not self._spark.interruptTag(self._name)
        self._spark.sparkContext.cancelJobGroup(self._name)
        tracker = self._spark.sparkContext.statusTracker()
        found = map(tracker.getJobInfo, tracker.getJobIdsForGroup(self._name))
        jobs = [job for job in found if job is not None]
        stages = (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds)
        return not any(job.status == "RUNNING" for job in jobs) and not any(
            stage.numActiveTasks for stage in stages if stage is not None
        )


def run_watched(
    spark: SparkSession, work: Callable[[], T], watch: Callable[[Watched], None], is_final: bool = True
) -> T:
    """Call `work` in a thread of its own, so that it can be watched and cancelled, until it is done.

    Args:
        spark: The session that `work` uses.
        work: The Spark work.
        watch: Called about ten times a second, and once when all is done, with what is known of the
            work's jobs. When it raises, or Ctrl-C is pressed, these are cancelled.
        is_final: Whether a cancellation that comes too late to stop `work` is ignored.

    Returns:
        What `work` returned.

    Raises:
        WorkCancelled: `watch` raised, and that stopped it.
        BaseException: What `work` raised.
    """
    marked = _Marked(spark)
    return run_cancellable(spark, work, lambda: watch(marked.look()), is_final, marked)


def run_cancellable(
    spark: SparkSession,
    work: Callable[[], T],
    tick: Callable[[], object],
    is_final: bool = True,
    marked: _Marked | None = None,
) -> T:
    """Call `work` as `run_watched` does, with a `tick` that needs nothing of its jobs."""
    marked = marked or _Marked(spark)

    def body() -> T:
        marked.begin()
        return work()

    outcome = in_thread(spark, body)
    stopped: BaseException | None = None
    is_done = False
    while not is_done:
        try:
            is_done = bool(wait([outcome], POLL_SECONDS).done)
            if stopped is None:
                tick()
            else:
                # Again and again: a cancellation before the first job starts is lost.
                marked.cancel()
        except BaseException as error:
            stopped = error
    failure = outcome.exception()
    if failure is not None:
        _end_tasks(marked)
    if failure is not None and isinstance(stopped, _DEAD):
        raise failure
    if stopped is not None and not (is_final and failure is None):
        raise WorkCancelled from stopped
    return outcome.result()


def _end_tasks(marked: _Marked) -> None:
    """Cancel what is left of failed work, and wait until none of its tasks runs, for they may still write.

    Delta rewrites bins in threads of its own, whose jobs go on when the first has failed.
    """
    end = time.monotonic() + _ENDING_SECONDS
    with contextlib.suppress(Exception):
        while time.monotonic() < end and not marked.cancel():
            time.sleep(POLL_SECONDS / 2)


def in_thread(spark: SparkSession, work: Callable[[], T]) -> Future[T]:
    """Begin work that may use Spark in a thread of its own, which ends with the program."""
    outcome = Future[T]()

    def body() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    inheriting_thread(spark, body).start()
    return outcome


@contextlib.contextmanager
def session_confs(spark: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """Set session settings for the time of a `with` block, then put the old ones back.

    With blocks in several threads, the value of the block entered last counts.
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
