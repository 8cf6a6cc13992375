"""Who meets whom: two writers of one table, each with a statement and what it is to do to the rows.

The first begins and is held before its commit; the second begins on the same version and commits;
then the first tries to.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from compaction_kit.sql import table_name, uri

Ids = frozenset[int]
# The table: 4 files of 10 rows, two in each of the partitions a (ids 0 to 19) and b (20 to 39).
NUM_ROWS, NUM_FILES = 40, 4


@dataclass(frozen=True)
class Writer:
    """One of the two.

    Attributes:
        name: Who it is, told apart from the other.
        statement: What it runs, as one would write it; {table} stands for the table.
        effect: The ids in the table afterwards, from those before.
        run: Runs it on the table in a folder.
    """

    name: str
    statement: str
    effect: Callable[[Ids], Ids]
    run: Callable[[SparkSession, Path], object]


@dataclass(frozen=True)
class Scenario:
    """Two writers at once.

    Attributes:
        name: Such as "compaction with delete".
        about: What happens, in a line.
        first: Begins first, and commits last.
        second: Commits in between.
    """

    name: str
    about: str
    first: Writer
    second: Writer


def make_table(spark: SparkSession, folder: Path) -> None:
    """Write the table that all scenarios begin with: columns id and p, partitioned by p."""
    rows = spark.range(0, NUM_ROWS, 1, NUM_FILES).selectExpr("id", "IF(id < 20, 'a', 'b') AS p")
    writer = rows.write.format("delta").partitionBy("p")
    # Whatever the session makes of new tables otherwise.
    writer.option("delta.enableDeletionVectors", "false").save(uri(folder))


def _sql(name: str, statement: str, effect: Callable[[Ids], Ids]) -> Writer:
    return Writer(
        name,
        statement,
        effect,
        lambda spark, folder: spark.sql(statement.replace("{table}", table_name(spark, folder))),
    )


def _rewrite(spark: SparkSession, folder: Path) -> None:
    rows = spark.read.format("delta").load(uri(folder)).repartition(1)
    rows.write.format("delta").mode("overwrite").option("dataChange", "false").save(uri(folder))


def _batch(name: str) -> Writer:
    options = {"txnAppId": "feed", "txnVersion": "0"}

    def write(spark: SparkSession, folder: Path) -> None:
        rows = spark.range(100, 110, 1, 1).selectExpr("id", "'a' AS p")
        rows.write.format("delta").mode("append").options(**options).save(uri(folder))

    told = ", ".join(f'{key}="{value}"' for key, value in options.items())
    statement = f'rows.write.format("delta").mode("append").options({told}).save({{table}})'
    return Writer(name, statement, lambda before: before | frozenset(range(100, 110)), write)


def _append(name: str, first_id: int) -> Writer:
    ids = range(first_id, first_id + 10)
    rows = f"SELECT id, 'a' FROM range({ids.start}, {ids.stop}, 1, 1)"
    return _sql(name, f"INSERT INTO {{table}} {rows}", lambda before: before | frozenset(ids))


def _delete(name: str, where: str, is_deleted: Callable[[int], bool]) -> Writer:
    return _sql(
        name,
        f"DELETE FROM {{table}} WHERE {where}",
        lambda before: frozenset(i for i in before if not is_deleted(i)),
    )


def _unchanged(before: Ids) -> Ids:
    return before


def _compaction(name: str = "compaction", where: str = "") -> Writer:
    return _sql(name, f"OPTIMIZE {{table}}{where}", _unchanged)


_APPEND = _append("append", 100)
_DELETE = _delete("delete", "id < 5", lambda i: i < 5)
_DELETE_IN_B = _delete("delete in b", "p = 'b' AND id >= 35", lambda i: 35 <= i < 40)
_ADD_COLUMN = _sql("ADD COLUMN", "ALTER TABLE {table} ADD COLUMN note STRING", _unchanged)
_OVERWRITE = _sql(
    "overwrite",
    "INSERT OVERWRITE {table} SELECT id, 'a' FROM range(200, 210, 1, 1)",
    lambda _: frozenset(range(200, 210)),
)
_REWRITE = Writer(
    "rewrite",
    'spark.read.format("delta").load({table}).repartition(1)'
    '.write.format("delta").mode("overwrite").option("dataChange", "false").save({table})',
    _unchanged,
    _rewrite,
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "append with append",
            "Two feeds append rows at the same time.",
            _append("first append", 100),
            _append("second append", 200),
        ),
        Scenario(
            "one batch by two runs",
            "A stream was started twice, and both runs write the same batch.",
            _batch("first run"),
            _batch("second run"),
        ),
        Scenario(
            "two deletes of the same rows",
            "Two people delete the same rows; each writes the rest of the file anew.",
            _delete("first delete", "id < 5", lambda i: i < 5),
            _delete("second delete", "id < 5", lambda i: i < 5),
        ),
        Scenario(
            "two deletes in two partitions",
            "Two people delete rows, and their predicates say that these are in different partitions.",
            _delete("delete in a", "p = 'a' AND id < 5", lambda i: i < 5),
            _DELETE_IN_B,
        ),
        Scenario(
            "compaction with append", "Rows are appended while OPTIMIZE is at work.", _compaction(), _APPEND
        ),
        Scenario(
            "compaction with delete",
            "Rows are deleted in files that OPTIMIZE has just rewritten.",
            _compaction(),
            _DELETE,
        ),
        Scenario(
            "compaction with delete elsewhere",
            "Rows are deleted in one partition while OPTIMIZE is at work in the other.",
            _compaction("compaction of a", " WHERE p = 'a'"),
            _DELETE_IN_B,
        ),
        Scenario(
            "delete with compaction",
            "The other way round: OPTIMIZE commits while a delete is at work.",
            _DELETE,
            _compaction(),
        ),
        Scenario(
            "two compactions",
            "Two jobs compact the same files.",
            _compaction("first compaction"),
            _compaction("second compaction"),
        ),
        Scenario(
            "compaction with ADD COLUMN",
            "The table gets a column while OPTIMIZE is at work.",
            _compaction(),
            _ADD_COLUMN,
        ),
        Scenario(
            "append with ADD COLUMN", "The table gets a column while rows are appended.", _APPEND, _ADD_COLUMN
        ),
        Scenario(
            "overwrite with append", "Rows are appended while the table is overwritten.", _OVERWRITE, _APPEND
        ),
        Scenario("delete with append", "Rows are appended while a delete is at work.", _DELETE, _APPEND),
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
