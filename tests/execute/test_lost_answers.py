"""Commits whose answer a store loses: Delta takes its own commit for another writer's, a run doesn't."""

import functools
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.compat import java_class
from compaction_kit.history import restore as restoring
from tests import folders
from tests.chance import nightly
from tests.execute.test_optimize import assert_done_as_planned
from tests.rows import on_disk


@pytest.mark.parametrize(
    ("strategy", "by"), [("arrow", ()), ("optimize", ()), *nightly(("rewrite", ()), ("optimize", ("id",)))]
)
def test_a_run_recognizes_its_own_commit(
    spark: SparkSession, changed: Path, strategy: str, by: tuple[str, ...]
) -> None:
    """Even if OPTIMIZE finds files to sort by `id` every time it runs."""
    plan, rows = open_table(changed, spark).plan_compaction(zorder_by=by), on_disk(changed)
    lose_answers(spark, changed)
    result = plan.run(strategy=strategy)
    assert (result.strategy, result.verified, result.conflicts) == (strategy, True, ())
    assert_done_as_planned(changed, plan, result)
    assert on_disk(changed) == rows


@pytest.mark.nightly
@pytest.mark.parametrize("by", [(), ("id",)])
def test_batches_go_on_after_a_lost_answer(spark: SparkSession, changed: Path, by: tuple[str, ...]) -> None:
    plan, rows = open_table(changed, spark).plan_compaction(batch_size=1, zorder_by=by), on_disk(changed)
    assert plan.num_batches == 3
    lose_answers(spark, changed)
    result = plan.run(strategy="optimize")
    # A Z-order sorts the first batch again.
    assert (result.versions, result.as_planned) == (((5, 6, 7, 8), False) if by else ((5, 6, 7), True))
    assert (result.verified, result.conflicts, result.num_bins) == (True, (), 3)
    assert sum(result.batches["seconds"].to_pylist()) <= result.seconds
    assert on_disk(changed) == rows


@pytest.mark.parametrize("by_delta", [False, *nightly(True)])
def test_a_restore_recognizes_its_own_commit(
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
def test_a_vacuum_names_all_commits_that_it_made(spark: SparkSession, changed: Path, confs: Any) -> None:
    """These commits have no file actions, so Delta finds no conflict and commits once more."""
    confs("spark.databricks.delta.vacuum.logging.enabled", "true")
    confs("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    open_table(changed, spark).plan_compaction().run(strategy="arrow", verify=False)
    plan = open_table(changed, spark).plan_vacuum(retention="0 hours")
    lose_answers(spark, changed)
    result = plan.run()
    assert (result.num_files, result.commits, result.as_planned) == (21, (6, 7, 8), True)
    operations = open_table(changed).log.commits()["operation"].to_pylist()
    assert operations[6:] == ["VACUUM START", "VACUUM START", "VACUUM END"]


# A log store of Delta for local disks; a table keeps it as long as Delta has the table's log in memory.
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
    """Lose the answers to the next `number` commits of a table on a local disk."""
    log = java_class(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(spark._jsparkSession, str(table))
    _losing(spark).lose(log, number)


@functools.cache
def _losing(spark: SparkSession) -> Any:
    """Compile `_JAVA` with the compiler that Spark uses for its queries."""
    compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
    delta_logs = getattr(java_class(spark, "org.apache.spark.sql.delta.DeltaLog$"), "MODULE$")
    compiler.setParentClassLoader(delta_logs.getClass().getClassLoader())
    compiler.cook(_JAVA)
    return compiler.getClassLoader().loadClass("Losing").newInstance()
