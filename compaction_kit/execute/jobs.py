"""Run Spark work so that its progress can be watched and it can be cancelled."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pyspark import InheritableThread, SparkContext
from pyspark.sql import SparkSession

T = TypeVar("T")
_POLL_SECONDS = 0.1


def run_watched(spark: SparkSession, work: Callable[[], T], watch: Callable[[list[str]], None]) -> T:
    """Call `work` in a thread of its own, in a Spark job group, until it is done.

    Args:
        spark: The session that `work` uses.
        work: The Spark work.
        watch: Called about ten times a second with the names of the jobs that are done. When it
            raises, or Ctrl-C is pressed, the group's jobs are cancelled.

    Returns:
        What `work` returned, even if a cancellation came too late to stop it.

    Raises:
        BaseException: What `work` raised, or what `watch` raised if that stopped it.
    """
    group = f"compaction-kit-{uuid.uuid4().hex[:8]}"
    context = spark.sparkContext
    outcome: dict[str, Any] = {}

    def body() -> None:
        context.setJobGroup(group, "compaction_kit", interruptOnCancel=True)
        try:
            outcome["value"] = work()
        except BaseException as error:
            outcome["error"] = error

    thread = InheritableThread(target=body, daemon=True)
    thread.start()
    done: dict[int, str] = {}
    stopped: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join(_POLL_SECONDS)
            if stopped is None:
                _add_done(context, group, done)
                watch(list(done.values()))
            else:
                # Again and again: a cancellation before the first job starts is lost.
                context.cancelJobGroup(group)
        except BaseException as error:
            stopped = error
    if "value" in outcome:
        return outcome["value"]  # type: ignore[no-any-return]
    raise stopped or outcome["error"]


def _add_done(context: SparkContext, group: str, done: dict[int, str]) -> None:
    """Add the jobs that have succeeded meanwhile, by number, with the name of their last stage."""
    tracker = context.statusTracker()
    for job in tracker.getJobIdsForGroup(group):
        info = None if job in done else tracker.getJobInfo(job)
        if info is not None and info.status == "SUCCEEDED":
            stage = tracker.getStageInfo(max(info.stageIds)) if info.stageIds else None
            done[job] = stage.name if stage is not None else ""


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
