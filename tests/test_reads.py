"""Reads are measured at both versions, for equal work; files read are those that stats don't exclude."""

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compaction_kit.errors import InvalidArgumentError, RunFailedError
from compaction_kit.query import Query, with_table
from compaction_kit.reads import ReadComparison, measure_reads
from compaction_kit.storage import open_store
from tests import deltas_view, folders, handmade
from tests.chance import nightly
from tests.conftest import CopyOf

pytestmark = pytest.mark.spark

NUM_FILES = 8


@pytest.fixture(scope="session")
def hours(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in the order of time, 100 per file, in a partition with an odd name (0); compacted into one
    file (1); with one more row (2).
    """
    folder = tmp_path_factory.mktemp("hours with 100%") / "table"
    rows = spark.range(0, 100 * NUM_FILES, 1, NUM_FILES).selectExpr("id", "id / 2 AS half", "'a b%' AS p")
    rows.write.format("delta").partitionBy("p").save(str(folder))
    spark.sql(f"OPTIMIZE delta.`{folder}`")
    rows.limit(1).coalesce(1).write.format("delta").mode("append").save(str(folder))
    return folder


def measured(spark: SparkSession, table: Path, query: Query, after: int = 1) -> ReadComparison:
    return measure_reads(spark, table, 0, after, query, repeats=1)


def sum_by_partition(rows: DataFrame) -> DataFrame:
    return rows.groupBy("p").agg(F.sum("id"))


@pytest.mark.parametrize(
    ("query", "files"),
    [
        (
            "WITH few AS (SELECT * FROM {table} WHERE p RLIKE '^.{3,5}$' AND id BETWEEN 300 AND 310)"
            " -- {all}\n"
            "SELECT a.id, a.id, null, map(1, b.id), interval 1 month FROM few a JOIN {table} b "
            "ON a.id = b.id ORDER BY 1; ",
            (1, 1),
        ),
        pytest.param("SELECT count(*) FROM {table}", (0, 0), marks=pytest.mark.nightly),
    ],
    ids=["WITH, braces, twice a name, odd types", "answered from the log"],
)
def test_a_query_may_be_any_and_files_read_are_those_that_stats_leave_over(
    spark: SparkSession, hours: Path, query: Query, files: tuple[int, int]
) -> None:
    comparison = measured(spark, hours, query)
    assert (comparison.files_before, comparison.files_after) == files
    assert (comparison.same_result, comparison.same_files) == (True, files == (0, 0))
    assert comparison.query == query


def test_runs_of_a_function_take_turns_and_medians_are_of_them(spark: SparkSession, hours: Path) -> None:
    comparison = measure_reads(spark, hours, 0, 1, sum_by_partition, repeats=3)
    assert (comparison.versions, comparison.query) == ((0, 1), "sum_by_partition")
    assert (comparison.files_before, comparison.files_after) == (NUM_FILES, 1)
    assert (comparison.same_result, comparison.same_files) == (True, False)
    *old, new = sorted(path.stat().st_size for path in folders.data_files(hours))[1:]
    assert (comparison.bytes_before, comparison.bytes_after) == (sum(old), new)
    assert comparison.runs["version"].to_pylist() == [0, 1, 1, 0, 0, 1]
    assert comparison.runs["repeat"].to_pylist() == [0, 0, 1, 1, 2, 2]
    assert comparison.seconds_before == sorted(comparison.seconds_at(0))[1]
    assert comparison.seconds_after == sorted(comparison.seconds_at(1))[1]
    assert comparison.speedup == comparison.seconds_before / comparison.seconds_after


@pytest.mark.parametrize(("later", "same"), [(0.1 + 0.2, True), *nightly((0.300001, False), (None, False))])
def test_results_may_differ_by_the_rounding_of_a_sum(
    spark: SparkSession, hours: Path, later: float | None, same: bool
) -> None:
    def total(rows: DataFrame) -> DataFrame:
        value = 0.3 if len(rows.inputFiles()) > 1 else later
        return rows.limit(1).select(F.lit(value).cast("double"))

    assert measured(spark, hours, total).same_result is same


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (7, "query=7 is not a query"),
        ("SELECT count(*) FROM hours", "names neither the table nor {table}"),
        ("id <", "Syntax error at or near end of input."),
        ("SELECT idx FROM {table}", 'query="SELECT idx FROM {table}" can\'t be used at version 0'),
        ("DELETE FROM {table}", "near '{table}'"),
        (lambda rows: rows.count(), "returned int"),
        (lambda rows: rows.select(), "returned no column"),
    ],
)
def test_a_query_that_can_t_be_used_is_one_sentence(
    spark: SparkSession, hours: Path, query: Any, says: str
) -> None:
    before = folders.listing(hours)
    with pytest.raises(InvalidArgumentError) as raised:
        measured(spark, hours, query)
    sentence = str(raised.value)
    assert says in sentence
    assert not any(word in sentence for word in ("\n", "SQLSTATE", "_pyspark_"))
    assert folders.listing(hours) == before


def test_versions_and_repeats_that_cant_be_measured_are_refused(spark: SparkSession, hours: Path) -> None:
    for before, after, repeats, says in (
        (0, 9, 1, "after=9 can't be read"),
        ("0", 1, 1, 'before="0" is not a whole number'),
        (0, None, 1, "after=None is not a whole number"),
        (1, 1, 1, "the same version"),
        (0, 1, 0, "repeats=0"),
        (0, 1, 1.5, "repeats=1.5"),
    ):
        with pytest.raises(InvalidArgumentError, match=says):
            measure_reads(spark, hours, before, after, "id < 3", repeats)  # type: ignore[arg-type]
    with pytest.raises(RunFailedError, match=r"failed at version 0: \[DIVIDE_BY_ZERO\] Division by zero"):
        measured(spark, hours, "SELECT id / 0 FROM {table}")


def test_rows_that_were_added_between_show_in_the_result(spark: SparkSession, hours: Path) -> None:
    named = measured(spark, hours, f"SELECT * FROM delta.`{hours}` WHERE id < 3", after=2)
    assert (named.query, named.same_result) == ("SELECT * FROM {table} WHERE id < 3", False)
    # Stats exclude the file of the new row.
    same = measure_reads(spark, hours, 1, 2, "id > 700", repeats=1)
    assert (same.same_files, same.same_result) == (True, True)


@pytest.mark.nightly
def test_versions_with_deleted_rows_can_be_measured(spark: SparkSession, lived: Path) -> None:
    comparison = measure_reads(spark, lived, 2, 3, "SELECT *, map(1, id) FROM {table}", repeats=1)
    assert (comparison.same_result, comparison.seconds_before > 0) == (True, True)


def test_a_version_that_can_t_be_read_any_more_says_why(
    spark: SparkSession, hours: Path, copy_of: CopyOf, by_night: bool
) -> None:
    copied = copy_of(hours)
    version = spark.read.format("delta").option("versionAsOf", 0).load(str(copied))
    file = version.where("id < 3").inputFiles()[0]
    Path(file.removeprefix("file:")).unlink()
    # Delta's guard refuses such an old version, but its reads can still be measured.
    os.utime(handmade.commit_path(copied, 0), (1e9, 1e9))
    deltas_view.forget(spark)
    with pytest.raises(InvalidArgumentError, match="version 0 can't be read any more"):
        measured(spark, copied, "id < 3")
    # A query that needs only other files can be measured.
    assert not by_night or measured(spark, copied, "id > 500").same_result


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("SELECT * FROM flights", "SELECT * FROM {table}"),
        ("select a.id\nfrom db.flights a join `flights` b", "select a.id\nfrom {table} a join {table} b"),
        ("SELECT * FROM delta.`/lake/flights` WHERE x", "SELECT * FROM {table} WHERE x"),
        ("SELECT * FROM flights.x JOIN flights_2", "SELECT * FROM flights.x JOIN flights_2"),
        ("(SELECT * FROM delta.`file:/lake/flights`)", "(SELECT * FROM {table})"),
        ("SELECT * FROM dbxflights", "SELECT * FROM dbxflights"),
        ("SELECT * FROM {table} JOIN flights", "SELECT * FROM {table} JOIN flights"),
        ("selected > extract(YEAR FROM flights)", "selected > extract(YEAR FROM flights)"),
        ("origin = 'from flights'", "origin = 'from flights'"),
        (
            "SELECT 'it\\'s from flights', \"from flights\"--from flights\nFROM `flights` /*\njoin flights*/",
            "SELECT 'it\\'s from flights', \"from flights\"--from flights\nFROM {table} /*\njoin flights*/",
        ),
        ("SELECT 'from flights' FROM other", "SELECT 'from flights' FROM other"),
        ("SELECT `it's` FROM flights WHERE x = ''", "SELECT `it's` FROM {table} WHERE x = ''"),
    ],
)
def test_a_tables_own_name_in_sql_stands_for_the_table(query: str, meant: str) -> None:
    assert with_table(query, open_store("/lake/flights"), "db.flights") == meant
