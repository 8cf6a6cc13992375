"""The two writers of each scenario, and a way to hold one of them before its commit.

The first writer begins and is held before its commit. The second begins at the same version and commits.
Then the first tries to commit.
"""

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from compaction_kit.compat import java_class
from compaction_kit.errors import RunFailedError
from compaction_kit.execute.delta import check_jvm
from compaction_kit.execute.jobs import in_thread
from compaction_kit.sql import table_name, uri

# The table: 4 files of 10 rows, two in each of the partitions a (ids 0 to 19) and b (20 to 39).
NUM_ROWS, NUM_FILES = 40, 4
_DELTA = "org.apache.spark.sql.delta"
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Writer:
    """One of the two writers.

    Attributes:
        name: The name in the story.
        statement: The SQL or Python that it runs, with {table} in place of the table.
        adds: The ids of the rows that it adds.
        removes: The ids of the rows that it removes.
        write: A function that runs a Python statement on the table in a folder; None for SQL.
    """

    name: str
    statement: str
    adds: range = range(0)
    removes: range = range(0)
    write: Callable[[SparkSession, Path], object] | None = field(default=None, repr=False)

    def run(self, spark: SparkSession, table: Path) -> None:
        """Run the statement on the table in a folder."""
        if self.write is not None:
            self.write(spark, table)
        else:
            spark.sql(self.statement.replace("{table}", table_name(spark, table)))

    def effect(self, ids: Set[int]) -> Set[int]:
        """Return the ids in the table after the statement, from those before it."""
        return (ids - set(self.removes)) | set(self.adds)


@dataclass(frozen=True)
class Scenario:
    """Two concurrent writers.

    Attributes:
        name: A name such as "compaction with delete".
        about: What happens, in a sentence.
        first: The writer that begins first and commits last.
        second: The writer that commits in between.
    """

    name: str
    about: str
    first: Writer
    second: Writer


def make_table(spark: SparkSession, folder: Path) -> None:
    """Write the table with which every scenario begins: columns id and p, partitioned by p."""
    rows = spark.range(0, NUM_ROWS, 1, NUM_FILES).selectExpr("id", "IF(id < 20, 'a', 'b') AS p")
    writer = rows.write.format("delta").partitionBy("p")
    # The session may have another default for new tables.
    writer.option("delta.enableDeletionVectors", "false").save(uri(folder))


class Held:
    """A writer in its own thread, which Delta holds before its commit until `release` is called.

    Uses the observer of Delta's own tests of concurrent transactions
    (fuzzer.PhaseLockingTransactionExecutionObserver, in Delta's JAR). A second transaction of the thread,
    which OPTIMIZE begins after a conflict, is observed but not held.
    """

    def __init__(self, spark: SparkSession, write: Callable[[], object]):
        """Start the writer, and wait until its transaction has read and written everything.

        Args:
            spark: The session.
            write: The function to run; it has to commit to one Delta table.

        Raises:
            SessionError: The session's JVM can't be reached.
            RunFailedError: The function ended without a commit.
        """
        check_jvm(spark, "no transaction can be held there: use the session of get_spark().")
        self._threads = java_class(spark, f"{_DELTA}.TransactionExecutionObserver")
        nobody = f"{_DELTA}.NoOpTransactionExecutionObserver$"
        self._nobody = getattr(java_class(spark, nobody), "MODULE$")
        phases = java_class(spark, f"{_DELTA}.fuzzer.OptimisticTransactionPhases")
        observer = java_class(spark, f"{_DELTA}.fuzzer.PhaseLockingTransactionExecutionObserver")
        self._first, self._second = (observer(phases.forName(name)) for name in ("first", "second"))
        self._commit = self._first.phases().commitPhase()
        for current, following in ((self._first, self._second), (self._second, self._nobody)):
            locks = current.phaseLocks()
            for i in range(locks.size()):
                if not locks.apply(i).equals(self._commit):
                    locks.apply(i).entryBarrier().unblock()
            current.setNextObserver(following, True)
            # Otherwise the thread would wait here before it uses the next observer.
            locks.last().exitBarrier().unblock()
        self._outcome = in_thread(spark, lambda: self._run(write))
        while not self._commit.hasReached():
            if self._outcome.done():
                error = self._outcome.exception()
                raise RunFailedError(
                    f"The writer ended before its commit: {error or 'it changed nothing'}."
                ) from None
            time.sleep(_POLL_SECONDS)

    def release(self) -> BaseException | None:
        """Let the writer try its commit, and wait until it ends.

        Returns:
            The exception that it raised; None if it committed.
        """
        self._commit.entryBarrier().unblock()
        return self._outcome.exception()

    @property
    def num_transactions(self) -> int:
        """Number of transactions that the writer has begun, 2 at most."""
        observers = (self._first, self._second)
        return sum(observer.phases().initialPhase().hasEntered() for observer in observers)

    def _run(self, write: Callable[[], object]) -> None:
        # Delta keeps the observer per thread.
        self._threads.setObserver(self._first)
        try:
            write()
        finally:
            self._threads.setObserver(self._nobody)


def _rewrite(spark: SparkSession, table: Path) -> None:
    rows = spark.read.format("delta").load(uri(table)).repartition(1)
    rows.write.format("delta").mode("overwrite").option("dataChange", "false").save(uri(table))


def _write_batch(spark: SparkSession, table: Path) -> None:
    rows = spark.range(100, 110, 1, 1).selectExpr("id", "'a' AS p")
    rows.write.format("delta").mode("append").options(txnAppId="feed", txnVersion="0").save(uri(table))


def _insert(name: str, into: str, ids: range, removes: range = range(0)) -> Writer:
    rows = f"SELECT id, 'a' FROM range({ids.start}, {ids.stop}, 1, 1)"
    return Writer(name, f"INSERT {into} {{table}} {rows}", ids, removes)


_APPEND = _insert("append", "INTO", range(100, 110))
_OVERWRITE = _insert("overwrite", "OVERWRITE", range(200, 210), removes=range(200))
_DELETE = Writer("delete", "DELETE FROM {table} WHERE id < 5", removes=range(5))
_DELETE_IN_A = Writer("delete in a", "DELETE FROM {table} WHERE p = 'a' AND id < 5", removes=range(5))
_DELETE_IN_B = Writer("delete in b", "DELETE FROM {table} WHERE p = 'b' AND id >= 35", removes=range(35, 40))
_ADD_COLUMN = Writer("ADD COLUMN", "ALTER TABLE {table} ADD COLUMN note STRING")
_COMPACTION = Writer("compaction", "OPTIMIZE {table}")
_COMPACTION_OF_A = Writer("compaction of a", "OPTIMIZE {table} WHERE p = 'a'")
_REWRITE = Writer(
    "rewrite",
    'spark.read.format("delta").load({table}).repartition(1)'
    '.write.format("delta").mode("overwrite").option("dataChange", "false").save({table})',
    write=_rewrite,
)
_STREAM_BATCH = Writer(
    "first run",
    'rows.write.format("delta").mode("append").options(txnAppId="feed", txnVersion="0").save({table})',
    adds=range(100, 110),
    write=_write_batch,
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "append with append",
            "Two feeds append rows at the same time.",
            replace(_APPEND, name="first append"),
            _insert("second append", "INTO", range(200, 210)),
        ),
        Scenario(
            "one batch by two runs",
            "A stream was started twice, and both runs write the same batch.",
            _STREAM_BATCH,
            replace(_STREAM_BATCH, name="second run"),
        ),
        Scenario(
            "two deletes of the same rows",
            "Two people delete the same rows; each writes the other rows of the file again.",
            replace(_DELETE, name="first delete"),
            replace(_DELETE, name="second delete"),
        ),
        Scenario(
            "two deletes in two partitions",
            "Two people delete rows in different partitions, which their predicates name.",
            _DELETE_IN_A,
            _DELETE_IN_B,
        ),
        Scenario("compaction with append", "Rows are appended during OPTIMIZE.", _COMPACTION, _APPEND),
        Scenario(
            "compaction with delete",
            "Rows are deleted in files that OPTIMIZE has rewritten but not committed yet.",
            _COMPACTION,
            _DELETE,
        ),
        Scenario(
            "compaction with delete elsewhere",
            "Rows are deleted in one partition during OPTIMIZE of the other.",
            _COMPACTION_OF_A,
            _DELETE_IN_B,
        ),
        Scenario("delete with compaction", "OPTIMIZE commits during a delete.", _DELETE, _COMPACTION),
        Scenario(
            "two compactions",
            "Two jobs compact the same files.",
            replace(_COMPACTION, name="first compaction"),
            replace(_COMPACTION, name="second compaction"),
        ),
        Scenario(
            "compaction with ADD COLUMN", "The table gets a column during OPTIMIZE.", _COMPACTION, _ADD_COLUMN
        ),
        Scenario("append with ADD COLUMN", "The table gets a column during an append.", _APPEND, _ADD_COLUMN),
        Scenario("overwrite with append", "Rows are appended during an overwrite.", _OVERWRITE, _APPEND),
        Scenario("delete with append", "Rows are appended during a delete.", _DELETE, _APPEND),
        Scenario(
            "rewrite with append",
            "Rows are appended while the table is overwritten with its own rows, with dataChange=false.",
            _REWRITE,
            _APPEND,
        ),
        Scenario(
            "rewrite with delete",
            "Rows are deleted while the table is overwritten with its own rows, with dataChange=false.",
            _REWRITE,
            _DELETE,
        ),
    )
}
