import math
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compaction_kit.verify import Fingerprint, fingerprint
from tests.releases import since_spark

pytestmark = pytest.mark.spark

NAN = math.nan


def of(spark: SparkSession, schema: str, rows: list[tuple[Any, ...]]) -> Fingerprint:
    return fingerprint(frame(spark, schema, rows))


def frame(spark: SparkSession, schema: str, rows: list[tuple[Any, ...]]) -> DataFrame:
    # A local relation: no job but the aggregation's.
    return spark.createDataFrame(rows, schema).coalesce(1)


@pytest.mark.parametrize(
    ("schema", "rows", "other"),
    [
        ("a int, b string", [(1, "x"), (2, "y")], [(2, "y"), (1, "x")]),
        ("a double", [(NAN,), (1.0,)], [(1.0,), (NAN,)]),
        ("a map<string,int>", [({"x": 1, "y": 2},)], [({"y": 2, "x": 1},)]),
        (
            "a array<map<string,array<int>>>",
            [([{"x": [1], "y": []}],)],
            [([{"y": [], "x": [1]}],)],
        ),
        ("a map<string,int>", [({"x": 1, "y": None},)], [({"y": None, "x": 1},)]),
    ],
    ids=["order of rows", "NaN", "order of a map", "order of a map in an array", "null in a map"],
)
def test_the_same_content_has_the_same_fingerprint(
    spark: SparkSession, schema: str, rows: list[tuple[Any, ...]], other: list[tuple[Any, ...]]
) -> None:
    assert of(spark, schema, rows) == of(spark, schema, other)


@pytest.mark.parametrize(
    ("schema", "rows", "other"),
    [
        ("a int, b string", [(1, "x"), (2, "y")], [(1, "x"), (2, "z")]),
        ("a int, b int", [(1, 2)], [(2, 1)]),
        ("a double", [(0.0,)], [(-0.0,)]),
        ("a array<struct<b:float>>", [([(-0.0,)],)], [([(0.0,)],)]),
        ("a int, b int", [(1, None)], [(None, 1)]),
        ("a int, b int", [(1, 2), (3, 4)], [(1, 4), (3, 2)]),
        ("a string, b string", [("ab", "c")], [("a", "bc")]),
        ("a string", [("",)], [(None,)]),
        ("a array<array<int>>", [([[1], []],)], [([[], [1]],)]),
        pytest.param("a array<int>, b array<int>", [([1], [])], [([], [1])], marks=pytest.mark.nightly),
        ("a array<int>", [([],)], [(None,)]),
        ("a array<int>", [([None],)], [([],)]),
        pytest.param("a array<int>", [([1, None],)], [([None, 1],)], marks=pytest.mark.nightly),
        ("a map<string,int>", [({"x": 1, "y": 2},)], [({"x": 2, "y": 1},)]),
        ("a map<string,int>", [({},)], [(None,)]),
        pytest.param("a struct<x:int,y:int>", [((1, None),)], [((None, 1),)], marks=pytest.mark.nightly),
        ("a struct<x:int>", [((None,),)], [(None,)]),
        ("a struct<x:array<int>,y:array<int>>", [(([1], []),)], [(([], [1]),)]),
        pytest.param("a int", [(1,), (1,)], [(1,)], marks=pytest.mark.nightly),
        ("a int", [(1,), (1,), (2,)], [(1,), (2,), (2,)]),
        ("a double", [(NAN,)], [(None,)]),
        ("a decimal(10,2)", [(Decimal("1.50"),)], [(Decimal("1.51"),)]),
        ("a binary", [(b"\0",)], [(b"\0\0",)]),
    ],
    ids=str,
)
def test_a_difference_shows_in_the_fingerprint(
    spark: SparkSession, schema: str, rows: list[tuple[Any, ...]], other: list[tuple[Any, ...]]
) -> None:
    assert of(spark, schema, rows) != of(spark, schema, other)


def test_files_and_partitions_of_the_data_do_not_matter(spark: SparkSession) -> None:
    rows = spark.range(1_000).select("id", (F.col("id") % 7).cast("string").alias("s"))
    assert fingerprint(rows) == fingerprint(rows.repartition(5).orderBy(F.desc("id")))


def test_names_with_dots_and_backticks_are_columns(spark: SparkSession) -> None:
    odd = frame(spark, "`a.b` int, `c``d` int, `e f` struct<`g.h`:int>", [(1, 2, (3,))])
    assert fingerprint(odd) == of(spark, "a int, b int, c struct<d:int>", [(1, 2, (3,))])


@since_spark("4.0")
def test_a_variant_counts_by_its_value(spark: SparkSession) -> None:
    def variant(text: str) -> Fingerprint:
        return fingerprint(spark.sql(f"SELECT parse_json('{text}') v"))

    assert variant('{"a": 1, "b": [2]}') == variant('{"b":[2],"a":1}')
    assert variant('{"a": 1}') != variant('{"a": 2}')
    assert variant("null") != fingerprint(spark.sql("SELECT CAST(NULL AS VARIANT) v"))
