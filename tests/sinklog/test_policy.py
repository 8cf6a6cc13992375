"""When a log is compacted and which files are kept, compared with Spark's own class."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from compaction_kit import sink_log
from compaction_kit.compat import java_class
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.sinklog.policy import Kind, Policy, setting
from tests.chance import examples
from tests.refusals import refused
from tests.releases import streaming_class
from tests.sinklog.streams import SparkLog, make_log, names_after, names_in, policies

DELAYS = st.sampled_from([timedelta(), timedelta(hours=1)])
SHORT = Policy(3, 2, timedelta())
POLICIES = st.builds(Policy, st.integers(1, 5), st.integers(1, 6), DELAYS, st.booleans())


@pytest.mark.spark
def test_a_changed_interval_is_made_to_fit_as_spark_does_it(spark: SparkSession, tmp_path: Path) -> None:
    spark_log = java_class(spark, streaming_class("runtime", "CompactibleFileStreamLog"))
    derive = spark_log.deriveCompactInterval
    for length in (1, 2, 6, 7, 12, 30):
        folder = make_log(tmp_path / str(length) / "_spark_metadata", **{f"c{length - 1}": "v1"})
        for default in (1, 2, 3, 5, 6, 7, 13, 40):
            interval = sink_log(folder, policy=Policy(default)).compact_interval
            assert interval == derive(default, length - 1), (default, length)
    folder = make_log(tmp_path / "_spark_metadata", **dict.fromkeys(("c2", "b5", "c8", "c11"), "v1"))
    assert sink_log(folder, policy=Policy(default_interval=10)).compact_interval == 3


@pytest.mark.spark
def test_a_session_says_what_it_is_set_to_and_else_sparks_defaults(spark: SparkSession) -> None:
    assert Policy.of_session(Kind.SINK, spark.conf.get) == Policy()
    assert Policy.of_session(Kind.SINK, lambda key: None) == Policy()
    own = Policy(3, 2, timedelta(), deletion=False)
    with policies(spark, {Kind.SOURCE: own}):
        assert Policy.of_session(Kind.SOURCE, spark.conf.get) == own
        assert Policy.of_session(Kind.SINK, spark.conf.get) == Policy(min_batches_to_retain=2)
    delay, interval = (setting(Kind.SINK, name) for name in ("cleanupDelay", "compactInterval"))
    for text in ("600000ms", "600000", "600s", "10m", "10min"):
        assert Policy.of_session(Kind.SINK, {delay: text}.get) == Policy()
    said = f"{interval}=0 is out of range: give a whole number from 1 on"
    refused(partial(Policy.of_session, Kind.SINK, {interval: "0"}.get), InvalidArgumentError, said)


@pytest.mark.parametrize("setting", [{"min_batches_to_retain": "3"}, {"cleanup_delay": "10min"}])
def test_a_policy_of_wrong_values_is_refused_when_it_is_made(setting: dict[str, Any]) -> None:
    refused(partial(Policy, **setting), InvalidArgumentError, *setting, *setting.values())


@pytest.mark.spark
@pytest.mark.long
@settings(examples(3, divided_by=250))
@example(kind=Kind.SINK, first=Policy(), second=SHORT, num_before=4)
@given(kind=st.sampled_from(Kind), first=POLICIES, second=POLICIES, num_before=st.integers(1, 9))
def test_what_a_projection_says_is_on_disk_is_what_sparks_own_log_leaves(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    kind: Kind,
    first: Policy,
    second: Policy,
    num_before: int,
) -> None:
    """Batches under one policy, a restart under another one, and the failures that this may cause."""
    folder = tmp_path_factory.mktemp("log") / ("_spark_metadata" if kind == Kind.SINK else "sources/0")
    with policies(spark, {kind: first}):
        log = SparkLog(spark, folder, kind)
        for batch in range(num_before):
            log.add(batch)
    read = sink_log(folder, policy=second)
    projection = read.project(9, seconds_between=0)
    with policies(spark, {kind: second}):
        log = SparkLog(spark, folder, kind)
        try:
            log.read()
        except Py4JJavaError:
            # The interval is too short for the existing compactions.
            return
        for batch in projection.batches["batch"].to_pylist():
            log.add(batch)
            assert names_in(folder) == names_after(read, projection, batch)
