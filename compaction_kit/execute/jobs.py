"""Run Spark work in a job group (a tag over Spark Connect), so that it can be watched and cancelled."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from typing import NamedTuple, TypeVar

from pyspark import RDD
from pyspark.sql import SparkSession

from compaction_kit.compat import has_jvm, inheriting_thread
from compaction_kit.execute.delta import job_span
from compaction_kit.session import DEAD

T = TypeVar("T")
POLL_SECONDS = 0.1
# How long to wait for tasks that were cancelled.
_ENDING_SECONDS = 30
# With other values, Spark may skip rows of files that it can't read.
WHOLE_FILES = {"spark.sql.files.ignoreCorruptFiles": "false", "spark.sql.files.ignoreMissingFiles": "false"}
# For each setting of a session: its value before all blocks that set it, and the value of each block.
_values: dict[tuple[int, str], dict[object, str | None]] = {}
# The second lock guards RDD.toDF, which `own_session` restores.
_CONFS, _COPYING = threading.RLock(), threading.Lock()


class WorkCancelled(Exception):
    """Work was stopped by an exception of its watcher or by Ctrl-C, which is the `__cause__`."""


class SparkJob(NamedTuple):
    """A Spark job that has succeeded: its last stage's name, its start and end in seconds since 1970."""

    name: str
    start: float
    end: float


class Watched(NamedTuple):
    """Progress of Spark work: jobs that are done, and tasks of running jobs (one task over Spark Connect)."""

    jobs: list[SparkJob]
    tasks: int
    num_tasks: int


class _Group:
    """The Spark jobs of a thread, named so that they can be watched and cancelled."""

    def __init__(self, spark: SparkSession):
        self._spark, self._has_jvm = spark, has_jvm(spark)
        self._name = f"compaction-kit-{uuid.uuid4().hex[:8]}"
        self._done: dict[int, SparkJob] = {}

    def look(self) -> Watched:
        if not self._has_jvm:
            return Watched([], 0, 1)
        tracker, running = self._spark.sparkContext.statusTracker(), []
        for job in tracker.getJobIdsForGroup(self._name):
            info = None if job in self._done else tracker.getJobInfo(job)
            if info is None:
                continue
            found = map(tracker.getStageInfo, sorted(info.stageIds))
            stages = [stage for stage in found if stage is not None]
            span = job_span(self._spark, job) if info.status == "SUCCEEDED" else None
            if span is not None:
                self._done[job] = SparkJob(stages[-1].name if stages else "", *span)
            else:
                running += stages
        tasks = sum(stage.numCompletedTasks for stage in running)
        return Watched([*self._done.values()], tasks, sum(stage.numTasks for stage in running))

    def cancel(self) -> bool:
        """Cancel the running jobs; returns whether nothing was running."""
        if not self._has_jvm:
            return not self._spark.interruptTag(self._name)
        self._spark.sparkContext.cancelJobGroup(self._name)
        tracker = self._spark.sparkContext.statusTracker()
        found = map(tracker.getJobInfo, tracker.getJobIdsForGroup(self._name))
        jobs = [job for job in found if job is not None]
        stages = (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds)
        is_running = any(job.status == "RUNNING" for job in jobs)
        return not is_running and not any(stage and stage.numActiveTasks for stage in stages)

    def run(self, work: Callable[[], T], tick: Callable[[], object], is_final: bool) -> T:
        def body() -> T:
            if self._has_jvm:
                self._spark.sparkContext.setJobGroup(self._name, "compaction_kit", interruptOnCancel=True)
            else:
                self._spark.addTag(self._name)
            return work()

        outcome = Future[T]()
        stopped: BaseException | None = None
        try:
            in_thread(self._spark, body, outcome)
        except BaseException as error:
            if outcome.cancel():
                raise
            stopped = error
        is_done = False
        while not is_done:
            try:
                is_done = bool(wait([outcome], POLL_SECONDS).done)
                if stopped is None:
                    tick()
                else:
                    # Repeatedly, because a cancellation before the first job starts is lost.
                    self.cancel()
            except BaseException as error:
                stopped = error
        failure = outcome.exception()
        if failure is not None:
            # Delta rewrites bins in its own threads; after one job has failed, the others go on writing.
            end = time.monotonic() + _ENDING_SECONDS
            with contextlib.suppress(Exception):
                while time.monotonic() < end and not self.cancel():
                    time.sleep(POLL_SECONDS / 2)
            # If the session has died, the work was not cancelled: raise its own error.
            if isinstance(stopped, DEAD):
                raise failure
        if stopped is not None and not (is_final and failure is None):
            raise WorkCancelled from stopped
        return outcome.result()


def run_cancellable(
    spark: SparkSession, work: Callable[[], T], tick: Callable[[], object], is_final: bool = True
) -> T:
    """Call `work` in its own thread until it is done, and return its result or raise its error.

    `tick` is called about ten times a second, and once when all is done. When `tick` raises, or Ctrl-C is
    pressed, the work's jobs are cancelled, and WorkCancelled is raised, unless `is_final` is true and the
    work has succeeded anyway.
    """
    return _Group(spark).run(work, tick, is_final)


def run_watched(
    spark: SparkSession, work: Callable[[], T], watch: Callable[[Watched], object], is_final: bool = True
) -> T:
    """Call `work` as `run_cancellable` does; `watch` is called with the progress of its jobs."""
    group = _Group(spark)
    return group.run(work, lambda: watch(group.look()), is_final)


def in_thread(spark: SparkSession, work: Callable[[], T], outcome: Future[T] | None = None) -> Future[T]:
    """Start work that may use Spark in its own thread, which ends with the program.

    If the work can't start because Java has ended, the future has that error. Ctrl-C may come just before or
    just after the start: `outcome.cancel()` then says whether it came in time.
    """
    outcome = Future() if outcome is None else outcome

    def body() -> None:
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(work())
            except BaseException as error:
                outcome.set_exception(error)

    try:
        inheriting_thread(spark, body).start()
    except DEAD as error:
        outcome.set_exception(error)
    return outcome


@contextlib.contextmanager
def own_session(spark: SparkSession, confs: Mapping[str, str | None]) -> Iterator[SparkSession]:
    """Yield a copy of a session with other settings, which don't affect the session's other threads.

    Over Spark Connect a session can't be copied, so it has the settings itself within the `with` block.
    """
    if has_jvm(spark):
        with _COPYING:
            to_df = RDD.toDF
            spark = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
            # PySpark replaces RDD.toDF with a function that uses the newest session.
            RDD.toDF = to_df  # type: ignore[method-assign]
    with session_confs(spark, confs):
        yield spark


@contextlib.contextmanager
def session_confs(spark: SparkSession, confs: Mapping[str, str | None]) -> Iterator[None]:
    """Set session settings (None: unset) during a `with` block, then restore the old ones.

    If several threads have blocks, the value of the block entered last counts. Values that others set stay.
    """
    block, entered = object(), list[str]()
    try:
        for key, value in confs.items():
            with _CONFS:
                values = _values.setdefault((id(spark), key), {None: spark.conf.get(key, None)})
                values[block] = value
                entered.append(key)
                _set(spark, key, value)
        yield
    finally:
        for key in reversed(entered):
            with _CONFS:
                values = _values[id(spark), key]
                is_own = spark.conf.get(key, None) in values.values()
                del values[block]
                *_, last = values.values()
                if len(values) == 1:
                    del _values[id(spark), key]
                if is_own:
                    _set(spark, key, last)


def _set(spark: SparkSession, key: str, value: str | None) -> None:
    if value is None:
        spark.conf.unset(key)
    else:
        spark.conf.set(key, value)
