"""Which columns get a dictionary, compared with Spark's own writer."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit.arrow.worker.outputs import dictionary_columns
from tests.arrow.worker.test_rewrite import chunks_of

# More than Spark's first page has, by which it chooses.
ROWS = 25_000


@pytest.fixture(scope="module")
def columns() -> pa.Table:
    rng, words = np.random.default_rng(1), random.Random(1)
    numbers = rng.integers(0, 2**62, ROWS)
    few = rng.integers(0, 50, ROWS)
    return pa.table(
        {
            "unique": numbers,
            "few": few,
            "same": np.zeros(ROWS),
            "text": [f"{number:x}" for number in numbers],
            "word": [f"a rather long word {number}" for number in few],
            "flag": few > 25,
            "none": pa.nulls(ROWS, pa.int64()),
            "half": pa.array(numbers, mask=numbers % 2 == 0),
            "list": [[words.randrange(9)] * 3 for _ in range(ROWS)],
            "map": pa.array([[("k", number)] for number in numbers], pa.map_(pa.string(), pa.int64())),
            "struct": [{"x": number, "y": {"z": word}} for number, word in zip(numbers, few, strict=True)],
        }
    )


EXPECTED = {"few", "same", "word", "list.list.element", "map.key_value.key", "struct.y.z"}


def test_columns_that_repeat_have_one(columns: pa.Table) -> None:
    assert set(dictionary_columns(columns)) == EXPECTED
    assert dictionary_columns(columns.slice(0, 0)) == []


@pytest.mark.parametrize("count", [255, 256, 300, 1_875, 5_000, 20_000])
@pytest.mark.parametrize("order", ["in cycles", "sorted", "mixed"])
def test_values_that_come_but_twice_are_found(count: int, order: str) -> None:
    rng = np.random.default_rng(count)
    for times in (2, 3, 50):
        numbers = np.arange(count) % (count // times)
        numbers = {"in cycles": numbers, "sorted": np.sort(numbers), "mixed": rng.permutation(numbers)}[order]
        table = pa.table({"n": numbers, "s": [f"word {number}" for number in numbers]})
        assert dictionary_columns(table) == ["n", "s"]
    assert dictionary_columns(pa.table({"n": rng.permutation(count)})) == []


@pytest.mark.spark
def test_spark_chooses_the_same(spark: SparkSession, columns: pa.Table, tmp_path: Path) -> None:
    pq.write_table(columns, tmp_path / "in.parquet")
    spark.read.parquet(str(tmp_path / "in.parquet")).coalesce(1).write.parquet(str(tmp_path / "out"))
    (file,) = (tmp_path / "out").glob("*.parquet")
    (leaves,) = chunks_of(str(file))
    theirs = {leaf.path_in_schema for leaf in leaves if leaf.has_dictionary_page}
    # A dictionary of nothing but nulls is no matter.
    assert theirs - {"none"} == EXPECTED
