"""Rows and the same with a small change: DuckDB, Spark and Python say the same of whether they differ."""

from functools import partial

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.arrow.worker.test_content import (
    pairs,
    test_duckdb_tells_small_differences,
    test_spark_tells_the_same_differences,
)
from tests.knocks.oracle import Case, Outcome

# Pairs that a number stands for, of which DuckDB reads most, and Spark as well the others.
SIZE, BY_SPARK = 200, 10
_DUCKDB = test_duckdb_tells_small_differences.hypothesis.inner_test  # type: ignore[attr-defined]
_SPARK = test_spark_tells_the_same_differences.hypothesis.inner_test  # type: ignore[attr-defined]


def play(case: Case) -> Outcome:
    some = partial(settings, deadline=None, database=None, suppress_health_check=list(HealthCheck))

    @seed(case.draw.randrange(2**31))
    @some(max_examples=SIZE - BY_SPARK)
    @given(pairs(), st.booleans(), st.booleans())
    def by_duckdb(pair, int96, is_plain):  # type: ignore[no-untyped-def]
        _DUCKDB(pair, int96, is_plain)

    @seed(case.draw.randrange(2**31))
    @some(max_examples=BY_SPARK)
    @given(pairs())
    def by_spark(pair):  # type: ignore[no-untyped-def]
        _SPARK(case.spark, pair)

    by_duckdb()
    by_spark()
    return Outcome.AS_PLANNED
