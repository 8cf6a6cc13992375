import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from compaction_kit import audit
from compaction_kit.audits import Audit
from compaction_kit.errors import InvalidArgumentError, TableNotFoundError
from tests import folders, handmade

Actions = Sequence[handmade.Action]
WITH_VECTORS = handmade.protocol(features=["deletionVectors"])
FIRST, TWO = handmade.inline_vector([0]), handmade.inline_vector([0, 1])


def rewriting(*actions: handmade.Action, by: str = "OPTIMIZE") -> Actions:
    changed = [{name: fields | {"dataChange": False} for name, fields in one.items()} for one in actions]
    return [{"commitInfo": {"operation": by, "engineInfo": "by hand"}}, *changed]


def ids(table: Path, path: str, *numbers: int, **options: Any) -> handmade.Action:
    return handmade.write_data(table, path, pa.table({"id": numbers}), **options)


def marked(add: handmade.Action, vector: handmade.Action) -> handmade.Action:
    return {"add": add["add"] | {"deletionVector": vector}}


def without_a_vector_read(table: Path) -> None:
    """Rows that a vector has deleted come back in what replaces the file."""
    old, new = marked(ids(table, "a", 0, 1, 2), FIRST), ids(table, "b", 0, 1, 2)
    handmade.write_log(table, [WITH_VECTORS, old], rewriting(handmade.remove("a", vector=FIRST), new))


def without_a_vector_removed(table: Path) -> None:
    """As in trinodb/trino#31253: the remove action lacks the vector, so that the old file stays live."""
    old, new = marked(ids(table, "a", 0, 1, 2), FIRST), ids(table, "b", 1, 2)
    handmade.write_log(table, [WITH_VECTORS, old], rewriting(handmade.remove("a"), new))


def doubled(table: Path) -> None:
    """As in delta-io/delta-rs#3906: the remove actions name files that the table never had."""
    old, new = ids(table, "a", 0, 1, 2), ids(table, "b", 0, 1, 2)
    handmade.write_log(table, [old], rewriting(handmade.remove("c"), handmade.remove("d"), new))


def one_value(table: Path) -> None:
    old, new = ids(table, "a", 0, 1, 2), ids(table, "b", 0, 1, 3)
    handmade.write_log(table, [old], rewriting(handmade.remove("a"), new))


def another_partition(table: Path) -> None:
    """The same file with another partition value."""
    old, other = (ids(table, "a", 0, 1, partition={"p": value}) for value in "12")
    columns = handmade.metadata({"id": "long", "p": "string"}, ["p"])
    handmade.write_log(table, [columns, old], rewriting(other))


def a_larger_vector(table: Path) -> None:
    """A commit of deletion vectors alone."""
    file = ids(table, "a", 0, 1, 2)
    done = rewriting(handmade.remove("a", vector=FIRST), marked(file, TWO))
    handmade.write_log(table, [WITH_VECTORS, marked(file, FIRST)], done)


def a_vector_less(table: Path) -> None:
    """The rows without those that a vector has deleted, which is true."""
    old, new = marked(ids(table, "a", 0, 1, 2), FIRST), ids(table, "b", 2, 1)
    handmade.write_log(table, [WITH_VECTORS, old], rewriting(handmade.remove("a", vector=FIRST), new))


def statistics_alone(table: Path) -> None:
    """Live files again, as ANALYZE writes them; and a first version that says it changes no data."""
    file = ids(table, "a", 0, 1, 2)
    handmade.write_log(table, rewriting(file), rewriting(file, by="COMPUTE STATISTICS"))


def vacuumed(table: Path) -> None:
    handmade.write_log(table, [handmade.add("a")], rewriting(handmade.remove("a"), ids(table, "b", 1)))


def columns_too(table: Path) -> None:
    columns = handmade.metadata({"id": "long", "name": "string"})
    done = [columns, *rewriting(handmade.remove("a"), ids(table, "b", 1))]
    handmade.write_log(table, [ids(table, "a", 1)], done)


def not_parquet(table: Path) -> None:
    old, new = ids(table, "a", 0, 1), ids(table, "b", 0, 1)
    (table / "b").write_bytes(b"x" * (table / "b").stat().st_size)
    handmade.write_log(table, [old], rewriting(handmade.remove("a"), new))


def damaged(table: Path) -> None:
    handmade.write_log(table, [handmade.add("a")])
    handmade.commit_path(table, 0).write_text('{"add":')


def cleaned_up(table: Path) -> None:
    """A checkpoint of a rewrite, without the commits before it."""
    for number in range(2):
        write_deltalake(table, pa.table({"id": [number]}), mode="append")
    DeltaTable(table).optimize.compact()
    DeltaTable(table).create_checkpoint()
    handmade.remove_commits(table, 0, 1)


NOT_LIVE = "and {0} of {0} removed files had not been live"
KINDS = {
    without_a_vector_read: ("refuted", "2 rows became 3"),
    without_a_vector_removed: ("refuted", f"0 rows became 2, {NOT_LIVE.format(1)}"),
    doubled: ("refuted", f"0 rows became 3, {NOT_LIVE.format(2)}"),
    one_value: ("refuted", "3 rows became other rows"),
    another_partition: ("refuted", "2 rows became other rows"),
    a_larger_vector: ("refuted", "2 rows became 1"),
    not_parquet: ("can't be read", "versions 0 and 1 can't be compared"),
    columns_too: ("can't be read", "the commit changes the columns too"),
    damaged: ("can't be read", "damaged"),
    a_vector_less: ("proved", None),
    statistics_alone: ("proved", None),
    vacuumed: ("files are gone", "1 file can't be found"),
    cleaned_up: ("files are gone", "the log no longer has version 1"),
}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("audit") / "lake"
    for make in KINDS:
        make(root / make.__name__)
    return root


@pytest.fixture(scope="module")
def found(lake: Path) -> Audit:
    return audit(lake)


@pytest.mark.spark
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_each_kind_of_rewrite_is_proved_or_refuted(found: Audit, lake: Path, make: Any) -> None:
    (row,) = (row for row in found.rows.to_pylist() if row["table"] == str(lake / make.__name__))
    outcome, reason = KINDS[make]
    assert row["outcome"] == outcome
    assert (row["reason"] or "").casefold().startswith(reason or "") or reason in row["reason"]
    has_rows = outcome in ("proved", "refuted")
    assert (row["rows_added"] is not None) == (row["hashes_added"] is not None) == has_rows
    if has_rows:
        sides = [(row[f"rows_{side}"], row[f"hashes_{side}"]) for side in ("removed", "added")]
        assert (sides[0] == sides[1]) == (outcome == "proved")


@pytest.mark.spark
def test_the_record_says_what_was_found_the_worst_first(found: Audit, lake: Path) -> None:
    outcomes = [outcome for outcome, _ in KINDS.values()]
    assert found.finding == (
        f"13 rewrites in {lake}: 6 refuted, 3 can't be read, 2 proved, 2 whose files are gone"
    )
    assert found.to_arrow()["outcome"].to_pylist() == outcomes
    lines = found.explain().splitlines()
    assert len(lines) == 1 + len(KINDS) + outcomes.count("can't be read")
    assert f"{lake / 'columns_too'}: the commit changes the columns too." in lines
    assert "3 rows became other rows" in found._repr_html_()
    receipt = json.loads(json.dumps(found.to_dict()))
    assert [row["outcome"] for row in receipt["rows"]] == outcomes
    (row,) = (row for row in receipt["rows"] if row["table"].endswith("one_value"))
    assert (row["version"], row["engine"], row["num_removed"], row["rows_added"]) == (1, "by hand", 1, 3)
    assert (row["readers"], len(row["hashes_added"].split())) == ("Spark", 2)
    assert receipt["at"] > row["timestamp"]


@pytest.mark.spark
def test_true_rewrites_of_deltalake_and_of_optimize_are_proved(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    for number in range(4):
        rows = pa.table({"id": [number, None], "p": ["a", str(number % 2)]})
        write_deltalake(table, rows, mode="append", partition_by=["p"])
    DeltaTable(table).optimize.compact()
    write_deltalake(table, pa.table({"id": [7], "p": ["a"]}), mode="append")
    spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    before = folders.listing(table)
    calls: list[tuple[int, int, str]] = []
    found = audit(table, progress=lambda *call: calls.append(call))
    assert folders.listing(table) == before
    rows = found.rows.select(["version", "outcome", "num_added", "rows_removed", "rows_added"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(4, "proved", 3, 8, 8), (6, "proved", 1, 5, 5)]
    engines = found.rows["engine"].to_pylist()
    assert (engines[0].partition(":")[0], engines[1].partition("/")[0]) == ("delta-rs", "Apache-Spark")
    assert calls == [(1, 2, str(table)), (2, 2, str(table))]
    assert audit(table, since=found.at).explain() == f"0 rewrites in {table}."


@pytest.mark.spark
@pytest.mark.nightly
def test_whatever_spark_rewrites_is_proved_with_mapped_columns_vectors_and_restored_versions(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, clone = tmp_path / "table", tmp_path / "clone"
    name = f"delta.`{table}`"
    features = "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"
    insert = f"INSERT INTO {name} SELECT id, id % 2, uuid() FROM range(40)"
    statements = [
        f"CREATE TABLE {name} (a LONG, p LONG, c STRING) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ({features})",
        *[insert] * 3,
        f"OPTIMIZE {name}",
        f"DELETE FROM {name} WHERE a < 9",
        f"ALTER TABLE {name} RENAME COLUMN c TO d",
        f"REORG TABLE {name} APPLY (PURGE)",
        f"RESTORE {name} TO VERSION AS OF 5",
        f"DELETE FROM {name} WHERE a > 30",
        f"ALTER TABLE {name} DROP COLUMN c",
        f"OPTIMIZE {name} ZORDER BY (a)",
        insert.replace(", uuid()", ""),
        f"OPTIMIZE {name}",
        f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {name}",
    ]
    for statement in statements:
        spark.sql(statement).collect()
    found = audit(tmp_path)
    assert found.rows["table"].to_pylist() == [str(table)] * 4
    assert found.rows["operation"].to_pylist() == ["OPTIMIZE", "REORG", "OPTIMIZE", "OPTIMIZE"]
    assert found.rows["outcome"].to_pylist() == ["proved"] * 4, found.explain()
    # That the first vectors are gone, Spark finds out as it reads them.
    min(table.rglob("deletion_vector_*.bin"), key=lambda path: path.stat().st_mtime).unlink()
    gone = audit(table).rows.to_pylist()[-1]
    assert (gone["operation"], gone["outcome"]) == ("REORG", "files are gone")


def test_bad_input_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r'since="soon" is not a time: write it as'):
        audit(tmp_path, since="soon")
    with pytest.raises(TableNotFoundError):
        audit(tmp_path / "nothing")
    assert audit(tmp_path).explain() == f"0 rewrites in {tmp_path}."
