"""A Spark session that reads Delta: the one that is running, else a quiet local one."""

import atexit
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
from delta import configure_spark_with_delta_pip
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from compaction_kit.errors import SessionError
from compaction_kit.java import find_java_home

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
# Two threads of a notebook that both want a session get the same one.
_STARTING = threading.Lock()
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def get_spark(config: Mapping[str, Any] | None = None) -> SparkSession:
    """The active Spark session if it can read Delta, else a new local one.

    A new session runs in this process on all cores, has Delta's JARs (downloaded once, then
    kept in the user's cache folder) and settings fit for one machine; Spark's own messages go
    to a log file instead of the screen.

    Args:
        config: Spark settings for a new session, over ours. An active session is not changed.

    Returns:
        The session.

    Raises:
        SessionError: The active session can't read Delta, there is no Java 17, or Spark did
            not start.
    """
    with _STARTING:
        active = active_spark()
        if active is None:
            return _start(config or {})
    if _EXTENSION not in (active.conf.get("spark.sql.extensions", "") or ""):
        raise SessionError(
            "The active Spark session can't read Delta: stop it (spark.stop()) and restart the "
            f"kernel, or start it with spark.sql.extensions={_EXTENSION}."
        )
    return active


def active_spark() -> SparkSession | None:
    """The session that is running in this process, if any."""
    session = SparkSession.getActiveSession()
    if session is None and SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return session


@contextlib.contextmanager
def quiet_errors() -> Iterator[None]:
    """Keep PySpark from logging the Java stack trace of each error that is raised anyway."""
    # Through PySpark's getLogger: a logger that is first made by logging.getLogger stays a plain
    # one, and PySpark would fail on it with a TypeError at each later error.
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _start(config: Mapping[str, Any]) -> SparkSession:
    builder = SparkSession.builder.master("local[*]").appName("compaction_kit")
    for key, value in (_laptop_settings() | dict(config)).items():
        builder = builder.config(key, value)
    jars_folder = _cache_folder() / f"jars-{pyspark.__version__}"
    complete = jars_folder / "complete"
    if complete.exists():
        builder = builder.config("spark.jars", ",".join(map(str, sorted(jars_folder.glob("jars/*.jar")))))
    else:
        builder = configure_spark_with_delta_pip(builder.config("spark.jars.ivy", str(jars_folder)))
    log_path = _log_file()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with _java_home(find_java_home(_cache_folder())), _output_to(log_path):
            spark = builder.getOrCreate()
    except Exception as error:
        raise SessionError(f"Spark did not start: {_reason(log_path, error)}") from error
    complete.parent.mkdir(parents=True, exist_ok=True)
    complete.touch()
    return spark


def _laptop_settings() -> dict[str, Any]:
    cores = os.cpu_count() or 2
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.catalog.spark_catalog": _CATALOG,
        "spark.driver.memory": f"{max(1, min(8, int(memory_gib / 4)))}g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Else Spark makes a folder for managed tables wherever a notebook happens to be.
        "spark.sql.warehouse.dir": str(_cache_folder() / "warehouse"),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Spark's and Delta's defaults are for clusters: 200 shuffle partitions, 50 for a
        # snapshot, and up to 10,000 tasks to list the folders of one VACUUM.
        "spark.sql.shuffle.partitions": 2 * cores,
        "spark.databricks.delta.snapshotPartitions": cores,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
    }


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "compaction-kit"


def _log_file() -> Path:
    handle, name = tempfile.mkstemp(prefix="compaction-kit-spark-", suffix=".log")
    os.close(handle)
    atexit.register(Path(name).unlink, missing_ok=True)
    return Path(name)


@contextlib.contextmanager
def _java_home(home: Path) -> Iterator[None]:
    """JAVA_HOME for the processes started meanwhile."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Processes started meanwhile keep writing to this file: their messages, and what they print."""
    sys.stdout.flush()
    sys.stderr.flush()
    # VACUUM prints how many files it has deleted.
    saved = {number: os.dup(number) for number in (1, 2)}
    try:
        with path.open("ab") as log:
            for number in saved:
                os.dup2(log.fileno(), number)
        yield
    finally:
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)


def _reason(log_path: Path, error: Exception) -> str:
    """Why Spark did not start, in one sentence."""
    log = log_path.read_text(errors="replace")
    if "unresolved dependency" in log or "Server access error" in log:
        return (
            "Delta's JARs could not be downloaded; check that Maven Central can be reached, then try again."
        )
    errors = [line.strip() for line in log.splitlines() if "Exception" in line or "Error" in line]
    return errors[-1] if errors else str(error).strip().splitlines()[0]
