import math
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from compaction_kit.verify import Fingerprint, fingerprint
from tests.releases import since_spark

pytestmark = pytest.mark.spark

# Columns of a row by name: their types, and their values.
ROW: dict[str, tuple[str, Any]] = {
    "a": ("int", 1),
    "b": ("int", None),
    "s": ("string", "ab"),
    "t": ("string", "c"),
    "empty": ("string", ""),
    "zero": ("double", 0.0),
    "nan": ("double", math.nan),
    "nested_zero": ("array<struct<b:float>>", [(0.0,)]),
    "lists": ("array<array<int>>", [[1], []]),
    "x": ("array<int>", [1]),
    "y": ("array<int>", []),
    "z": ("array<int>", [1, None]),
    "m": ("map<string,int>", {"x": 1, "y": 2}),
    "null_in_m": ("map<string,int>", {"x": 1, "y": None}),
    "empty_m": ("map<string,int>", {}),
    "deep_m": ("array<map<string,array<int>>>", [{"x": [1], "y": []}]),
    "st": ("struct<x:int,y:int>", (1, None)),
    "null_st": ("struct<x:int>", (None,)),
    "list_st": ("struct<x:array<int>,y:array<int>>", ([1], [])),
    "dec": ("decimal(10,2)", Decimal("1.50")),
    "bin": ("binary", b"\0"),
}
SAME = {"m": {"y": 2, "x": 1}, "null_in_m": {"y": None, "x": 1}, "deep_m": [{"y": [], "x": [1]}]}
DIFFERENT: list[dict[str, Any]] = [
    {"a": 2},
    {"a": None, "b": 1},
    {"s": "a", "t": "bc"},
    {"empty": None},
    {"zero": -0.0},
    {"nan": None},
    {"nested_zero": [(-0.0,)]},
    {"lists": [[], [1]]},
    {"x": [], "y": [1]},
    {"y": None},
    {"y": [None]},
    {"z": [None, 1]},
    {"m": {"x": 2, "y": 1}},
    {"empty_m": None},
    {"st": (None, 1)},
    {"null_st": None},
    {"list_st": ([], [1])},
    {"dec": Decimal("1.51")},
    {"bin": b"\0\0"},
]


def of(spark: SparkSession, schema: str, rows: list[tuple[Any, ...]]) -> Fingerprint:
    # A local relation: no job but the aggregation's.
    return fingerprint(spark.createDataFrame(rows, schema).coalesce(1))


def test_any_difference_in_a_row_shows_and_the_order_in_maps_does_not(spark: SparkSession) -> None:
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in ROW.items())

    def changed(values: dict[str, Any]) -> Fingerprint:
        row = {name: value for name, (_, value) in ROW.items()} | values
        return of(spark, schema, [tuple(row.values())])

    found = changed({})
    assert changed(SAME) == found
    assert [values for values in DIFFERENT if changed(values) == found] == []


@pytest.mark.parametrize(
    ("schema", "rows", "other"),
    [
        ("a int, b int", [(1, 2)], [(2, 1)]),
        ("a int, b int", [(1, 2), (3, 4)], [(1, 4), (3, 2)]),
        ("a int", [(1,), (1,), (2,)], [(1,), (2,), (2,)]),
    ],
    ids=str,
)
def test_each_row_counts_as_a_whole_and_as_often_as_it_is_there(
    spark: SparkSession, schema: str, rows: list[tuple[Any, ...]], other: list[tuple[Any, ...]]
) -> None:
    assert of(spark, schema, rows) != of(spark, schema, other)


def test_order_files_and_partitions_of_the_data_do_not_matter(spark: SparkSession) -> None:
    rows = spark.range(1_000).select("id", (F.col("id") % 7).cast("string").alias("s"))
    assert fingerprint(rows) == fingerprint(rows.repartition(5).orderBy(F.desc("id")))


def test_names_with_dots_and_backticks_are_columns(spark: SparkSession) -> None:
    odd = of(spark, "`a.b` int, `c``d` int, `e f` struct<`g.h`:int>", [(1, 2, (3,))])
    assert odd == of(spark, "a int, b int, c struct<d:int>", [(1, 2, (3,))])


@since_spark("4.0")
def test_a_variant_counts_by_its_value(spark: SparkSession) -> None:
    texts = ['{"a": 1, "b": [2]}', '{"b":[2],"a":1}', '{"a": 1}', "null"]
    first, same, *others = (fingerprint(spark.sql(f"SELECT parse_json('{text}') v")) for text in texts)
    assert first == same
    assert len({first, *others, fingerprint(spark.sql("SELECT CAST(NULL AS VARIANT) v"))}) == 4
