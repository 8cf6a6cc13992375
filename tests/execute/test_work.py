import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from compaction_kit.compat import create_frame
from compaction_kit.execute import CompactionResult, Progress
from compaction_kit.execute.jobs import WorkCancelled, in_thread, run_watched, session_confs
from compaction_kit.execute.work import ProgressBar, Recorder
from compaction_kit.verify import Fingerprint
from tests.releases import since_spark


def test_the_bar_shows_each_step_though_nothing_is_added(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    for step, fraction in (("Reading", 0.0), ("Rewriting", 0.8), ("Comparing", 0.8)):
        time.sleep(0.15)  # as often as a run reports, or a bit less
        bar(Progress(step, fraction, 1, 4, 12.0))
    bar.close()
    shown = capsys.readouterr().err
    assert "Rewriting, 1 of 4 bins |" in shown
    assert "Comparing, 1 of 4 bins |" in shown
    assert " 80 %" in shown
    assert shown.endswith("\r")


def test_a_clock_that_is_set_back_changes_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Recorder(lambda _: None, Mock(num_bins=1, bytes_removed=1), verify=True)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= record.seconds < 60


SET, UNSET = "spark.sql.shuffle.partitions", "spark.databricks.delta.optimize.minFileSize"


class Stop(Exception):
    pass


def test_jobs_that_failed_work_leaves_behind_are_over_when_its_error_is_told(spark: SparkSession) -> None:
    """When OPTIMIZE fails, it leaves the jobs of its other bins behind."""
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


def test_what_others_set_meanwhile_stays(spark: SparkSession) -> None:
    with session_confs(spark, {UNSET: "7"}):
        spark.conf.set(UNSET, "9")
    assert spark.conf.get(UNSET) == "9"
    spark.conf.unset(UNSET)


@since_spark("4.0")
def test_frames_that_are_made_at_once_leave_the_active_session(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    making, most, create = list[int](), 0, SparkSession.createDataFrame

    def slow(*args: Any) -> DataFrame:
        nonlocal most
        making.append(1)
        most = max(most, len(making))
        time.sleep(0.05)
        making.pop()
        return create(*args)

    monkeypatch.setattr(SparkSession, "createDataFrame", slow)
    with ThreadPoolExecutor() as pool:
        sessions = [spark.newSession() for _ in range(3)]
        list(pool.map(create_frame, sessions, [pa.table({"id": [1]})] * 3))
    assert (most, SparkSession.active()) == (1, spark)


def facts_of(**changes: Any) -> dict[str, str]:
    before, after = np.array([4] * 1_201), np.array([1_024, 1_024, 4])
    known: dict[str, Any] = {"num_bins": 2, "num_files_added": 2, "num_files_removed": 1_200}
    known |= {"bytes_added": 2_048, "bytes_removed": 4_096} | changes
    result = CompactionResult("optimize", "as asked for", before, after, (5,), **known)
    return dict(re.split("  +", line, maxsplit=1) for line in result.summary().splitlines())


def test_the_summary_tells_the_outcome_fact_by_fact() -> None:
    assert facts_of(seconds=1.25, verified=True, fingerprint=Fingerprint(7, (1, 2))) == {
        "version": "5, by optimize",
        "files": "1,200 → 2 (the table: 1,201 → 3)",
        "bytes": "4 KiB → 2 KiB",
        "bins": "2, as planned",
        "content": "identical: 7 rows, 2 hashes over every column",
        "seconds": "1.2",
        "strategy": "as asked for",
    }


def test_the_summary_does_not_claim_what_was_not_done() -> None:
    reasons = {1: "a file has a deletion vector", 3: "a file has a deletion vector", 4: "it is odd"}
    facts = facts_of(as_planned=False, refusals=reasons, peak_bytes=2_048, proof_reason="of a type")
    assert (facts["content"], facts["bins"]) == ("not compared (of a type)", "2, NOT as planned")
    assert facts["memory"].startswith("2 KiB at most")
    assert facts["left alone"] == "3 bins: a file has a deletion vector; it is odd"
