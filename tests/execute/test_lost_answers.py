"""Commits whose answer a store loses: Delta takes its own for another writer's, and a run doesn't."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import interop, open_table
from compaction_kit.errors import ConflictError, VerificationError
from compaction_kit.history import restore as restoring
from tests import folders
from tests.conftest import CopyOf
from tests.execute.meanwhile import clustered_table, once
from tests.execute.test_optimize import assert_done_as_planned
from tests.execute.test_proof import UNDONE, spoil
from tests.folders import data_files
from tests.lost_answers import lose_answers
from tests.refusals import refused
from tests.rows import on_disk

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("strategy", ["arrow", "optimize", "rewrite"])
def test_a_run_takes_its_own_commit_for_done(spark: SparkSession, changed: Path, strategy: str) -> None:
    plan, rows = open_table(changed, spark).plan_compaction(), on_disk(changed)
    lose_answers(spark, changed)
    result = plan.run(strategy=strategy)
    assert (result.strategy, result.verified, result.conflicts) == (strategy, True, ())
    assert_done_as_planned(changed, plan, result)
    assert on_disk(changed) == rows


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_rows_are_not_sorted_twice(spark: SparkSession, changed: Path, tmp_path: Path, full: bool) -> None:
    """OPTIMIZE finds files to sort whenever it is run."""
    table = clustered_table(tmp_path / "clustered") if full else changed
    options: dict[str, Any] = {"full": True} if full else {"zorder_by": ["id"]}
    plan = open_table(table, spark).plan_compaction(**options)
    lose_answers(spark, table)
    result = plan.run(strategy="optimize")
    assert (result.versions, result.as_planned, result.verified) == ((plan.version + 1,), True, True)
    assert result.conflicts == ()
    assert open_table(table).version == plan.version + 1


@pytest.mark.parametrize("by", [(), pytest.param(("id",), marks=pytest.mark.nightly)])
def test_batches_go_on_after_one_whose_answer_was_lost(
    spark: SparkSession, changed: Path, by: tuple[str, ...]
) -> None:
    plan, rows = open_table(changed, spark).plan_compaction(batch_size=1, zorder_by=by), on_disk(changed)
    assert plan.num_batches == 3
    lose_answers(spark, changed)
    result = plan.run(strategy="optimize")
    # A Z-order sorts the first one again.
    assert (result.versions, result.as_planned) == (((5, 6, 7, 8), False) if by else ((5, 6, 7), True))
    assert (result.verified, result.conflicts, result.num_bins) == (True, (), 3)
    assert on_disk(changed) == rows


@pytest.mark.nightly
def test_a_purge_takes_its_own_commit_for_done(spark: SparkSession, lived: Path, copy_of: CopyOf) -> None:
    table = copy_of(lived)
    plan = open_table(table, spark).plan_purge()
    lose_answers(spark, table)
    result = plan.run()
    assert (result.strategy, result.versions, result.as_planned) == ("reorg", (5,), True)
    assert (result.verified, result.conflicts) == (True, ())


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

    with pytest.raises(VerificationError, match=UNDONE):
        plan.run(strategy="rewrite", progress=once("Comparing", act))
    assert (folders.live(changed), open_table(changed).version) == (paths, 6)


@pytest.mark.nightly
def test_a_vacuum_names_its_commits_each_time_they_were_made(
    spark: SparkSession, changed: Path, confs: Any
) -> None:
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
    refused(plan.run, ConflictError, "and the folder is Parquet as it was")
    assert (data_files(folder), (folder / "_delta_log").exists()) == (before, False)
