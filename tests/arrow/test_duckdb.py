"""DuckDB reads what is proved where it reads as Spark does; elsewhere, and in doubt, Spark does."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.arrow.duckdb import compare_quickly
from compaction_kit.execute import CompactionResult
from compaction_kit.execute.failures import NotCompared
from tests import folders, handmade
from tests.conftest import SetConf
from tests.handmade import actions_of
from tests.releases import since_delta

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def compacted(folder: Path, strategy: str = "auto") -> CompactionResult:
    result = open_table(folder).plan_compaction().run(strategy=strategy)
    assert result.verified is True
    return result


def readers_of(result: CompactionResult) -> tuple[str, ...]:
    assert result.fingerprint is not None
    return result.fingerprint.readers


@pytest.mark.parametrize(
    "strategy", ["arrow", *(pytest.param(s, marks=pytest.mark.nightly) for s in ("optimize", "rewrite"))]
)
def test_duckdb_proves_each_strategy(changed: Path, strategy: str) -> None:
    result = compacted(changed, strategy)
    assert (readers_of(result), result.proof_reason) == (("DuckDB",), "")
    assert result.facts()["content"] == ("identical: 1,050 rows, 2 hashes over every column, read by DuckDB")
    (proof,) = [span for span in result.timeline.to_pylist() if span["step"] == "proof"]
    assert proof["label"] == "both sides, by DuckDB"


def test_spark_reads_without_duckdb(changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "duckdb" else find(name))
    result = compacted(changed)
    assert (readers_of(result), result.proof_reason) == (("Spark",), "duckdb isn't installed")
    assert result.facts()["content"].endswith("read by Spark, because duckdb isn't installed")


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        (
            "(id BIGINT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id')",
            "columns are found by their field ids",
        ),
        pytest.param(
            "(id BIGINT, v VARIANT) USING delta",
            "variant",
            marks=[since_delta("4.1"), pytest.mark.nightly],
        ),
    ],
)
def test_what_arrow_and_duckdb_would_misread_is_left(
    spark: SparkSession, tmp_path: Path, ddl: str, told: str
) -> None:
    table = tmp_path / "table"
    spark.sql(f"CREATE TABLE delta.`{table}` {ddl}")
    spark.sql(f"INSERT INTO delta.`{table}` (id) SELECT id FROM RANGE(0, 3, 1, 3)")
    result = compacted(table)
    assert (result.strategy, readers_of(result)) == ("optimize", ("Spark",))
    assert told in result.reason
    assert told in result.proof_reason


def test_old_dates_are_read_by_spark(spark: SparkSession, tmp_path: Path, confs: SetConf) -> None:
    confs("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    table = tmp_path / "table"
    days = spark.range(0, 2, 1, 2).selectExpr("DATE_ADD(DATE'1500-01-01', INT(id)) day")
    days.write.format("delta").save(str(table))
    result = compacted(table, "optimize")
    assert readers_of(result) == ("Spark",)
    assert "has dates of the old calendar, by org.apache.spark.legacyDateTime" in result.proof_reason


def test_spark_has_the_last_word(spark: SparkSession, changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What DuckDB alone takes for a difference is none."""
    open_table(changed).plan_compaction().run(strategy="arrow")
    adds, removes = ([{"add": a} for a in actions_of(changed, 5, kind)] for kind in ("add", "remove"))
    snapshot = open_table(changed).log.snapshot()
    assert compare_quickly(spark, snapshot, removes, adds).num_rows == 1_050
    with pytest.raises(NotCompared, match="DuckDB reads other rows"):
        compare_quickly(spark, snapshot, removes[1:], adds)


def moved(add: dict[str, Any], partition: str) -> dict[str, Any]:
    return {"add": add["add"] | {"partitionValues": {"part": partition}}}


def test_rows_in_another_partition_are_other_rows(spark: SparkSession, changed: Path) -> None:
    snapshot = open_table(changed).log.snapshot()
    (one, *_) = ({"add": action} for version in range(5) for action in actions_of(changed, version, "add"))
    assert compare_quickly(spark, snapshot, [one], [one]).num_rows > 0
    with pytest.raises(NotCompared, match="DuckDB reads other rows"):
        compare_quickly(spark, snapshot, [one], [moved(one, "another")])
    with pytest.raises(NotCompared, match="DuckDB reads other rows"):
        compare_quickly(spark, snapshot, [moved(one, "p1"), moved(one, "p2")], [moved(one, "p1")] * 2)
    # For Delta an empty string is null.
    assert compare_quickly(
        spark, snapshot, [moved(one, "")], [{"add": one["add"] | {"partitionValues": {"part": None}}}]
    )


def test_columns_that_were_renamed_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, s STRUCT<a: STRING>) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    rows = "SELECT id, NAMED_STRUCT('a', CONCAT('x', id)) FROM RANGE(0, 2, 1, 2)"
    spark.sql(f"INSERT INTO delta.`{table}` {rows}")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN s.a TO `b c`")
    snapshot = open_table(table).log.snapshot()
    one, other = ([{"add": add}] for add in actions_of(table, 1, "add"))
    assert compare_quickly(spark, snapshot, one, one).num_rows == 1
    with pytest.raises(NotCompared, match="DuckDB reads other rows"):
        compare_quickly(spark, snapshot, one, other)


def test_files_that_can_not_be_read_are_left_to_spark(spark: SparkSession, changed: Path) -> None:
    snapshot = open_table(changed).log.snapshot()
    gone = handmade.add("no-such-file.parquet", size=10)
    with pytest.raises(NotCompared, match=r"DuckDB can't read them \(IOException: .*no-such-file"):
        compare_quickly(spark, snapshot, [gone], [gone])


def test_executors_without_duckdb_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from compaction_kit.arrow.worker import Content, read_content

    monkeypatch.setitem(sys.modules, "duckdb", None)
    (found,) = read_content([(0, [])], b"", lambda _: None, None)
    assert Content(*found).failure.startswith("executors can't import duckdb")


def test_odd_names_and_older_columns_are_read(tmp_path: Path) -> None:
    """Names with quotes, a struct that got a field, a column that older files lack."""
    odd, inner = 'it\'s"odd"', "a'b\""
    struct = handmade.struct_of(dict.fromkeys((inner, "later"), "long"))
    kinds = {odd: "long", "filename": "string", "s": struct, "new": "double"}
    old = pa.table({odd: [1, 2], "filename": ["a", None], "s": [{inner: 1}, None]})
    new = pa.table({odd: [3], "filename": ["b"], "s": [{inner: 2, "later": 3}], "new": [-0.0]})
    adds = [handmade.write_data(tmp_path, f"{n}.parquet", rows) for n, rows in enumerate((old, new))]
    handmade.write_log(tmp_path, [handmade.metadata(kinds), *adds])
    before = folders.listing(tmp_path)
    result = compacted(tmp_path)
    assert readers_of(result) == ("DuckDB",), result.proof_reason
    assert before.keys() < folders.listing(tmp_path).keys()
