"""Plans run by the strategy "arrow", beside what Delta itself makes of them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import (
    ConflictError,
    RunCancelled,
    RunFailedError,
    StalePlanError,
    UnsupportedTableError,
)
from compaction_kit.execute import CompactionResult, Progress
from compaction_kit.plan import CompactionPlan
from tests import deltas_view, folders, handmade
from tests.conftest import CopyOf
from tests.handmade import actions_of

pytestmark = pytest.mark.spark


def data_files(table: Path) -> set[Path]:
    return set(table.rglob("*.parquet")) - set((table / "_delta_log").rglob("*"))


def assert_done_as_planned(table: Path, plan: CompactionPlan, result: CompactionResult) -> None:
    version = plan.version + 1
    assert (result.strategy, result.versions, result.verified) == ("arrow", (version,), True)
    assert result.as_planned
    adds, removes = actions_of(table, version, "add"), actions_of(table, version, "remove")
    assert Counter(action["path"] for action in removes) == Counter(plan.files["path"].to_pylist())
    assert len(adds) == plan.num_files_added
    assert not any(action["dataChange"] for action in adds + removes)
    assert sorted(json.loads(add["stats"])["numRecords"] for add in adds) == sorted(
        plan.bins["num_records"].to_pylist()
    )


def test_a_plan_in_another_order_within_a_budget_is_run(spark: SparkSession, changed: Path) -> None:
    table = open_table(changed)
    plan = table.plan_compaction(max_file_size="10 KiB", order="id", budget="30 KiB")
    assert 0 < plan.num_bins < plan.unbounded.num_bins
    assert_done_as_planned(changed, plan, plan.run(strategy="arrow"))
    with pytest.raises(StalePlanError, match="made at version 4 and the table is at 5"):
        plan.run(strategy="arrow")


def test_a_table_without_partitions_is_run(spark: SparkSession, tmp_path: Path) -> None:
    folder = Path(shaped_table(tmp_path / "table", partitions=0, files=9, rows=20, commits=2))
    plan = open_table(folder).plan_compaction()
    assert_done_as_planned(folder, plan, plan.run(strategy="arrow"))
    (add,) = actions_of(folder, plan.version + 1, "add")
    assert (add["partitionValues"], "/" in add["path"]) == ({}, False)


def test_the_history_reads_as_optimizes_does(spark: SparkSession, changed: Path, tmp_path: Path) -> None:
    other = folders.copy(changed, tmp_path / "other")
    where = "part <> 'p0001'"
    results = [
        open_table(folder).plan_compaction(where).run(strategy=strategy, verify=False)
        for folder, strategy in ((changed, "arrow"), (other, "optimize"))
    ]
    rows = [
        spark.sql(f"DESCRIBE HISTORY delta.`{folder}` LIMIT 1").collect()[0] for folder in (changed, other)
    ]
    ours, theirs = (row.asDict() for row in rows)
    for name in (
        "version",
        "operation",
        "operationParameters",
        "isolationLevel",
        "isBlindAppend",
        "readVersion",
    ):
        assert ours[name] == theirs[name]
    assert set(theirs["operationMetrics"]) <= set(ours["operationMetrics"]) | DELETION_VECTOR_METRICS
    for name in ("numAddedFiles", "numRemovedFiles", "numRemovedBytes", "numDeletionVectorsRemoved"):
        assert ours["operationMetrics"][name] == theirs["operationMetrics"][name]
    assert int(ours["operationMetrics"]["numAddedBytes"]) == results[0].bytes_added


DELETION_VECTOR_METRICS = {"numDeletionVectorRowsRemoved", "numDeletionVectorBytesRemoved"}
COLUMNS = (
    "id",
    "CAST(id % 100 AS BYTE) y",
    "CAST(id * 3 AS SHORT) h",
    "CAST(id AS INT) i",
    "IF(id % 3 = 0, NULL, id / 7) f",
    "CAST(id / 3 AS FLOAT) g",
    "CAST(id / 7 AS DECIMAL(9, 3)) d",
    "CAST(id * 1000000007 / 7 AS DECIMAL(38, 10)) e",
    "CONCAT('a rather long text that stats cut off somewhere, number ', id) s",
    "IF(id < 40, NULL, CONCAT('x', id)) late",
    "CAST(CONCAT('b', id) AS BINARY) b",
    "id % 2 = 0 bool",
    "DATE_ADD(DATE'1890-01-01', CAST(id AS INT) * 300) day",
    "TIMESTAMP'2024-01-01 00:00:00.123456' + MAKE_INTERVAL(0, 0, 0, CAST(id AS INT)) t",
    "TIMESTAMP_NTZ'1900-01-01 00:00:00.000001' + MAKE_INTERVAL(0, 0, 0, CAST(id AS INT)) n",
    "NAMED_STRUCT('a', id, 'deep', NAMED_STRUCT('z', CONCAT('z', id), 'l', ARRAY(id, NULL))) st",
    "ARRAY(NAMED_STRUCT('v', id)) arr",
    "MAP(CONCAT('k', id), NAMED_STRUCT('v', id)) m",
    "CAST(NULL AS STRING) nothing",
    "CAST(id % 2 AS INT) p",
)


@pytest.fixture(scope="module", params=["UTC", "America/New_York"])
def typed(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A table of many types in 8 files, mapped by name, written in a time zone."""
    folder = tmp_path_factory.mktemp("typed") / "table"
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", request.param)
    rows = spark.range(0, 80, 1, 4).selectExpr(*COLUMNS)
    writer = rows.write.format("delta").partitionBy("p").option("delta.columnMapping.mode", "name")
    writer.save(str(folder))
    spark.sql(f"ALTER TABLE delta.`{folder}` RENAME COLUMN s TO `a text`")
    spark.sql(f"ALTER TABLE delta.`{folder}` ADD COLUMN (added STRUCT<x: INT>)")
    spark.conf.set("spark.sql.session.timeZone", zone)
    return folder


def stats_of(table: Path, version: int) -> list[dict[tuple[str, ...], Any]]:
    """The stats of the files that a commit adds, in the order of their partitions, flat."""
    metadata = open_table(table).files().snapshot.metadata
    names = {physical: name for name, physical in metadata.physical_names.items()}
    adds = sorted(actions_of(table, version, "add"), key=lambda add: json.dumps(add["partitionValues"]))
    return [dict(leaves(json.loads(add["stats"]), names)) for add in adds]


def leaves(
    stats: dict[str, Any], names: dict[str, str], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in stats.items():
        place = (*path, names.get(key, key))
        if isinstance(value, dict):
            yield from leaves(value, names, place)
        else:
            # The same moment is written in the time zone of whoever writes.
            is_time = place[-1] == "t" and path != ("nullCount",)
            yield place, datetime.fromisoformat(value) if is_time else value


def test_content_and_stats_are_those_that_delta_makes(
    spark: SparkSession, typed: Path, tmp_path: Path
) -> None:
    ours, theirs = (folders.copy(typed, tmp_path / name) for name in ("ours", "theirs"))
    rows = spark.read.format("delta").load(str(typed)).orderBy("id").collect()
    plan = open_table(ours).plan_compaction()
    assert (plan.num_bins, plan.num_files_removed) == (2, 8)
    assert_done_as_planned(ours, plan, plan.run(strategy="arrow"))
    assert spark.read.format("delta").load(str(ours)).orderBy("id").collect() == rows
    open_table(theirs).plan_compaction().run(strategy="optimize", verify=False)
    version = plan.version + 1
    for ours_said, theirs_said in zip(stats_of(ours, version), stats_of(theirs, version), strict=True):
        # Of the column that was added later no file says anything yet.
        missing = set(theirs_said) - set(ours_said)
        assert all(place[:2] == ("nullCount", "added") for place in missing)
        assert ours_said == {key: theirs_said[key] for key in ours_said}
    # What stats say is what readers skip by.
    found = (
        spark.read.format("delta").load(str(ours)).where("`a text` LIKE '%number 79' AND st.deep.z = 'z79'")
    )
    assert [row["id"] for row in found.collect()] == [79]
    assert spark.read.format("delta").load(str(ours)).where("late = 'x41'").count() == 1


def test_typed_odd_and_null_partitions_are_written_where_they_belong(
    spark: SparkSession, tmp_path: Path
) -> None:
    types = {"n": "integer", "s": "string"}
    values = [("1", "a b"), ("01", "a b"), (None, "100%"), (None, "100%"), ("2", ""), ("2", "")]
    adds = [
        handmade.write_data(
            tmp_path,
            f"dir {i}/f.parquet",
            pa.table({"id": range(3 * i, 3 * i + 3)}),
            dict(zip(types, value, strict=True)),
        )
        for i, value in enumerate(values)
    ]
    for add in adds:
        add["add"]["path"] = add["add"]["path"].replace(" ", "%20")
    handmade.write_log(tmp_path, [handmade.metadata({"id": "long", **types}, list(types)), *adds])
    plan = open_table(tmp_path).plan_compaction()
    assert plan.num_bins == 3
    result = plan.run(strategy="arrow")
    assert_done_as_planned(tmp_path, plan, result)
    found = [add["partitionValues"] for add in actions_of(tmp_path, 1, "add")]
    expected = [{"n": "1", "s": "a b"}, {"n": None, "s": "100%"}, {"n": "2", "s": ""}]
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_files_with_vectors_are_left_alone_and_told(
    spark: SparkSession, copy_of: CopyOf, lived: Path
) -> None:
    folder = copy_of(lived)
    plan = open_table(folder).plan_compaction()
    has_vectors = pc.greater(plan.bins["num_deletion_vectors"], 0)
    with_vector = plan.bins.filter(has_vectors)["bin_id"].to_pylist()
    assert (len(with_vector), plan.num_bins) == (1, 2)
    result = plan.run(strategy="arrow")
    assert result.refusals == dict.fromkeys(with_vector, "a file has a deletion vector")
    assert (result.as_planned, result.num_bins, len(result.versions)) == (False, 1, 1)
    assert "left alone" in result.summary()


def test_a_plan_of_refused_bins_alone_is_refused(spark: SparkSession, copy_of: CopyOf, lived: Path) -> None:
    folder = copy_of(lived)
    handmade.remove_commits(folder, 3, 4)
    deltas_view.forget(spark)
    plan = open_table(folder).plan_compaction(where="p = '0'")
    with pytest.raises(UnsupportedTableError, match="for a file has a deletion vector: run it with"):
        plan.run(strategy="arrow", verify=False)
    assert open_table(folder).version == 2


def test_two_runs_at_once_do_not_meet(spark: SparkSession, shaped: Path, tmp_path: Path) -> None:
    tables = [folders.copy(shaped, tmp_path / name) for name in "ab"]

    def run(table: Path) -> CompactionResult:
        return open_table(table, spark).plan_compaction().run(strategy="arrow", verify=False)

    with ThreadPoolExecutor(2) as pool:
        assert [result.versions for result in pool.map(run, tables)] == [(5,), (5,)]


def test_a_file_that_is_gone_fails_in_one_sentence_and_leaves_nothing(
    spark: SparkSession, changed: Path
) -> None:
    table = open_table(changed)
    plan = table.plan_compaction()
    (changed / plan.files["path"].to_pylist()[0]).unlink()
    before = data_files(changed)
    with pytest.raises(RunFailedError, match=r"the table stays at version 4: .*\.parquet") as caught:
        plan.run(strategy="arrow", verify=False)
    assert "\n" not in str(caught.value)
    assert table.version == 4
    assert data_files(changed) == before


def test_another_writer_who_removes_a_planned_file_wins(spark: SparkSession, changed: Path) -> None:
    table = open_table(changed)
    plan = table.plan_compaction()
    before = data_files(changed)
    during = Once(lambda: spark.sql(f"DELETE FROM delta.`{changed}` WHERE part = 'p0000'"))
    with pytest.raises(ConflictError, match="Another writer changed files of the plan meanwhile"):
        plan.run(strategy="arrow", verify=False, progress=during)
    assert table.version == 5
    assert data_files(changed) == before


def test_rows_appended_meanwhile_are_kept(spark: SparkSession, changed: Path) -> None:
    table = open_table(changed)
    plan = table.plan_compaction()
    count = spark.read.format("delta").load(str(changed)).count()
    row = spark.read.format("delta").load(str(changed)).limit(1)
    during = Once(lambda: row.write.format("delta").mode("append").save(str(changed)))
    result = plan.run(strategy="arrow", progress=during)
    assert (result.versions, result.verified) == ((6,), True)
    assert spark.read.format("delta").load(str(changed)).count() == count + 1


def test_a_cancelled_run_leaves_the_table_as_it_was(spark: SparkSession, changed: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    plan = open_table(changed).plan_compaction()
    with pytest.raises(RunCancelled, match="nothing was committed, the table is as it was"):
        plan.run(strategy="arrow", verify=False, progress=Once(stop))
    assert open_table(changed).version == 4


def test_a_stream_does_not_see_it(spark: SparkSession, changed: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    def drain() -> None:
        stream = spark.readStream.format("delta").load(str(changed)).writeStream
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = (
            stream.foreachBatch(lambda batch, _: seen.append(batch.count()))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    drain()
    count = sum(seen)
    assert open_table(changed).plan_compaction().run(strategy="arrow", verify=False).versions == (5,)
    drain()
    assert sum(seen) == count > 0


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')", "the feature .*rowTracking"),
        ("SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')", "the feature typeWidening"),
        ("ADD COLUMN (v VARIANT)", "variant"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name(
    spark: SparkSession, changed: Path, statement: str, told: str
) -> None:
    spark.sql(f"ALTER TABLE delta.`{changed}` {statement}")
    plan = open_table(changed).plan_compaction()
    with pytest.raises(
        UnsupportedTableError, match=f'strategy="arrow" can\'t run this plan, for .*{told}'
    ) as caught:
        plan.run(strategy="arrow")
    assert "\n" not in str(caught.value)


def test_z_order_is_refused(spark: SparkSession, changed: Path) -> None:
    plan = open_table(changed).plan_compaction(zorder_by="id")
    with pytest.raises(UnsupportedTableError, match="ordering the rows of a partition takes Spark"):
        plan.run(strategy="arrow", verify=False)


class Once:
    """A progress report that does something at the first step of the rewriting."""

    def __init__(self, work: Callable[[], object]):
        self._work: Callable[[], object] | None = work

    def __call__(self, progress: Progress) -> None:
        if progress.step.startswith("Rewriting") and self._work is not None:
            work, self._work = self._work, None
            work()
