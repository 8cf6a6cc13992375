"""Hide the differences between releases of Spark and Delta: no other module asks for a version.

The kit runs on Delta 3.3 with Spark 3.5, 4.0 with 4.0, 4.3 with 4.1 and 4.4 with 4.2. Each function names the
release that introduced the difference.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StructType, _parse_datatype_string

from compaction_kit.errors import SessionError

# The logger with which PySpark logs the errors that it raises: its own class since Spark 4.0.
error_logger: Callable[[str], logging.Logger]
try:
    from pyspark.logger import PySparkLogger

    # Not logging.getLogger: with its logger, PySpark would raise a TypeError at each later error.
    error_logger = PySparkLogger.getLogger
except ImportError:
    error_logger = logging.getLogger

# PySpark has one active session per process.
_ACTIVATING = threading.Lock()
# Hadoop's releases, and the SDK's for their S3A; 3.4.1 names 2.24.6, without a published transfer manager.
_SDKS = {"3.4.1": "2.24.8", "3.4.2": "2.29.52", "3.5.0": "2.35.4"}


def java_releases() -> tuple[int, int | None]:
    """Return the oldest and newest release of Java that the installed Spark runs on; None for no newest."""
    spark = _release(pyspark.__version__)
    # Before Spark 4.2 Hadoop calls Subject.getSubject, which Java 23 removed.
    return 17 if spark >= (4, 0) else 8, None if spark >= (4, 2) else 22


def check_pair() -> None:
    """Raise SessionError for Delta 4.0 on another Spark; pip refuses other pairs that don't fit."""
    with contextlib.suppress(PackageNotFoundError):
        delta = version("delta-spark")
        if _release(delta) == (4, 0) and _release(pyspark.__version__) != (4, 0):
            raise SessionError(
                f"Delta {delta} runs on Spark 4.0 only, and pyspark {pyspark.__version__} is installed: "
                'pip install "pyspark~=4.0.0", or a newer delta-spark.'
            )


def s3_packages() -> list[str]:
    """Return the Maven coordinates of S3A and of the release of Amazon's SDK for it.

    Raises:
        SessionError: PySpark's Hadoop is older than 3.4, or is unknown.
    """
    jars = Path(pyspark.__file__).with_name("jars")
    hadoop = next((path.stem.rpartition("-")[2] for path in jars.glob("hadoop-client-api-*.jar")), "unknown")
    if hadoop not in _SDKS:
        raise SessionError(
            f"The JARs for S3 are known for Hadoop {', '.join(_SDKS)}, not for PySpark's {hadoop}: give them "
            'by get_spark({"spark.jars.packages": …}), or use another PySpark.'
        )
    parts = ("s3", "s3-transfer-manager", "sts", "apache-client")
    sdk = [f"software.amazon.awssdk:{part}:{_SDKS[hadoop]}" for part in parts]
    return [f"org.apache.hadoop:hadoop-aws:{hadoop}", *sdk]


def has_jvm(spark: SparkSession) -> bool:
    """Return whether the session's JVM can be reached; with Spark Connect it can't."""
    return hasattr(spark, "_jsparkSession")


def compute(rows: DataFrame) -> None:
    """Plan a query and compute its rows in the JVM, without a write, which fails with deletion vectors."""
    # `rows` itself would keep its plan and shuffles for the next run.
    rows.select("*")._jdf.queryExecution().toRdd().count()


def inheriting_thread(spark: SparkSession, body: Callable[[], None]) -> threading.Thread:
    """Return a daemon thread with the Spark properties or tags of the current thread."""
    # InheritableThread needs the session only over Spark Connect, and Spark 3.5 doesn't accept it.
    session = {} if has_jvm(spark) else {"session": spark}
    return InheritableThread(target=body, daemon=True, **session)


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a Java class by its full name, without py4j's search of all JARs for each part of the name."""
    return JavaClass(name, spark.sparkContext._gateway._gateway_client)  # type: ignore[union-attr]


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the session's JVM has a class, by its full name."""
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    try:
        java_class(spark, "java.lang.Class").forName(name, False, loader)
        return True
    except Py4JError:
        return False


def delta_version(spark: SparkSession | None) -> str | None:
    """Return the version of Delta: of the session's JARs, else of the Python package, else None."""
    if spark is not None and has_jvm(spark):
        with contextlib.suppress(Py4JError):
            return str(getattr(java_class(spark, "io.delta.package$"), "MODULE$").VERSION())
    with contextlib.suppress(PackageNotFoundError):
        return version("delta-spark")
    return None


def enforces_retention(spark: SparkSession | None) -> bool:
    """Return whether Delta can refuse versions older than the retention, and ignore RETAIN: since 4.1."""
    return _delta_since(spark, (4, 1))


def groups_by_type(spark: SparkSession | None) -> bool:
    """Return whether OPTIMIZE can compare partition values by type, not as text: since Delta 4.3."""
    return _delta_since(spark, (4, 3))


def writes_partition_columns(spark: SparkSession) -> bool:
    """Return whether Delta writes partition columns to data files by default: since 4.4."""
    return _delta_since(spark, (4, 4))


def snapshot_at(spark: SparkSession, delta_log: Any, table_version: int, none: Any) -> Any:
    """Return Delta's snapshot of a version; its method takes a fourth argument since Delta 4.1."""
    more = (False,) if _delta_since(spark, (4, 1)) else ()
    return delta_log.getSnapshotAt(table_version, none, none, *more)


def changes_from(spark: SparkSession, delta_log: Any, table_version: int, none: Any) -> Any:
    """Return an iterator over the commits from a version on; its method has a catalog's table since 4.1."""
    catalog_table = (none,) if _delta_since(spark, (4, 1)) else ()
    return delta_log.getChanges(table_version, *catalog_table, False)


def session_class(spark: SparkSession) -> Any:
    """Return the Java class of sessions, which has a separate package since Spark 4.0."""
    package = "org.apache.spark.sql.classic" if _release(spark.version) >= (4, 0) else "org.apache.spark.sql"
    return java_class(spark, f"{package}.SparkSession")


def create_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Make a DataFrame of an Arrow table; since Spark 4.0 without a job to read it."""
    with _ACTIVATING:
        active = SparkSession._activeSession if has_jvm(spark) else None
        try:
            if _release(spark.version) >= (4, 0):
                return spark.createDataFrame(table)
            rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
            return spark.createDataFrame(rows, from_arrow_schema(table.schema))
        finally:
            if active is not None:
                # PySpark has made this session the active one.
                SparkSession._activeSession = active
                session_class(spark).setActiveSession(active._jsparkSession)


def metadata_column(rows: DataFrame) -> Column:
    """Return the column of file metadata, even if a column has its name: in Python since Spark 4.0."""
    if hasattr(rows, "metadataColumn"):
        return rows.metadataColumn("_metadata")
    return Column(rows._jdf.metadataColumn("_metadata"))


def parse_ddl(columns: str) -> DataType:
    """Parse columns such as "origin STRING, day DATE", or a type; the method is public since Spark 4.0."""
    if hasattr(StructType, "fromDDL"):
        return StructType.fromDDL(columns)
    return _parse_datatype_string(columns)


def _release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))


def _delta_since(spark: SparkSession | None, release: tuple[int, int]) -> bool:
    """Return whether Delta has a release or a newer one; an unknown release counts as the newest."""
    found = delta_version(spark)
    return found is None or _release(found) >= release
