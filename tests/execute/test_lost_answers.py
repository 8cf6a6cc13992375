"""Commits whose answer a store loses: Delta takes its own for another writer's, and a run doesn't."""

import functools
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import errors, interop, open_table
from compaction_kit.compat import java_class
from compaction_kit.history import restore as restoring
from tests import folders
from tests.chance import nightly
from tests.execute.meanwhile import clustered_table, once
from tests.execute.test_optimize import assert_done_as_planned
from tests.execute.test_proof import UNDONE, spoil
from tests.folders import data_files
from tests.refusals import refused
from tests.rows import on_disk


@pytest.mark.parametrize("strategy", ["arrow", "optimize", "rewrite"])
def test_a_run_takes_its_own_commit_for_done(spark: SparkSession, changed: Path, strategy: str) -> None:
    plan, rows = open_table(changed, spark).plan_compaction(), on_disk(changed)
    lose_answers(spark, changed)
    result = plan.run(strategy=strategy)
    assert (result.strategy, result.verified, result.conflicts) == (strategy, True, ())
    assert_done_as_planned(changed, plan, result)
    assert on_disk(changed) == rows


@pytest.mark.parametrize("kind", ["sorted", *nightly("clustered", "purged")])
def test_rows_are_not_rewritten_twice(
    spark: SparkSession, changed: Path, lived: Path, tmp_path: Path, kind: str
) -> None:
    """OPTIMIZE finds files to sort whenever it is run."""
    path = clustered_table(tmp_path / "clustered") if kind == "clustered" else changed
    path = folders.copy(lived, tmp_path / "lived") if kind == "purged" else path
    table = open_table(path, spark)
    options: dict[str, Any] = {"full": True} if kind == "clustered" else {"zorder_by": ["id"]}
    plan = table.plan_purge() if kind == "purged" else table.plan_compaction(**options)
    lose_answers(spark, path)
    result = plan.run()
    assert (result.versions, result.as_planned, result.verified) == ((plan.version + 1,), True, True)
    assert (result.strategy, result.conflicts) == ("reorg" if kind == "purged" else "optimize", ())
    assert table.version == plan.version + 1


@pytest.mark.parametrize("by", [(), pytest.param(("id",), marks=pytest.mark.nightly)])
def test_batches_go_on_after_a_lost_answer(spark: SparkSession, changed: Path, by: tuple[str, ...]) -> None:
    plan, rows = open_table(changed, spark).plan_compaction(batch_size=1, zorder_by=by), on_disk(changed)
    assert plan.num_batches == 3
    lose_answers(spark, changed)
    result = plan.run(strategy="optimize")
    # A Z-order sorts the first one again.
    assert (result.versions, result.as_planned) == (((5, 6, 7, 8), False) if by else ((5, 6, 7), True))
    assert (result.verified, result.conflicts, result.num_bins) == (True, (), 3)
    assert sum(result.batches["seconds"].to_pylist()) <= result.seconds
    assert on_disk(changed) == rows


@pytest.mark.parametrize("by_delta", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_restore_takes_its_own_commit_for_done(
    spark: SparkSession, changed: Path, monkeypatch: pytest.MonkeyPatch, by_delta: bool
) -> None:
    if by_delta:
        monkeypatch.setattr(restoring, "commit_restore", lambda *_: False)
    plan = open_table(changed, spark).plan_restore(2)
    lose_answers(spark, changed)
    result = plan.run()
    assert (result.version, result.restored, result.as_planned) == (5, 2, True)
    assert (result.num_files_removed, result.bytes_removed) == (
        plan.diff.num_files_removed,
        plan.diff.bytes_removed,
    )
    assert folders.live(changed) == folders.live(changed, 2)
    assert open_table(changed).version == 5


@pytest.mark.nightly
def test_an_undo_takes_its_own_commit_for_done(spark: SparkSession, changed: Path) -> None:
    before, paths, plan = data_files(changed), folders.live(changed), open_table(changed).plan_compaction()

    def act() -> None:
        spoil(changed, before)
        lose_answers(spark, changed)

    refused(plan.run, errors.VerificationError, UNDONE, strategy="rewrite", progress=once("Comparing", act))
    assert (folders.live(changed), open_table(changed).version) == (paths, 6)


@pytest.mark.nightly
def test_a_vacuum_names_all_commits_that_it_made(spark: SparkSession, changed: Path, confs: Any) -> None:
    """They have no file actions, so Delta makes one more and finds no conflict."""
    confs("spark.databricks.delta.vacuum.logging.enabled", "true")
    confs("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    open_table(changed, spark).plan_compaction().run(strategy="arrow", verify=False)
    plan = open_table(changed, spark).plan_vacuum(retention="0 hours")
    lose_answers(spark, changed)
    result = plan.run()
    assert (result.num_files, result.commits, result.as_planned) == (21, (6, 7, 8), True)
    operations = open_table(changed).log.commits()["operation"].to_pylist()
    assert operations[6:] == ["VACUUM START", "VACUUM START", "VACUUM END"]


@pytest.mark.nightly
def test_a_conversion_is_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    """On local disks alone, where no answer is lost as over a network."""
    folder = tmp_path / "plain"
    spark.range(0, 30, 1, 3).write.parquet(str(folder))
    plan, before = interop.plan_convert(folder), data_files(folder)
    lose_answers(spark, folder)
    refused(plan.run, errors.ConflictError, "and the folder is Parquet as it was")
    assert (data_files(folder), (folder / "_delta_log").exists()) == (before, False)


# A log store of Delta for local disks, which stays that of one table as long as Delta has its log in memory.
_JAVA = """
import java.lang.reflect.Field;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.storage.LogStoreAdaptor;

public class Losing {
    static class Store extends io.delta.storage.HDFSLogStore {
        int left;

        Store(Configuration conf, int number) {
            super(conf);
            left = number;
        }

        public void write(Path path, Iterator lines, Boolean overwrite, Configuration conf)
                throws java.io.IOException {
            super.write(path, lines, overwrite, conf);
            if (path.getName().endsWith(".json") && !overwrite.booleanValue() && left-- > 0) {
                throw new java.nio.file.FileAlreadyExistsException(path.toString());
            }
        }
    }

    public void lose(DeltaLog log, int number) throws Exception {
        Field stores = log.store().getClass().getDeclaredField("schemeToLogStoreMap");
        stores.setAccessible(true);
        LogStoreAdaptor store = new LogStoreAdaptor(new Store(log.newDeltaHadoopConf(), number));
        ((scala.collection.mutable.Map) stores.get(log.store())).put("file", store);
    }
}
"""


def lose_answers(spark: SparkSession, table: Path, number: int = 1) -> None:
    """Lose the answers to the next commits of a table on a local disk, as the tries to make them come."""
    log = java_class(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(spark._jsparkSession, str(table))
    _losing(spark).lose(log, number)


@functools.cache
def _losing(spark: SparkSession) -> Any:
    """Compile it by the compiler that Spark has for its queries."""
    compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
    delta_logs = getattr(java_class(spark, "org.apache.spark.sql.delta.DeltaLog$"), "MODULE$")
    compiler.setParentClassLoader(delta_logs.getClass().getClassLoader())
    compiler.cook(_JAVA)
    return compiler.getClassLoader().loadClass("Losing").newInstance()
