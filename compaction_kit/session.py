"""A Spark session that reads Delta: the one that is running, else a quiet local one."""

import atexit
import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

from py4j.java_gateway import JavaClass
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from compaction_kit.errors import SessionError
from compaction_kit.java import find_java_home
from compaction_kit.sql import uri

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
# Two threads of a notebook that both want a session get the same one.
_STARTING = threading.Lock()
# What a process has of its own in the temporary folder, and the log in there.
_SCRATCH, _LOG_NAME = "compaction-kit-spark-", "spark.log"
# Open as long as this process runs.
_LOGS: list[BinaryIO] = []
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


def has_jvm(spark: SparkSession) -> bool:
    """Whether the session has a JVM in reach; one over Spark Connect hasn't."""
    return hasattr(spark, "_jsparkSession")


def delta_version(spark: SparkSession | None) -> str | None:
    """The version of Delta: of the session's JARs, else of the Python package; None if there is neither."""
    if spark is not None and has_jvm(spark):
        return str(getattr(java_class(spark, "io.delta.package$"), "MODULE$").VERSION())
    with contextlib.suppress(PackageNotFoundError):
        return version("delta-spark")
    return None


def java_class(spark: SparkSession, name: str) -> Any:
    """A Java class by its full name.

    As an attribute of py4j's JVM each part of the name is looked for as a class in all JARs, which
    takes milliseconds.
    """
    return JavaClass(name, spark.sparkContext._gateway._gateway_client)  # type: ignore[union-attr]


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
    scratch = _scratch_folder()
    for key, value in (_laptop_settings(scratch) | dict(config)).items():
        builder = builder.config(key, value)
    complete = _add_delta(builder)
    log_path = scratch / _LOG_NAME
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with _java_home(find_java_home(_cache_folder())), _output_to(_LOGS[-1]):
            spark = builder.getOrCreate()
    except Exception as error:
        raise SessionError(f"Spark did not start: {_reason(log_path, error)}") from error
    complete.parent.mkdir(parents=True, exist_ok=True)
    complete.touch()
    return spark


def _laptop_settings(scratch: Path) -> dict[str, Any]:
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
        "spark.sql.warehouse.dir": uri(_cache_folder() / "warehouse"),
        "spark.local.dir": str(scratch),
        "spark.driver.defaultJavaOptions": f'"-Djava.io.tmpdir={scratch}"',
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


def _add_delta(builder: SparkSession.Builder) -> Path:
    """Have a new session find Delta's JARs.

    Returns:
        The mark that all of them are in the cache, to be set once the session runs.

    Raises:
        SessionError: Delta's Python package, which says what to download, is missing.
    """
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as error:
        raise SessionError(
            "Delta's Python package is missing, so that no session can be started: pip install delta-spark, "
            "or start a session that has Delta's JARs."
        ) from error
    coordinates = configure_spark_with_delta_pip(SparkSession.Builder())._options["spark.jars.packages"]
    folder = _cache_folder() / f"jars-{coordinates.replace(':', '-')}"
    complete = folder / "complete"
    if complete.exists():
        builder.config("spark.jars", ",".join(map(str, sorted(folder.glob("jars/*.jar")))))
    else:
        configure_spark_with_delta_pip(builder.config("spark.jars.ivy", str(folder)))
    return complete


def _scratch_folder() -> Path:
    """A folder for what Spark writes while it runs; those of processes that are gone are deleted.

    Its log is locked by this process and, as it is where that writes to, by Java: a folder is in
    use as long as one of them lives, in whatever container.
    """
    place = Path(tempfile.gettempdir())
    for folder in place.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError), (folder / _LOG_NAME).open("rb") as old:
            fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Not what a link leads to.
            shutil.rmtree(folder)
    # It gets its name when it is locked.
    new = Path(tempfile.mkdtemp(prefix="compaction-kit-new-"))
    log = (new / _LOG_NAME).open("ab")
    fcntl.flock(log, fcntl.LOCK_EX)
    folder = new.rename(place / f"{_SCRATCH}{new.name.rpartition('-')[2]}")
    _LOGS.append(log)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


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
def _output_to(log: BinaryIO) -> Iterator[None]:
    """Processes started meanwhile keep writing to this file: their messages, and what they print."""
    sys.stdout.flush()
    sys.stderr.flush()
    # VACUUM prints how many files it has deleted.
    saved = {number: os.dup(number) for number in (1, 2)}
    try:
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
