"""Race a run against another writer: the rows must be those of one after the other, in either order.

A compaction changes no row, so both orders have the same rows: if the writer committed, the rows after
its change, otherwise the rows before.
"""

import functools
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.execute import Progress
from tests.knocks.oracle import STRATEGIES, Before, Case, Outcome, judge, rows_of

Row = tuple[int, int, str]
_COLUMNS = ("id", "v", "p")
# The table: 4 commits of 30 rows, each with a file in each of 3 partitions.
_COMMITS, _ROWS = 4, 30
_FEED = 500_000
_MOST_FED = 500
MOMENTS = ["at once", "while it rewrites", "while it compares", "by chance"]


def _row(i: int) -> Row:
    return i, 0, "abc"[i % 3]


def _arrow(rows: list[Row]) -> pa.Table:
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(_COLUMNS)})


NEW: list[Row] = [(1_000 + i, 1, "a") for i in range(5)]
MERGED: list[Row] = [(i, 9, _row(i)[2]) for i in range(10)] + [(2_000 + i, 9, "b") for i in range(5)]
OTHERS: list[Row] = [(3_000 + i, 3, "b") for i in range(7)]


def _sql(rows: list[Row]) -> str:
    """A query that gives rows."""
    values = ", ".join(f"({i}L, {v}L, '{p}')" for i, v, p in rows)
    return f"SELECT * FROM VALUES {values} AS s(id, v, p)"


class Writer(NamedTuple):
    """A change by another writer: its effect on the rows, as Spark SQL, and as a function of deltalake."""

    effect: Callable[[list[Row]], list[Row]]
    sql: str
    by_deltalake: Callable[[str], object]


def _merge(table: str) -> None:
    merge = DeltaTable(table).merge(_arrow(MERGED), "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update({"v": "s.v"}).when_not_matched_insert_all().execute()


def _write(table: str, rows: list[Row], mode: Any = "append", **options: Any) -> None:
    write_deltalake(table, _arrow(rows), mode=mode, **options)


def _vacuum(table: str) -> None:
    try:
        DeltaTable(table).vacuum(0, dry_run=False)
    except Exception:
        DeltaTable(table).vacuum(dry_run=False)
        return
    raise AssertionError("vacuum without retention was not refused")


def feed(table: str, until: str) -> int:
    """Append one row after another until the file `until` exists; return how many, at most _MOST_FED.

    Without a limit Delta may never commit OPTIMIZE: these commits can come faster than Delta checks them.
    """
    for i in range(_MOST_FED):
        if Path(until).exists():
            return i
        _write(table, [(_FEED + i, 5, "c")])
    return _MOST_FED


def same(rows: list[Row]) -> list[Row]:
    return rows


WRITERS = {
    "append": Writer(
        lambda rows: rows + NEW,
        f"INSERT INTO {{t}} (id, v, p) {_sql(NEW)}",
        functools.partial(_write, rows=NEW),
    ),
    "delete": Writer(
        lambda rows: [row for row in rows if row[0] % 5],
        "DELETE FROM {t} WHERE id % 5 = 0",
        lambda table: DeltaTable(table).delete("id % 5 = 0"),
    ),
    "delete a partition": Writer(
        lambda rows: [row for row in rows if row[2] != "a"],
        "DELETE FROM {t} WHERE p = 'a'",
        lambda table: DeltaTable(table).delete("p = 'a'"),
    ),
    "update": Writer(
        lambda rows: [(i, 7 if i % 4 == 1 else v, p) for i, v, p in rows],
        "UPDATE {t} SET v = 7 WHERE id % 4 = 1",
        lambda table: DeltaTable(table).update({"v": "7"}, predicate="id % 4 = 1"),
    ),
    "merge": Writer(
        lambda rows: [row for row in rows if row[0] >= 10] + MERGED,
        f"MERGE INTO {{t}} t USING ({_sql(MERGED)}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, s.v, s.p)",
        _merge,
    ),
    "overwrite": Writer(
        lambda rows: OTHERS,
        f"INSERT OVERWRITE {{t}} (id, v, p) {_sql(OTHERS)}",
        functools.partial(_write, rows=OTHERS, mode="overwrite"),
    ),
    "overwrite a partition": Writer(
        lambda rows: [row for row in rows if row[2] != "b"] + OTHERS,
        f"INSERT INTO {{t}} REPLACE WHERE p = 'b' {_sql(OTHERS)}",
        functools.partial(_write, rows=OTHERS, mode="overwrite", predicate="p = 'b'"),
    ),
    "restore": Writer(
        lambda rows: [row for row in rows if row[0] < 2 * _ROWS],
        "RESTORE TABLE {t} TO VERSION AS OF 1",
        lambda table: DeltaTable(table).restore(1),
    ),
    "another OPTIMIZE": Writer(same, "OPTIMIZE {t}", lambda table: DeltaTable(table).optimize.compact()),
    "vacuum": Writer(same, "VACUUM {t} RETAIN 0 HOURS", _vacuum),
    "add a column": Writer(
        same,
        "ALTER TABLE {t} ADD COLUMN note STRING",
        lambda table: DeltaTable(table).alter.add_columns([Field("note", PrimitiveType("string"))]),
    ),
    "replace the table": Writer(
        lambda rows: OTHERS,
        f"CREATE OR REPLACE TABLE {{t}} USING delta PARTITIONED BY (p) AS {_sql(OTHERS)}",
        functools.partial(_write, rows=OTHERS, mode="overwrite", schema_mode="overwrite"),
    ),
    # Makes many commits, any of which may be concurrent with a run's commit.
    "feed": Writer(same, "", lambda table: None),
}


def by_deltalake(name: str, table: str) -> None:
    WRITERS[name].by_deltalake(table)


def by_spark(spark: SparkSession, name: str, table: Path) -> None:
    try:
        spark.sql(WRITERS[name].sql.replace("{t}", f"delta.`{table}`")).collect()
    except Exception as error:
        if name != "vacuum" or "retention" not in str(error).lower():
            raise
        spark.sql(f"VACUUM delta.`{table}`").collect()


@functools.cache
def _processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


_THREADS = ThreadPoolExecutor(2)


class _Race:
    """The other writer, which starts at a moment of the run."""

    def __init__(self, case: Case, table: Path, only_spark: bool = False):
        draw = case.draw
        names = [name for name, writer in WRITERS.items() if writer.sql or not only_spark]
        self._name, self._moment = draw.choice(names), draw.choice(MOMENTS)
        self._by_spark = only_spark or (self._name != "feed" and draw.random() < 0.5)
        # The run waits until the writer has ended, or both continue at once.
        self._is_held = draw.random() < 0.5 and self._name != "feed"
        self._delay = draw.random() * 0.8
        self._is_cancelled = draw.random() < (0.5 if self._name == "feed" else 0.1)
        self._case, self._table, self._until = case, table, case.folder / "enough"
        self._outcome: Future[Any] | None = None
        if self._by_spark and draw.random() < 0.25:
            case.spark.sql(
                f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)"
            )

    def __str__(self) -> str:
        cancelled = ", cancelled" if self._is_cancelled else ""
        return f"{self._name} by {'Spark' if self._by_spark else 'deltalake'} {self._moment}{cancelled}"

    def start(self, moment: str) -> None:
        if self._outcome is not None or moment != self._moment:
            return
        if self._by_spark:
            self._outcome = _THREADS.submit(
                self._delayed, by_spark, self._case.spark, self._name, self._table
            )
        elif self._name == "feed":
            self._outcome = _processes().submit(feed, str(self._table), str(self._until))
            while not self._outcome.running():
                time.sleep(0.001)
        else:
            self._outcome = _THREADS.submit(self._delayed, self._apart)
        if self._is_held and moment.startswith("while"):
            self._outcome.exception()

    def _apart(self) -> object:
        return _processes().submit(by_deltalake, self._name, str(self._table)).result()

    def _delayed(self, act: Callable[..., object], *args: Any) -> object:
        time.sleep(self._delay if self._moment == "by chance" else 0)
        return act(*args)

    def report(self, progress: Progress) -> None:
        self.start("while it rewrites" if progress.step == "Rewriting" else "while it compares")
        if self._is_cancelled and progress.step.startswith("Comparing"):
            raise KeyboardInterrupt

    def expected(self, rows: list[Row]) -> tuple[list[Row], str]:
        """Return the expected rows once the writer has ended, and the reason if it didn't commit."""
        self._until.touch()
        try:
            if self._outcome is None:
                return rows, "it was not its moment"
            error = self._outcome.exception()
            if error is not None:
                return rows, str(error).splitlines()[0]
            if self._name == "feed":
                return rows + [(_FEED + i, 5, "c") for i in range(self._outcome.result())], ""
            return WRITERS[self._name].effect(rows), ""
        finally:
            self._until.unlink()


def play(case: Case) -> Outcome:
    table = case.folder / "table"
    rows = [_row(i) for i in range(_COMMITS * _ROWS)]
    for at in range(0, len(rows), _ROWS):
        _write(str(table), rows[at : at + _ROWS], partition_by=["p"])
    return _judged(case, _Race(case, table), case.draw.choice(STRATEGIES), rows, table)


def clustered(case: Case) -> Outcome:
    """Race on a clustered table, to which deltalake doesn't write."""
    table = case.folder / "table"
    rows, name = [_row(i) for i in range(_COMMITS * _ROWS)], f"delta.`{table}`"
    case.spark.sql(f"CREATE TABLE {name} USING delta CLUSTER BY (id, p) AS {_sql(rows[:_ROWS])}")
    for at in range(_ROWS, len(rows), _ROWS):
        case.spark.sql(f"INSERT INTO {name} {_sql(rows[at : at + _ROWS])}")
    return _judged(case, _Race(case, table, only_spark=True), "optimize", rows, table)


def _judged(case: Case, race: _Race, strategy: str, rows: list[Row], table: Path) -> Outcome:
    note = f"{strategy} against {race}"
    try:
        plan = open_table(table, case.spark).plan_compaction(batch_size=case.draw.choice([None, None, 1]))
        before = Before.of(table, None)
        race.start("at once")
        race.start("by chance")
        try:
            found: Any = plan.run(strategy=strategy, progress=race.report)
        except (Exception, KeyboardInterrupt) as error:
            found = error
        expected, why = race.expected(rows)
        note += f"; the run: {found!r}; the writer: {why or 'committed'}"
        before.check(rows_of(case.spark, table, *_COLUMNS), Counter(map(str, expected)))
        return judge(found, before, is_alone=False)
    except BaseException as error:
        error.add_note(note)
        raise
