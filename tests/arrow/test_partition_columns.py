"""Partition columns in data files, beside those that OPTIMIZE writes; by default, see test_strategy.py."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.execute.jobs import session_confs
from compaction_kit.log.paths import places
from compaction_kit.storage import open_store
from tests import folders
from tests.handmade import actions_of
from tests.releases import since_delta
from tests.rows import texts

pytestmark = pytest.mark.spark

# Every type that Delta partitions by: the expression of a partition's value by its number; null in one.
COLUMNS = {
    "s": "ELT(k, 'a b/%', '日本', '01')",
    "l": "ELT(k, -9223372036854775808, 9223372036854775807, 0)",
    "i": "CAST(ELT(k, -2147483648, 2147483647, 0) AS INT)",
    "h": "CAST(ELT(k, -32768, 32767, 0) AS SHORT)",
    "y": "CAST(ELT(k, -128, 127, 0) AS BYTE)",
    "f": "CAST(ELT(k, '-Infinity', 'NaN', '0.1') AS FLOAT)",
    "d": "CAST(ELT(k, '5e-324', 'NaN', '0.1') AS DOUBLE)",
    "d9": "CAST(ELT(k, '-999999.999', '0.001', '1.5') AS DECIMAL(9, 3))",
    "d18": "CAST(ELT(k, '-999999999999.999999', '0.000001', '1.5') AS DECIMAL(18, 6))",
    "d38": "CAST(CONCAT(ELT(k, '-', '', '0'), REPEAT('9', 28), '.', REPEAT('9', 10)) AS DECIMAL(38, 10))",
    "t": "CAST(ELT(k, '0001-01-03', '9999-12-30 23:59:59.999999', '2024-03-10 02:30:00') AS TIMESTAMP)",
    "n": "CAST(ELT(k, '0001-01-01', '9999-12-31 23:59:59.999999', '2024-03-10 02:30') AS TIMESTAMP_NTZ)",
    "bool": "k = 1",
    "day": "CAST(ELT(k, '0001-01-01', '9999-12-31', '1969-12-31') AS DATE)",
    "b": "CAST(ELT(k, ' b', 'b', '日') AS BINARY)",
    "nothing": "CAST(NULL AS INT)",
}
# Whether a partition's files have these columns.
IS_IN_FILES = "w"
# Not in the order of the schema.
ORDER = [*reversed(COLUMNS), IS_IN_FILES]
WRITTEN = "delta.writePartitionColumnsToParquet"
HAS_PROPERTY = since_delta("4.4")
SETTINGS = {
    "spark.sql.session.timeZone": "America/New_York",
    # As strategy "arrow" writes them.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    with session_confs(spark, SETTINGS):
        yield


def table_in(spark: SparkSession, folder: Path, mapping: str) -> Path:
    """A table of twice four partitions in two files each, one of four null; four have the columns in them."""
    partitions = [f"IF(k = 4, NULL, {COLUMNS[name]}) {name}" for name in COLUMNS]
    options = {"delta.columnMapping.mode": mapping, WRITTEN: "true"}
    for start, is_in_files in ((0, "true"), (80, "false")):
        if start:
            set_properties(spark, folder, {WRITTEN: is_in_files})
        # Two tasks that hold each partition once.
        rows = spark.range(start, start + 80, 1, 2).selectExpr("id", "id % 4 + 1 k", "CONCAT('v', id) v")
        rows = rows.selectExpr(*partitions, f"{is_in_files} {IS_IN_FILES}", "id", "v")
        writer = rows.write.format("delta").mode("append").partitionBy(*ORDER)
        writer.options(**options if not start else {}).save(str(folder))
    return folder


def set_properties(spark: SparkSession, table: Path, values: Mapping[str, str]) -> None:
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in values.items())
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({pairs})")


def compacted(table: Path, strategy: str) -> dict[str, dict[str, Any]]:
    """The add actions of a compaction of eight bins, by their partition."""
    result = open_table(table).plan_compaction().run(strategy=strategy, verify=strategy == "arrow")
    assert (result.as_planned, result.num_bins) == (True, 8)
    (version,) = result.versions
    return {
        str(sorted(add["partitionValues"].items(), key=str)): add for add in actions_of(table, version, "add")
    }


def file_of(table: Path, add: dict[str, Any]) -> Path:
    return table / places(pa.array([add["path"]]), open_store(str(table)))[0].as_py()


def layout(path: Path) -> list[tuple[Any, ...]]:
    """What a file's footer says of its columns."""
    file = pq.ParquetFile(path)
    ids = [(field.metadata or {}).get(b"PARQUET:field_id") for field in file.schema_arrow]
    found = []
    for one, id_ in zip(map(file.schema.column, range(len(ids))), ids, strict=True):
        kind = one.physical_type, str(one.logical_type), one.converted_type
        found.append((one.path, *kind, one.max_definition_level, id_))
    return found


def rows_in(path: Path) -> list[str]:
    """The rows of a file alone, as text: NaN equals NaN."""
    return sorted(str(list(row.values())) for row in pq.ParquetFile(path).read().to_pylist())


@HAS_PROPERTY
@pytest.mark.nightly
@pytest.mark.parametrize("mapping", ["none", "name"])
def test_they_are_written_or_not_as_optimize_does(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    theirs = table_in(spark, tmp_path / "theirs", mapping)
    inputs = open_table(theirs).files().to_arrow().to_pylist()
    widths = {(file[f"partition.{IS_IN_FILES}"], len(layout(file_of(theirs, file)))) for file in inputs}
    assert widths == {("true", len(ORDER) + 2), ("false", 2)}
    before, without = texts(spark, theirs), folders.copy(theirs, tmp_path / "without")
    # As it was left: with the property that says so.
    assert {len(layout(file_of(without, add))) for add in compacted(without, "arrow").values()} == {2}
    assert texts(spark, without) == before
    set_properties(spark, theirs, {WRITTEN: "true"})
    ours = folders.copy(theirs, tmp_path / "ours")
    expected, found = compacted(theirs, "optimize"), compacted(ours, "arrow")
    assert found.keys() == expected.keys()
    for partition, add in found.items():
        our_file, their_file = file_of(ours, add), file_of(theirs, expected[partition])
        assert layout(our_file) == layout(their_file)
        assert len(layout(our_file)) == len(ORDER) + 2
        assert rows_in(our_file) == rows_in(their_file)
        assert columns_of(add["stats"]) == columns_of(expected[partition]["stats"])
        assert len(columns_of(add["stats"])) == 2
    assert texts(spark, ours) == before


def columns_of(stats: str) -> list[str]:
    return sorted(json.loads(stats)["nullCount"])
