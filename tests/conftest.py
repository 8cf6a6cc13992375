"""The session and the tables that tests share; a test that changes a table copies it."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from compaction_kit import datasets
from compaction_kit.execute.jobs import session_confs
from tests import folders, stores
from tests.jvm import own_session
from tests.notebooks.forked import made_once
from tests.releases import SPARK, streaming_class

settings.register_profile("kit", deadline=None, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=2_000)
settings.load_profile("kit")

# For many queries over little data. The tour and the workbench in Voilà use the kit's own settings.
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    # Spark builds a text of each query's plan for its UI; keep it short.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "0",
    # Don't write checksums of a stream's own files, which have Hadoop's checksums anyway.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # The default since Spark 4.0: dates before 1582 are written unchanged.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
# Write a stream's own files without starting a process for each. Readers with this setting verify Hadoop's
# checksums, which Spark by default doesn't.
QUICK_STREAMS = {
    "spark.sql.streaming.checkpointFileManagerClass": streaming_class(
        "checkpointing", "FileSystemBasedCheckpointFileManager"
    ),
}
CopyOf = Callable[[Path], Path]
SetConf = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run what is left for the night too")
    parser.addoption("--long", action="store_true", help="look further for bugs, for as long as it takes")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long"):
        settings.load_profile("long")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the times of the tests' runs and the tables that they open out of the user's cache."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", folders.own_cache(tmp_path_factory.mktemp("cache") / "own"))
        yield


def _is_night(config: pytest.Config) -> bool:
    return bool(config.getoption("--nightly") or config.getoption("--long"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that use the session."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker("spark")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """By day, leave out nightly tests; put test files that take long first.

    So no process works on a long file alone at the end. Notebooks and browser tests come before all others,
    because they borrow the JVM, in which the one session starts afterwards.
    """
    nightly = [item for item in items if item.get_closest_marker("nightly") and not _is_night(config)]
    config.hook.pytest_deselected(items=nightly)
    items[:] = [item for item in items if item not in nightly]
    is_long = {item.path for item in items if any(map(item.get_closest_marker, ("slow", "long")))}

    def place(item: pytest.Item) -> int:
        borrows = not item.path.is_relative_to(Path(__file__).parent) or item.get_closest_marker("browser")
        return 0 if borrows else 1 if item.path in is_long else 2

    items.sort(key=place)


@pytest.fixture(scope="session")
def by_night(pytestconfig: pytest.Config) -> bool:
    """Whether nightly tests run too, for fixtures that prepare what only these need."""
    return _is_night(pytestconfig)


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The one Spark session of the test run."""
    session = own_session()
    for key, value in QUICK.items():
        session.conf.set(key, value)
    return session


@pytest.fixture
def confs(spark: SparkSession) -> Iterator[SetConf]:
    """Set session settings; the old values come back after the test."""
    with ExitStack() as stack:
        yield lambda key, value: stack.enter_context(session_confs(spark, {key: value}))


@pytest.fixture(scope="session")
def _s3() -> Iterator[stores.Server]:
    with stores.s3_server() as server:
        yield server


@pytest.fixture
def s3(_s3: stores.Server) -> Iterator[stores.Server]:
    """The tests' S3 server, without faults and with an empty list of requests."""
    if SPARK < (4, 0):
        pytest.skip("S3A of Spark 3.5 needs another SDK of Amazon's")
    _s3.requests.clear()
    yield _s3
    _s3.fault = None


@pytest.fixture
def on_s3(s3: stores.Server, confs: Callable[[str, str], None]) -> stores.Server:
    """The server, with its address and keys in the session's settings."""
    for key, value in s3.s3a.items():
        confs(key, value)
    return s3


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of a test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights of 2013, a commit a day; copy it before you change it.

    It is made once for all processes of a test run, because that takes a while.
    """
    return made_once(datasets.flights, shared_folder(tmp_path_factory) / "flights")


@pytest.fixture(scope="session")
def shaped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """21 files from 4 commits in 3 skewed partitions (11, 6 and 4 files); copy it to change it."""
    folder = tmp_path_factory.mktemp("shaped") / "table"
    return Path(datasets.shaped_table(folder, partitions=3, files=7, rows=50, skew=1.0, commits=4))


@pytest.fixture(scope="session")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table by Spark, partitioned by p ("0" and "1"); copy it to change it. Its versions: rows written (0),
    rows deleted by vectors (1), more rows deleted (2), one partition compacted (3), rows appended (4).
    """
    folder = tmp_path_factory.mktemp("lived") / "table"
    name = f"delta.`{folder}`"
    rows = spark.range(0, 60, 1, 3).selectExpr("id", "CAST(id % 2 AS STRING) p")
    rows.write.format("delta").partitionBy("p").option("delta.enableDeletionVectors", "true").save(
        str(folder)
    )
    spark.sql(f"DELETE FROM {name} WHERE id IN (0, 2)")
    spark.sql(f"DELETE FROM {name} WHERE id IN (4, 20, 21)")
    spark.sql(f"OPTIMIZE {name} WHERE p = '0'")
    rows.limit(5).coalesce(1).write.format("delta").mode("append").save(str(folder))
    return folder


@pytest.fixture
def copy_of(tmp_path: Path) -> CopyOf:
    """Copies a table into the test's own folder."""
    return lambda table: folders.copy(table, tmp_path / "copy")


@pytest.fixture
def changed(copy_of: CopyOf, shaped: Path) -> Path:
    """A copy of `shaped` for a test to change."""
    return copy_of(shaped)
