"""Get a Spark session that reads Delta: the active one, else a new local one."""

import atexit
import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pyspark import SparkContext
from pyspark.sql import SparkSession

from compaction_kit.compat import check_pair, error_logger
from compaction_kit.errors import SessionError
from compaction_kit.java import find_java_home
from compaction_kit.sql import uri

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
# Two threads of a notebook that need a session get the same one.
_STARTING = threading.Lock()
# Prefix of a process's own folder in the temporary folder, and its log in there.
_SCRATCH, _LOG_NAME = "compaction-kit-spark-", "spark.log"
# Open as long as this process runs, which locks them.
_LOGS: list[BinaryIO] = []
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def get_spark(config: Mapping[str, Any] | None = None) -> SparkSession:
    """Return the active Spark session if it can read Delta, else start a local one.

    A new session runs in this process on all cores. It has Delta's JARs (downloaded once, then
    kept in the user's cache folder) and settings for one machine; Spark writes its messages to a
    log file, not to the screen.

    Args:
        config: Spark settings for a new session, which override those of the kit. An active session
            is not changed.

    Raises:
        SessionError: The active session can't read Delta, there is no Java that fits, or Spark did
            not start.

    Examples:
        >>> ck.get_spark().range(3).count()
        3
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
    """Return the session that is running in this process, if any."""
    session = SparkSession.getActiveSession()
    if session is None and SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return session


@contextlib.contextmanager
def quiet_errors() -> Iterator[None]:
    """Stop PySpark from logging the Java stack trace of errors that it raises."""
    logger = error_logger("SQLQueryContextLogger")
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
        # Otherwise Spark makes a folder for managed tables in the notebook's folder.
        "spark.sql.warehouse.dir": uri(_cache_folder() / "warehouse"),
        "spark.local.dir": str(scratch),
        "spark.driver.defaultJavaOptions": f'"-Djava.io.tmpdir={scratch}"',
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # The defaults are for clusters: 200 shuffle partitions, 50 for a snapshot, and up to
        # 10,000 tasks to list the folders of one VACUUM.
        "spark.sql.shuffle.partitions": 2 * cores,
        "spark.databricks.delta.snapshotPartitions": cores,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
    }


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "compaction-kit"


def _add_delta(builder: SparkSession.Builder) -> Path:
    """Add Delta's JARs to a new session.

    Returns:
        The file to create once the session runs: it marks that the cache holds all JARs.

    Raises:
        SessionError: Delta's Python package, which says what to download, is missing, or for another Spark.
    """
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as error:
        raise SessionError(
            "Delta's Python package is missing, so no session can be started: pip install delta-spark, "
            "or start a session that has Delta's JARs."
        ) from error
    check_pair()
    coordinates = configure_spark_with_delta_pip(SparkSession.Builder())._options["spark.jars.packages"]
    folder = _cache_folder() / f"jars-{coordinates.replace(':', '-')}"
    complete = folder / "complete"
    if complete.exists():
        builder.config("spark.jars", ",".join(map(str, sorted(folder.glob("jars/*.jar")))))
    else:
        configure_spark_with_delta_pip(builder.config("spark.jars.ivy", str(folder)))
    return complete


def _scratch_folder() -> Path:
    """Make the folder for Spark's temporary files; delete those of processes that have ended.

    This process and its Java, which writes to the log, hold a lock on the folder's log. So a folder is
    in use while one of them runs, in whatever container.
    """
    place = Path(tempfile.gettempdir())
    for folder in place.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError), (folder / _LOG_NAME).open("rb") as old:
            fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Does not follow a link.
            shutil.rmtree(folder)
    # Renamed only when locked: otherwise another process could delete it.
    new = Path(tempfile.mkdtemp(prefix="compaction-kit-new-"))
    log = (new / _LOG_NAME).open("ab")
    fcntl.flock(log, fcntl.LOCK_EX)
    folder = new.rename(place / f"{_SCRATCH}{new.name.rpartition('-')[2]}")
    _LOGS.append(log)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def _java_home(home: Path) -> Iterator[None]:
    """Set JAVA_HOME for processes started in this context."""
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
    """Send the output and messages of processes started in this context to a file, as long as they run."""
    sys.stdout.flush()
    sys.stderr.flush()
    # Java prints as well: VACUUM prints how many files it has deleted.
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
    """Return in one sentence why Spark did not start."""
    log = log_path.read_text(errors="replace")
    if "unresolved dependency" in log or "Server access error" in log:
        return (
            "Delta's JARs could not be downloaded; check that Maven Central can be reached, then try again."
        )
    errors = [line.strip() for line in log.splitlines() if "Exception" in line or "Error" in line]
    return errors[-1] if errors else str(error).strip().splitlines()[0]
