"""What the tests of this folder share: a stream that ran once, which they leave as it is."""

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from compaction_kit.sinklog.policy import Kind, Policy
from tests.sinklog.streams import Stream


@pytest.fixture(scope="package")
def streamed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """26 batches with Spark's default settings."""
    stream = Stream(spark, tmp_path_factory.mktemp("default"))
    stream.run(26)
    return stream


@pytest.fixture(scope="package")
def tuned() -> dict[Kind, Policy]:
    """Policies that clean up soon: another interval for the source than for the sink."""
    at_once = timedelta()
    return {Kind.SINK: Policy(3, 4, at_once), Kind.SOURCE: Policy(4, 4, at_once)}
