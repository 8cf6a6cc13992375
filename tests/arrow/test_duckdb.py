"""DuckDB reads files for the proof if it reads them as Spark does; otherwise, or in doubt, Spark does."""

import importlib.util
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.arrow.duckdb import compare_quickly
from compaction_kit.arrow.worker import Content, read_content
from compaction_kit.execute.failures import NotCompared
from tests import folders, handmade
from tests.conftest import SetConf
from tests.handmade import actions_of

pytestmark = pytest.mark.usefixtures("spark")


def test_spark_reads_without_duckdb(changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "duckdb" else find(name))
    result = open_table(changed).plan_compaction().run()
    assert (result.verified, result.proof_reason) == (True, "duckdb isn't installed")
    assert result.facts()["content"].endswith("read by Spark (duckdb isn't installed)")


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
    result = open_table(tmp_path).plan_compaction().run()
    assert (result.verified, result.proof_reason) == (True, "")
    assert result.facts()["content"] == "identical: 3 rows, 2 hashes over every column, read by DuckDB"
    (proof,) = [span for span in result.timeline.to_pylist() if span["step"] == "proof"]
    assert proof["label"] == "both sides, by DuckDB"
    assert before.keys() < folders.listing(tmp_path).keys()


def test_old_dates_are_left_to_spark(spark: SparkSession, tmp_path: Path, confs: SetConf) -> None:
    confs("spark.sql.parquet.int96RebaseModeInWrite", "LEGACY")
    spark.sql("SELECT ARRAY(TIMESTAMP'1500-01-01') times").write.format("delta").save(str(tmp_path))
    old = [{"add": add} for add in actions_of(tmp_path, 0, "add")]
    told = "has dates of the legacy hybrid calendar, by org.apache.spark.legacyINT96"
    with pytest.raises(NotCompared, match=told):
        compare_quickly(spark, open_table(tmp_path).log.snapshot(), old, old)


def test_other_rows_and_rows_in_another_partition_are_left_to_spark(
    spark: SparkSession, shaped: Path
) -> None:
    compare = partial(compare_quickly, spark, open_table(shaped).log.snapshot())
    one, other, *_ = (add for version in range(5) for add in actions_of(shaped, version, "add"))

    def moved(partition: str | None) -> handmade.Action:
        return {"add": one | {"partitionValues": {"part": partition}}}

    assert compare([{"add": one}, {"add": other}], [{"add": other}, {"add": one}]).num_rows == 100
    # Delta reads an empty partition value as null, and leaves nulls out of its actions.
    assert compare([moved("")], [moved(None)]).num_rows == 50
    assert compare([{"add": one | {"partitionValues": {}}}], [moved(None)]).num_rows == 50
    for gone, new in (
        ([{"add": one}], [{"add": other}]),
        ([{"add": one}, {"add": other}], [{"add": one}]),
        ([moved("p1")], [moved("p2")]),
        ([moved("p1"), moved("p2")], [moved("p1")] * 2),
    ):
        with pytest.raises(NotCompared, match="DuckDB reads other rows"):
            compare(gone, new)
    with pytest.raises(NotCompared, match=r"DuckDB can't read them \(IOException: .*no-such-file"):
        compare([handmade.add("no-such-file.parquet")], [{"add": one}])


def test_columns_that_were_renamed_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    inner = handmade.struct_of({"b c": "string"})
    inner["fields"][0]["metadata"] = {"delta.columnMapping.physicalName": "a"}
    columns = handmade.metadata({"s": inner}, configuration={"delta.columnMapping.mode": "name"})
    adds = [
        handmade.write_data(tmp_path, f"{text}.parquet", pa.table({"s": [{"a": text}]}))
        for text in ("x", "y")
    ]
    handmade.write_log(tmp_path, [columns, *adds])
    compare = partial(compare_quickly, spark, open_table(tmp_path).log.snapshot())
    assert compare(adds[:1], adds[:1]).num_rows == 1
    with pytest.raises(NotCompared, match="DuckDB reads other rows"):
        compare(adds[:1], adds[1:])


def test_executors_without_duckdb_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    (found,) = read_content([(0, [])], b"", lambda _: None, None)
    assert Content(*found).failure.startswith("executors can't import duckdb")
