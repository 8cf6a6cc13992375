import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from compaction_kit import audit, open_table
from tests import folders, handmade
from tests.conftest import CopyOf
from tests.handmade import remove

WITH_VECTORS = handmade.protocol(features=["deletionVectors"])
FIRST, TWO = handmade.inline_vector([0]), handmade.inline_vector([0, 1])
MORE_COLUMNS = handmade.metadata({"id": "long", "p": "string", "n": "long"}, ["p"])


class File(NamedTuple):
    """A file to write: its values of the column id, and its partition."""

    path: str
    ids: Sequence[float]
    vector: handmade.Action | None = None
    p: str | None = None


Step = File | handmade.Action


class Kind(NamedTuple):
    """A table's file and its rewrite, what the audit finds, and how the table is damaged before it."""

    file: File
    rewrite: Sequence[Step]
    outcome: str
    reason: str = ""
    spoil: Callable[[Path], object] = lambda table: None

    def write(self, table: Path) -> None:
        columns = handmade.metadata({"id": "long", "p": "string"}, ["p"])
        first = [columns, *([WITH_VECTORS] if self.file.vector else []), action(table, self.file)]
        info = {"commitInfo": {"operation": "OPTIMIZE", "engineInfo": "by hand"}}
        handmade.write_log(table, first, [info, *(action(table, step) for step in self.rewrite)])
        self.spoil(table)


def action(table: Path, step: Step) -> handmade.Action:
    """Return the action of a step, with dataChange=false unless it is a metaData action."""
    if isinstance(step, File):
        add = handmade.write_data(table, step.path, pa.table({"id": step.ids}), {"p": step.p})["add"]
        step = {"add": add | ({"deletionVector": step.vector} if step.vector else {})}
    return step if "metaData" in step else handmade.unchanged(step)


def damage_parquet(table: Path) -> None:
    (table / "b").write_bytes(b"x" * (table / "b").stat().st_size)


def damage_log(table: Path) -> None:
    handmade.commit_path(table, 0).write_text('{"add":')


def clean_up(table: Path) -> None:
    """Leave a checkpoint of the rewrite, without the commit before it."""
    DeltaTable(table).create_checkpoint()
    handmade.remove_commits(table, 0)


A, MARKED, OLD = File("a", [0, 1, 2]), File("a", [0, 1, 2], FIRST), remove("a", vector=FIRST)
NEW = File("b", [0, 1, 2])
REWRITE: list[Step] = [remove("a"), NEW]
NOT_LIVE = "and {0} of {0} removed files had not been live"
KINDS = {
    "rows that a vector has deleted come back": Kind(MARKED, [OLD, NEW], "refuted", "2 rows became 3"),
    # The remove action lacks the vector, so that the old file stays live.
    "trinodb/trino#31253": Kind(
        MARKED, [remove("a"), File("b", [1, 2])], "refuted", f"0 rows became 2, {NOT_LIVE.format(1)}"
    ),
    # The remove actions name files that the table never had.
    "delta-io/delta-rs#3906": Kind(
        A, [remove("c"), remove("d"), NEW], "refuted", f"0 rows became 3, {NOT_LIVE.format(2)}"
    ),
    "one value": Kind(A, [remove("a"), File("b", [0, 1, 3])], "refuted", "3 rows became other rows"),
    "another partition": Kind(A, [File("a", [0, 1, 2], p="2")], "refuted", "3 rows became other rows"),
    "a larger vector": Kind(MARKED, [OLD, File("a", [0, 1, 2], TWO)], "refuted", "2 rows became 1"),
    "not Parquet": Kind(A, REWRITE, "can't be read", "0 and 1 can't be compared", damage_parquet),
    "columns too": Kind(A, [MORE_COLUMNS, *REWRITE], "can't be read", "the commit changes the columns too"),
    # DuckDB would cast these columns; no reader of Delta does.
    "integers as doubles": Kind(A, [remove("a"), File("b", [0.0, 1.4, 2.0])], "can't be read", "be compared"),
    "damaged": Kind(A, REWRITE, "can't be read", "damaged", damage_log),
    "without the rows that a vector has deleted": Kind(MARKED, [OLD, File("b", [2, 1])], "proved"),
    # Adds a live file again, as ANALYZE does.
    "statistics alone": Kind(A, [A], "proved"),
    "vacuumed": Kind(
        A, REWRITE, "files are gone", "1 file can't be found", lambda table: (table / "a").unlink()
    ),
    "cleaned up": Kind(A, REWRITE, "files are gone", "the log no longer has version 0", clean_up),
}


@pytest.mark.usefixtures("spark")
def test_each_kind_of_rewrite_is_proved_or_refuted_and_the_worst_comes_first(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for number, kind in enumerate(KINDS.values()):
        kind.write(lake / f"{number:02}")
    found = audit(lake)
    assert found.finding == (
        f"13 rewrites in {lake}: 6 refuted, 3 unreadable, 2 proved, 2 whose files are gone; "
        "1 table can't be read"
    )
    receipt = json.loads(json.dumps(found.to_dict()))
    for row, (name, kind) in zip(receipt["rows"], KINDS.items(), strict=True):
        assert (name, row["outcome"]) == (name, kind.outcome)
        assert kind.reason.casefold() in (row["reason"] or "").casefold()
        sides = [(row[f"rows_{side}"], row[f"hashes_{side}"]) for side in ("removed", "added")]
        assert ((None, None) not in sides) == (kind.outcome in ("proved", "refuted"))
        if None not in sides[0]:
            assert (sides[0] == sides[1]) == (kind.outcome == "proved"), name
    row = receipt["rows"][3]
    assert (row["version"], row["engine"], row["num_removed"], row["rows_added"]) == (1, "by hand", 1, 3)
    assert (row["readers"], len(row["hashes_added"].split())) == ("Spark", 2)
    assert receipt["at"] > row["timestamp"]
    assert f"{lake / '07'}: the commit changes the columns too." in found.explain().splitlines()
    assert "3 rows became other rows" in found._repr_html_()
    assert "and 0 of" not in found.explain()


def test_true_rewrites_of_deltalake_and_of_spark_are_proved(
    spark: SparkSession, lived: Path, copy_of: CopyOf, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    for number in range(4):
        rows = pa.table({"id": [number, None], "p": ["a", str(number % 2)]})
        write_deltalake(table, rows, mode="append", partition_by=["p"])
    DeltaTable(table).optimize.compact()
    handmade.write_commit(table, 5, [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}])
    spark.sql(f"REORG TABLE delta.`{copy_of(lived)}` APPLY (PURGE)").collect()
    before, calls = folders.listing(tmp_path), list[tuple[int, int, str]]()
    found = audit(tmp_path, progress=lambda *call: calls.append(call))
    assert folders.listing(tmp_path) == before
    assert found.rows["operation"].to_pylist() == ["OPTIMIZE", "REORG", "OPTIMIZE"]
    engines = [re.split("[/:]", engine)[0] for engine in found.rows["engine"].to_pylist()]
    assert engines == ["Apache-Spark", "Apache-Spark", "delta-rs"]
    counts = found.rows.select(["num_added", "rows_removed", "rows_added"]).to_pylist()[-1]
    assert (set(found.rows["outcome"].to_pylist()), [*counts.values()]) == ({"proved"}, [3, 8, 8])
    assert [call[:2] for call in calls] == [(1, 3), (2, 3), (3, 3)]
    nothing = audit(table, since=found.at)
    assert (nothing.explain(), len(nothing.parts())) == (f"0 rewrites in {table}.", 1)
    many = replace(found, rows=pa.concat_tables([found.rows] * 20))
    assert len(many.explain().splitlines()) == 52


def test_a_rewrite_is_dated_as_in_the_history(tmp_path: Path) -> None:
    """The file of the commit before is from the future, as after a clock was put right."""
    rewrite = [handmade.unchanged(one) for one in (handmade.remove("a"), handmade.add("b"))]
    handmade.write_log(tmp_path, [handmade.add("a")], rewrite)
    later = datetime.now(UTC) + timedelta(days=10)
    os.utime(handmade.commit_path(tmp_path, 0), (later.timestamp(), later.timestamp()))
    found = audit(tmp_path, since=later).to_arrow()
    assert found["timestamp"].to_pylist() == open_table(tmp_path).history()["timestamp"].to_pylist()[1:]


def test_a_log_that_lacks_a_commit_is_not_taken_for_one_without_rewrites(tmp_path: Path) -> None:
    handmade.write_log(tmp_path, *([handmade.add(name)] for name in "abc"))
    handmade.remove_commits(tmp_path, 1)
    (row,) = audit(tmp_path).to_arrow().to_pylist()
    assert (row["version"], row["outcome"]) == (None, "can't be read")
    assert "the log lacks the commit of version 1" in row["reason"]
