"""Lesson 04: how many bins OPTIMIZE rewrites at once, and how many tasks read a bin."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from compaction_kit.errors import CompactionKitError
from compaction_kit.widgets.job import Job, attempt
from course.lab import Choice, Finding, Lab, Steps, run

_READERS = {"one task": False, "several tasks (repartition)": True}
# The figure's height in inches: enough for two runs with 15 bins at once.
_HEIGHT = 6.5
# OPTIMIZE's settings maxThreads and repartition.enabled.
Setting = tuple[int, bool]


def slots(measure: Callable[[int, bool], pa.Table], measured: Mapping[Setting, pa.Table]) -> Lab:
    """Run OPTIMIZE with other settings, in the background, and show its timeline below the first one.

    Args:
        measure: Runs OPTIMIZE on a fresh copy of a table with `max_threads` and `repartition` as
            the session's settings, and returns the result's timeline.
        measured: The timelines measured before, by setting; new ones are compared with the first of them.
    """
    known: dict[Setting, pa.Table | str] = dict(measured)
    first, running, call = next(iter(measured)), Job(), measure.__name__

    def work(setting: Setting) -> None:
        if setting not in known:
            timeline, error = attempt(lambda: measure(*setting))
            known[setting] = error if timeline is None else timeline

    def finding(max_threads: int, repartition: bool) -> Finding:
        setting = (max_threads, repartition)
        if setting not in known:
            running.start_next(lambda _: work(setting))
            return _compared(f"OPTIMIZE runs with {_name(setting)} …", call, known, [first])
        if isinstance(known[setting], str):
            # Remove the error, so that the next choice of this setting tries again.
            raise CompactionKitError(known.pop(setting))
        return _compared(f"Measured: {_name(setting)}.", call, known, dict.fromkeys([first, setting]))

    lab = Lab(
        finding,
        max_threads=Steps("Bins at once, max_threads", (1, 2, 4, 8, 15), first[0]),
        repartition=Choice("A bin is read by", _READERS, first[1]),
    )
    lab.watch(running, ["status"], lambda: not running.running)
    return lab


def bin_jobs(spark: SparkSession, path: str | Path) -> list[tuple[str, list[int]]]:
    """Return the names of OPTIMIZE's Spark jobs for a table's bins, in order, and the tasks of their stages.

    A shuffle has a stage that reads and a stage that writes, in one job or two. Spark Connect shows no jobs.
    """
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)  # type: ignore[union-attr]
    found, tracker = [], spark.sparkContext.statusTracker()
    for job in map(jobs.apply, range(jobs.size())):
        text = job.description()
        place, _, what = (text.get() if text.isDefined() else "").partition("<br/>")
        info = tracker.getJobInfo(job.jobId())
        if what and info and Path(place).name == Path(path).name:
            stages = [tracker.getStageInfo(stage) for stage in sorted(info.stageIds)]
            tasks = [stage.numCompletedTasks for stage in stages if stage and stage.numCompletedTasks]
            found.append((job.jobId(), what.partition(" in ")[0], tasks))
    return [(what, tasks) for _, what, tasks in sorted(found)]


def _compared(
    sentence: str, call: str, known: Mapping[Setting, object], settings: Iterable[Setting]
) -> Finding:
    calls = ", ".join(f"{_name(one)!r}: {call}{one}" for one in settings)
    code = f"""\
from compaction_kit import plots

figure = plots.timelines({{{calls}}})
figure.set_figheight({_HEIGHT})
figure"""
    # Run the shown lines with the known timelines: they would run OPTIMIZE again, and measure other times.
    return Finding(sentence, run(code, {call: lambda *setting: known[setting]}), code)


def _name(setting: Setting) -> str:
    return f"max_threads={setting[0]}, repartition={setting[1]}"
