"""The two writers of each scenario, and a way to pause one of them before its commit."""

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from compaction_kit.compat import has_jvm, java_class
from compaction_kit.errors import RunFailedError, SessionError
from compaction_kit.execute.jobs import in_thread
from compaction_kit.sql import table_name, uri

# The table: 4 files of 10 rows, two in each of the partitions a (ids 0 to 19) and b (20 to 39).
NUM_ROWS, NUM_FILES = 40, 4
_DELTA = "org.apache.spark.sql.delta"
_POLL_SECONDS = 0.005
_NONE = range(0)


@dataclass(frozen=True)
class Writer:
    """One of the two writers: its statement with {table}, and the ids of the rows that it adds and removes.

    The statement is SQL, or else Python that can use `spark` and the `rows` to add.
    """

    name: str
    statement: str
    adds: range = _NONE
    removes: range = _NONE
    is_python: bool = False

    def run(self, spark: SparkSession, table: Path) -> None:
        """Run the statement on the table in a folder."""
        if self.is_python:
            rows = spark.range(self.adds.start, self.adds.stop, 1, 1).selectExpr("id", "'a' AS p")
            eval(self.statement.replace("{table}", repr(uri(table))), {"spark": spark, "rows": rows})
        else:
            spark.sql(self.statement.replace("{table}", table_name(spark, table)))

    def effect(self, ids: Set[int]) -> Set[int]:
        """Return the ids in the table after the statement, from those before it."""
        return (ids - set(self.removes)) | set(self.adds)


@dataclass(frozen=True)
class Scenario:
    """Two concurrent writers: the first begins first and commits last, the second commits in between."""

    name: str
    first: Writer
    second: Writer
    about: str


def make_table(spark: SparkSession, folder: Path) -> None:
    """Write the table with which every scenario begins, with the columns id and p, partitioned by p."""
    rows = spark.range(0, NUM_ROWS, 1, NUM_FILES).selectExpr("id", "IF(id < 20, 'a', 'b') AS p")
    writer = rows.write.format("delta").partitionBy("p")
    # The session may have another default for new tables.
    writer.option("delta.enableDeletionVectors", "false").save(uri(folder))


class PausedWriter:
    """A writer in its own thread, which Delta pauses before commit number `commit` (1 or 2) until `release`.

    Uses the observer of Delta's own tests of concurrent transactions
    (fuzzer.PhaseLockingTransactionExecutionObserver, in Delta's JAR). It observes two transactions of the
    thread and pauses one. OPTIMIZE begins a second transaction for its second batch, or after a conflict.

    Raises:
        SessionError: The session's JVM can't be reached.
        RunFailedError: The function ended without a commit.
    """

    def __init__(self, spark: SparkSession, write: Callable[[], object], commit: int = 1) -> None:
        if not has_jvm(spark):
            raise SessionError(
                "The session has no JVM in reach, as over Spark Connect, and no transaction can be held "
                "there: use the session of get_spark()."
            )
        threads = java_class(spark, f"{_DELTA}.TransactionExecutionObserver")
        no_observer = getattr(java_class(spark, f"{_DELTA}.NoOpTransactionExecutionObserver$"), "MODULE$")
        phases = java_class(spark, f"{_DELTA}.fuzzer.OptimisticTransactionPhases")
        observer = java_class(spark, f"{_DELTA}.fuzzer.PhaseLockingTransactionExecutionObserver")
        first, second = self._observers = [observer(phases.forName(name)) for name in ("first", "second")]
        self._commit = self._observers[commit - 1].phases().commitPhase()
        for current, following in ((first, second), (second, no_observer)):
            locks = current.phaseLocks()
            for lock in map(locks.apply, range(locks.size())):
                if not lock.equals(self._commit):
                    lock.entryBarrier().unblock()
            current.setNextObserver(following, True)
            # Otherwise the thread would wait here before it uses the next observer.
            locks.last().exitBarrier().unblock()

        def run() -> None:
            # Delta keeps the observer per thread.
            threads.setObserver(first)
            try:
                write()
            finally:
                threads.setObserver(no_observer)

        self._outcome = in_thread(spark, run)
        while not self._commit.hasReached():
            if self._outcome.done():
                error = self._outcome.exception() or "it changed nothing"
                raise RunFailedError(f"The writer ended before its commit: {error}.") from None
            time.sleep(_POLL_SECONDS)

    def release(self) -> BaseException | None:
        """Let the writer commit, wait until it ends, and return the exception that it raised, if any."""
        self._commit.entryBarrier().unblock()
        return self._outcome.exception()

    @property
    def num_transactions(self) -> int:
        """Number of transactions that the writer has begun, 2 at most."""
        return sum(observer.phases().initialPhase().hasEntered() for observer in self._observers)


def _insert(name: str, into: str, ids: range, removes: range = _NONE) -> Writer:
    rows = f"SELECT id, 'a' FROM range({ids.start}, {ids.stop}, 1, 1)"
    return Writer(name, f"INSERT {into} {{table}} {rows}", ids, removes)


def _twice(writer: Writer, about: str) -> tuple[Writer, Writer, str]:
    return replace(writer, name=f"first {writer.name}"), replace(writer, name=f"second {writer.name}"), about


_APPEND = _insert("append", "INTO", range(100, 110))
_FIRST, _SECOND = replace(_APPEND, name="first append"), _insert("second append", "INTO", range(200, 210))
_OVERWRITE = _insert("overwrite", "OVERWRITE", range(200, 210), removes=range(200))
_DELETE = Writer("delete", "DELETE FROM {table} WHERE id < 5", removes=range(5))
_DELETE_IN_A = Writer("delete in a", "DELETE FROM {table} WHERE p = 'a' AND id < 5", removes=range(5))
_DELETE_IN_B = Writer("delete in b", "DELETE FROM {table} WHERE p = 'b' AND id >= 35", removes=range(35, 40))
_COMPACTION = Writer("compaction", "OPTIMIZE {table}")
_COMPACTION_OF_A = Writer("compaction of a", "OPTIMIZE {table} WHERE p = 'a'")
_ADD_COLUMN = Writer("ADD COLUMN", "ALTER TABLE {table} ADD COLUMN note STRING")
_RUN = 'rows.write.format("delta").mode("append").options(txnAppId="feed", txnVersion="0").save({table})'
_REWRITE = Writer(
    "rewrite",
    'spark.read.format("delta").load({table}).repartition(1)'
    '.write.format("delta").mode("overwrite").option("dataChange", "false").save({table})',
    is_python=True,
)
_SAME_BATCH = "A stream was started twice, and both runs write the same batch."
_OWN_ROWS = "while the table is overwritten with its own rows, with dataChange=false."
_MEETINGS = {
    "append with append": (_FIRST, _SECOND, "Two feeds append rows at the same time."),
    "one batch by two runs": _twice(Writer("run", _RUN, range(100, 110), is_python=True), _SAME_BATCH),
    "two deletes of the same rows": _twice(_DELETE, "Two people delete the same rows."),
    "two deletes in two partitions": (_DELETE_IN_A, _DELETE_IN_B, "Two people delete in two partitions."),
    "compaction with append": (_COMPACTION, _APPEND, "Rows are appended during OPTIMIZE."),
    "compaction with delete": (_COMPACTION, _DELETE, "Rows are deleted in files that OPTIMIZE rewrites."),
    "compaction with delete elsewhere": (_COMPACTION_OF_A, _DELETE_IN_B, "Rows of partition b are deleted."),
    "delete with compaction": (_DELETE, _COMPACTION, "OPTIMIZE commits during a delete."),
    "two compactions": _twice(_COMPACTION, "Two jobs compact the same files."),
    "compaction with ADD COLUMN": (_COMPACTION, _ADD_COLUMN, "The table gets a column during OPTIMIZE."),
    "append with ADD COLUMN": (_APPEND, _ADD_COLUMN, "The table gets a column during an append."),
    "overwrite with append": (_OVERWRITE, _APPEND, "Rows are appended during an overwrite."),
    "delete with append": (_DELETE, _APPEND, "Rows are appended during a delete."),
    "rewrite with append": (_REWRITE, _APPEND, f"Rows are appended {_OWN_ROWS}"),
    "rewrite with delete": (_REWRITE, _DELETE, f"Rows are deleted {_OWN_ROWS}"),
}
SCENARIOS = {name: Scenario(name, *meeting) for name, meeting in _MEETINGS.items()}
