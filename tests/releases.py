"""Marks for tests that need a release of Spark or Delta, and the places of Spark's classes in a release.

`make compat` runs the tests with older pairs of Spark and Delta.
"""

from importlib.metadata import version

import pytest

Release = tuple[int, ...]


def _release(text: str) -> Release:
    return tuple(map(int, text.split(".")[:2]))


SPARK, DELTA = _release(version("pyspark")), _release(version("delta-spark"))
# Since Delta 4.1: time travel is guarded, and VACUUM ignores RETAIN.
HAS_GUARD = DELTA >= (4, 1)
# Since Delta 4.3 OPTIMIZE compares partition values as typed, not as written.
GROUPS_BY_TYPE = DELTA >= (4, 3)
_STREAMING = "org.apache.spark.sql.execution.streaming"


def since_spark(release: str) -> pytest.MarkDecorator:
    """Return a mark for a test that needs this release of Spark or a later one."""
    return pytest.mark.skipif(_release(release) > SPARK, reason=f"since Spark {release}")


def since_delta(release: str) -> pytest.MarkDecorator:
    """Return a mark for a test that needs this release of Delta or a later one."""
    return pytest.mark.skipif(_release(release) > DELTA, reason=f"since Delta {release}")


def streaming_class(package: str, name: str) -> str:
    """Return the name of a class of Spark's streaming; these classes are in packages since Spark 4.1."""
    return f"{_STREAMING}.{package}.{name}" if SPARK >= (4, 1) else f"{_STREAMING}.{name}"
