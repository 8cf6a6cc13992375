"""Random tables, and randomly changed tables with column mapping or clustering, are optimized as planned."""

import random
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from compaction_kit import errors, open_table
from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import EmptyTableError
from compaction_kit.execute.jobs import session_confs
from tests import handmade
from tests.conftest import QUICK
from tests.execute.random_tables import Recipe, files_of, random_recipe
from tests.handmade import Action

pytestmark = pytest.mark.slow

SETTINGS = QUICK | {
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}


class Commit(NamedTuple):
    """What one commit of OPTIMIZE did."""

    info: Action
    adds: list[Action]
    removes: list[Action]


class Outcome(NamedTuple):
    """The metrics that OPTIMIZE returned, and its commits to a table."""

    table: Path
    metrics: dict[str, Any]
    commits: list[Commit]

    @property
    def removes(self) -> list[Action]:
        return [remove for commit in self.commits for remove in commit.removes]

    @property
    def outputs(self) -> Counter[frozenset[int]]:
        """For each added file, the numbers of the files that its rows come from."""
        paths = [self.table / unquote(add["path"]) for commit in self.commits for add in commit.adds]
        ids = (pq.ParquetFile(path).read(["id"])["id"].to_pylist() for path in paths)
        return Counter(map(files_of, ids))


def run_statement(spark: SparkSession, table: Path, statement: str) -> Outcome:
    last = max(int(path.stem) for path in (table / "_delta_log").glob("*.json"))
    row = spark.sql(statement).collect()[0]
    commits: list[Commit] = []
    while handmade.commit_path(table, version := last + len(commits) + 1).exists():
        (info,), adds, removes = (
            handmade.actions_of(table, version, name) for name in ("commitInfo", "add", "remove")
        )
        commits.append(Commit(info, adds, removes))
    return Outcome(table, row.asDict(recursive=True)["metrics"], commits)


def assert_same_files(recipe: Recipe, plan: CompactionPlan, outcome: Outcome) -> None:
    """Assert that the planned files were removed, with their deletion vectors, batch by batch."""
    removed = [{remove["path"] for remove in commit.removes} for commit in outcome.commits]
    assert set(plan.files["path"].to_pylist()) == set().union(*removed)
    assert sum(map(len, removed)) == len(outcome.removes)
    if plan.exact.commits:
        batch_of_bin = plan.bins["batch_id"].to_pylist()
        batches = {batch_id: set[str]() for batch_id in plan.batches["batch_id"].to_pylist()}
        for planned in plan.files.to_pylist():
            batches[batch_of_bin[planned["bin_id"]]].add(planned["path"])
        assert list(batches.values()) == removed
    files, deleted = {file.path: file for file in recipe.files}, 0
    for remove in outcome.removes:
        file = files[remove["path"]]
        assert remove["size"] == file.size
        assert (remove.get("deletionVector") or {}).get("cardinality", 0) == file.deleted
        deleted += file.deleted
    assert plan.num_deleted_rows == deleted


def assert_same_bins(recipe: Recipe, plan: CompactionPlan, outcome: Outcome) -> None:
    """Assert that the rows of each bin, and no others, are in one added file."""
    files = {file.path: file for file in recipe.files}
    bins: dict[int, set[int]] = {}
    for planned in plan.files.to_pylist():
        file = files[planned["path"]]
        if file.rows > file.deleted:
            bins.setdefault(planned["bin_id"], set()).add(file.number)
    assert Counter(map(frozenset, bins.values())) == outcome.outputs


def assert_same_metrics(recipe: Recipe, plan: CompactionPlan, outcome: Outcome) -> None:
    """Assert that OPTIMIZE's result and the table's history have the planned metrics."""
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
    """Assert everything that is certain according to the plan."""
    if plan is None:
        assert not outcome.commits
        return
    assert_same_bins(recipe, plan, outcome)
    # A file without a row count in the log may have no rows.
    if plan.exact.num_files_added:
        assert_same_files(recipe, plan, outcome)
        assert_same_metrics(recipe, plan, outcome)


def play(spark: SparkSession, folder: Path, recipe: Recipe) -> bool:
    """Write, plan and optimize a table, and compare; return whether OPTIMIZE committed anything."""
    table, where = folder / str(recipe.seed), f" WHERE {recipe.where}" if recipe.where else ""
    recipe.write(table)
    with session_confs(spark, SETTINGS | recipe.confs):
        plan: CompactionPlan | None = None
        with suppress(EmptyTableError):
            plan = open_table(table, spark).plan_compaction(recipe.where)
        outcome = run_statement(spark, table, f"OPTIMIZE delta.`{table}`{where}")
    try:
        check(recipe, plan, outcome)
    except AssertionError as error:
        error.add_note(repr(recipe))
        raise
    shutil.rmtree(table)
    return bool(outcome.commits)


@pytest.mark.long
def test_random_plans_come_true(spark: SparkSession, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    # Equal values are kept apart: in 26 by an empty value, in 67 by the sign of zero, in 101 by a setting.
    seeds = range(500) if pytestconfig.getoption("long") else [2, 26, 67, 101]

    def share(worker: int) -> int:
        session = spark.newSession()
        return sum(play(session, tmp_path, random_recipe(seed)) for seed in seeds[worker::2])

    # Two at a time, because Spark plans a query on one core.
    with ThreadPoolExecutor(2) as pool:
        try:
            rewritten = sum(pool.map(share, range(2)))
        finally:
            # In all threads, PySpark's active session is the one that last made a DataFrame.
            spark.createDataFrame([], "id long")
    assert rewritten > len(seeds) // 2


COLUMNS = """
    id BIGINT, p INT, n STRUCT<x: INT, Y: STRING>, a ARRAY<STRUCT<u: INT, v: INT>>,
    m MAP<STRING, STRUCT<k: INT, l: INT>>, `d.d` INT
"""
# A row with these columns: `append` replaces # by the id, and @ by the id modulo 3.
ROW = (
    '{"id": #, "p": @, "n": {"x": #, "Y": "#"}, "a": [{"u": #, "v": #}],'
    ' "m": {"k": {"k": #, "l": #}}, "d.d": #}'
)
DROPPABLE = ("n.x", "n.Y", "a.element.u", "a.element.v", "m.value.k", "m.value.l", "`d.d`", "n", "a")
CLUSTERINGS = ("(p)", "(p, id)", "(`d.d`, n.x)", "NONE")
CUBE = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize"


def append(spark: SparkSession, path: Path, num_rows: int, num_files: int) -> None:
    """Append rows with the table's current columns."""
    schema = spark.read.format("delta").load(str(path)).schema
    texts = F.expr(f"REPLACE(REPLACE('{ROW}', '#', id), '@', id % 3)")
    rows = spark.range(num_rows).select(F.from_json(texts, schema).alias("row")).select("row.*")
    rows.repartition(num_files).write.format("delta").mode("append").save(str(path))


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        # By day a clustered table is optimized after a delete, and purged after a column was dropped; five
        # more are optimized once or twice.
        *((14_106, 3), (1, 2), (10, 1), (14, 1), (26, 1), (39, 1)),
        *(pytest.param(seed, 8, marks=pytest.mark.nightly) for seed in (*range(100, 150), 7_055)),
    ],
)
def test_random_tables_are_optimized_and_purged_as_planned(
    spark: SparkSession, tmp_path: Path, seed: int, steps: int
) -> None:
    draw, path = random.Random(seed), tmp_path / "table"
    name = f"delta.`{path}`"
    layout = draw.choice(["CLUSTER BY (p)", "CLUSTER BY (`d.d`, n.x)", "PARTITIONED BY (p)", ""])
    spark.sql(
        f"CREATE TABLE {name} ({COLUMNS}) USING delta {layout} TBLPROPERTIES ("
        f"'delta.columnMapping.mode' = '{draw.choice(['name', 'id'])}', "
        f"'delta.enableRowTracking' = '{draw.choice(['true', 'false'])}', "
        "'delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '3')"
    )
    append(spark, path, 100, 2)
    for _ in range(steps):
        kinds = ["append", "drop", "delete", "alter", "optimize", "purge"]
        step = draw.choices(kinds, [3, 1.5, 1.5, 1, 4, 2])[0]
        if step == "append":
            append(spark, path, draw.randint(20, 600), draw.randint(1, 4))
        elif step == "drop":
            # The last field of a struct can't be dropped, nor a column that the table is clustered by.
            with suppress(AnalysisException):
                spark.sql(f"ALTER TABLE {name} DROP COLUMN {draw.choice(DROPPABLE)}")
        elif step == "delete":
            spark.sql(f"DELETE FROM {name} WHERE id % {draw.randint(2, 99)} = 1")
        elif step == "alter":
            # The columns may be gone, and a partitioned table can't be clustered.
            with suppress(AnalysisException):
                spark.sql(f"ALTER TABLE {name} CLUSTER BY {draw.choice(CLUSTERINGS)}")
        else:
            compare(spark, path, draw, step)
    compare(spark, path, draw, draw.choice(["optimize", "purge"]))


def compare(spark: SparkSession, path: Path, draw: random.Random, step: str) -> None:
    """Optimize or purge a table, and compare what was done and reported with the plan."""
    confs = {
        f"{CUBE}.threshold": str(draw.choice([3_000, 8_000, 15_000, 10**9])),
        f"{CUBE}.targetCubeSize": str(draw.choice([2_000, 6_000, 12_000, 30_000])),
        "spark.databricks.delta.optimize.maxFileSize": str(draw.choice([2_000, 5_000, 12_000, 10**9])),
    }
    statement = f"REORG TABLE delta.`{path}` APPLY (PURGE)"
    with session_confs(spark, confs):
        table = open_table(path, spark)
        try:
            plan = table.plan_purge() if step == "purge" else table.plan_compaction()
        except errors.EmptyTableError:
            return
        except errors.CorruptLogError:
            # A struct with a clustering column was dropped.
            with pytest.raises(Py4JJavaError, match=r"None\.get"):
                spark.sql(statement)
            return
        if step == "optimize":
            full = bool(plan.clustered_by) and draw.random() < 0.3
            plan = table.plan_compaction(full=full)
            statement = f"OPTIMIZE delta.`{path}`{' FULL' if full else ''}"
        outcome = run_statement(spark, path, statement)
    removed = sorted(remove["path"] for remove in outcome.removes)
    assert removed == sorted(plan.files["path"].to_pylist())
    predicted, found = plan.metrics, outcome.metrics
    if plan.clustered_by:
        # The plan only predicts the number of outputs.
        predicted["numFilesAdded"] = found["numFilesAdded"]
        stats = predicted.pop("clusteringStats")
        assert stats == {name: found["clusteringStats"][name] for name in stats}
    assert predicted == {name: found[name] for name in predicted}
