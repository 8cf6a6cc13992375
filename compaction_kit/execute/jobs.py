"""Run Spark work so that its progress can be watched and it can be cancelled.

Work runs in a job group, which the JVM's StatusTracker tells of. Over Spark Connect it runs under a tag,
and the server reports the stages of its operations.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from compaction_kit.compat import has_jvm, inheriting_thread
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
    """A Spark job that is done; over Spark Connect a stage.

    Attributes:
        name: The name of its last stage; "" over Spark Connect, which doesn't tell it.
        start: When it began, in seconds since 1970.
        end: When it ended; over Spark Connect both are the times at which that was reported.
        num_tasks: How many tasks it had; 0 where that isn't known.
    """

    name: str
    start: float
    end: float
    num_tasks: int = 0


@dataclass(frozen=True)
class Watched:
    """How far Spark work is.

    Attributes:
        jobs: The jobs that are done.
        tasks: How many tasks are done of the jobs that run; over Spark Connect, of all.
        num_tasks: How many tasks those have.
    """

    jobs: list[SparkJob]
    tasks: int
    num_tasks: int


class _Marked(Protocol):
    """How the Spark work of a thread is marked, watched and cancelled; a context of that thread."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def look(self) -> Watched:
        """Return how far it is."""

    def cancel(self) -> None:
        """Cancel what runs of it; what begins later isn't cancelled."""

    def end(self) -> bool:
        """Cancel what is left of it after a failure; returns whether none of its tasks runs."""


class _JobGroup:
    """Work in a job group."""

    def __init__(self, spark: SparkSession, name: str):
        self._spark, self._name = spark, name
        self._done: dict[int, SparkJob] = {}

    def __enter__(self) -> None:
        self._spark.sparkContext.setJobGroup(self._name, "compaction_kit", interruptOnCancel=True)

    def __exit__(self, *_: object) -> None:
        # The thread ends, and its group with it.
        pass

    def look(self) -> Watched:
        """Add the jobs that have succeeded meanwhile to those done; count the tasks of the others."""
        tracker = self._spark.sparkContext.statusTracker()
        tasks = num_tasks = 0
        for job in tracker.getJobIdsForGroup(self._name):
            info = None if job in self._done else tracker.getJobInfo(job)
            if info is None:
                continue
            stages = [tracker.getStageInfo(stage) for stage in sorted(info.stageIds)]
            span = job_span(self._spark, job) if info.status == "SUCCEEDED" else None
            if span is not None:
                name = stages[-1].name if stages and stages[-1] is not None else ""
                self._done[job] = SparkJob(name, *span)
            else:
                tasks += sum(stage.numCompletedTasks for stage in stages if stage is not None)
                num_tasks += sum(stage.numTasks for stage in stages if stage is not None)
        return Watched(list(self._done.values()), tasks, num_tasks)

    def cancel(self) -> None:
        self._spark.sparkContext.cancelJobGroup(self._name)

    def end(self) -> bool:
        self.cancel()
        tracker = self._spark.sparkContext.statusTracker()
        found = map(tracker.getJobInfo, tracker.getJobIdsForGroup(self._name))
        jobs = [job for job in found if job is not None]
        stages = (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds)
        return not any(job.status == "RUNNING" for job in jobs) and not any(
            stage.numActiveTasks for stage in stages if stage is not None
        )


class _Tagged:
    """Work over Spark Connect, under a tag.

    The server reports the stages of an operation while it runs, every two seconds by default
    (spark.connect.progress.reportInterval), and keeps what it hasn't reported when that ends.
    """

    def __init__(self, spark: SparkSession, name: str):
        self._spark, self._name = spark, name
        self._thread: int | None = None
        # Tasks done and tasks, by the stage's number; and when a stage was first told of.
        self._tasks: dict[int, tuple[int, int]] = {}
        self._starts: dict[int, float] = {}
        self._done: dict[int, SparkJob] = {}

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        self._spark.addTag(self._name)
        self._spark.registerProgressHandler(self)  # type: ignore[arg-type]

    def __exit__(self, *_: object) -> None:
        self._spark.removeProgressHandler(self)  # type: ignore[arg-type]
        self._spark.removeTag(self._name)

    def __call__(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Take a report; the client calls it in the thread that waits for the operation."""
        if threading.get_ident() != self._thread:
            return
        now = time.time()
        for stage in stages or ():
            number, count = stage.stage_id, stage.num_tasks
            self._tasks[number] = stage.num_completed_tasks, count
            start = self._starts.setdefault(number, now)
            if stage.done and number not in self._done:
                self._done[number] = SparkJob("", start, now, count)

    def look(self) -> Watched:
        done, tasks = (sum(counts) for counts in zip((0, 0), *self._tasks.values(), strict=True))
        return Watched(list(self._done.values()), done, tasks)

    def cancel(self) -> None:
        self._spark.interruptTag(self._name)

    def end(self) -> bool:
        # Of tasks nothing is told any more; those of bins that were about to begin may still run.
        return not self._spark.interruptTag(self._name)


def _marked(spark: SparkSession) -> _Marked:
    name = f"compaction-kit-{uuid.uuid4().hex[:8]}"
    return _JobGroup(spark, name) if has_jvm(spark) else _Tagged(spark, name)


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
    marked = _marked(spark)
    return _run(spark, work, marked, lambda: watch(marked.look()), is_final)


def run_cancellable(
    spark: SparkSession, work: Callable[[], T], tick: Callable[[], object], is_final: bool = True
) -> T:
    """Call `work` as `run_watched` does, for a `tick` that asks nothing about its jobs."""
    return _run(spark, work, _marked(spark), tick, is_final)


def _run(
    spark: SparkSession, work: Callable[[], T], marked: _Marked, tick: Callable[[], object], is_final: bool
) -> T:
    def body() -> T:
        with marked:
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
    """Cancel what is left of work that has failed or was cancelled, and wait until none of its tasks runs.

    They may still write files. Delta rewrites bins in threads of its own, whose jobs go on when the first has
    failed.
    """
    end = time.monotonic() + _ENDING_SECONDS
    with contextlib.suppress(Exception):
        while time.monotonic() < end and not marked.end():
            time.sleep(POLL_SECONDS / 2)


def in_thread(spark: SparkSession, work: Callable[[], T]) -> Future[T]:
    """Begin some work that may use Spark in a thread of its own, which ends with the program."""
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
