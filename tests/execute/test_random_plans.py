"""Random tables are optimized by Delta itself, and the plan had said just what it would do."""

import shutil
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import EmptyTableError
from tests import handmade
from tests.conftest import QUICK
from tests.execute.random_tables import Recipe, files_of, random_recipe
from tests.handmade import Action

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]


SETTINGS = QUICK | {
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}


@dataclass(frozen=True)
class Commit:
    """What one commit of OPTIMIZE did."""

    table: Path
    info: Action
    adds: list[Action]
    removes: list[Action]

    @cached_property
    def outputs(self) -> list[frozenset[int]]:
        """The numbers of the files whose rows each added file holds."""
        paths = [self.table / unquote(add["path"]) for add in self.adds]
        return [files_of(pq.ParquetFile(path).read(["id"])["id"].to_pylist()) for path in paths]


@dataclass(frozen=True)
class Outcome:
    """What OPTIMIZE told, and what it did."""

    metrics: dict[str, Any]
    commits: list[Commit]

    @property
    def removes(self) -> list[Action]:
        return [remove for commit in self.commits for remove in commit.removes]

    @property
    def outputs(self) -> list[tuple[Action, frozenset[int]]]:
        """Each added file, and the numbers of the files whose rows it holds."""
        return [pair for commit in self.commits for pair in zip(commit.adds, commit.outputs, strict=True)]


def run_statement(spark: SparkSession, table: Path, statement: str) -> Outcome:
    last = max(map(int, (path.stem for path in (table / "_delta_log").glob("*.json"))))
    row = spark.sql(statement).collect()[0]
    commits: list[Commit] = []
    while handmade.commit_path(table, version := last + len(commits) + 1).exists():
        (info,), adds, removes = (
            handmade.actions_of(table, version, name) for name in ("commitInfo", "add", "remove")
        )
        commits.append(Commit(table, info, adds, removes))
    return Outcome(row.asDict(recursive=True)["metrics"], commits)


def assert_same_files(recipe: Recipe, plan: CompactionPlan, outcome: Outcome) -> None:
    """The files of the plan are gone, with their vectors, batch by batch."""
    batches: dict[int, set[str]] = {batch_id: set() for batch_id in plan.batches["batch_id"].to_pylist()}
    batch_of_bin = plan.bins["batch_id"].to_pylist()
    removed = [{remove["path"] for remove in commit.removes} for commit in outcome.commits]
    for planned in plan.files.to_pylist():
        batches[batch_of_bin[planned["bin_id"]]].add(planned["path"])
    assert set(plan.files["path"].to_pylist()) == set().union(*removed)
    assert sum(map(len, removed)) == len(outcome.removes)
    if plan.exact.commits:
        assert list(batches.values()) == removed
    live = recipe.live()
    for remove in outcome.removes:
        _, file = live[remove["path"]]
        assert remove["size"] == file.size
        assert (remove.get("deletionVector") or {}).get("cardinality", 0) == file.deleted


def assert_same_bins(recipe: Recipe, plan: CompactionPlan, outcome: Outcome) -> None:
    """The rows of each bin, and no others, are in one file, in the bin's partition."""
    live = recipe.live()
    bins: dict[int, set[int]] = {}
    for planned in plan.files.to_pylist():
        number, file = live[planned["path"]]
        if file.rows > file.deleted:
            bins.setdefault(planned["bin_id"], set()).add(number)
    assert Counter(map(frozenset, bins.values())) == Counter(numbers for _, numbers in outcome.outputs)
    for add, numbers in outcome.outputs:
        assert all(recipe.partition(number) == add["partitionValues"] for number in numbers)


def assert_same_metrics(recipe: Recipe, plan: CompactionPlan, outcome: Outcome) -> None:
    """OPTIMIZE's result says what the plan said that it would say, and so does the history."""
    assert plan.metrics == {name: outcome.metrics[name] for name in plan.metrics}
    if not plan.exact.commits:
        return
    for commit, batch in zip(outcome.commits, plan.batches.to_pylist(), strict=True):
        history = {name: int(value) for name, value in commit.info["operationMetrics"].items()}
        assert history["numRemovedFiles"] == batch["num_files"]
        assert history["numRemovedBytes"] == batch["size_bytes"]
        assert history["numAddedFiles"] == batch["num_files_added"] == len(commit.adds)
        assert history["numDeletionVectorsRemoved"] == batch["num_deletion_vectors"]


def check(recipe: Recipe, plan: CompactionPlan | None, outcome: Outcome) -> None:
    """Whatever the plan says is certain has come about."""
    if plan is None:
        assert not outcome.commits
        return
    assert_same_bins(recipe, plan, outcome)
    # A file that the log doesn't count the rows of may have none.
    if plan.exact.num_files_added:
        assert_same_files(recipe, plan, outcome)
        assert_same_metrics(recipe, plan, outcome)


def plan_and_optimize(
    spark: SparkSession, table: Path, recipe: Recipe
) -> tuple[CompactionPlan | None, Outcome]:
    """The plan, or None if the table is empty, and what OPTIMIZE did then."""
    recipe.write(table)
    for key, value in recipe.confs.items():
        spark.conf.set(key, value)
    if recipe.batch_size is None:
        spark.conf.unset("spark.databricks.delta.optimize.batchSize")
    try:
        plan = open_table(table, spark).plan_compaction(recipe.where)
    except EmptyTableError:
        plan = None
    where = f" WHERE {recipe.where}" if recipe.where else ""
    return plan, run_statement(spark, table, f"OPTIMIZE delta.`{table}`{where}")


def check_tables(spark: SparkSession, folder: Path, seeds: Iterable[int]) -> int:
    """Check these tables one by one in a session of their own; returns how many were rewritten."""
    session = spark.newSession()
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    rewritten = 0
    for recipe in map(random_recipe, seeds):
        table = folder / str(recipe.seed)
        try:
            plan, outcome = plan_and_optimize(session, table, recipe)
            check(recipe, plan, outcome)
        except Exception as error:
            error.add_note(repr(recipe))
            raise
        rewritten += bool(outcome.commits)
        shutil.rmtree(table)
    return rewritten


def test_random_plans_come_true(spark: SparkSession, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    count = 500 if pytestconfig.getoption("long") else 4
    # Two at a time: Spark plans each one's queries on one core.
    with ThreadPoolExecutor(2) as pool:
        shares = [range(count)[worker::2] for worker in range(2)]
        try:
            rewritten = list(pool.map(partial(check_tables, spark, tmp_path), shares))
        finally:
            # PySpark takes the session that last made a DataFrame for the active one, in all threads.
            spark.createDataFrame([], "id long")
    assert sum(rewritten) > count // 2
