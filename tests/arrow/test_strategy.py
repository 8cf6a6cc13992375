"""Plans run by the strategy "arrow", beside what Delta itself makes of them."""

import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf

from compaction_kit import open_table
from compaction_kit.arrow import strategy
from compaction_kit.compaction import CompactionPlan
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import ConflictError, RunCancelled, StalePlanError, UnsupportedTableError
from compaction_kit.execute import CompactionResult, Progress
from compaction_kit.execute.delta import OptimizeTransaction
from tests import folders, handmade
from tests.execute.meanwhile import changed_metadata, once_rewriting
from tests.execute.test_optimize import assert_done_as_planned
from tests.folders import data_files
from tests.handmade import actions_of
from tests.releases import DELTA, GROUPS_BY_TYPE, since_delta

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def assert_done_by_arrow(table: Path, plan: CompactionPlan, result: CompactionResult) -> None:
    assert (result.strategy, result.verified) == ("arrow", True)
    assert_done_as_planned(table, plan, result)


def test_a_plan_in_another_order_within_a_budget_is_run(changed: Path) -> None:
    table = open_table(changed)
    plan = table.plan_compaction(max_file_size="10 KiB", order="id", budget="30 KiB")
    assert 0 < plan.num_bins < plan.unbounded.num_bins
    assert_done_by_arrow(changed, plan, plan.run(strategy="arrow"))
    with pytest.raises(StalePlanError, match="made at version 4 and the table is at 5: make a new plan"):
        plan.run(strategy="arrow")


def test_a_table_without_partitions_is_run_in_another_thread(spark: SparkSession, tmp_path: Path) -> None:
    """As the workbench runs it; files of a commit that Delta checkpoints after."""
    folder = Path(shaped_table(tmp_path / "table", partitions=0, files=10, rows=20, commits=10))
    plan = open_table(folder, spark).plan_compaction()
    found: list[CompactionResult] = []
    thread = threading.Thread(target=lambda: found.append(plan.run(strategy="arrow")))
    thread.start()
    thread.join()
    assert_done_by_arrow(folder, plan, *found)
    (add,) = actions_of(folder, plan.version + 1, "add")
    assert (add["partitionValues"], "/" in add["path"]) == ({}, False)


def test_history_and_columns_are_those_of_optimize(
    spark: SparkSession, changed: Path, tmp_path: Path
) -> None:
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
    our_columns, their_columns = map(columns_added, (changed, other))
    assert our_columns == their_columns
    # By default they are there if OPTIMIZE of this release writes them.
    assert all(("part" in columns) is (DELTA >= (4, 4)) for columns in our_columns)


def columns_added(table: Path) -> list[list[str]]:
    """The columns in each file of version 5."""
    return sorted(pq.read_schema(table / add["path"]).names for add in actions_of(table, 5, "add"))


DELETION_VECTOR_METRICS = {"numDeletionVectorRowsRemoved", "numDeletionVectorBytesRemoved"}


@pytest.mark.works("local disk", "arrow")
def test_typed_odd_and_null_partitions_are_kept_apart(tmp_path: Path) -> None:
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
    expected = [{"n": None, "s": "100%"}, {"n": "2", "s": ""}]
    if GROUPS_BY_TYPE:
        expected.append({"n": "1", "s": "a b"})
    plan = open_table(tmp_path).plan_compaction()
    assert plan.num_bins == len(expected)
    result = plan.run(strategy="arrow")
    assert_done_by_arrow(tmp_path, plan, result)
    found = [add["partitionValues"] for add in actions_of(tmp_path, 1, "add")]
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_spark_checks_outputs_wherever_it_reads(spark: SparkSession, tmp_path: Path) -> None:
    """They are of more bytes each than Hadoop's own."""
    folder = tmp_path / "table"
    made = spark.range(0, 80_000, 1, 2).withColumn("b", sf.hash("id").cast("long"))
    made.write.format("delta").save(str(folder))
    rows = DeltaTable(str(folder)).to_pyarrow_table()
    open_table(folder).plan_compaction().run(strategy="arrow", verify=False)
    output = folder / str(open_table(folder).files().to_arrow()["path"][0])
    sound = output.read_bytes()
    sums = output.with_name(f".{output.name}.crc").read_bytes()
    assert int.from_bytes(sums[4:8]) == 1 << 16 < len(sound) // 4

    def read(*columns: str) -> list[Row]:
        return spark.read.parquet(str(output)).agg(*map(sf.sum, columns)).collect()

    assert read("id", "b") == [tuple(pc.sum(rows[name]).as_py() for name in ("id", "b"))]
    # In the pages of the last column, and in the footer.
    for at, hurt in ((len(sound) // 2 + 10_000, "b"), (len(sound) - 100, "id")):
        output.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(Exception, match="Checksum"):
            read(hurt)


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
    spark: SparkSession, changed: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Delta itself sees what happens after it has begun."""
    table = open_table(changed)
    plan = table.plan_compaction()
    removed = plan.files["path"].to_pylist()[0]
    files = data_files(changed)

    def remove() -> None:
        if not handmade.commit_path(changed, 5).exists():
            handmade.write_commit(changed, 5, [handmade.remove(removed)])

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
    assert result.num_files_removed == plan.num_files_removed - 1
    assert removed not in table.files().to_arrow()["path"].to_pylist()
    adds = [add for version in result.versions for add in actions_of(changed, version, "add")]
    assert data_files(changed) - files == {changed / add["path"] for add in adds}


def test_a_column_that_comes_meanwhile_is_null(spark: SparkSession, changed: Path) -> None:
    plan = open_table(changed).plan_compaction()
    metadata = changed_metadata(changed, columns={"more": "integer"})
    during = once_rewriting(lambda: handmade.write_commit(changed, 5, [metadata]))
    result = plan.run(strategy="arrow", progress=during)
    assert (result.versions, result.verified, result.as_planned) == ((6,), True, True)
    assert spark.read.format("delta").load(str(changed)).where("more IS NULL").count() == 1_050


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("delta.enableTypeWidening", "the feature typeWidening.* now"),
        pytest.param(
            "delta.writePartitionColumnsToParquet",
            "data files are to be without the partition columns now",
            marks=since_delta("4.4"),
        ),
    ],
    ids=["feature", "partition columns"],
)
def test_a_property_set_meanwhile_may_conflict(changed: Path, change: str, reason: str) -> None:
    plan = open_table(changed).plan_compaction()
    before = data_files(changed)
    is_feature = change == "delta.enableTypeWidening"
    actions = [changed_metadata(changed, configuration={change: "true" if is_feature else "false"})]
    if is_feature:
        actions.append(handmade.protocol(features=["typeWidening"]))
    during = once_rewriting(lambda: handmade.write_commit(changed, 5, actions))
    told = rf"^Another writer changed the table \(version 5\), .*{reason}: make a new plan; nothing was"
    with pytest.raises(ConflictError, match=told):
        plan.run(strategy="arrow", verify=False, progress=during)
    assert data_files(changed) == before


def test_batches_are_commits_and_a_new_plan_does_the_rest(changed: Path) -> None:
    table = open_table(changed)
    plan_small = partial(table.plan_compaction, batch_size=1, min_file_size="8 KiB", max_file_size="16 KiB")
    plan = plan_small()
    assert plan.num_batches == plan.num_bins > 3

    def stop(progress: Progress) -> None:
        if progress.bins_done == 3:
            raise KeyboardInterrupt

    told = f"2 of {plan.num_bins} batches are committed, as version 5, 6; make a new plan for the rest"
    with pytest.raises(RunCancelled, match=told):
        plan.run(strategy="arrow", verify=False, progress=stop)
    with pytest.raises(StalePlanError, match="made at version 4 and the table is at 6"):
        plan.run(strategy="arrow")
    done = {remove["path"] for version in (5, 6) for remove in actions_of(changed, version, "remove")}
    result = plan_small().run(strategy="arrow")
    assert (result.verified, result.as_planned) == (True, True)
    assert result.versions == tuple(range(7, 5 + plan.num_bins))
    assert result.num_files_removed == plan.num_files_removed - len(done)
    assert result.batches["version"].to_pylist() == list(result.versions)
    assert all(dict(metrics)["numAddedFiles"] == "1" for metrics in result.batches["metrics"].to_pylist())


def test_z_order_is_refused(changed: Path) -> None:
    plan = open_table(changed).plan_compaction(zorder_by="id")
    with pytest.raises(UnsupportedTableError, match="Z-ordering needs Spark"):
        plan.run(strategy="arrow", verify=False)
