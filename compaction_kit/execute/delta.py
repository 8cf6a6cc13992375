"""Call internal methods of Delta by py4j: commit file actions, read the rows of given files.

These methods are the same in Delta 3.3, 4.0, 4.3 and 4.4, except those in `compat`.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from compaction_kit.compat import changes_from, has_jvm, java_class, session_class, snapshot_at
from compaction_kit.errors import StalePlanError
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.sql import uri

_DELTA = "org.apache.spark.sql.delta"
_PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
_METADATA = {
    "id": "scratch",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": '{"type":"struct","fields":[]}',
    "partitionColumns": [],
    "configuration": {},
}
# With row tracking, Delta can't read a file without these fields; the commit sets them for new files.
_ROW_IDS = {"baseRowId": 0, "defaultRowCommitVersion": 0}
# With a checksum file, Delta doesn't need a Spark job to find protocol and metadata.
_CHECKSUM = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}


def is_conflict(error: BaseException) -> bool:
    """Return whether Delta refused a commit because another writer was in the way."""
    name, text = type(error).__name__, str(error)
    return any(what in name for what in ("Concurrent", "MetadataChanged", "ProtocolChanged")) or any(
        f"DELTA_{what}" in text for what in ("CONCURRENT", "METADATA_CHANGED", "PROTOCOL_CHANGED")
    )


def rows_of(
    spark: SparkSession, table: str, adds: Iterable[Mapping[str, Any]], version: int | None = None
) -> DataFrame:
    """Read the rows of some files as Delta does, without those that deletion vectors delete.

    `adds` are add actions as the log writes them, of files that need not be live; the columns are those of
    `version`, or of the latest.
    """
    log, snapshot, nothing = _latest(spark, table)
    if version is not None:
        snapshot = snapshot_at(spark, log, version, nothing)
    actions = _parsed(spark, (json.dumps({"add": _ROW_IDS | add["add"]}) for add in adds))
    return DataFrame(log.createDataFrame(snapshot, actions, False, nothing), spark)


def job_span(spark: SparkSession, job: int) -> tuple[float, float] | None:
    """Return when a job began and ended, in seconds since 1970; None while it isn't known."""
    data = spark.sparkContext._jsc.sc().statusStore().job(job)  # type: ignore[union-attr]
    start, end = data.submissionTime(), data.completionTime()
    if start.isEmpty() or end.isEmpty():
        return None
    return start.get().getTime() / 1000, end.get().getTime() / 1000


class OptimizeTransaction:
    """A transaction that commits as OPTIMIZE does, reading the version at which it began."""

    def __init__(self, spark: SparkSession, table: str):
        log, _, nothing = _latest(spark, table)
        self._transaction = log.startTransaction(nothing, nothing)

    @property
    def version(self) -> int:
        """The version that the transaction reads."""
        return int(self._transaction.readVersion())

    def commit(
        self, spark: SparkSession, actions: Iterable[str], metrics: Mapping[str, int], where: str | None
    ) -> int:
        """Commit add and remove actions in JSON that change no data, with the session's settings.

        `metrics` and the predicate `where` are for DESCRIBE HISTORY. Returns the version. Raises
        Py4JJavaError or a DeltaConcurrentModificationException if another writer was in the way.
        """
        _make_active(spark)
        session, utils = spark._jsparkSession, java_class(spark, _PYTHON_UTILS)
        create = java_class(spark, "org.apache.spark.sql.execution.metric.SQLMetrics").createMetric
        shown = {name: create(session.sparkContext(), name) for name in metrics}
        for name, value in metrics.items():
            shown[name].set(value)
        self._transaction.registerSQLMetrics(session, utils.toScalaMap(shown))
        predicates = [session.sessionState().sqlParser().parseExpression(where)] if where else []
        optimize = java_class(spark, f"{_DELTA}.DeltaOperations$Optimize")
        operation = optimize(utils.toSeq(predicates), utils.toSeq([]), False, _nothing(spark), False)
        tracking = getattr(java_class(spark, f"{_DELTA}.RowTracking$"), "MODULE$")
        # On tables with row tracking, the tags say that rows keep their ids.
        tags = tracking.addPreservedRowTrackingTagIfNotSet(self._transaction.snapshot(), utils.toScalaMap({}))
        return int(self._transaction.commit(_parsed(spark, actions), operation, tags))


def commit_restore(
    spark: SparkSession,
    table: str,
    versions: tuple[int, int],
    actions: Iterable[str],
    metrics: Mapping[str, int],
) -> bool:
    """Commit add and remove actions in JSON as RESTORE does (RestoreTableCommand), without its joins.

    `versions` are the latest version and the version to restore. Returns False, and commits nothing, if they
    differ in metadata or protocol. Raises StalePlanError if the table has a newer version, and RESTORE's
    errors if another writer was in the way.
    """
    log, _, nothing = _latest(spark, table)
    transaction = log.startTransaction(nothing, nothing)
    new, old = transaction.snapshot(), snapshot_at(spark, log, versions[1], nothing)
    is_same = new.metadata().equals(old.metadata()) and new.protocol().equals(old.protocol())
    if transaction.readVersion() != versions[0]:
        raise StalePlanError.at(versions[0], int(transaction.readVersion()))
    if not is_same:
        return False
    utils, some = java_class(spark, _PYTHON_UTILS), java_class(spark, "scala.Some")
    domains, lines = getattr(java_class(spark, f"{_DELTA}.DomainMetadataUtils$"), "MODULE$"), [*actions]
    # Without this feature, the call would read the whole log and find nothing.
    if domains.domainMetadataSupported(new.protocol()):
        found = domains.handleDomainMetadataForRestoreTable(old, new)
        lines += [found.apply(number).json() for number in range(found.size())]
    transaction.commitLarge(
        spark._jsparkSession,
        _parsed(spark, lines).iterator(),
        some(new.protocol()),
        java_class(spark, f"{_DELTA}.DeltaOperations$Restore")(some(versions[1]), nothing),
        utils.toScalaMap({}),
        utils.toScalaMap({name: str(value) for name, value in metrics.items()}),
    )
    return True


def _nothing(spark: SparkSession) -> Any:
    return java_class(spark, "scala.Option").empty()


def _make_active(spark: SparkSession) -> None:
    # Delta uses the settings of the thread's active session; background runs have their own threads.
    session_class(spark).setActiveSession(spark._jsparkSession)


def _latest(spark: SparkSession, table: str) -> tuple[Any, Any, Any]:
    """Return a table's DeltaLog, its snapshot of the latest version, and Scala's None."""
    _make_active(spark)
    log, nothing = _delta_log(spark, table), _nothing(spark)
    return log, log.update(False, nothing, nothing), nothing


def _delta_log(spark: SparkSession, table: str) -> Any:
    return java_class(spark, f"{_DELTA}.DeltaLog").forTable(spark._jsparkSession, table)


def forget(spark: SparkSession, folder: Path) -> None:
    """Remove a scratch table from Delta's cache, where it takes some MiB of Java's memory for an hour."""
    if has_jvm(spark):
        path = java_class(spark, "org.apache.hadoop.fs.Path")(uri(folder))
        java_class(spark, f"{_DELTA}.DeltaLog").invalidateCache(spark._jsparkSession, path)


def _parsed(spark: SparkSession, actions: Iterable[str]) -> Any:
    """Convert actions from JSON with one call into the JVM, in which Delta reads a scratch log."""
    with tempfile.TemporaryDirectory(prefix="compaction-kit-") as scratch:
        log = Path(scratch) / LOG_FOLDER
        log.mkdir()
        table = [json.dumps({"protocol": _PROTOCOL}), json.dumps({"metaData": _METADATA})]
        for version, lines in enumerate((table, actions)):
            (log / f"{version:020d}.json").write_text("".join(f"{line}\n" for line in lines))
            checksum = _CHECKSUM | {"protocol": _PROTOCOL, "metadata": _METADATA}
            (log / f"{version:020d}.crc").write_text(json.dumps(checksum))
        delta_log = _delta_log(spark, uri(Path(scratch)))
        try:
            return changes_from(spark, delta_log, 1, _nothing(spark)).next()._2()
        finally:
            forget(spark, Path(scratch))
