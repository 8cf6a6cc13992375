"""Versions of random tables can be read as told; plans are what VACUUM deletes, and cost what they say."""

import shutil
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.execute.jobs import session_confs
from compaction_kit.retention import GUARD
from tests import folders
from tests.history.random_histories import (
    RETENTION_DAYS,
    History,
    Step,
    histories,
    made,
    probe,
    probe_all,
    take,
)
from tests.vacuum.conftest import content, drop_file, listed

pytestmark = pytest.mark.spark
PARALLEL_DELETE = "spark.databricks.delta.vacuum.parallelDelete.enabled"


@dataclass(frozen=True)
class Wish:
    """How a table is vacuumed; `keep` are positions among the versions that are whole."""

    keep: frozenset[int]
    guard: bool
    parallel: bool


WISHES = st.builds(Wish, st.frozensets(st.integers(0, 5), max_size=2), st.booleans(), st.booleans())
EVENTFUL = [("append", 1), ("delete", 3), ("optimize", 0), ("age", 3), ("update", 2), ("orphan", 1)]
EVENTFUL += [("restore", 1), ("age", 5), ("checkpoint", 0), ("append", 2)]
# Version 1 has lost its log, 2 is blocked, 3 lacks a file.
LOSSY = [("append", 0), ("delete", 1), ("age", RETENTION_DAYS), ("checkpoint", 0), ("append", 1)]
LOSSY += [("trim the log", 0), ("lose a file", 0), ("delete", 2)]


@pytest.mark.nightly
@example(History(True, False, True, True, tuple(starmap(Step, EVENTFUL))), Wish(frozenset({1}), False, True))
@example(History(True, False, False, False, tuple(starmap(Step, LOSSY))), Wish(frozenset(), True, False))
@given(histories(), WISHES)
@settings(max_examples=settings().max_examples // 50)
def test_a_vacuum_does_what_its_plan_says(spark: SparkSession, history: History, wish: Wish) -> None:
    with made(spark, history) as table, session_confs(spark, {GUARD: str(wish.guard).lower()}):
        leave_folders(table)
        plan = open_table(table, spark).plan_vacuum()
        files = set(plan.files["path"].to_pylist())
        assert files == {path for path in listed(spark, table) if (table / path).is_file()}
        twin = folders.copy(table, table.parent / "twin")
        before = content(twin)
        # Delta alone vacuums a copy.
        take(spark, twin, Step("vacuum"))
        gone = before - content(twin)
        assert {path for path in gone if (table / path).is_file()} == files
        # Whether the outer of two empty folders goes is by chance.
        assert gone - files <= set(plan.empty_directories)
        shutil.rmtree(twin)
        run_as_planned(spark, table, wish, files)


def run_as_planned(spark: SparkSession, table: Path, wish: Wish, without_keep: set[str]) -> None:
    """Run a plan that keeps versions, and compare what is gone, on disk and of the versions."""
    readable, versions = probe_all(spark, table), open_table(table, spark).versions().to_pylist()
    assert {row["version"]: row["readable"] for row in versions} == readable
    choice = [row["version"] for row in versions if row["num_missing"] == 0 and row["readable"] != "log gone"]
    keep = sorted({choice[position] for position in wish.keep if position < len(choice)})
    plan = open_table(table, spark).plan_vacuum(keep_versions=keep)
    files = set(plan.files["path"].to_pylist())
    assert files == without_keep if not keep else files <= without_keep
    before = content(table)
    with session_confs(spark, {PARALLEL_DELETE: str(wish.parallel).lower()}):
        result = plan.run()
    assert before - content(table) == files | set(result.directories)
    assert set(result.directories) <= set(plan.empty_directories)
    now, versions = probe_all(spark, table), open_table(table, spark).versions().to_pylist()
    assert {row["version"]: row["readable"] for row in versions} == now
    lost = [v for v, status in readable.items() if status == "yes" and now[v] != "yes"]
    assert plan.versions_lost == result.versions_lost == lost
    assert all(now[version] == "yes" for version in plan.content_survives_as.values())
    with session_confs(spark, {GUARD: "false"}):
        assert all(probe(spark, table, version) == "yes" for version in keep)
    assert result.as_planned


def leave_folders(table: Path) -> None:
    """Folders of which nothing is live: empty ones, one in another, one with a young or hidden file."""
    for path in ("empty %41", "nest/ed", "_hidden empty"):
        (table / path).mkdir(parents=True, exist_ok=True)
    drop_file(table, "young/file")
    drop_file(table, "secretive/.file", 30)
