"""What a release of Spark or Delta brought: marks for tests that need it, and where Spark keeps its classes.

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
    """A mark for a test that needs what Spark has from this release on."""
    return pytest.mark.skipif(_release(release) > SPARK, reason=f"since Spark {release}")


def since_delta(release: str) -> pytest.MarkDecorator:
    """A mark for a test that needs what Delta has from this release on."""
    return pytest.mark.skipif(_release(release) > DELTA, reason=f"since Delta {release}")


def streaming_class(package: str, name: str) -> str:
    """A class of Spark's streaming; these have been in packages since Spark 4.1."""
    return f"{_STREAMING}.{package}.{name}" if SPARK >= (4, 1) else f"{_STREAMING}.{name}"
