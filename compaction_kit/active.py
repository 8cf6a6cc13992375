"""Find the Spark session that runs in this process, without loading PySpark."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from compaction_kit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def active_spark(given: SparkSession | None = None) -> SparkSession | None:
    """Return the given session or, if there is none or it has ended, the one that runs in this process."""
    if given is not None and not hasattr(type(given), "sql"):
        raise InvalidArgumentError(f"spark={given!r} is no Spark session: give one, or leave it out.")
    # If nothing has imported PySpark, no session runs.
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if given is None or _has_ended(given):
        given, context = None, SparkContext._active_spark_context
        if context is None or not has_lost_java(context._gateway):
            # This raises an error if there is no session, or if its Java has ended.
            with contextlib.suppress(PySparkException, OSError):
                given = SparkSession.active()
    return None if given is None or _has_ended(given) else given


def has_lost_java(gateway: Any) -> bool | None:
    """Return whether PySpark's Java has ended, or is a parent process's; None if PySpark didn't start it.

    A process must not call the Java of its parent: both would get each other's answers.
    """
    java = getattr(gateway, "proc", None)
    # For a process that isn't a child of this one, poll() returns 0.
    return None if java is None else java.poll() is not None


def _has_ended(session: SparkSession) -> bool:
    from py4j.protocol import Py4JError

    # Over Spark Connect, a session has no context.
    if (context := getattr(session, "_sc", None)) is None:
        return session.is_stopped  # type: ignore[attr-defined]
    if context._jsc is None:
        return True
    if (is_lost := has_lost_java(context._gateway)) is not None:
        return is_lost
    with contextlib.suppress(Py4JError, OSError):
        # If another program has started Java, Java itself is asked, which takes longer.
        return bool(context._jsc.sc().isStopped())
    return True
