"""Predicates over zeros, infinities and NaN find the same rows before and after a run.

Where row groups are copied, concat/test_readers.py asks the same of zeros.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from compaction_kit import open_table
from compaction_kit.execute.jobs import session_confs
from tests.chance import examples

# The values of the two files of a partition: few, so that files of several are smaller with a dictionary.
Files = Sequence[Sequence[float | None]]
INF, NAN = math.inf, math.nan
SPECIAL = [[-0.0], [-0.0]], [[0.0], [0.0]], [[0.0], [-0.0]], [[NAN], [1.5]], [[INF], [-INF]]
COLUMNS = {"d": "DOUBLE", "f": "FLOAT", "s.x": "DOUBLE", "s.y": "FLOAT"}
ALL = [
    f"{column} {operator} CAST('{value}' AS {kind})"
    for value in ("0.0", "-0.0", "1.5", "Infinity", "-Infinity", "NaN")
    for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>")
    for column, kind in COLUMNS.items()
]
OF_ZEROS = [text for text in ALL if "0.0'" in text and "= CAST" in text]
OF_NAN = [text for text in ALL if "NaN" in text and "= CAST" in text and ">" in text]
VALUES = st.sampled_from([-0.0, 0.0, 1.5, -1.5, INF, -INF, NAN, None])
TABLES = st.lists(
    st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=2, max_size=2), min_size=8, max_size=12
)


def written(spark: SparkSession, folder: Path, partitions: Sequence[Files]) -> None:
    """Write the first files of all partitions in one commit, the second ones in another."""
    for number in range(2):
        rows = [
            (partition, value, value, (value, value), [value])
            for partition, files in enumerate(partitions)
            for value in files[number]
        ]
        kinds = "p INT, d DOUBLE, f FLOAT, s STRUCT<x: DOUBLE, y: FLOAT>, l ARRAY<DOUBLE>"
        frame = spark.createDataFrame(rows, kinds).coalesce(1)
        frame.write.format("delta").mode("append").partitionBy("p").save(str(folder))


def answers(spark: SparkSession, folder: Path, predicates: Sequence[str]) -> Counter[tuple[str, int]]:
    """How many rows of each partition each predicate finds; one Spark job, filters are pushed down."""
    table = spark.read.format("delta").load(str(folder))
    found = [table.where(text).select(sf.lit(text).alias("text"), "p") for text in predicates]
    rows = reduce(DataFrame.union, found).groupBy("text", "p").count().collect()
    return Counter({(row["text"], row["p"]): row["count"] for row in rows})


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.nightly
@example(SPECIAL, [text for text in OF_ZEROS if " =" in text or "d " in text] + OF_NAN)
@given(TABLES, st.lists(st.sampled_from(ALL), min_size=6, max_size=6, unique=True))
@examples(by_day=0, divided_by=20)
def test_predicates_find_the_same_rows_before_and_after(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    partitions: Sequence[Files],
    predicates: Sequence[str],
) -> None:
    folder = tmp_path_factory.mktemp("zeros") / "table"
    # By a dictionary Spark would miss zeros of the other sign before the run too.
    with session_confs(spark, {"parquet.enable.dictionary": "false"}):
        written(spark, folder, partitions)
    before = answers(spark, folder, predicates)
    result = open_table(folder, spark).plan_compaction().run(strategy="arrow")
    assert result.num_files_added == len(partitions)
    assert answers(spark, folder, predicates) == before
