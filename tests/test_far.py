"""An analyst's whole path on an object store, on HDFS, and over Spark Connect.

HDFS is in one process on this machine: Hadoop's own cluster for tests, with one data node. The tests over
Spark Connect are in `over_connect.py`, for a process without a JVM.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit import errors, interop
from compaction_kit.session import cache_folder, find_java_home
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.workbench import Workbench
from tests import over_connect, rows, stores
from tests.cluster import connect_server
from tests.conftest import QUICK, SetConf
from tests.elsewhere import AFTERWARDS, afterwards
from tests.refusals import refused

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:On S3 Delta coordinates only the writers of one Spark driver"),
]
# The parts that two tests cover, for docs/works.py.
SEEN, LATER = ("read", "survey", "proof"), ("rewrite", "restore", "manifests", "vacuum")
# Uploads a copy of a local table under a name; returns its URI.
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
    # Otherwise a client waits 0.4 s for each file whose block the name node hasn't heard of yet.
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
def test_a_table_is_seen_and_compacted(put: Put, spark: SparkSession, shaped: Path, tmp_path: Path) -> None:
    uri = put(shaped, f"{tmp_path.name}/t")
    here, table = ck.open_table(shaped), ck.open_table(uri, spark)

    # Reading gives the same results as on the local copy.
    assert table.version == here.version == 4
    assert table.files().to_arrow().equals(here.files().to_arrow())
    assert table.history()["operation"].equals(here.history()["operation"])
    assert set(table.versions()["readable"].to_pylist()) == {"yes"}
    plan = table.plan_compaction(max_file_size="1 MiB")
    assert plan.bins.equals(here.plan_compaction(max_file_size="1 MiB").bins)
    surveyed = ck.survey(uri.rpartition("/")[0]).to_arrow()
    assert surveyed["num_files"].to_pylist() == [plan.num_files_removed]

    # The run is as planned and proved, by pyarrow if that reaches the storage from the executors.
    result = plan.run()
    assert result.strategy == ("arrow" if uri.startswith("s3a:") else "optimize")
    assert "can't reach hdfs://" in result.reason or result.strategy == "arrow"
    assert (result.as_planned, result.verified, result.versions) == (True, True, (5,))
    assert table.files().num_files == plan.num_files_added == 3
    assert rows.by_spark(spark, uri) == rows.on_disk(shaped, 4)


@pytest.mark.works("S3", *LATER, when="s3")
@pytest.mark.works("HDFS", *LATER, when="hdfs")
@pytest.mark.nightly
def test_a_table_is_rewritten_restored_listed_in_a_manifest_and_vacuumed(
    put: Put, spark: SparkSession, shaped: Path, tmp_path: Path
) -> None:
    uri = put(shaped, f"lake/{tmp_path.name}")
    assert afterwards(ck.open_table(uri, spark)) == AFTERWARDS
    assert rows.by_spark(spark, uri) == rows.on_disk(shaped, 4)


@pytest.mark.works("S3", "workbench", when="s3")
@pytest.mark.works("HDFS", "workbench", when="hdfs")
def test_the_workbench_shows_the_tables_of_a_folder(put: Put, shaped: Path, tmp_path: Path) -> None:
    uri = put(shaped, f"{tmp_path.name}/lake/t")
    bench = Workbench(WorkbenchState(uri.rpartition("/")[0]))
    for job in (bench.state.searching, bench.state.loading):
        job.wait(60)
    assert bench.state.tables == [uri]
    assert bench.state.plan is not None
    assert (bench.state.plan.num_files_removed, bench.state.plan.num_bins) == (21, 3)


@pytest.mark.refused("S3", "convert", "sink", when="s3")
@pytest.mark.refused("HDFS", "convert", "sink", when="hdfs")
def test_what_needs_a_local_disk_is_refused_by_name(put: Put, shaped: Path, tmp_path: Path) -> None:
    uri = put(shaped, tmp_path.name)
    table = ck.open_table(uri)
    for call in (
        partial(interop.plan_convert, uri),
        partial(interop.plan_to_parquet, table),
        partial(ck.sink_log, uri),
        lambda: table.path,
    ):
        refused(call, errors.UnsupportedTableError, "on local disks alone, and", uri)
    words = f"No table at {uri}-other: the path does not exist"
    refused(partial(ck.open_table, f"{uri}-other"), errors.TableNotFoundError, words)


# The settings with which a session has Delta.
_OF_DELTA = (
    "spark.jars",
    "spark.driver.extraClassPath",
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
)
# Exit at once: gRPC threads that wait for the server may abort the process when Python shuts down.
_RUN = "import os, sys, pytest; code = pytest.main(sys.argv[1:]); sys.stdout.flush(); os._exit(code)"


@pytest.mark.nightly
def test_the_path_works_over_spark_connect(spark: SparkSession, s3: stores.Server, tmp_path: Path) -> None:
    known = spark.sparkContext.getConf()
    confs = QUICK | {key: value for key in _OF_DELTA if (value := known.get(key))}
    # The server reaches S3 by its settings, the client by its environment.
    confs |= {f"spark.hadoop.{key}": value for key, value in s3.s3a.items()}
    confs |= {"spark.connect.progress.reportInterval": "20ms"}
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"AWS_ACCESS_KEY_ID": stores.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": stores.SECRET_KEY}
    env |= {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://{s3.address}"}
    command = [sys.executable, "-c", _RUN, "--quiet", "--override-ini=addopts=", "--color=no"]
    # Leave out nbval, which takes three seconds to import.
    command += ["-p", "no:nbval", f"--basetemp={tmp_path / 'tests'}", over_connect.__file__]
    with connect_server(tmp_path, confs) as (url, pid):
        env |= {"SPARK_REMOTE": url, over_connect.SERVER: str(pid)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1_200)
    assert done.returncode == 0, done.stdout + done.stderr


_SPARKS = Path(pyspark.__file__).with_name("jars")
# The JARs that the cluster needs besides Spark's. Its launcher is one of Hadoop's tests, so JUnit is needed.
_PACKAGES = (
    "org.apache.hadoop hadoop-client-minicluster 3.5.0",
    "org.junit.jupiter junit-jupiter-api 5.13.4",
    "org.junit.platform junit-platform-commons 1.13.4",
    "org.opentest4j opentest4j 1.3.0",
)
_USED = ("hadoop-client-", "log4j-", "slf4j-api-", "jcl-over-slf4j-")
_SECONDS = 120


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Run a cluster whose files are in a folder; yield its URI."""
    java = find_java_home(cache_folder()) / "bin" / "java"
    jars = [*_packages(java), *(jar for jar in _SPARKS.glob("*.jar") if jar.name.startswith(_USED))]
    details = folder / "details.json"
    command = [
        *(str(java), "-Xmx512m", "-XX:+UseSerialGC", f"-Dtest.build.data={folder}"),
        *(f"-Dhdfs.minidfs.basedir={folder}", "-cp", os.pathsep.join(map(str, jars))),
        *("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1", "-nnport", "0"),
        *("-D", "dfs.namenode.fs-limits.min-block-size=0", "-writeDetails", str(details)),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + _SECONDS
        while not details.exists() or not details.stat().st_size:
            assert process.poll() is None, (folder / "log").read_text()[-2_000:]
            assert time.monotonic() < end, "HDFS did not start"
            time.sleep(0.1)
        port = details.read_text().partition(":")[2].strip(" }\n")
        yield f"hdfs://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _packages(java: Path) -> list[Path]:
    """Fetch JARs with Ivy, which Spark has for its own packages."""
    folder, ivy = cache_folder() / "hdfs", next(_SPARKS.glob("ivy-*.jar"))
    for package in _PACKAGES:
        _, name, version = package.split()
        if not (folder / f"{name}-{version}.jar").exists():
            command = [
                *(str(java), "-jar", str(ivy), "-cache", f"{folder}/ivy", "-types", "jar", "-notransitive"),
                *("-dependency", *package.split(), "-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
            ]
            subprocess.run(command, check=True, capture_output=True)
    return list(folder.glob("*.jar"))
