"""Find the Spark session that runs in this process, without loading PySpark."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def active_spark() -> SparkSession | None:
    """Return the session that is running in this process, if any."""
    # Where nothing has imported PySpark, no session runs.
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    session = SparkSession.getActiveSession()
    if session is None and is_remote():
        # Over Spark Connect each thread has an active session of its own.
        with contextlib.suppress(PySparkException):
            return SparkSession.active()
    elif session is None and SparkSession._instantiatedSession is not None:
        # Not while one starts: this would wait for it.
        return SparkSession.builder.getOrCreate()
    return session
