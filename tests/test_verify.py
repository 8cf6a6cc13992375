import math
from itertools import chain
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from compaction_kit.verify import Fingerprint, fingerprint
from tests.releases import since_spark

# Types of one or two columns, their values, and other values that a hash may take for the same.
Case = tuple[str, tuple[Any, ...], tuple[Any, ...]]
SCALARS: list[Case] = [
    ("int; int", (1, None), (None, 1)),
    ("string; string", ("ab", "c"), ("a", "bc")),
    ("string", ("",), (None,)),
    ("binary", (b"\0",), (b"\0\0",)),
    ("double", (0.0,), (-0.0,)),
    ("double", (1.0,), (2.0,)),
    ("double", (math.nan,), (None,)),
]
ARRAYS: list[Case] = [
    ("array<struct<b:float>>", ([(0.0,)],), ([(-0.0,)],)),
    ("array<int>; array<int>", ([1], []), ([], [1])),
    ("array<array<int>>", ([[1], []],), ([[], [1]],)),
    ("array<int>", ([],), (None,)),
    ("array<int>", ([],), ([None],)),
    ("array<int>", ([1, None],), ([None, 1],)),
]
MAPS_AND_STRUCTS: list[Case] = [
    ("map<string,int>", ({"x": 1, "y": 2},), ({"x": 2, "y": 1},)),
    ("map<string,int>", ({},), (None,)),
    ("map<string,int>; map<string,int>", ({"x": 1}, {}), ({}, {"x": 1})),
    ("struct<x:int,y:int>", ((1, None),), ((None, 1),)),
    ("struct<x:int>", ((None,),), (None,)),
    ("struct<x:array<int>,y:array<int>>", (([1], []),), (([], [1]),)),
]


def of(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> Fingerprint:
    # A local relation needs no job except the aggregation's.
    return fingerprint(spark.createDataFrame(rows, schema).coalesce(1))


@pytest.mark.parametrize("cases", [SCALARS, ARRAYS, MAPS_AND_STRUCTS], ids=["scalars", "arrays", "maps"])
def test_any_difference_in_a_row_shows(spark: SparkSession, cases: list[Case]) -> None:
    """Change one or two columns in a row of all columns: both hashes show it."""
    kinds = [kind for kinds, *_ in cases for kind in kinds.split("; ")]
    schema = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))

    def changed(case: Case | None) -> Fingerprint:
        values = chain(*(one[2] if one is case else one[1] for one in cases))
        return of(spark, schema, tuple(values))

    row = changed(None)
    assert [case for case in cases if {*changed(case).hash_sums} & {*row.hash_sums}] == []


def test_each_row_counts_as_a_whole_and_as_often_as_it_is_there(spark: SparkSession) -> None:
    assert of(spark, "a int, b int", (1, 2), (3, 4)) != of(spark, "a int, b int", (1, 4), (3, 2))
    assert of(spark, "a int", (1,), (1,), (2,)) != of(spark, "a int", (1,), (2,), (2,))


def test_order_files_and_partitions_of_the_data_do_not_matter(spark: SparkSession) -> None:
    rows = spark.range(1_000).select("id", (F.col("id") % 7).cast("string").alias("s"))
    assert fingerprint(rows) == fingerprint(rows.repartition(5).orderBy(F.desc("id")))
    assert fingerprint(rows.limit(0)) == Fingerprint(0, (0, 0))
    # The two hashes differ from each other, also for null.
    found = of(spark, "a int", (None,), (1,))
    assert (found.num_rows, len({*found.hash_sums}), found.readers) == (2, 2, ("Spark",))


def test_the_order_of_a_map_does_not_matter(spark: SparkSession) -> None:
    maps = "map(1, map(2, 3, 4, 5), 6, NULL)", "map(6, NULL, 1, map(4, 5, 2, 3))"
    assert len({fingerprint(spark.sql(f"SELECT {one} m")) for one in maps}) == 1


def test_names_with_dots_and_backticks_are_columns(spark: SparkSession) -> None:
    odd = of(spark, "`a.b` int, `c``d` int, `e f` struct<`g.h`:int>", (1, 2, (3,)))
    assert odd == of(spark, "a int, b int, c struct<d:int>", (1, 2, (3,)))


def test_a_fingerprint_names_the_readers_of_the_rows() -> None:
    assert Fingerprint(1, (1, 2)) != Fingerprint(2, (1, 2))
    one, other = Fingerprint(1, (2, 3), ("b",)), Fingerprint(2, (4, 5), ("a",))
    both, rest = one + other + other, one + other - one
    assert (both, both.readers) == (Fingerprint(5, (10, 13)), ("a", "b"))
    assert (rest, (one - Fingerprint(0, (0, 0), ("a",))).readers) == (other, ("b",))
    said = [str(Fingerprint(7, (1, 2), readers)) for readers in (("bytes",), (), ("DuckDB", "bytes"))]
    hashed = "7 rows, 2 hashes over every column"
    assert said == ["7 rows, byte by byte", hashed, f"{hashed}, read by DuckDB and compared as bytes"]


@since_spark("4.0")
def test_a_variant_counts_by_its_value(spark: SparkSession) -> None:
    texts = ['{"a": 1, "b": [2]}', '{"b":[2],"a":1}', '{"a": 1}', "null"]
    first, same, *others = (fingerprint(spark.sql(f"SELECT parse_json('{text}') v")) for text in texts)
    assert first == same
    assert len({first, *others, fingerprint(spark.sql("SELECT CAST(NULL AS VARIANT) v"))}) == 4
    # In JSON, the two values of a pair have the same text; a decimal equals a whole number.
    pairs = ("DATE'2024-01-01'", "'2024-01-01'"), ("array(1.5F)", "array(1.5D)"), ("array(1.0)", "array(1)")
    values = (
        [f"to_variant_object({one})" if "array" in one else f"CAST({one} AS VARIANT)" for one in pair]
        for pair in pairs
    )
    prints = [{fingerprint(spark.sql(f"SELECT {one} v")) for one in pair} for pair in values]
    assert [len(found) for found in prints] == [2, 2, 1]


@since_spark("4.0")
def test_types_in_an_array_of_a_variant_count_in_their_order(spark: SparkSession) -> None:
    items = [f"CAST({text} AS VARIANT)" for text in ("DATE'2024-01-01'", "'2024-01-01'")]
    arrays = [f"array({', '.join(order)})" for order in (items, items[::-1])]
    for value in ("{}", "named_struct('a', {})"):
        both = {fingerprint(spark.sql(f"SELECT to_variant_object({value.format(one)}) v")) for one in arrays}
        assert len(both) == 2
