import contextlib
import time

import pytest
from pyspark.sql import SparkSession

from compaction_kit.execute.jobs import WorkCancelled, in_thread, run_watched, session_confs

pytestmark = pytest.mark.spark

SET, UNSET = "spark.sql.shuffle.partitions", "spark.databricks.delta.optimize.minFileSize"


class Stop(Exception):
    pass


def test_jobs_that_failed_work_leaves_behind_are_over_when_its_error_is_told(spark: SparkSession) -> None:
    """As OPTIMIZE leaves those of its other bins."""
    tracker = spark.sparkContext.statusTracker()
    groups: list[str] = []

    def work() -> None:
        groups.append(spark.sparkContext.getLocalProperty("spark.jobGroup.id") or "")
        rows = spark.sql("SELECT java_method('java.lang.Thread', 'sleep', 3600000L) FROM range(2)")
        in_thread(spark, rows.collect)
        while not tracker.getJobIdsForGroup(groups[0]):
            time.sleep(0.01)
        raise Stop

    with pytest.raises(Stop):
        run_watched(spark, work, lambda _: None)
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(groups[0])]
    assert [job.status for job in jobs if job is not None] == ["FAILED"]


def test_work_that_is_done_before_the_cancellation_counts_as_done(spark: SparkSession) -> None:
    def stop(_: object) -> None:
        raise Stop

    def work() -> str:
        time.sleep(0.5)
        return "done"

    assert run_watched(spark, work, stop) == "done"
    with pytest.raises(WorkCancelled):
        run_watched(spark, work, stop, is_final=False)


def test_settings_of_blocks_that_overlap_come_back_whichever_ends_first(spark: SparkSession) -> None:
    before = spark.conf.get(SET)
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(session_confs(spark, {SET: "7", UNSET: "7"}))
        second.enter_context(session_confs(spark, {SET: "8", UNSET: "8"}))
        first.close()
        assert (spark.conf.get(SET), spark.conf.get(UNSET)) == ("8", "8")
        second.close()
        assert (spark.conf.get(SET), spark.conf.get(UNSET, None)) == (before, None)
        second.enter_context(session_confs(spark, {UNSET: "7"}))
        first.enter_context(session_confs(spark, {UNSET: "8"}))
        first.close()
        assert spark.conf.get(UNSET) == "7"
    assert spark.conf.get(UNSET, None) is None
