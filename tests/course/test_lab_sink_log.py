"""The model of lesson 08's lab: which files of a sink's log are left, as Spark's own class leaves them."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from course.labs.sink_log import KEPT, NEEDED, REMOVED, LogFiles
from pyspark.sql import SparkSession

from compaction_kit import sink_log
from compaction_kit.sinklog.policy import Kind, Policy
from compaction_kit.times import millis
from tests.sinklog.streams import SparkLog, make_log, names_after, names_in, policies

AT_ONCE = timedelta(0)


@pytest.mark.spark
@pytest.mark.parametrize(("interval", "retained"), [(3, 2), (4, 5)])
def test_files_are_left_as_by_spark(
    spark: SparkSession, tmp_path: Path, interval: int, retained: int
) -> None:
    folder, policy = tmp_path / "output" / "_spark_metadata", Policy(interval, retained, AT_ONCE)
    with policies(spark, {Kind.SINK: policy}):
        log = SparkLog(spark, folder, Kind.SINK)
        for batch in range(14):
            log.add(batch)
            model = LogFiles(policy, batch)
            assert sorted(model.names(NEEDED, KEPT)) == sorted(names_in(folder))
            assert model.names(NEEDED) == [file.name for file in sink_log(folder, policy=policy).needed]


def test_a_delay_keeps_files_for_as_many_batches_as_a_projection_does(tmp_path: Path) -> None:
    policy = Policy(3, 2, timedelta(minutes=7))
    log = sink_log(make_log(tmp_path / "_spark_metadata", b0="v1"), policy=policy)
    # The first of the batches to come is written when the log is read.
    began = millis(log.read_at) / 1_000 - 60
    os.utime(tmp_path / "_spark_metadata" / "0", (began, began))
    log = sink_log(tmp_path / "_spark_metadata", policy=policy)
    projected = log.project(30, seconds_between=60)
    for batch in range(1, 30):
        assert LogFiles(policy, batch).names(NEEDED, KEPT) == names_after(log, projected, batch), batch
    assert LogFiles(policy, 29).names(REMOVED)
