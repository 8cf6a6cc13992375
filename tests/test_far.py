"""An analyst's whole path on tables that aren't on a local disk: an object store, and HDFS."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit import interop
from compaction_kit.errors import TableNotFoundError, UnsupportedTableError
from compaction_kit.reads import measure_reads
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.workbench import Workbench
from tests import rows, stores
from tests.conftest import SetConf
from tests.hdfs import hdfs

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:On S3 Delta keeps the writers of one Spark driver apart"),
]
# What two tests have on them, for docs/works.py.
SEEN, AFTERWARDS = ("read", "survey", "proof"), ("rewrite", "restore", "manifests", "vacuum")
# Puts a copy of a local table at a name; returns its URI.
Put = Callable[[Path, str], str]


@pytest.fixture(scope="module")
def namenode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as uri:
        yield uri


@pytest.fixture(params=["s3", pytest.param("hdfs", marks=pytest.mark.nightly)])
def put(request: pytest.FixtureRequest, spark: SparkSession, confs: SetConf) -> Put:
    if request.param == "s3":
        server: stores.Server = request.getfixturevalue("on_s3")
        return server.upload
    root = request.getfixturevalue("namenode")
    # Else a client waits 0.4 s with each file whose block the name node hasn't heard of yet.
    confs("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", "10")

    def copy(folder: Path, name: str) -> str:
        path = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
        there = path(f"{root}/{name}")
        files = there.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        files.copyFromLocalFile(path(f"file:{folder}"), there)
        return f"{root}/{name}"

    return copy


@pytest.mark.works("S3", *SEEN, "arrow", when="s3")
@pytest.mark.works("HDFS", *SEEN, "optimize", when="hdfs")
@pytest.mark.refused("HDFS", "arrow", when="hdfs")
@pytest.mark.nightly
def test_a_table_is_seen_and_compacted_with_proof(
    put: Put, spark: SparkSession, shaped: Path, tmp_path: Path
) -> None:
    uri = put(shaped, f"{tmp_path.name}/t")
    here, table = ck.open_table(shaped), ck.open_table(uri, spark)

    # See: the same as of the local copy.
    assert table.version == here.version == 4
    assert table.files().to_arrow().equals(here.files().to_arrow())
    assert table.history()["operation"].equals(here.history()["operation"])
    assert set(table.versions()["readable"].to_pylist()) == {"yes"}
    plan = table.plan_compaction(max_file_size="1 MiB")
    assert plan.bins.equals(here.plan_compaction(max_file_size="1 MiB").bins)
    surveyed = ck.survey(uri.rpartition("/")[0]).to_arrow()
    assert surveyed["num_files"].to_pylist() == [plan.num_files_removed]

    # Run: as planned, proved; by pyarrow where executors can reach the storage so.
    result = plan.run()
    assert result.strategy == ("arrow" if uri.startswith("s3a:") else "optimize")
    assert "can't reach hdfs://" in result.reason or result.strategy == "arrow"
    assert (result.as_planned, result.verified, result.versions) == (True, True, (5,))
    assert table.files().num_files == plan.num_files_added == 3
    assert rows.by_spark(spark, uri) == rows.on_disk(shaped, 4)


@pytest.mark.works("S3", *AFTERWARDS, when="s3")
@pytest.mark.works("HDFS", *AFTERWARDS, when="hdfs")
@pytest.mark.nightly
def test_a_table_is_rewritten_restored_listed_in_a_manifest_and_vacuumed(
    put: Put, spark: SparkSession, shaped: Path, confs: SetConf, tmp_path: Path
) -> None:
    uri = put(shaped, f"lake/{tmp_path.name}")
    table = ck.open_table(uri, spark)
    plan = table.plan_compaction(max_file_size="1 MiB")
    rewritten = plan.run(strategy="rewrite")
    assert (rewritten.verified, rewritten.versions) == (True, (5,))
    reads = measure_reads(spark, uri, 4, 5, "id IS NOT NULL", repeats=1)
    assert (reads.files_before, reads.files_after, reads.same_result) == (21, 3, True)
    assert (reads.bytes_before, reads.bytes_after) == (plan.bytes_removed, int(table.files().sizes.sum()))

    # Go back, and forth.
    assert table.plan_restore(2).run().version == 6
    assert rows.by_spark(spark, uri) == rows.on_disk(shaped, 2) != rows.on_disk(shaped, 4)
    assert table.plan_restore(5).run().version == 7

    # A manifest, and vacuum: exactly its files go.
    interop.generate_manifest(table)
    check = interop.check_manifest(table)
    assert set(check.files["state"].to_pylist()) == {"listed and live"}
    confs("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    vacuum = table.plan_vacuum(retention="0 hours")
    done = vacuum.run()
    assert (vacuum.num_files, done.num_files, done.as_planned) == (21, 21, True)
    assert rows.by_spark(spark, uri) == rows.on_disk(shaped, 4)
    assert table.versions()["readable"].to_pylist()[:2] == ["yes", "missing files"]


@pytest.mark.works("S3", "optimize")
@pytest.mark.nightly
def test_a_commit_that_could_be_lost_on_s3_is_said_of_a_plan_and_a_run(
    spark: SparkSession, on_s3: stores.Server, shaped: Path, confs: SetConf, tmp_path: Path
) -> None:
    plan = ck.open_table(on_s3.upload(shaped, tmp_path.name), spark).plan_compaction(max_file_size="1 MiB")
    assert "one of the two commits is lost" in plan.explain()
    with pytest.warns(UserWarning, match="On S3 Delta keeps the writers of one Spark driver apart"):
        result = plan.run(strategy="optimize")
    assert (result.as_planned, result.verified, result.versions) == (True, True, (5,))
    confs("spark.delta.logStore.s3a.impl", "io.delta.storage.S3DynamoDBLogStore")
    assert plan.warnings == ()


@pytest.mark.works("S3", "workbench", when="s3")
@pytest.mark.works("HDFS", "workbench", when="hdfs")
def test_the_workbench_shows_the_tables_of_a_folder(put: Put, shaped: Path, tmp_path: Path) -> None:
    uri = put(shaped, f"{tmp_path.name}/lake/t")
    bench = Workbench(WorkbenchState(uri.rpartition("/")[0]))
    bench.state.loading.wait(60)
    assert bench.state.tables == [uri]
    assert bench.state.plan is not None
    assert (bench.state.plan.num_files_removed, bench.state.plan.num_bins) == (21, 3)


@pytest.mark.refused("S3", "convert", "sink", when="s3")
@pytest.mark.refused("HDFS", "convert", "sink", when="hdfs")
def test_what_needs_a_local_disk_is_refused_by_name(put: Put, shaped: Path, tmp_path: Path) -> None:
    uri = put(shaped, tmp_path.name)
    table = ck.open_table(uri)
    for refused in (
        lambda: interop.plan_convert(uri),
        lambda: interop.plan_to_parquet(table),
        lambda: ck.sink_log(uri),
        lambda: table.path,
    ):
        with pytest.raises(UnsupportedTableError, match="on local disks alone, and") as caught:
            refused()
        assert uri in str(caught.value)
    with pytest.raises(TableNotFoundError, match=f"No table at {uri}-other: the path does not exist"):
        ck.open_table(f"{uri}-other")
