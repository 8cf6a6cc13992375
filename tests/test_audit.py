import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from compaction_kit import audit
from compaction_kit.errors import InvalidArgumentError, TableNotFoundError
from tests import folders, handmade
from tests.handmade import remove

Actions = Sequence[handmade.Action]
WITH_VECTORS = handmade.protocol(features=["deletionVectors"])
FIRST, TWO = handmade.inline_vector([0]), handmade.inline_vector([0, 1])
PARTITIONED = handmade.metadata({"id": "long", "p": "string"}, ["p"])


def rewriting(*actions: handmade.Action, by: str = "OPTIMIZE") -> Actions:
    return [{"commitInfo": {"operation": by, "engineInfo": "by hand"}}, *map(handmade.unchanged, actions)]


class Made:
    """A table to write: its files have the column id."""

    def __init__(self, table: Path) -> None:
        self.table = table

    def __call__(self, path: str, *ids: int, vector: handmade.Action | None = None, p: str = "") -> Any:
        add = handmade.write_data(self.table, path, pa.table({"id": ids}), {"p": p} if p else None)
        return {"add": add["add"] | {"deletionVector": vector}} if vector else add


def damaged(made: Made) -> Sequence[Actions]:
    handmade.write_log(made.table, [handmade.add("a")])
    handmade.commit_path(made.table, 0).write_text('{"add":')
    return []


def cleaned_up(made: Made) -> Sequence[Actions]:
    """A checkpoint of a rewrite, without the commits before it."""
    for number in range(2):
        write_deltalake(made.table, pa.table({"id": [number]}), mode="append")
    DeltaTable(made.table).optimize.compact()
    DeltaTable(made.table).create_checkpoint()
    handmade.remove_commits(made.table, 0, 1)
    return []


def not_parquet(made: Made) -> Sequence[Actions]:
    commits = [made("a", 0, 1)], rewriting(remove("a"), made("b", 0, 1))
    (made.table / "b").write_bytes(b"x" * (made.table / "b").stat().st_size)
    return commits


NOT_LIVE = "and {0} of {0} removed files had not been live"
# The commits of a table, and what is found of the last one.
KINDS: dict[str, tuple[Callable[[Made], Sequence[Actions]], str, str | None]] = {
    "rows that a vector has deleted come back": (
        lambda made: (
            [WITH_VECTORS, made("a", 0, 1, 2, vector=FIRST)],
            rewriting(remove("a", vector=FIRST), made("b", 0, 1, 2)),
        ),
        *("refuted", "2 rows became 3"),
    ),
    # The remove action lacks the vector, so that the old file stays live.
    "trinodb/trino#31253": (
        lambda made: (
            [WITH_VECTORS, made("a", 0, 1, 2, vector=FIRST)],
            rewriting(remove("a"), made("b", 1, 2)),
        ),
        *("refuted", f"0 rows became 2, {NOT_LIVE.format(1)}"),
    ),
    # The remove actions name files that the table never had.
    "delta-io/delta-rs#3906": (
        lambda made: ([made("a", 0, 1, 2)], rewriting(remove("c"), remove("d"), made("b", 0, 1, 2))),
        *("refuted", f"0 rows became 3, {NOT_LIVE.format(2)}"),
    ),
    "one value": (
        lambda made: ([made("a", 0, 1, 2)], rewriting(remove("a"), made("b", 0, 1, 3))),
        *("refuted", "3 rows became other rows"),
    ),
    "the same file in another partition": (
        lambda made: ([PARTITIONED, made("a", 0, 1, p="1")], rewriting(made("a", 0, 1, p="2"))),
        *("refuted", "2 rows became other rows"),
    ),
    "a larger vector": (
        lambda made: (
            [WITH_VECTORS, made("a", 0, 1, 2, vector=FIRST)],
            rewriting(remove("a", vector=FIRST), made("a", 0, 1, 2, vector=TWO)),
        ),
        *("refuted", "2 rows became 1"),
    ),
    "not Parquet": (not_parquet, "can't be read", "versions 0 and 1 can't be compared"),
    "columns too": (
        lambda made: (
            [made("a", 1)],
            [handmade.metadata({"id": "long", "n": "long"}), *rewriting(remove("a"), made("b", 1))],
        ),
        *("can't be read", "the commit changes the columns too"),
    ),
    "damaged": (damaged, "can't be read", "damaged"),
    "without the rows that a vector has deleted": (
        lambda made: (
            [WITH_VECTORS, made("a", 0, 1, 2, vector=FIRST)],
            rewriting(remove("a", vector=FIRST), made("b", 2, 1)),
        ),
        *("proved", None),
    ),
    # Live files again, as ANALYZE writes them; and a first version that says it changes no data.
    "statistics alone": (
        lambda made: (rewriting(made("a", 0, 1)), rewriting(made("a", 0, 1), by="COMPUTE STATISTICS")),
        *("proved", None),
    ),
    "vacuumed": (
        lambda made: ([handmade.add("a")], rewriting(remove("a"), made("b", 1))),
        *("files are gone", "1 file can't be found"),
    ),
    "cleaned up": (cleaned_up, "files are gone", "the log no longer has version 1"),
}


@pytest.mark.spark
def test_each_kind_of_rewrite_is_proved_or_refuted_and_the_worst_comes_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    for number, (make, _, _) in enumerate(KINDS.values()):
        table = lake / f"{number:02}"
        handmade.write_log(table, *make(Made(table)))
    found = audit(lake)
    assert found.finding == (
        f"13 rewrites in {lake}: 6 refuted, 3 can't be read, 2 proved, 2 whose files are gone"
    )
    receipt = json.loads(json.dumps(found.to_dict()))
    for row, (name, (_, outcome, reason)) in zip(receipt["rows"], KINDS.items(), strict=True):
        assert (name, row["outcome"]) == (name, outcome)
        assert (reason or "").casefold() in (row["reason"] or "").casefold()
        sides = [(row[f"rows_{side}"], row[f"hashes_{side}"]) for side in ("removed", "added")]
        assert ((None, None) not in sides) == (outcome in ("proved", "refuted"))
        if None not in sides[0]:
            assert (sides[0] == sides[1]) == (outcome == "proved"), name
    row = receipt["rows"][3]
    assert (row["version"], row["engine"], row["num_removed"], row["rows_added"]) == (1, "by hand", 1, 3)
    assert (row["readers"], len(row["hashes_added"].split())) == ("Spark", 2)
    assert receipt["at"] > row["timestamp"]
    assert f"{lake / '07'}: the commit changes the columns too." in found.explain().splitlines()
    assert "3 rows became other rows" in found._repr_html_()


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
