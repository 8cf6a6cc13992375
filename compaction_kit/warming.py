"""Get a Spark session, and warm a new one: its first compaction then takes no longer than later ones.

Half of a first run's seconds, and most of its processor time, go to Java, which loads Delta's classes and
compiles what is run often, and to Python workers, which import pyarrow. Only a run of some hundred files
brings that about; so a small table is compacted while the session has nothing to do.
"""

import atexit
import contextlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

from pyspark import RDD
from pyspark.sql import SparkSession

from compaction_kit import datasets, session
from compaction_kit.errors import RunCancelled
from compaction_kit.execute.jvm import other_jobs
from compaction_kit.table import open_table

_TAG = "compaction-kit-warming"
# How long the session has to be idle before it is warmed, and how often it is asked.
_IDLE_SECONDS, _POLL_SECONDS = 1.0, 0.1
# How often warming is begun anew after it gave way.
_TRIES = 5
# Fewer files are read before Java has found what is worth compiling.
_SHAPE = {"partitions": 3, "files": 100, "rows": 300, "commits": 60}
# How long the end of the program waits, so that no file is left.
_ENDING_SECONDS = 1.0
# The JVM is warm, as long as this process runs; or the process is about to end.
_WARM, _ENDING = threading.Event(), threading.Event()


def get_spark(config: Mapping[str, Any] | None = None, s3: bool = False, warm: bool = True) -> SparkSession:
    """Return the active Spark session if it can read Delta, else start a local one.

    A new session runs in this process on all cores. It has Delta's JARs (downloaded once, then
    kept in the user's cache folder) and settings for one machine; Spark writes its messages to a
    log file, not to the screen. After the first program that used it has ended, a process of the least
    priority archives Java's classes in that folder, with which later sessions start faster.

    Where the environment's SPARK_REMOTE names a server of Spark Connect, a session of that server's is
    started instead.

    Args:
        config: Spark settings for a new session, which override those of the kit; the JARs of
            "spark.jars.packages" come along with Delta's. An active session is not changed.
        s3: Whether a new session is for tables on S3 ("s3a://bucket/table"): it has the JARs, and runs more
            tasks at once than there are cores, as they wait for the store. Give the keys
            and the endpoint by `config`, as Hadoop's S3A takes them ("spark.hadoop.fs.s3a.endpoint"), or
            by the environment ("AWS_ACCESS_KEY_ID").
        warm: Whether a new local session compacts a small table of its own in the background, in a
            temporary folder, so that your first run is as fast as later ones. It waits until the session is
            idle, and stops when another Spark job starts. It needs the deltalake package, and is never
            done where the environment has CI.

    Raises:
        SessionError: The active session can't read Delta, there is no Java that fits, or Spark did
            not start.

    Examples:
        >>> ck.get_spark().range(3).count()
        3
    """
    return session.get_spark(config, s3, _warm_in_background if warm else None)


def _warm_in_background(spark: SparkSession) -> None:
    is_local = re.match(r"local($|\[)", spark.sparkContext.master or "")
    # A JVM that was started by another process may be warm, and have other work.
    if not is_local or _WARM.is_set() or {"CI", "PYSPARK_GATEWAY_PORT"} & os.environ.keys():
        return
    thread = threading.Thread(
        target=_warm, args=(_another(spark),), name="compaction-kit-warming", daemon=True
    )
    thread.start()
    atexit.register(_end, thread)


def _another(spark: SparkSession) -> SparkSession:
    """Another session of the same context: a run sets settings of its session, the user's keeps its own."""
    to_df = RDD.toDF
    try:
        return spark.newSession()
    finally:
        # PySpark lets the session made last turn RDDs into DataFrames.
        RDD.toDF = to_df  # type: ignore[method-assign]


def _end(thread: threading.Thread) -> None:
    _ENDING.set()
    thread.join(_ENDING_SECONDS)


def _warm(spark: SparkSession) -> None:
    # Nobody has asked for it: if it fails, as when the session is stopped or deltalake is missing, the first
    # run takes as long as it would have.
    with contextlib.suppress(Exception):
        spark.sparkContext.addJobTag(_TAG)
        _wait_until_idle(spark)
        parent = (spark.sparkContext.getConf().get("spark.local.dir") or "").partition(",")[0]
        with tempfile.TemporaryDirectory(
            prefix="compaction-kit-", dir=parent or None, ignore_cleanup_errors=True
        ) as folder:
            plan = open_table(datasets.shaped_table(folder, **_SHAPE), spark).plan_compaction()
            for _ in range(_TRIES):
                with contextlib.suppress(RunCancelled):
                    plan.run(strategy="arrow", progress=lambda _: _give_way(spark))
                    _WARM.set()
                    return
                _wait_until_idle(spark)


def _wait_until_idle(spark: SparkSession) -> None:
    since = time.monotonic()
    while time.monotonic() - since < _IDLE_SECONDS:
        if _ENDING.wait(_POLL_SECONDS):
            raise RunCancelled("The program ends.")
        if other_jobs(spark, _TAG):
            since = time.monotonic()


def _give_way(spark: SparkSession) -> None:
    if _ENDING.is_set() or other_jobs(spark, _TAG):
        raise RunCancelled("The session has other work.")
