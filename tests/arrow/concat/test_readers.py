"""Files concatenated without decoding them, as read by Spark, pyarrow and the Rust reader."""

from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from tests import handmade
from tests.arrow.concat.test_concatenate import concatenated, places, read, row_groups, write
from tests.conftest import SetConf


def ordered(start: int, count: int) -> pa.Table:
    """Return sorted rows, so that filters skip pages."""
    numbers = range(start, start + count)
    columns = {"i": numbers, "s": [f"{i:06}" for i in numbers], "l": [[i, None] for i in numbers]}
    kinds = {"i": pa.int64(), "s": pa.string(), "l": pa.list_(pa.field("element", pa.int64()))}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


MANY_PAGES: dict[str, Any] = {
    "write_page_index": True,
    "data_page_size": 500,
    "write_batch_size": 50,
    "row_group_size": 4_000,
}


FILTERS = ["i = 20077", "i BETWEEN 8990 AND 10010", "s >= '028990'", "s IN ('000001', '015000')", "i = 9500"]


def test_the_rust_reader_skips_pages(tmp_path: Path) -> None:
    """The file has three parts, each with several row groups, which have many pages each."""
    tables = [ordered(start, 9_000) for start in (0, 20_000, 10_000)]
    paths = [write(tmp_path / f"{i}", table, **MANY_PAGES) for i, table in enumerate(tables)]
    path, table = concatenated(paths, tmp_path / "part-0.parquet"), pa.concat_tables(tables)
    array = {"type": "array", "elementType": "long", "containsNull": True}
    columns = {"i": "long", "s": "string", "l": array}
    action = handmade.add(path.name, path.stat().st_size, records=len(table))
    handmade.write_log(path.parent, [handmade.metadata(columns), action])  # type: ignore[arg-type]
    reader = QueryBuilder().register("t", DeltaTable(str(path.parent)))
    with duckdb.connect() as in_memory:
        in_memory.register("t", table)
        for where in (*FILTERS, "true"):
            sql = f"SELECT i, s, l FROM t WHERE {where} ORDER BY i"
            found = pa.table(reader.execute(sql).read_all()).to_pylist()
            assert [tuple(row.values()) for row in found] == in_memory.execute(sql).fetchall()


def filtered(rows: DataFrame, filters: Iterable[str], order: str) -> list[Row]:
    """Return the rows that each filter leaves, from one Spark job that pushes down each filter."""
    found = [rows.where(where).select(sf.lit(where).alias("where"), "*") for where in filters]
    return reduce(DataFrame.union, found).orderBy("where", order).collect()


QUERY = """SELECT id, CAST(id % 7 AS INT) k, IF(id % 3 = 0, NULL, CONCAT('name ', id)) s,
    CAST(id AS DECIMAL(9, 2)) small, CAST(id AS DECIMAL(38, 4)) large, id / 3 f, id % 2 = 0 b,
    TIMESTAMP_MICROS(id * 1000003) t, DATE_ADD(DATE'2020-01-01', CAST(id % 1000 AS INT)) d,
    ARRAY(id, NULL) l, MAP('a', id) m, NAMED_STRUCT('x', NAMED_STRUCT('y', ARRAY('p', NULL))) n
    FROM RANGE({0}, {1}, 1, 1)"""


OPTIONS: dict[str, Any] = {
    "parquet.bloom.filter.enabled#s": True,
    "parquet.block.size": 100_000,
    "parquet.page.size": 4_000,
    "parquet.page.row.count.limit": 500,
}


@pytest.fixture(scope="module")
def of_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """Files that Spark wrote, two large, one of ten rows and one empty, and their concatenation."""
    folder, paths = tmp_path_factory.mktemp("of spark"), list[Path]()
    for number, (start, stop) in enumerate([(0, 5_000), (5_000, 5_000), (9_000, 9_010), (20_000, 24_000)]):
        part = folder / str(number)
        spark.sql(QUERY.format(start, stop)).write.options(**OPTIONS).parquet(str(part))
        paths += part.glob("*.parquet")
    assert len(paths) == 4
    return paths, concatenated(paths, folder / "output.parquet", {"org.apache.spark.version": spark.version})


def test_files_by_spark_are_read_by_all(
    spark: SparkSession, of_spark: tuple[list[Path], Path], confs: SetConf
) -> None:
    paths, output = of_spark
    assert places(output) == places(*paths)
    assert read(output).equals(pa.concat_tables([read(path) for path in paths]))
    assert list(row_groups(output)) == [group for path in paths for group in row_groups(path)]
    assert pq.read_metadata(output).num_row_groups > len(paths)
    # Only the parts have Spark's own schema in key_value_metadata; the types are the same without.
    found = spark.read.parquet(str(output))
    parts = spark.read.parquet(*map(str, paths))
    assert found.dtypes == parts.dtypes
    assert found.orderBy("id").collect() == parts.orderBy("id").collect()
    # Deletion vectors depend on row numbers, which must be right in all splits.
    confs("spark.sql.files.maxPartitionBytes", "50000")
    confs("spark.sql.files.openCostInBytes", "0")
    rows = found.select("id", "_metadata.row_index")
    assert rows.rdd.getNumPartitions() > 4
    numbers = rows.collect()
    ids = read(output)["id"].to_pylist()
    assert sorted(row["row_index"] for row in numbers) == list(range(len(ids)))
    assert all(ids[row["row_index"]] == row["id"] for row in numbers)


@pytest.mark.parametrize("vectorized", ["true", pytest.param("false", marks=pytest.mark.nightly)])
def test_filters_are_pushed_down(
    spark: SparkSession, of_spark: tuple[list[Path], Path], confs: SetConf, vectorized: str
) -> None:
    paths, output = of_spark
    filters = ["id = 21077", "id BETWEEN 4990 AND 9005", "s = 'name 23000'", "d < '2020-01-03'"]
    filters.append("s = 'name 9500'")
    confs("spark.sql.parquet.enableVectorizedReader", vectorized)
    confs("spark.sql.parquet.enableNestedColumnVectorizedReader", vectorized)
    found = filtered(spark.read.parquet(str(output)), filters, "id")
    confs("spark.sql.parquet.filterPushdown", "false")
    assert found == filtered(spark.read.parquet(*map(str, paths)), filters, "id")
    assert {row["where"] for row in found} == set(filters[:-1])


def test_filters_go_by_the_dictionary_of_each_row_group(spark: SparkSession, tmp_path: Path) -> None:
    """If a dictionary has only -0.0, Spark misses 0.0, as it did in the part."""
    tables = [pa.table({"id": [i] * 10, "d": [value] * 10}) for i, value in enumerate([-0.0, 0.0, 1.5])]
    paths = [write(tmp_path / str(i), table) for i, table in enumerate(tables)]
    output = concatenated(paths, tmp_path / "output")
    groups = pq.read_metadata(output)
    assert [groups.row_group(i).column(1).has_dictionary_page for i in range(3)] == [True] * 3
    zeros = [f"CAST('{zero}' AS DOUBLE)" for zero in ("0.0", "-0.0")]
    filters = [f"d {operator} {zero}" for operator in ("=", "<=", ">=", "<=>") for zero in zeros]
    found = filtered(spark.read.parquet(str(output)), filters, "id")
    assert found == filtered(spark.read.parquet(*map(str, paths)), filters, "id")
    assert {row["where"] for row in found} == set(filters)
