"""An analyst's path over Spark Connect; `test_far.py` runs these tests in a process of their own.

A process has either a JVM or a connection to the server that SPARK_REMOTE names.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from course import races
from pyarrow import fs
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.retries import DefaultPolicy

import compaction_kit as ck
from compaction_kit import datasets, errors
from compaction_kit.execute import Progress
from tests import folders, handmade
from tests.elsewhere import AFTERWARDS, CHECK, afterwards
from tests.execute.meanwhile import commit_behind, once, once_rewriting
from tests.execute.test_proof import spoil
from tests.execute.test_run import stop_at
from tests.refusals import refused
from tests.rows import by_spark, on_disk, texts
from tests.stores import BUCKET
from tests.widgets.pages import at, words

# The environment variable with the server's process id.
SERVER = "CONNECT_SERVER_PID"
# This test must run last, because it kills the server.
LAST = "test_at_last_a_server_that_dies_is_told_in_one_sentence"
IN_ONE_GO = ["optimize", "rewrite"]
MIN_SIZE = "spark.databricks.delta.optimize.minFileSize"
SET_BY_DELTA = {
    "spark.databricks.delta.lastCommitVersionInSession",
    "spark.sql.parquet.fieldId.read.enabled",
    "spark.sql.parquet.fieldId.write.enabled",
}
NO_JVM = "its commit needs the session's JVM, which can't be reached over Spark Connect"


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    # Connects to the server that SPARK_REMOTE names.
    return ck.get_spark()


@pytest.fixture(autouse=True)
def settings(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """Set some settings as a user would, and check that a test leaves all settings as they were."""
    spark.conf.set(MIN_SIZE, "12345")
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "mine")

    def own() -> dict[str, str]:
        known = dict(spark.conf.getAll)  # type: ignore[attr-defined]
        return {key: value for key, value in known.items() if key not in SET_BY_DELTA}

    before = own()
    yield
    # The settings of a dead server can't be read.
    assert request.node.name == LAST or own() == before


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A table with 12 bins of 10 files, which takes a moment to compact."""
    return Path(datasets.shaped_table(tmp_path / "wide", partitions=12, files=10, rows=20, commits=2))


@pytest.mark.works("Spark Connect", "read", "optimize", "proof", when="auto")
@pytest.mark.parametrize("strategy", ["auto", "rewrite"])
def test_the_whole_path(spark: SparkSession, changed: Path, strategy: str) -> None:
    assert SparkContext._gateway is None
    table = ck.open_table(changed)
    before, seen, values = on_disk(changed, 4), list[Progress](), set[str | None]()
    plan = table.plan_compaction(min_file_size="1 MiB", max_file_size="1 MiB")

    def watch(progress: Progress) -> None:
        seen.append(progress)
        values.add(spark.conf.get(MIN_SIZE))

    result = plan.run(strategy=strategy, progress=watch)
    assert (result.versions, result.as_planned, result.verified) == ((5,), True, True)
    assert result.strategy == ("rewrite" if strategy == "rewrite" else "optimize")
    assert result.reason == (f"optimize, because {NO_JVM}" if strategy == "auto" else "as asked for")
    assert result.fingerprint is not None
    assert result.fingerprint.num_rows == len(before) == 1050
    assert result.measure_reads("id < 3", repeats=1).same_result
    assert by_spark(spark, changed) == before
    # OPTIMIZE runs with the plan's threshold; then the user's own value is back.
    assert values == ({"12345"} if strategy == "rewrite" else {"12345", str(2**20)})
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    steps = {progress.step for progress in seen} - {"Committing"}
    assert steps == {"Preparing", "Rewriting", "Comparing the content", "Done"}

    last = table.log.commits().sort_by("version").to_pylist()[-1]
    operation = "WRITE" if strategy == "rewrite" else "OPTIMIZE"
    assert (last["version"], last["operation"]) == (5, operation)
    assert last["user_metadata"].startswith(f"mine; compaction_kit {result.strategy}, plan ")
    assert table.diff(4, 5, verify=True).same_content_by == "proved"


@pytest.mark.works("Spark Connect", "rewrite", "restore", "manifests", "vacuum", "survey")
def test_rewrite_restore_manifest_and_vacuum(spark: SparkSession, changed: Path) -> None:
    table, before = ck.open_table(changed), on_disk(changed, 4)
    refused(table.plan_vacuum, errors.InvalidArgumentError, CHECK, retention="0 hours")
    assert afterwards(table) == AFTERWARDS
    assert by_spark(spark, changed) == before
    assert ck.survey(changed.parent).to_arrow()["num_files"].to_pylist() == [21]


@pytest.mark.refused("Spark Connect", "arrow")
def test_what_needs_a_jvm_is_refused_by_name(changed: Path) -> None:
    before, table = folders.listing(changed), ck.open_table(changed)
    for strategy, order in {"arrow": "size", "auto": "ingest"}.items():
        plan = table.plan_compaction(order=order)
        refused(plan.run, errors.UnsupportedTableError, NO_JVM, strategy=strategy)
    assert folders.listing(changed) == before
    play = partial(races.play, changed.parent / "lessons", "compaction with delete")
    refused(play, errors.SessionError, "has no JVM in reach, as over Spark Connect, and no transaction")
    words = "can't be reached over Spark Connect, as only Hadoop"
    refused(partial(ck.open_table, "hdfs://127.0.0.1:1/t"), errors.StorageError, words)


@pytest.mark.parametrize("strategy", IN_ONE_GO)
def test_a_cancelled_run_leaves_what_the_error_says(spark: SparkSession, wide: Path, strategy: str) -> None:
    table = ck.open_table(wide)
    before = texts(spark, wide)
    plan = table.plan_compaction()
    cancelled = partial(refused, partial(plan.run, strategy=strategy), errors.RunCancelled)
    words = "cancelled: nothing was committed, the table is as it was"
    cancelled(words, progress=stop_at("Rewriting", KeyboardInterrupt))
    # Threads of Delta may still write bins that were about to begin.
    time.sleep(1)
    assert table.version == plan.version
    words = "the table was restored to version 2, as version 4"
    cancelled(words, progress=stop_at("Comparing", KeyboardInterrupt))
    assert table.files().num_files == plan.num_files_removed
    assert texts(spark, wide) == before


def test_content_that_differs_is_undone(spark: SparkSession, changed: Path) -> None:
    before, files = on_disk(changed, 4), folders.data_files(changed)
    progress = once("Comparing", lambda: spoil(changed, files))
    words = "the table was restored to version 4, as version 6"
    refused(ck.open_table(changed).plan_compaction().run, errors.VerificationError, words, progress=progress)
    assert by_spark(spark, changed) == before


def test_commits_of_other_writers_during_a_run(spark: SparkSession, wide: Path) -> None:
    table = ck.open_table(wide)
    plan = table.plan_compaction()
    source = plan.files["path"].to_pylist()[0]
    rows = pq.ParquetFile(wide / source).read()
    more = handmade.write_data(wide, f"{source}-more.parquet", rows, {"part": "p0000"})
    result = plan.run(strategy="optimize", progress=once_rewriting(commit_behind(wide, 3, [more])))
    assert (result.versions, result.verified, result.as_planned) == ((4,), True, True)
    table.plan_restore(2).run()
    plan = table.plan_compaction()
    removals = [handmade.remove(path, int(time.time() * 1000)) for path in plan.files["path"].to_pylist()]
    run = partial(plan.run, progress=once_rewriting(commit_behind(wide, 6, removals)))
    refused(run, errors.ConflictError, "make a new plan; nothing was committed", strategy="optimize")


def test_a_failure_is_told_in_one_sentence(changed: Path) -> None:
    plan = ck.open_table(changed).plan_compaction()
    (changed / plan.files["path"].to_pylist()[0]).unlink()
    for strategy in IN_ONE_GO:
        said = refused(plan.run, errors.RunFailedError, "the table is as it was", strategy=strategy)
        assert re.search(r"(?i)not.exist", str(said))


@pytest.mark.filterwarnings("ignore:On S3 Delta coordinates only the writers of one Spark driver")
def test_a_table_on_s3_is_compacted(spark: SparkSession, shaped: Path, tmp_path: Path) -> None:
    # The server reaches S3 by its own settings, this process by environment variables.
    scheme, _, address = os.environ["AWS_ENDPOINT_URL"].partition("://")
    store, name = fs.S3FileSystem(scheme=scheme, endpoint_override=address), f"{BUCKET}/{tmp_path.name}"
    fs.copy_files(str(shaped), name, destination_filesystem=store)
    table = ck.open_table(f"s3a://{name}")
    result = table.plan_compaction().run()
    assert (result.strategy, result.as_planned, result.verified) == ("optimize", True, True)
    assert result.num_files_removed == 21
    assert by_spark(spark, f"s3a://{name}") == on_disk(shaped)


@pytest.mark.works("Spark Connect", "workbench")
def test_the_workbench_runs_a_plan(changed: Path) -> None:
    bench: Any = ck.workbench(changed)
    bench.session.wait(60)
    bench.state.loading.wait(60)
    assert bench.session.status == "done", bench.session.message
    assert "local[" in at(bench, "ck-spark").value
    assert bench.state.run()
    bench.state.running.wait(120)
    assert bench.state.result.verified
    assert "content identical" in words(at(bench, "ck-footer"))


def test_at_last_a_server_that_dies_is_told_in_one_sentence(spark: SparkSession, wide: Path) -> None:
    # By default PySpark's client tries for ten minutes to reach a dead server.
    spark.client.set_retry_policies([DefaultPolicy(max_retries=1)])  # type: ignore[attr-defined]
    plan = ck.open_table(wide).plan_compaction()
    files = folders.data_files(wide)
    death = once_rewriting(lambda: os.kill(int(os.environ[SERVER]), signal.SIGKILL))
    words = "server of Spark Connect ", " so far, nothing was"
    refused(plan.run, errors.RunFailedError, *words, progress=death)
    # The log can still be read, and has not changed.
    assert plan.version == ck.open_table(wide).version == 2
    assert folders.data_files(wide) >= files
