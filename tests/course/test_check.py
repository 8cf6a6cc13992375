"""Feedback on the answers to exercises; the notebooks of solutions show that the solutions are right."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from course.answers import EXERCISES
from course.check import check
from pyspark.sql import SparkSession
from pyspark.sql.types import DateType, IntegerType

from compaction_kit import open_table, sink_log
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.sinklog import Policy
from compaction_kit.table import Table
from compaction_kit.text import KIB
from tests import folders, handmade
from tests.handmade import Action, add, metadata, remove, unchanged
from tests.interop import manifests
from tests.sinklog.streams import LINE, make_log

POLICY = Policy(default_interval=3, min_batches_to_retain=2)
IN_EIGHT_DAYS = datetime.now(UTC) + timedelta(days=8)


def said(exercise: str, answer: Any, *given: Any) -> str:
    """Return the feedback on an answer that isn't right."""
    shown = check(exercise, answer, *given)
    assert not shown.is_right
    return repr(shown)


def judged(exercise: str, right: Any, wrong: Mapping[Any, str], *given: Any) -> None:
    """Assert that an answer is right, and the feedback on each of some wrong answers."""
    assert check(exercise, right, *given).is_right
    for answer, meaning in wrong.items():
        assert meaning in said(exercise, answer, *given), answer


class Log:
    """A table whose log is written by hand, commit by commit."""

    def __init__(self, folder: Path, *head: handmade.Action) -> None:
        self.table, self._version = folder, 0
        self._head = [handmade.protocol(), *(head or [metadata()])]

    def commit(self, *actions: Action, by: str = "WRITE", **told: Any) -> Table:
        """Commit file actions; `told` are the operation's parameters."""
        info = {"operation": by, "operationParameters": {key: json.dumps(one) for key, one in told.items()}}
        handmade.write_commit(self.table, self._version, [{"commitInfo": info}, *self._head, *actions])
        self._version, self._head = self._version + 1, []
        return open_table(self.table)

    def replace(self, *actions: Action, **told: Any) -> Table:
        """Commit files in place of all live files, as a compaction does."""
        removed = map(remove, sorted(folders.live(self.table)))
        return self.commit(*map(unchanged, [*removed, *actions]), by="OPTIMIZE", **told)


def adds(name: str, count: int, size: int = 1_000, records: int = 10) -> list[Action]:
    return [add(f"{name}{number}", size, records=records) for number in range(count)]


def spans(name: str, column: str, bounds: Sequence[tuple[int, int]]) -> list[Action]:
    return [add(f"{name}{n}", bounds=({column: low}, {column: high})) for n, (low, high) in enumerate(bounds)]


def test_each_exercise_of_the_course_is_open_without_an_answer() -> None:
    numbers = [f"{lesson:02}.{number}" for lesson in range(1, 11) for number in (1, 2, 3)]
    assert sorted(EXERCISES) == [*numbers, *(f"museum.{case}" for case in range(1, 9))]
    for exercise in numbers:
        shown = check(exercise, None)
        assert repr(shown).startswith("Not answered yet: give ")
        assert not shown.is_right
        assert "another name in this cell is None" in repr(check(exercise, 1, None))


def test_an_answer_is_right_or_not_and_the_answer_isnt_shown() -> None:
    for right in (4, np.int64(4), pa.scalar(4)):
        assert "Right" in check("08.1", right, POLICY)._repr_html_()
    value = "this number is not right: "
    for wrong, meaning in ((5, value), ("4", "this is of type str; "), ([4], "this is of type list; ")):
        text = f"{meaning}give the number of a batch."
        assert said("08.1", wrong, POLICY) == f"Not right yet: {text}"
        html = check("08.1", wrong, POLICY)._repr_html_()
        assert all(part in html for part in ("Not right yet", text, 'role="status"'))


def test_what_cant_be_checked_is_a_sentence_and_an_unknown_exercise_is_refused() -> None:
    sentence = said("03.2", 1, "no table", 128)
    said_first = "Not right yet: it can't be checked with the str and int that this cell gives ('str' "
    assert sentence.startswith(said_first)
    assert "it can't be checked with no argument (" in said("08.1", 4)
    with pytest.raises(InvalidArgumentError, match=r'"11\.1" is unknown: give one of 01'):
        check("11.1", 1)


def test_collections_are_compared_value_by_value_and_floats_about(tmp_path: Path) -> None:
    table = open_table(shaped_table(tmp_path / "table", partitions=0, files=60, commits=1))
    paths = table.files().to_arrow()["path"]
    other = {(*paths.to_pylist()[2:], "b"): "1 of these don't belong there, and 2 are"}
    judged("02.3", paths, other | {(): "and 60 are missing"}, table.files())
    assert said("02.3", [paths], table.files())
    assert "this is of type DataFrame" in said("02.3", table.files().to_arrow().to_pandas(), table.files())
    plan = table.plan_compaction(max_file_size=256 * KIB)
    layouts = plan.compare("event_time").layouts.select(["num_files", "point_files", "range_files"])
    counts, points, right = (np.array(column)[[0, 1, 3]] for column in layouts.to_pydict().values())
    sizes = {(*counts,): "these are all files", (*points,): "a single time", (*right[[0, 2, 1]],): "second"}
    # Rounded as the comparison shows them, which makes the last one 4 % smaller.
    assert check("03.3", right.round(1), plan).is_right
    judged("03.3", right * 1.01, sizes, plan)
    for answer in (right * 1.2, [*map(str, right)]):
        assert said("03.3", answer, plan).startswith("Not right yet: none of these is right: give ")
    assert said("03.3", right[:2], plan).startswith("Not right yet: give ")
    for unordered in ({*right}, dict.fromkeys(right)):
        assert f"this is of type {type(unordered).__name__}" in said("03.3", unordered, plan)
    assert "60 files and a max_file_size of" in said("03.3", right, table.plan_compaction())


def test_01_compares_a_compaction_with_the_version_before(tmp_path: Path) -> None:
    flights = Log(tmp_path / "flights", metadata({"time_hour": "long"}))
    for day in range(366):
        table = flights.commit(*spans(f"{day}-", "time_hour", [(day, day + 1)]))
    assert "has no version 366" in said("01.1", (3.0, 3.0), table)
    table = flights.replace(*spans("new", "time_hour", [(0, 300), (100, 366)]))
    overlaps = [table.files(version=version).overlap("time_hour") for version in (365, 366)]
    right, most = ([getattr(one, name) for one in overlaps] for name in ("mean", "max"))
    wrong = {(366, 2): "these are all files", (*right[::-1],): "wrong order", (*most,): "the most"}
    judged("01.1", right, wrong, table)
    log = Log(tmp_path / "random")
    assert "the last commit of this table is no" in said("01.2", 1.0, log.commit(*adds("a", 200)))
    factors = {0.02: "after divided by bytes before", 100.0: "these are files", 196_000: "the bytes saved"}
    judged("01.2", 50.0, factors, log.replace(*adds("b", 2, size=2_000)))
    assert "2 files were compacted" in said("01.2", 50.0, log.replace(*adds("c", 1)))


def test_02_wants_the_hint_deleted(tmp_path: Path) -> None:
    path = shaped_table(tmp_path / "table", partitions=0, files=4, rows=2, commits=4)
    deltalake.DeltaTable(path).create_checkpoint()
    deltalake.DeltaTable(path).delete("id = 0")
    table = open_table(path)
    rows = [row for row in table.log.listing().to_pylist() if row["name"] != "_last_checkpoint"]
    needed = [row["name"] for row in rows if row["needed"]]
    assert "_last_checkpoint is still in the log" in said("02.1", needed, table)
    (tmp_path / "table" / "_delta_log" / "_last_checkpoint").unlink()
    whole, commits = (row["name"] for row in rows), (name for name in needed if name.endswith(".json"))
    wrong = {(*whole,): "that is the whole log", (*commits,): "continue a checkpoint"}
    judged("02.1", needed, wrong | {(): "0 of these don't belong there, and 2 are"}, table)


def test_03_counts_bins_of_a_single_file_and_wants_something_left(tmp_path: Path) -> None:
    sizes = [add(str(number), size) for number, size in enumerate((20_000, 20_000, 60_000, 60_000, 60_000))]
    plan = Log(tmp_path / "sizes").commit(*sizes).plan_compaction(max_file_size=99_999)
    judged("03.1", 4, {1: "a single file count as well", 5: "these are files", 3: "can't be split"}, plan)
    customers, size = metadata({"id": "long", "customer": "string"}), 128 * KIB
    assert "no column customer" in said("03.2", 1, Log(tmp_path / "plain").commit(), size)
    log = Log(tmp_path / "customers", customers)
    assert "never compacted" in said("03.2", 4, log.commit(*adds("a", 8)), size)
    assert "there must be 300 names of 100 characters" in said("03.2", 0, log.replace(*adds("b", 1)), size)
    wrong = {5: "the first plan", 4: "these are files", 1: "own thresholds", 0: "compact the table"}
    judged("03.2", 2, wrong, log.replace(*adds("c", 5, size=50_000)), size)
    table = log.replace(*adds("d", 2, size=50_000))
    assert check("03.2", 1, table, size).is_right
    assert "this is of type bool" in said("03.2", True, table, size)


def test_04_looks_at_what_was_committed(tmp_path: Path) -> None:
    log = Log(tmp_path / "table", metadata({"value": "long"}))
    table = log.commit(*adds("a", 8, records=1_000))
    assert "no commit of this table appended rows" in said("04.1", 8_000, table.log.commits())
    assert "no overwrite with dataChange=false" in said("04.2", 8_000, table)
    assert 'no zorder_by="value"' in said("04.3", 8, table)
    commits = log.commit(*map(unchanged, adds("ten", 1))).log.commits()
    judged("04.1", 8_000, {8_010: "these are all rows", 10: "the stream doesn't deliver"}, commits)
    table = log.replace(*adds("b", 1, records=8_010))
    assert "the overwrite lost no row" in said("04.2", 8_010, table)
    wrong = {8_010: "after the append", 10: "overwrite lost", 2: "these are files"}
    judged("04.2", 8_000, wrong, log.replace(*adds("c", 2, records=4_000)))
    log.replace(*spans("d", "value", [(0, 100)] * 8))
    table = log.replace(*spans("e", "value", [(0, 30), (20, 60), (50, 100)] * 2), zOrderBy=["value"])
    judged("04.3", 4, {8: "before the plan", 1: "never into another one", 6: "all files"}, table)


def test_05_wants_an_empty_table_and_a_file_in_no_version(tmp_path: Path) -> None:
    log = Log(tmp_path / "table")
    log.commit(by="CREATE TABLE")
    assert "nobody has deleted" in said("05.3", "WRITE", log.commit(*adds("a", 1)).log)
    table = log.commit(remove("a0"), by="DELETE")
    judged("05.3", "DELETE", {"WRITE": "made the table", "OPTIMIZE": "committed nothing"}, table.log)
    assert "this plan deletes nothing" in said("05.2", "orphan", table.plan_vacuum())
    (tmp_path / "table" / "left").write_text("x")
    judged("05.2", "orphan", {"tombstone": "in no version"}, table.plan_vacuum(at=IN_EIGHT_DAYS))


def test_06_wants_the_delete_and_the_day(tmp_path: Path) -> None:
    path = shaped_table(tmp_path / "table", partitions=0, files=4, commits=1)
    table = open_table(path)
    early = table.plan_vacuum(at=IN_EIGHT_DAYS)
    assert "deletes 0 files" in said("06.1", 0.0, early, table.files())
    deltalake.DeltaTable(path).delete("id % 100 = 0")
    assert "has changed since" in said("06.1", 0.0, early, table.files())
    gone, kept = table.plan_vacuum(at=IN_EIGHT_DAYS), table.files()
    share = gone.size_bytes / (gone.size_bytes + kept.size_bytes)
    wrong = {0.01: "share of the rows", gone.size_bytes / kept.size_bytes: "what stays"}
    judged("06.1", share, wrong | {float(gone.size_bytes): "these are bytes"}, gone, kept)
    # A share needs more than one decimal.
    both = [SimpleNamespace(version=2, num_files=4, size_bytes=size) for size in (64, 36)]
    assert "a share from 0 to 1" in said("06.1", 0.6, *both)


def test_06_wants_sixty_days_in_any_unit(tmp_path: Path) -> None:
    files, log = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
    for length in ("1440 hours", "60 minutes"):
        head = metadata(configuration=dict.fromkeys((files, log), f"interval {length}"))
        Log(tmp_path / length, head).commit()
    judged("06.3", log, {files: "is in the task"}, open_table(tmp_path / "1440 hours").log)
    assert "isn't readable 60 days back" in said("06.3", log, open_table(tmp_path / "60 minutes").log)


def test_07_wants_the_stream_run_and_the_batches_by_one_name(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for batch in range(11):
        (offsets / str(batch)).touch()
    assert "nothing was removed" in said("07.1", [*range(11)], offsets)
    for batch in range(7):
        (offsets / str(batch)).unlink()
    wrong = {(8, 9, 10): "begins one more", (*range(11),): "all batches", (10,): "needs this one"}
    # In any order, because a folder may be listed in any order.
    judged("07.1", [10, 7, 9, 8], wrong | {("7", "8", "9", "10"): "give numbers"}, offsets)

    def written(name: str, *batches: int) -> Any:
        log = Log(tmp_path / name)
        return [log.commit({"txn": {"appId": "a", "version": batch}}) for batch in batches][-1].log

    judged("07.3", 2, {3: "its number is larger", 1: "consecutive", 20: "are rows"}, written("one", 5, 6))
    assert "batch 3 was written too" in said("07.3", 3, written("each", 5, 3, 6))
    assert "the log has the batches [6]" in said("07.3", 1, written("last", 6))


@pytest.mark.spark
@pytest.mark.nightly
def test_files_tasks_and_rows_are_those_that_spark_reads(tmp_path: Path, spark: SparkSession) -> None:
    log = Log(tmp_path / "table")
    log.commit(*(handmade.write_data(log.table, f"a{n}", pa.table({"id": [n]})) for n in range(20)))
    one = handmade.write_data(log.table, "one", pa.table({"id": range(20)}))
    log.replace(one)
    reader = spark.read.format("delta")
    both = [reader.option("versionAsOf", version).load(str(log.table)) for version in (0, 1)]
    tasks = [version.rdd.getNumPartitions() for version in both]
    judged("01.3", tasks, {(20, 1): "these are files", (*tasks[::-1],): "wrong order"}, *both)
    ids = spark.range(8)
    doubled = ids.union(ids.where("id < 7"))
    assert "no row came twice" in said("07.2", (0, 0), ids, ids)
    assert "the sink of ignoreChanges comes first" in said("07.2", (0, 7), ids, doubled)
    wrong = {(0, 7): "wrong order", (7, 7): "skips the whole commit", (15, 8): "all rows of the sinks"}
    judged("07.2", (7, 0), wrong, doubled, ids)
    paths = [tmp_path / f"{number}.json" for number in range(3)]
    for path in paths:
        path.write_text('{"id": 1}\n')
    whole, some = (spark.read.schema("id INT").json([*map(str, names)]) for names in (paths, paths[:2]))
    assert "the log still lists all files" in said("08.3", (3, 3), whole, iter(paths))
    wrong = {(3, 3): "gets fewer", (2, 2): "deletes no data file", (3, 2): "wrong order"}
    judged("08.3", (2, 3), wrong, some, paths)
    assert "other files than those of the output" in said("08.3", (3, 2), whole, paths[:2])


def test_08_says_which_batch_and_how_many_bytes(tmp_path: Path) -> None:
    judged("08.1", 4, {2: "compaction is written", 3: "two are kept", 7: "compaction is removed"}, POLICY)
    log = sink_log(make_log(tmp_path / "_spark_metadata", b0=f"v1\n{LINE}"))
    a_year, entry = 365 * 24 * 60, log.pace.entry_bytes
    wrong = {a_year * 200.0: "number of entries", a_year * entry: "with one file", 288_000 * entry: "a day"}
    judged("08.2", a_year * 200 * entry, wrong, log)


def test_09_wants_deletes_and_batches(tmp_path: Path) -> None:
    table = open_table(shaped_table(tmp_path / "table", partitions=2, files=4, rows=500, commits=1))
    assert said("09.1", (0, 0), table).endswith(": generate one with interop.generate_manifest(table).")
    manifests.write_manifest(table.path)
    assert "delete a row after it is made" in said("09.1", (0, 0), table)
    deltalake.DeltaTable(table.path).delete("id = 7")
    judged("09.1", (499, 500), {(1, 0): "as a whole", (500, 499): "wrong order"}, table)
    log = Log(tmp_path / "steps")
    log.commit(by="CREATE TABLE")
    assert "OPTIMIZE hasn't run on this table" in said("09.2", [2, 3, 4, 5], log.commit())
    assert "OPTIMIZE made 1 commit, not four" in said("09.2", [2], log.commit(by="OPTIMIZE"))
    table = [log.commit(by="OPTIMIZE") for _ in range(3)][-1]
    wrong = {(2,): "each batch is a commit", (1, 2, 3, 4): "of batches", (*range(6),): "made the table"}
    # Newest first, as in DESCRIBE HISTORY.
    judged("09.2", [5, 4, 3, 2], wrong, table)


@pytest.mark.spark
@pytest.mark.nightly
def test_09_3_and_10_3_ask_spark_for_types_and_files(tmp_path: Path, spark: SparkSession) -> None:
    one = pa.table({"id": [1]})
    for kind in ("integer", "string"):
        log = Log(tmp_path / kind, metadata({"id": "long", "code": kind}, ["code"]))
        parts = ({"code": value} for value in ("01", "02"))
        log.commit(*(handmade.write_data(log.table, f"code={part['code']}/a", one, part) for part in parts))
    lost, kept = (open_table(tmp_path / kind, spark) for kind in ("integer", "string"))
    assert "this table has the codes as integer" in said("09.3", "int", lost)
    # The type as in SQL, in printSchema, in a schema, in its text and in Python.
    for right in ("int", "integer", IntegerType(), IntegerType, "IntegerType()", int):
        judged("09.3", right, {"string": "gave to CONVERT", "bigint": "a smaller type"}, kept)
    assert 'give a type, such as "date"' in said("09.3", DateType, kept)
    columns = {"time": "timestamp", "customer": "long", "shop": "string"}
    log = Log(tmp_path / "sales", metadata(columns, ["shop"]))
    assert "Z-order" in said("10.3", (4, 4), log.commit())
    days = [f"2026-03-{day}T00:00:00.000Z" for day in ("01", "20")]
    files, airport = list[Action](), {"shop": "airport"}
    for number in range(4):
        low, high = ({"time": day, "customer": 250 * number + 249 * i} for i, day in enumerate(days))
        # Spark only skips files that have null counts.
        files.append(add(f"shop=airport/{number}", partition=airport, bounds=(low, high), nulls=0))
    files.append(add("shop=centre/0", partition={"shop": "centre"}, bounds=(low, high), nulls=0))
    log.replace(*files, zOrderBy=["customer"])
    wrong = {(1, 1): "rows of all customers", (4, 4): "sorted by customer", (4, 1): "wrong order"}
    wrong |= {(2, 5): "files of all shops"}
    judged("10.3", (1, 4), wrong, open_table(log.table, spark))


def test_10_wants_a_cube_left_alone_and_half_of_the_gain(tmp_path: Path) -> None:
    log = Log(tmp_path / "clustered")
    table = log.commit(*adds("a", 1), by="OPTIMIZE")
    assert "not an OPTIMIZE of a clustered table" in said("10.1", (1, 1), table)
    log.commit(*adds("b", 1))
    new = map(unchanged, [remove("b0"), *adds("c", 1)])
    table = log.commit(*new, by="OPTIMIZE", clusterBy=["customer"])
    wrong = {(2, 0): "cubes of 100 GiB", (0, 2): "even alone", (1, 2): "was not left alone"}
    judged("10.1", (1, 1), wrong, table)
    shares = {0.1: "in per cent", 9: "less than half", 11: "a smaller one", 50: "more than half"}
    judged("10.2", 10, shares, lambda share: SimpleNamespace(gain=min(5 * share, 100)), 100)
