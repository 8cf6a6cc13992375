"""Partition columns in data files, compared with OPTIMIZE; test_vectors.py has the default."""

from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.execute.jobs import session_confs
from tests import folders
from tests.handmade import actions_of
from tests.releases import since_delta
from tests.rows import texts

# A column of each type that Delta partitions by: a SQL expression of the value of partition number k.
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
# The table is partitioned in another order than that of the schema.
ORDER = [*reversed(COLUMNS)]
SETTINGS = {
    "spark.sql.session.timeZone": "America/New_York",
    # As strategy "arrow" writes timestamps.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def table_in(spark: SparkSession, folder: Path, mapping: str) -> Path:
    """Write four partitions, one of them null, of four files each; two files have the columns, two don't."""
    partitions = [f"IF(k = 4, NULL, {COLUMNS[name]}) {name}" for name in COLUMNS]
    for start in (0, 80):
        # Each of the two tasks writes one file of each partition.
        rows = spark.range(start, start + 80, 1, 2).selectExpr("id", "id % 4 + 1 k", "CONCAT('v', id) v")
        writer = rows.selectExpr(*partitions, "id", "v").write.format("delta").mode("append")
        writer.option("delta.columnMapping.mode", mapping).partitionBy(*ORDER).save(str(folder))
        set_written(spark, folder, "false")
    return folder


def set_written(spark: SparkSession, table: Path, value: str) -> None:
    """Set whether data files get the partition columns; by default they do."""
    name = "delta.writePartitionColumnsToParquet"
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('{name}' = '{value}')")


def compacted(table: Path, strategy: str) -> dict[str, pq.ParquetFile]:
    """Compact a table; return the resulting file of each partition."""
    result = open_table(table).plan_compaction().run(strategy=strategy, verify=strategy == "arrow")
    assert (result.as_planned, result.num_bins) == (True, 4)
    adds = actions_of(table, result.versions[0], "add")
    return {
        str(sorted(add["partitionValues"].items())): pq.ParquetFile(table / unquote(add["path"]))
        for add in adds
    }


def rows_in(file: pq.ParquetFile) -> list[str]:
    """Return the rows of a file as sorted texts, so that NaN equals NaN."""
    return sorted(str(list(row.values())) for row in file.read().to_pylist())


@since_delta("4.4")
@pytest.mark.nightly
@pytest.mark.parametrize("mapping", ["none", "name"])
def test_partition_columns_are_as_optimize_writes(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    with session_confs(spark, SETTINGS):
        theirs = table_in(spark, tmp_path / "theirs", mapping)
        before, without = texts(spark, theirs), folders.copy(theirs, tmp_path / "without")
        # The property is still false in this copy.
        assert {len(file.schema) for file in compacted(without, "arrow").values()} == {2}
        set_written(spark, theirs, "true")
        ours = folders.copy(theirs, tmp_path / "ours")
        expected, found = compacted(theirs, "optimize"), compacted(ours, "arrow")
        assert found.keys() == expected.keys()
        for partition, file in found.items():
            # `equals` compares types, levels and field ids.
            assert file.schema.equals(expected[partition].schema)
            assert len(file.schema) == len(ORDER) + 2
            assert rows_in(file) == rows_in(expected[partition])
        assert texts(spark, ours) == texts(spark, without) == before
