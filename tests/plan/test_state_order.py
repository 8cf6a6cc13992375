import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit.plan.order import spark_hash, state_order

TEXTS = ["", "a", "ab", "abc", "abcd", "abcde", "ü€", "日本語", "p=a%20b/part-00000.parquet", "\x7f\x80é"]


@pytest.mark.spark
def test_the_hash_is_sparks(spark: SparkSession) -> None:
    rng = np.random.default_rng(0)
    texts = TEXTS + [rng.bytes(int(rng.integers(0, 60))).decode("latin1") for _ in range(300)]
    rows = (
        spark.createDataFrame([(text,) for text in texts], "text string").selectExpr("hash(text)").collect()
    )
    assert spark_hash(pa.array(texts)).tolist() == [row[0] for row in rows]


@given(st.lists(st.text(max_size=20), max_size=30), st.integers(0, 5))
def test_a_slice_of_texts_has_the_same_hashes(texts: list[str], start: int) -> None:
    array = pa.array(texts, pa.string())
    assert spark_hash(array.slice(start)).tolist() == spark_hash(array)[start:].tolist()


@given(st.lists(st.text(max_size=8), unique=True, max_size=40), st.integers(1, 7))
def test_files_go_by_their_partition_and_then_by_path(paths: list[str], num_partitions: int) -> None:
    array = pa.array(paths, pa.string())
    partition = spark_hash(array).astype(int) % num_partitions
    expected = sorted(range(len(paths)), key=lambda i: (partition[i], paths[i].encode()))
    assert np.argsort(state_order(array, num_partitions)).tolist() == expected
