"""Predicted reads are those of the query: each layout is made, and the query planned on it."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import InvalidArgumentError, RunCancelled
from compaction_kit.predict_reads import ReadPrediction
from compaction_kit.text import KIB
from tests import folders, handmade
from tests.ageing import age
from tests.chance import nightly

pytestmark = pytest.mark.spark
LIMIT = 8 * KIB
JOIN = "SELECT a.id FROM {table} a JOIN {table} b ON a.id = b.id WHERE a.id < 50 AND b.value > 3"
# For the first query Spark infers two partitions, which Delta's own skipping doesn't.
PARTS = "(part = 'p0001' OR part = 'p0002' AND id % 2 = 0)"
QUERIES = [f"{PARTS} AND label LIKE 'a%' AND id IN (3, 600, 660, 661)", JOIN]
# Queries that run only at night.
MORE_QUERIES = [
    "id IS NULL",
    "id BETWEEN 100 AND 220",
    "part = 'p0001' AND event_time < '2024-01-01 00:05:00'",
    "SELECT label, count(*) FROM {table} WHERE value > 2.5 OR id = 7 GROUP BY label",
    "SELECT count(*) FROM {table}",
]


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reads") / "t"
    return Path(shaped_table(folder, partitions=3, files=8, rows=60, commits=4))


def opened(table: Path, spark: SparkSession, query: str) -> int:
    """Return how many files Spark opens for a query: by the metrics of its scan, if it has only one."""
    rows = spark.read.format("delta").load(str(table))
    if "{table}" in query:
        return len(spark.sql(query, table=rows).inputFiles())
    plan = rows.where(query)._jdf.queryExecution().executedPlan()
    plan.executeCollect()
    leaves = plan.collectLeaves()
    return int(leaves.apply(0).metrics().apply("numFiles").value())


def layouts_of(prediction: ReadPrediction) -> list[tuple[str, int, int]]:
    """Return each layout's name, its number of files, and the number of files that the query opens."""
    return [tuple(row.values())[:3] for row in prediction.layouts.to_pylist()]


@pytest.mark.parametrize(
    ("order", "layout"), [("size", "OPTIMIZE"), *nightly(("ingest", "ingestion"), ("id", "id"))]
)
def test_each_layout_opens_as_many_files_as_predicted(
    spark: SparkSession, shaped: Path, tmp_path: Path, order: str, layout: str, by_night: bool
) -> None:
    table = folders.copy(shaped, tmp_path / "t")
    plan = open_table(table, spark).plan_compaction(None, LIMIT, LIMIT, order)
    predictions = {query: plan.predict_reads(query) for query in QUERIES + MORE_QUERIES * by_night}
    joined = plan.predict_reads(f"SELECT * FROM {{table}} a JOIN delta.`{shaped}` b ON a.id = b.id")
    # Files of the other table don't count.
    assert layouts_of(joined)[0] == ("now", 24, 24)
    plan.run(strategy="arrow", verify=False)
    after, seen = open_table(table).files().num_files, set[int]()
    assert after < 24
    for query, prediction in predictions.items():
        found = {name: counts for name, *counts in layouts_of(prediction)}
        assert found["now"] == [24, opened(shaped, spark, query)]
        if f"by {layout}" in found:
            seen.add(num_opened := opened(table, spark, query))
            assert found[f"by {layout}"] == [after, num_opened]
    assert len(seen) >= len(QUERIES)
    assert order != "size" or "none of these compactions makes it open fewer" in predictions[JOIN].finding


def test_a_plan_within_a_budget_is_a_layout_of_its_own_and_a_column_of_the_plan_an_order(
    spark: SparkSession, shaped: Path
) -> None:
    plan = open_table(shaped, spark).plan_compaction(order="value", budget="30 KiB", where="part = 'p0001'")
    prediction = plan.predict_reads("id < 10")
    num_files = {layout: files for layout, files, _ in layouts_of(prediction)}
    # The first file, of another partition, stays as it is.
    assert layouts_of(prediction)[-1][2] == 1
    assert list(num_files) == ["now", "by OPTIMIZE", "by ingestion", "by value", "by id", "by this plan"]
    assert (num_files["now"], num_files["by this plan"]) == (24, plan.num_files_after + 16)
    assert "predictions" in prediction.explain()
    assert prediction.facts()["now"] == "1 of 24 files, 2.6 KiB"
    # Otherwise Delta would keep each scratch log in memory for an hour.
    cached = spark.sparkContext._jsc.getPersistentRDDs
    before = cached().size()
    sorts = open_table(shaped, spark).plan_compaction(zorder_by=["id", "value"])
    unpredicted = "can't be predicted, because OPTIMIZE sorts the rows in Z-order by id, value."
    assert sorts.predict_reads("id < 10").explain().endswith(unpredicted)
    assert cached().size() <= before


@pytest.mark.nightly
def test_mapped_columns_and_encoded_names_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    # There is also a table at the decoded path.
    place = shaped_table(tmp_path / "a b", partitions=0, files=1).replace("a b", "a%20b")
    spark.sql(
        f"CREATE TABLE delta.`{place}` (k STRING, id INT) USING delta PARTITIONED BY (k) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')"
    )
    for start in (1, 2):
        spark.sql(f"INSERT INTO delta.`{place}` VALUES ('a:b %', {start}), ('é', {start + 10})")
    spark.sql(f"ALTER TABLE delta.`{place}` RENAME COLUMN id TO number")
    table = open_table(place, spark)
    found = layouts_of(table.plan_compaction().predict_reads("number = 2"))
    assert found == [("now", 4, 1), ("by OPTIMIZE", 2, 1), ("by ingestion", 2, 1), ("by number", 2, 1)]
    everything = table.plan_compaction().predict_reads("number > 0").layouts.to_pylist()[0]
    assert (everything["files_opened"], everything["bytes_opened"]) == (4, table.files().size_bytes)


def test_a_query_that_opens_other_files_each_time_is_not_predicted(spark: SparkSession, shaped: Path) -> None:
    conditions, plan = iter(["id < 10", "id < 300"]), open_table(shaped, spark).plan_compaction()
    prediction = plan.predict_reads(lambda rows: rows.where(next(conditions)))
    assert len(prediction.layouts) == 1
    assert "on a copy of the log it opens other files" in prediction.unpredicted


def test_stats_and_properties_that_decide_data_skipping_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """Only the stats of the first column, a, are used; files 2 and 3 are in the partition of the plan."""
    first = {"delta.dataSkippingNumIndexedCols": "1"}
    actions = [handmade.metadata({"a": "long", "b": "long", "c": "boolean", "p": "string"}, ["p"], first)]
    for i in range(4):
        bounds = {"a": i, "b": i}, {"a": i, "b": i}
        actions.append(handmade.add(f"p={i // 2}/{i}", 100, {"p": str(i // 2)}, 9, bounds=bounds, nulls=0))
    age(handmade.write_log(tmp_path, actions), 10)
    plan = open_table(tmp_path, spark).plan_compaction("p = '1'")
    # After this commit the plan's version is an older one, which Delta refuses to read.
    handmade.write_commit(tmp_path, 1, [handmade.add("p=0/5", 100, {"p": "0"})])
    found = plan.predict_reads("a >= 2 AND b = 3 AND NOT c").layouts.to_pylist()
    counts = [(row["num_files"], row["files_opened"], row["bytes_opened"]) for row in found]
    (size,) = plan.bins["bytes_added"].to_pylist()
    assert counts == [(4, 2, 200), *[(3, 1, size)] * 4]


@pytest.mark.parametrize("choice", [{}, {"delta.dataSkippingStatsColumns": "id,more"}], ids=["none", "names"])
def test_a_column_that_older_files_lack_is_null_in_them_unless_columns_were_chosen(
    spark: SparkSession, tmp_path: Path, choice: dict[str, str], by_night: bool
) -> None:
    files = {"old": {"id": 1}, "new": {"id": 2, "more": 5}}
    adds = [handmade.add(name, records=1, bounds=(row, row), nulls=0) for name, row in files.items()]
    metadata = handmade.metadata({"id": "long", "more": "long"}, configuration=choice)
    handmade.write_log(tmp_path, [metadata, *adds])
    plan = open_table(tmp_path, spark).plan_compaction()
    expected = [("more = 7", 1, len(choice)), *[("more = 5", 2, 1), ("more IS NULL", 1, 1)] * by_night]
    for query, now, after in expected:
        assert [opened for *_, opened in layouts_of(plan.predict_reads(query))[:2]] == [now, after]


def test_a_column_is_not_null_where_a_writer_left_its_stats_out(spark: SparkSession, tmp_path: Path) -> None:
    adds = []
    for value, known in ((7, ["id"]), (5, ["id", "more"])):
        adds.append(handmade.write_data(tmp_path, f"{value}", pa.table({"id": [1], "more": [value]})))
        values = dict.fromkeys(known, value)
        stats = {"numRecords": 1, "nullCount": dict.fromkeys(known, 0), "minValues": values}
        adds[-1]["add"]["stats"] = json.dumps(stats | {"maxValues": values})
    handmade.write_log(tmp_path, [handmade.metadata({"id": "long", "more": "long"}), *adds])
    plan = open_table(tmp_path, spark).plan_compaction()
    assert [opened for *_, opened in layouts_of(plan.predict_reads("more = 7"))[:2]] == [1, 1]


def test_where_nothing_would_be_rewritten_it_says_so(spark: SparkSession, shaped: Path) -> None:
    prediction = open_table(shaped, spark).plan_compaction(None, 1, 1).predict_reads("id < 3")
    (axis,) = prediction.plot().axes
    assert (len(prediction.layouts), axis.get_xlabel()) == (1, "files opened")
    assert "rewrites nothing" in prediction.unpredicted
    assert prediction.unpredicted in prediction.explain()
    assert "none of these" not in prediction.finding


def test_a_query_that_can_t_be_used_is_refused_and_a_cancel_ends_the_work(
    spark: SparkSession, shaped: Path
) -> None:
    plan = open_table(shaped, spark).plan_compaction()
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        plan.predict_reads("nowhere = 1")

    def stop(share: float, text: str) -> None:
        if share:
            raise RunCancelled(text)

    with pytest.raises(RunCancelled, match="now"):
        plan.predict_reads("id < 3", stop)
