"""Plans run by the strategy "arrow", beside what Delta itself makes of them, or refused by the log."""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from compaction_kit import open_table
from compaction_kit.arrow import strategy
from compaction_kit.arrow.duckdb import compare_quickly
from compaction_kit.arrow.refusals import refuse_changes, refuse_table
from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import ConflictError, RunFailedError
from compaction_kit.execute import CompactionResult
from compaction_kit.execute.delta import OptimizeTransaction
from compaction_kit.execute.failures import NotCompared
from compaction_kit.execute.jobs import session_confs
from tests import folders, handmade
from tests.chance import examples
from tests.conftest import SetConf
from tests.execute.meanwhile import once_rewriting
from tests.execute.test_optimize import assert_done_as_planned
from tests.folders import data_files
from tests.handmade import actions_of
from tests.releases import DELTA, GROUPS_BY_TYPE, since_delta

pytestmark = pytest.mark.usefixtures("spark")


def assert_done_by_arrow(table: Path, plan: CompactionPlan, result: CompactionResult) -> None:
    assert (result.strategy, result.verified) == ("arrow", True)
    assert_done_as_planned(table, plan, result)


def test_a_plan_in_another_order_within_a_budget_is_run(changed: Path) -> None:
    table = open_table(changed)
    plan = table.plan_compaction(max_file_size="10 KiB", order="id", budget="30 KiB")
    assert 0 < plan.num_bins < plan.unbounded.num_bins
    assert_done_by_arrow(changed, plan, plan.run(strategy="arrow"))


def test_history_and_columns_are_as_by_optimize(spark: SparkSession, changed: Path, tmp_path: Path) -> None:
    other, told, columns = folders.copy(changed, tmp_path / "other"), [], []
    for folder, by in ((changed, "arrow"), (other, "optimize")):
        plan = open_table(folder).plan_compaction("part <> 'p0001'")
        result = plan.run(strategy=by, verify=False)
        told.append(spark.sql(f"DESCRIBE HISTORY delta.`{folder}` LIMIT 1").collect()[0].asDict())
        assert int(told[-1]["operationMetrics"]["numAddedBytes"]) == result.bytes_added
        files = [folder / add["path"] for add in actions_of(folder, 5, "add")]
        columns.append(sorted(pq.read_schema(file).names for file in files))
    ours, theirs = told
    for name in ("operation", "operationParameters", "isolationLevel", "isBlindAppend", "readVersion"):
        assert ours[name] == theirs[name]
    ours, theirs = (row["operationMetrics"] for row in told)
    assert set(theirs) <= set(ours) | {"numDeletionVectorRowsRemoved", "numDeletionVectorBytesRemoved"}
    for name in ("numAddedFiles", "numRemovedFiles", "numRemovedBytes", "numDeletionVectorsRemoved"):
        assert ours[name] == theirs[name]
    assert columns[0] == columns[1]
    # By default they are there if OPTIMIZE of this release writes them.
    assert all(("part" in names) is (DELTA >= (4, 4)) for names in columns[0])


@pytest.mark.works("local disk", "arrow")
def test_typed_odd_and_null_partitions_are_kept_apart(tmp_path: Path) -> None:
    types = {"n": "integer", "s": "string"}
    adds = []
    for i, value in enumerate([("1", "a b"), ("01", "a b"), *[(None, "100%")] * 2, *[("2", "")] * 2]):
        rows, partition = pa.table({"id": range(3 * i, 3 * i + 3)}), dict(zip(types, value, strict=True))
        adds.append(handmade.write_data(tmp_path, f"dir {i}/f.parquet", rows, partition))
        adds[-1]["add"]["path"] = f"dir%20{i}/f.parquet"
    handmade.write_log(tmp_path, [handmade.metadata({"id": "long", **types}, list(types)), *adds])
    expected = [{"n": None, "s": "100%"}, {"n": "2", "s": ""}]
    if GROUPS_BY_TYPE:
        expected.append({"n": "1", "s": "a b"})
    plan = open_table(tmp_path).plan_compaction()
    assert plan.num_bins == len(expected)
    assert_done_by_arrow(tmp_path, plan, plan.run(strategy="arrow"))
    found = [add["partitionValues"] for add in actions_of(tmp_path, 1, "add")]
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_rows_deleted_by_vectors_meanwhile_stay_deleted(spark: SparkSession, changed: Path) -> None:
    """Two files are still live by their paths, but others: one has a vector now, the other another one."""
    one, other, *_ = (add for version in range(5) for add in actions_of(changed, version, "add"))
    vectors = [handmade.inline_vector(rows) for rows in ([0], [0, 1])]
    marked = [{"add": other | {"deletionVector": vector}} for vector in vectors]
    features = handmade.protocol(features=["deletionVectors"])
    handmade.write_commit(changed, 5, [features, handmade.remove(other["path"]), marked[0]])
    plan = open_table(changed).plan_compaction()
    more = [handmade.remove(one["path"]), {"add": one | {"deletionVector": vectors[0]}}]
    more += [handmade.remove(other["path"], vector=vectors[0]), marked[1]]
    during = once_rewriting(lambda: handmade.write_commit(changed, 6, more))
    result = plan.run(strategy="arrow", progress=during)
    assert (result.verified, len(result.conflicts)) == (True, 1)
    left = spark.read.format("delta").load(str(changed)).select("id").collect()
    gone = {*rows_in(changed / one["path"])[:1], *rows_in(changed / other["path"])[:2]}
    assert sorted(row["id"] for row in left) == sorted({*range(1_050)} - gone)
    assert result.num_files_removed < plan.num_files_removed


def rows_in(path: Path) -> list[int]:
    """The ids in a file, by the numbers of their rows."""
    return pq.read_table(path, columns=["id"], partitioning=None)["id"].to_pylist()


@pytest.mark.parametrize("moment", ["before Delta begins", "after Delta has begun"])
def test_what_is_removed_meanwhile_is_told_and_left_out(
    changed: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Delta itself sees what happens after it has begun."""
    plan, files = open_table(changed).plan_compaction(), data_files(changed)
    # All but one of a bin.
    lone, *removed = (file["path"] for file in plan.files.to_pylist() if file["bin_id"] == 0)

    def remove() -> None:
        if not handmade.commit_path(changed, 5).exists():
            handmade.write_commit(changed, 5, list(map(handmade.remove, removed)))

    class Transaction(OptimizeTransaction):
        def __init__(self, spark: SparkSession, table: str):
            if moment == "before Delta begins":
                remove()
            super().__init__(spark, table)
            remove()

    monkeypatch.setattr(strategy, "OptimizeTransaction", Transaction)
    result = plan.run(strategy="arrow")
    assert result.verified is True
    (conflict,) = result.conflicts
    assert (conflict == "files of 1 bin are gone") == (moment == "before Delta begins")
    assert result.num_files_removed == plan.num_files_removed - 1 - len(removed)
    assert result.fingerprint is not None
    assert result.fingerprint.num_rows == 50 * result.num_files_removed
    assert folders.live(changed) & {lone, *removed} == {lone}
    adds = [add for version in result.versions for add in actions_of(changed, version, "add")]
    assert data_files(changed) - files == {changed / add["path"] for add in adds}


def test_columns_that_older_files_lack_have_the_stats_of_all_rows(tmp_path: Path) -> None:
    files = {"old": pa.table({"id": [1, 2]}), "new": pa.table({"id": [3], "s": ["x" * 40], "f": [math.nan]})}
    bounds = {"old": ({"id": 1}, {"id": 2}), "new": ({"id": 3, "s": "x"}, {"id": 3, "s": "y"})}
    adds = []
    for name, rows in files.items():
        known = dict(zip(("minValues", "maxValues"), bounds[name], strict=True))
        stats = {"numRecords": len(rows), "nullCount": dict.fromkeys(rows.column_names, 0)} | known
        adds.append(handmade.write_data(tmp_path, name, rows)["add"] | {"stats": json.dumps(stats)})
    columns = handmade.metadata({"id": "long", "s": "string", "f": "double"})
    handmade.write_log(tmp_path, [columns, *({"add": add} for add in adds)])
    assert open_table(tmp_path).plan_compaction().run(strategy="arrow").verified
    (added,) = actions_of(tmp_path, 1, "add")
    assert json.loads(added["stats"]) == {
        "numRecords": 3,
        "nullCount": {"id": 0, "s": 2},
        "minValues": {"id": 1, "s": "x" * 32},
        "maxValues": {"id": 3, "s": "x" * 32 + "\U0010ffff"},
    }


@pytest.mark.parametrize("name", ["datetimeRebaseModeInRead", "int96RebaseModeInRead"])
def test_old_dates_that_spark_refuses_are_left_to_it(tmp_path: Path, confs: SetConf, name: str) -> None:
    """Nothing says by which calendar they were written."""
    confs(f"spark.sql.parquet.{name}", "EXCEPTION")
    int96: dict[str, Any] = {"use_deprecated_int96_timestamps": name.startswith("int96")}
    for years in ((1901, 1500), (1901, 1901)):
        table, kind, adds = tmp_path / str(years), pa.timestamp("us", "UTC"), list[Any]()
        for year in years:
            rows = pa.table({"t": pa.array([datetime(year, 1, 1)], kind)})
            adds.append(handmade.write_data(table, f"{len(adds)}.parquet", rows, **int96))
            bounds = {name: {"t": f"{year}-01-01T00:00:00.000Z"} for name in ("minValues", "maxValues")}
            adds[-1]["add"]["stats"] = json.dumps({"numRecords": 1, "nullCount": {"t": 0}} | bounds)
        handmade.write_log(table, [handmade.metadata({"t": "timestamp"}), *adds])
        plan = open_table(table).plan_compaction()
        if years == (1901, 1901):
            assert plan.run().strategy == "arrow"
        else:
            with pytest.raises(RunFailedError, match="nothing was committed"):
                plan.run()


def test_a_feature_that_comes_meanwhile_is_a_conflict(changed: Path) -> None:
    plan, before = open_table(changed).plan_compaction(), data_files(changed)
    actions = [handmade.protocol(features=["typeWidening"])]
    during = once_rewriting(lambda: handmade.write_commit(changed, 5, actions))
    told = r"^Another writer changed the table \(version 5\), .*the feature typeWidening now: .* nothing was"
    with pytest.raises(ConflictError, match=told):
        plan.run(strategy="arrow", verify=False, progress=during)
    assert data_files(changed) == before


NAMES = ("materializedRowIdColumnName", "materializedRowCommitVersionColumnName")
TRACKED = {"delta.enableRowTracking": "true", **{f"delta.rowTracking.{name}": f"_{name}" for name in NAMES}}


def two_files_in(folder: Path, **metadata: Any) -> Path:
    adds = [handmade.add(f"{name}.parquet") for name in "ab"]
    return handmade.write_log(folder, [handmade.metadata(**metadata), *adds])


@pytest.mark.parametrize(
    ("metadata", "options", "told"),
    [
        ({"configuration": {"delta.columnMapping.mode": "id"}}, {}, "columns are found by their field ids"),
        ({"columns": {"v": "variant"}}, {}, "Column v is of type variant, which pyarrow can't rewrite"),
        ({"columns": {"p": "long"}, "partition_by": ["p"]}, {}, "no column besides those it is partitioned"),
        ({}, {"zorder_by": "id"}, "Z-ordering needs Spark"),
    ],
    ids=["field ids", "variant", "no columns", "Z-order"],
)
def test_some_tables_and_plans_are_refused(
    tmp_path: Path, metadata: dict[str, Any], options: dict[str, Any], told: str
) -> None:
    plan = open_table(two_files_in(tmp_path, **metadata)).plan_compaction(**options)
    assert told in str(refuse_table(None, plan))


@pytest.mark.parametrize(("version", "features"), [(7, ["fancy"]), (8, [])])
def test_what_delta_itself_may_not_write_is_left_to_it_with_a_word(
    tmp_path: Path, version: int, features: list[str]
) -> None:
    head = handmade.protocol(writer=version)
    head["protocol"] |= {"writerFeatures": features}
    table = handmade.write_log(tmp_path, [head, *(handmade.add(f"{name}.parquet") for name in "ab")])
    plan = open_table(table).plan_compaction()
    assert "only a Delta that knows it rewrites" in str(refuse_table(None, plan))


def test_a_default_that_only_spark_reads_from_files_without_the_column_is_refused(tmp_path: Path) -> None:
    made = handmade.metadata({"id": "long"})
    schema = made["metaData"]["schemaString"]
    made["metaData"]["schemaString"] = schema.replace('"metadata": {}', '"metadata": {"EXISTS_DEFAULT": "5"}')
    table = handmade.write_log(tmp_path, [made, *(handmade.add(f"{name}.parquet") for name in "ab")])
    assert "id has a default" in str(refuse_table(None, open_table(table).plan_compaction()))


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"columns": {"id": "long", "more": "string"}}, None),
        ({"columns": {"id": "integer"}}, "the column id is of another type now"),
        ({"configuration": TRACKED}, "row tracking was switched on or off"),
        ({"columns": {"id": "long", "p": "long"}, "partition_by": ["p"]}, "it was created again"),
        pytest.param(
            {"configuration": {"delta.writePartitionColumnsToParquet": "false"}},
            "data files are to be without the partition columns now",
            marks=since_delta("4.4"),
        ),
    ],
    ids=["a column more", "type", "row tracking", "partitions", "partition columns"],
)
def test_some_changes_meanwhile_leave_no_place_for_what_was_written(
    spark: SparkSession, tmp_path: Path, metadata: dict[str, Any], told: str | None
) -> None:
    table = two_files_in(tmp_path)
    handmade.write_commit(table, 1, [handmade.metadata(**metadata)])
    log = open_table(table).log
    assert refuse_changes(spark, log.snapshot(0), log.snapshot(1)) == told


@pytest.mark.parametrize("name", ["datetimeRebaseMode", "int96RebaseMode", "int96TimestampConversion"])
def test_where_spark_reads_other_times_than_files_have_it_reads_all(
    spark: SparkSession, tmp_path: Path, confs: SetConf, name: str
) -> None:
    is_mode = name.endswith("Mode")
    confs(f"spark.sql.parquet.{name}{'InRead' * is_mode}", "LEGACY" if is_mode else "true")
    table = open_table(two_files_in(tmp_path))
    assert name in str(refuse_table(spark, table.plan_compaction()))
    with pytest.raises(NotCompared, match=name):
        compare_quickly(spark, table.log.snapshot(), [], [])


# The values of the two files of a partition: few, so that files of several are smaller with a dictionary.
Files = Sequence[Sequence[float | None]]
INF, NAN = math.inf, math.nan
SPECIAL = [[-0.0], [-0.0]], [[0.0], [0.0]], [[0.0], [-0.0]], [[NAN], [1.5]], [[INF], [-INF]]
PREDICATES = [
    f"{column} {operator} CAST('{value}' AS {kind})"
    for value in ("0.0", "-0.0", "1.5", "Infinity", "-Infinity", "NaN")
    for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>")
    for column, kind in {"d": "DOUBLE", "f": "FLOAT", "s.x": "DOUBLE", "s.y": "FLOAT"}.items()
]
HARD = [
    *(text for text in PREDICATES if "0.0'" in text and (" = " in text or re.match("d .?= ", text))),
    *(text for text in PREDICATES if "NaN'" in text and ">= " in text),
]
FILE = st.lists(st.sampled_from([-0.0, 0.0, 1.5, -1.5, INF, -INF, NAN, None]), min_size=1, max_size=3)


def answers(spark: SparkSession, folder: Path, predicates: Sequence[str]) -> Counter[Any]:
    """How many rows of each partition each predicate finds; one Spark job, filters are pushed down."""
    table = spark.read.format("delta").load(str(folder))
    found = [table.where(text).select(sf.lit(text).alias("text"), "p") for text in predicates]
    return Counter(map(tuple, reduce(DataFrame.union, found).collect()))


@pytest.mark.long
@pytest.mark.nightly
@example(SPECIAL, HARD)
@given(
    st.lists(st.tuples(FILE, FILE), min_size=8, max_size=12),
    st.lists(st.sampled_from(PREDICATES), min_size=6, max_size=6, unique=True),
)
@examples(by_day=0, divided_by=20)
def test_predicates_over_zeros_and_nan_find_the_same_rows(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    partitions: Sequence[Files],
    predicates: Sequence[str],
) -> None:
    """Where row groups are copied, concat/test_readers.py asks the same of zeros."""
    folder = tmp_path_factory.mktemp("zeros") / "table"
    kinds = "p INT, d DOUBLE, f FLOAT, s STRUCT<x: DOUBLE, y: FLOAT>, l ARRAY<DOUBLE>"
    for files in zip(*partitions, strict=True):
        rows = [(p, one, one, (one, one), [one]) for p, values in enumerate(files) for one in values]
        writer = spark.createDataFrame(rows, kinds).coalesce(1).write.format("delta").mode("append")
        # By a dictionary Spark would miss zeros of the other sign before the run too.
        with session_confs(spark, {"parquet.enable.dictionary": "false"}):
            writer.partitionBy("p").save(str(folder))
    before = answers(spark, folder, predicates)
    result = open_table(folder, spark).plan_compaction().run(strategy="arrow")
    assert result.num_files_added == len(partitions)
    assert answers(spark, folder, predicates) == before
