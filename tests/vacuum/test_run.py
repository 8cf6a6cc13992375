"""Delta deletes what a plan shows and nothing else; the result says what stayed."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError, RunCancelled, StalePlanError
from compaction_kit.execute import Progress
from compaction_kit.handle import Handle
from tests import folders, handmade
from tests.conftest import SetConf
from tests.handmade import add, metadata
from tests.refusals import refused
from tests.releases import HAS_GUARD
from tests.vacuum.conftest import Aged, content, drop_file, removed


@pytest.fixture
def old(aged: Aged) -> Path:
    """A table with the file a, removed 9 days ago, a live file, and an orphan."""
    table = aged((20, [add("a"), add("live")]), (8, [removed("a", 9)]))
    drop_file(table, "orphan", 30)
    return table


@pytest.mark.works("local disk", "vacuum")
def test_a_run_deletes_just_what_the_plan_shows_whatever_the_names(
    spark: SparkSession, aged: Aged, tmp_path: Path
) -> None:
    names = ["p=a b/ü", "100%", "a%20b", "q?x#y", "p=it's/`so`", 'say "so"', "a+b&c=d", "p=1/k:v/1"]
    paths = [quote(name) for name in names]
    folder = tmp_path / "a b%20c'd`e"
    actions = [metadata({"id": "long", "p": "string"}, ["p"]), *map(add, [*paths, "live"])]
    table = aged((20, actions), (9, [removed(path, 9) for path in paths]), folder=folder)
    drop_file(table, "an orphan/of 100 %41", 20)
    for name in ("a:b", "p=1/z:v"):
        drop_file(table, name, 20)
    (table / "x:y").mkdir()
    (table / "outer %/inner").mkdir(parents=True)
    drop_file(table, "young/file")
    drop_file(table, "secretive/.file", 30)
    plan = open_table(table, spark).plan_vacuum()
    assert set(plan.files["path"].to_pylist()) == {*names, "an orphan/of 100 %41"}
    drop_file(table, "an orphan of later", 20)
    before = content(table)
    seen: list[Progress] = []
    result = plan.run(progress=seen.append)
    assert before - content(table) == set(plan.files["path"].to_pylist()) | set(result.directories)
    kept = {"an orphan of later", "a:b", "p=1/z:v", "x:y", "live", "young/file", "secretive/.file"}
    assert kept <= content(table)
    assert result.as_planned
    assert "outer %/inner" in result.directories
    assert (result.num_files, result.size_bytes) == (plan.num_files, plan.size_bytes) == (9, 9)
    assert result.commits == (2, 3)
    # With the guard, version 0 was unreadable before, and 1 is unreadable now.
    assert result.versions_lost == plan.versions_lost == ([1] if HAS_GUARD else [0])
    assert (seen[0].fraction, seen[-1].fraction) == (0, 1)
    assert str(seen[-1]) == "Deleted 9 of 9 files"
    assert "9 files, 9 B, as planned" in result.summary()
    refused(plan.run, StalePlanError, "made at version 1 and the table is at 3")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: handmade.write_commit(table, 2, [add("b")]), "at version 1 and the table is at 2"),
        (lambda table: (table / "a").unlink(), "1 planned file (a) changed or missing"),
        (lambda table: (table / "a").write_text("xy"), "1 planned file (a) changed or missing"),
        (lambda table: os.utime(table / "orphan"), "1 planned file (orphan) changed or missing"),
    ],
)
def test_a_stale_plan_is_refused_untouched(old: Path, change: Callable[[Path], Any], words: str) -> None:
    plan = open_table(old).plan_vacuum()
    change(old)
    before = folders.listing(old)
    refused(plan.run, StalePlanError, words, "make a new plan; nothing was deleted")
    assert folders.listing(old) == before


def test_a_preview_for_later_is_refused(old: Path) -> None:
    plan = open_table(old).plan_vacuum(at=datetime.now(UTC) + timedelta(hours=1))
    refused(plan.run, InvalidArgumentError, "in the future: run it then")


def test_an_empty_plan_says_so_runs_and_commits_nothing(aged: Aged) -> None:
    table = aged((9, [add("live")]))
    before, plan = folders.listing(table), open_table(table).plan_vacuum()
    assert (plan.num_files, plan.size_bytes, plan.versions_lost) == (0, 0, [])
    assert "would delete nothing: " in plan.explain()
    result = plan.run()
    assert (result.num_files, result.commits, result.versions_lost) == (0, (), [])
    assert "nothing to do" in result.summary()
    assert (result.as_planned, replace(plan, versions_lost=[0]).run().as_planned) == (True, False)
    assert folders.listing(table) == before


def test_what_another_writer_commits_or_fills_meanwhile_or_can_not_be_deleted_stays_and_is_named(
    spark: SparkSession, old: Path
) -> None:
    for path in ("p=1/kept", "c"):
        drop_file(old, path, 30)
    for name in ("filled", "empty"):
        (old / name).mkdir()

    class BusyHandle(Handle):
        @cached_property
        def spark(self) -> SparkSession:
            handmade.write_commit(old, 2, [add("orphan")])
            (old / "a").rename(old / "b")
            drop_file(old, "filled/file")
            return spark

    plan = open_table(old, spark).plan_vacuum()
    plan = replace(plan, handle=BusyHandle(plan.handle.name, plan.handle.store))
    place, command, lock, unlock = old / "p=1", "chmod", "555", "755"
    if os.geteuid() == 0:
        place, command, lock, unlock = place / "kept", "chattr", "+i", "-i"
    if subprocess.run([command, lock, place], capture_output=True).returncode:
        pytest.skip("nothing can be locked on this file system")
    try:
        result = plan.run()
    finally:
        subprocess.run([command, unlock, place], check=True)
    kept = {row["path"]: row["why"] for row in result.not_deleted.to_pylist()}
    assert f"version {result.commits[-1]}" in kept.pop("orphan")
    assert kept == {"p=1/kept": "the file system refused to delete it"}
    assert (result.files["path"].to_pylist(), result.directories) == (["a", "c"], ("empty",))
    assert (old / "filled/file").exists()
    assert not result.as_planned
    assert "2 files: orphan: version" in result.summary()


def test_a_cancelled_run_says_what_is_gone_and_puts_the_settings_back(
    spark: SparkSession, old: Path, confs: SetConf
) -> None:
    lite = "spark.databricks.delta.vacuum.lite.enabled"
    confs(lite, "true")
    tables, during = spark.sql("SHOW TABLES").collect(), []

    def stop(progress: Progress) -> None:
        during.append(spark.conf.get(lite))
        raise KeyboardInterrupt

    plan = open_table(old, spark).plan_vacuum()
    refused(
        partial(plan.run, progress=stop), RunCancelled, "was cancelled", "make a new plan for what is left"
    )
    assert (during, spark.conf.get(lite)) == (["true"], "true")
    assert SparkSession.getActiveSession() == spark
    assert spark.sql("SHOW TABLES").collect() == tables
    assert open_table(old, spark).plan_vacuum().run().as_planned
    # At the end, it is too late to cancel.
    too_late = Mock(side_effect=ValueError)
    assert open_table(old, spark).plan_vacuum().run(progress=too_late).num_files == 0
    assert too_late.called
    assert "latestCommitVersion" not in (old / "_delta_log/_last_vacuum_info").read_text()
    assert (old / "live").exists()


def test_a_retention_below_the_tables_own_needs_settings_of_the_session(
    spark: SparkSession, aged: Aged, confs: SetConf
) -> None:
    files = [add("a"), add("b"), add("live")]
    table = open_table(aged((2, files), (1, [removed("a", 1.5), removed("b", 0.1)])), spark)
    plan = partial(table.plan_vacuum, retention="24 hours")
    if HAS_GUARD:
        # With Delta's check of the retention and without.
        for check in ("true", "false"):
            confs("spark.databricks.delta.retentionDurationCheck.enabled", check)
            refused(plan, InvalidArgumentError, "would be ignored: since 4.1", "Ignore.enabled to")
            assert spark.sql(f"VACUUM '{table.path}' RETAIN 24 HOURS DRY RUN").count() == 0
    else:
        refused(plan, InvalidArgumentError, "is shorter than the 7 days")
        confs("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    assert table.plan_vacuum(retention="0 hours").files["path"].to_pylist() == ["a", "b"]
    confs("spark.databricks.delta.vacuum.retentionWindowIgnore.enabled", "false")
    assert table.plan_vacuum(retention="90 minutes").retention == timedelta(hours=2)
    result = table.plan_vacuum(retention="24 hours").run(progress=True)
    assert result.files["path"].to_pylist() == ["a"]
