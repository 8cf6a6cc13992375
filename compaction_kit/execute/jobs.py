"""Run Spark work so that its progress can be watched and it can be cancelled."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from compaction_kit.execute.jvm import job_span

T = TypeVar("T")
_POLL_SECONDS = 0.1
# With these set, Spark would pass over rows of files that it can't read.
WHOLE_FILES = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}


class WorkCancelled(Exception):
    """Work was stopped by its watcher, or by Ctrl-C; that is its cause."""


class Job(NamedTuple):
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

    jobs: list[Job]
    tasks: int
    num_tasks: int


def run_watched(
    spark: SparkSession, work: Callable[[], T], watch: Callable[[Watched], None], is_final: bool = True
) -> T:
    """Call `work` as `run_cancellable` does, and tell how far its jobs are.

    Args:
        spark: The session that `work` uses.
        work: The Spark work.
        watch: As `tick`, with the jobs.
        is_final: As there.

    Returns:
        What `work` returned.

    Raises:
        WorkCancelled: `watch` raised, and that stopped it.
        BaseException: What `work` raised.
    """
    done: dict[int, Job] = {}
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
        is_final: Whether what `work` has done stands though a cancellation came before its end.

    Returns:
        What `work` returned; if it is final, even if a cancellation came too late to stop it.

    Raises:
        WorkCancelled: `tick` raised, and that stopped it.
        BaseException: What `work` raised.
    """
    group = f"compaction-kit-{uuid.uuid4().hex[:8]}"
    context = spark.sparkContext
    outcome: dict[str, Any] = {}

    def body() -> None:
        try:
            context.setJobGroup(group, "compaction_kit", interruptOnCancel=True)
            outcome["value"] = work()
        except BaseException as error:
            outcome["error"] = error

    thread = InheritableThread(target=body, daemon=True)
    thread.start()
    stopped: BaseException | None = None
    alive = True
    while alive:
        try:
            thread.join(_POLL_SECONDS)
            alive = thread.is_alive()
            if stopped is None:
                tick(group)
            else:
                # Again and again: a cancellation before the first job starts is lost.
                context.cancelJobGroup(group)
        except BaseException as error:
            stopped = error
    if "value" in outcome and (is_final or stopped is None):
        return outcome["value"]  # type: ignore[no-any-return]
    if stopped is not None:
        raise WorkCancelled from stopped
    raise outcome["error"]


def _look(spark: SparkSession, group: str, done: dict[int, Job]) -> Watched:
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
            done[job] = Job(stages[-1].name if stages and stages[-1] is not None else "", *span)
        else:
            tasks += sum(stage.numCompletedTasks for stage in stages if stage is not None)
            num_tasks += sum(stage.numTasks for stage in stages if stage is not None)
    return Watched(list(done.values()), tasks, num_tasks)


@contextlib.contextmanager
def session_confs(spark: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """Set session settings for the time of a `with` block, then put the old ones back."""
    before = {key: spark.conf.get(key, None) for key in confs}
    try:
        for key, value in confs.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
