"""Delta's own transaction, from Python; the one module that touches the JVM.

py4j reaches what no public API offers: a commit of given file actions. What is called here is the
same in Delta 3.3, 4.0 and 4.4 but where said.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from compaction_kit.log.names import LOG_FOLDER

_EMPTY_TABLE = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "scratch",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": [],
            "configuration": {},
        }
    },
]


def has_jvm(spark: SparkSession) -> bool:
    """Whether the session has a JVM in reach; one over Spark Connect hasn't."""
    return hasattr(spark, "_jsparkSession")


def _delta_log(spark: SparkSession, table: Path) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(table))


def is_conflict(error: Exception) -> bool:
    """Whether Delta refused a commit, for another writer was in the way."""
    return "Concurrent" in type(error).__name__ or "DELTA_CONCURRENT" in str(error)


class OptimizeTransaction:
    """A transaction that commits as OPTIMIZE does: it reads the version at which it began."""

    def __init__(self, spark: SparkSession, table: Path):
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._none = jvm.scala.Option.empty()
        log = _delta_log(spark, table)
        log.update(False, self._none, self._none)
        self._transaction = log.startTransaction(self._none, self._none)

    @property
    def version(self) -> int:
        """The version that it reads."""
        return int(self._transaction.readVersion())

    def commit(
        self, actions: Sequence[Mapping[str, Any]], metrics: Mapping[str, int], where: str | None
    ) -> int:
        """Commit file actions that change no data.

        Args:
            actions: add and remove actions as the log writes them.
            metrics: What DESCRIBE HISTORY shows of the operation.
            where: The predicate on partitions, for the history.

        Returns:
            The version committed.

        Raises:
            Py4JJavaError, DeltaConcurrentModificationException: Another writer was in the way.
        """
        with tempfile.TemporaryDirectory(prefix="compaction-kit-") as scratch:
            operation = self._operation(where)
            self._transaction.registerSQLMetrics(self._spark._jsparkSession, self._metrics(metrics))
            return int(self._transaction.commit(self._actions(Path(scratch), actions), operation))

    def _actions(self, scratch: Path, actions: Sequence[Mapping[str, Any]]) -> Any:
        """The actions as Delta has them: it reads them from a log made for this.

        Thousands would otherwise take as many calls into the JVM.
        """
        log = scratch / LOG_FOLDER
        log.mkdir()
        for version, commit in enumerate((_EMPTY_TABLE, actions)):
            lines = [json.dumps(action) for action in commit]
            (log / f"{version:020d}.json").write_text("\n".join(lines) + "\n")
        delta_log = _delta_log(self._spark, scratch)
        try:
            changes = delta_log.getChanges(1, self._none, False)
        except Py4JError:
            # Before 4.1.
            changes = delta_log.getChanges(1, False)
        return changes.next()._2()

    def _operation(self, where: str | None) -> Any:
        python = self._jvm.org.apache.spark.api.python.PythonUtils
        predicates = []
        if where:
            parser = self._spark._jsparkSession.sessionState().sqlParser()
            predicates.append(parser.parseExpression(where))
        nothing = python.toSeq([])
        return self._jvm.org.apache.spark.sql.delta.DeltaOperations.Optimize(
            python.toSeq(predicates), nothing, False, self._none, False
        )

    def _metrics(self, metrics: Mapping[str, int]) -> Any:
        sql = self._jvm.org.apache.spark.sql.execution.metric.SQLMetrics
        context = self._spark._jsparkSession.sparkContext()
        named = {}
        for name, value in metrics.items():
            metric = sql.createMetric(context, name)
            metric.set(value)
            named[name] = metric
        return self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(named)
