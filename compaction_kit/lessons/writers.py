"""Who meets whom: the two writers of each scenario, and how Delta holds one before its commit.

The first writer begins and is held before its commit; the second begins on the same version and commits;
then the first tries to.
"""

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from compaction_kit.errors import RunFailedError
from compaction_kit.execute.jobs import in_thread
from compaction_kit.execute.jvm import check_jvm
from compaction_kit.session import java_class
from compaction_kit.sql import table_name, uri

# The table: 4 files of 10 rows, two in each of the partitions a (ids 0 to 19) and b (20 to 39).
NUM_ROWS, NUM_FILES = 40, 4
_DELTA = "org.apache.spark.sql.delta"
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Writer:
    """One of the two writers.

    Attributes:
        name: Its name in the story.
        statement: What it runs; {table} stands for the table.
        adds: The ids of the rows that it adds.
        removes: The ids of the rows that it removes.
        write: Runs the statement, if that is Python, on the table in a folder; None if it is SQL.
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
        """The ids in the table after it, from those before it."""
        return (ids - set(self.removes)) | set(self.adds)


@dataclass(frozen=True)
class Scenario:
    """Two writers at once.

    Attributes:
        name: Such as "compaction with delete".
        about: What happens, in a sentence.
        first: The writer that begins first and commits last.
        second: The writer that commits in between.
    """

    name: str
    about: str
    first: Writer
    second: Writer


def make_table(spark: SparkSession, folder: Path) -> None:
    """Write the table on which every scenario begins: columns id and p, partitioned by p."""
    rows = spark.range(0, NUM_ROWS, 1, NUM_FILES).selectExpr("id", "IF(id < 20, 'a', 'b') AS p")
    writer = rows.write.format("delta").partitionBy("p")
    # Whatever the session's default for new tables is.
    writer.option("delta.enableDeletionVectors", "false").save(uri(folder))


class Held:
    """A writer in a thread of its own, held by Delta before it tries to commit, until `release` is called.

    By the observer that Delta has for its own tests of concurrent transactions
    (fuzzer.PhaseLockingTransactionExecutionObserver, in its JAR). A second transaction of the thread is
    observed and not held: OPTIMIZE begins one after a conflict.
    """

    def __init__(self, spark: SparkSession, write: Callable[[], object]):
        """Begin, and return when the transaction has read and written everything.

        Args:
            spark: The session.
            write: What to run; it has to commit to one Delta table.

        Raises:
            SessionError: The session's JVM is out of reach.
            RunFailedError: It ended without a commit.
        """
        check_jvm(spark, "no transaction can be held there: use the session of get_spark().")
        self._threads = java_class(spark, f"{_DELTA}.TransactionExecutionObserver")
        nobody = f"{_DELTA}.NoOpTransactionExecutionObserver$"
        self._nobody = getattr(java_class(spark, nobody), "MODULE$")
        phases = java_class(spark, f"{_DELTA}.fuzzer.OptimisticTransactionPhases")
        observer = java_class(spark, f"{_DELTA}.fuzzer.PhaseLockingTransactionExecutionObserver")
        self._first, self._second = (observer(phases.forName(name)) for name in ("first", "second"))
        self._commit = self._first.phases().commitPhase()
        for one, following in ((self._first, self._second), (self._second, self._nobody)):
            locks = one.phaseLocks()
            for i in range(locks.size()):
                if not locks.apply(i).equals(self._commit):
                    locks.apply(i).entryBarrier().unblock()
            one.setNextObserver(following, True)
            # Else the thread would wait there until it is let go on to the next observer.
            locks.last().exitBarrier().unblock()
        self._outcome = in_thread(lambda: self._run(write))
        while not self._commit.hasReached():
            if self._outcome.done():
                error = self._outcome.exception()
                raise RunFailedError(
                    f"The writer ended before it came to a commit: {error or 'it changed nothing'}."
                ) from error
            time.sleep(_POLL_SECONDS)

    def release(self) -> BaseException | None:
        """Let it try its commit, and wait for the end.

        Returns:
            What it raised; None if it committed.
        """
        self._commit.entryBarrier().unblock()
        return self._outcome.exception()

    @property
    def num_transactions(self) -> int:
        """How many transactions it has begun, two at most."""
        return sum(one.phases().initialPhase().hasEntered() for one in (self._first, self._second))

    def _run(self, write: Callable[[], object]) -> None:
        # An observer is of the thread that sets it.
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
            "Two people delete the same rows; each writes the rest of the file anew.",
            replace(_DELETE, name="first delete"),
            replace(_DELETE, name="second delete"),
        ),
        Scenario(
            "two deletes in two partitions",
            "Two people delete rows, and their predicates name different partitions.",
            _DELETE_IN_A,
            _DELETE_IN_B,
        ),
        Scenario("compaction with append", "Rows are appended during OPTIMIZE.", _COMPACTION, _APPEND),
        Scenario(
            "compaction with delete",
            "Rows are deleted in files that OPTIMIZE has just rewritten.",
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
            "Rows are appended while the table is overwritten by its own rows, with dataChange=false.",
            _REWRITE,
            _APPEND,
        ),
        Scenario(
            "rewrite with delete",
            "Rows are deleted while the table is overwritten by its own rows, with dataChange=false.",
            _REWRITE,
            _DELETE,
        ),
    )
}
