"""Versions of random tables are readable as reported, and VACUUM deletes and loses what was planned."""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from compaction_kit import open_table
from compaction_kit.execute.jobs import session_confs
from compaction_kit.log.listing import Kind, LogFile, complete_checkpoints, list_log
from compaction_kit.retention import GUARD
from compaction_kit.storage import open_store
from tests import ageing, deltas_view, folders, handmade
from tests.vacuum.conftest import content, drop_file, listed, probe

PARALLEL_DELETE = "spark.databricks.delta.vacuum.parallelDelete.enabled"

# The kind of step, and a number that says where, which, or how many days.
Step = tuple[str, int]
STEPS = [*3 * ["append"], *2 * ["delete", "checkpoint", "age", "trim the log"], "update", "optimize"]
STEPS += ["restore", "set a property", "add a column", "lose a file", "orphan", "vacuum"]
PROPERTIES = ["enableDeletionVectors", "enableInCommitTimestamps", "enableChangeDataFeed"]
ORPHANS = ["orphan", "a folder/orphan %20", "_hidden/orphan", ".orphan", "_change_data/orphan", "_p=0/o"]
# The retention of removed files, in days; an "age" step adds up to about as much to a table's age.
RETENTION = 7


@dataclass(frozen=True)
class Case:
    """A table, the steps that change it, and how it is vacuumed.

    `keep` are positions among the versions whose log and files are complete.
    """

    properties: frozenset[str]
    partitioned: bool
    steps: list[Step]
    keep: frozenset[int]
    guard: bool
    parallel: bool


CASES = st.builds(
    Case,
    st.frozensets(st.sampled_from(PROPERTIES)),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=2, max_size=7),
    st.frozensets(st.integers(0, 5), max_size=2),
    st.booleans(),
    st.booleans(),
)
EVENTFUL = [("append", 1), ("delete", 3), ("optimize", 0), ("age", 3), ("update", 2), ("orphan", 1)]
EVENTFUL += [("restore", 1), ("age", 5), ("checkpoint", 0), ("append", 2)]
# Version 1 has lost its log, 2 and 3 lack a file, and Delta would refuse 2 anyway.
LOSSY = [("append", 0), ("delete", 1), ("age", RETENTION), ("checkpoint", 0), ("append", 1)]
LOSSY += [("trim the log", 0), ("lose a file", 0), ("delete", 2)]


@pytest.mark.nightly
@example(Case(frozenset(PROPERTIES[::2]), True, EVENTFUL, frozenset({1}), guard=False, parallel=True))
@example(Case(frozenset(PROPERTIES[:1]), False, LOSSY, frozenset(), guard=True, parallel=False))
@given(CASES)
@settings(max_examples=settings().max_examples // 50)
def test_a_vacuum_does_what_its_plan_says(spark: SparkSession, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, session_confs(spark, {GUARD: "false"}):
        table = Path(folder, "table")
        create(spark, table, case)
        for step in case.steps:
            take(spark, table, *step)
        leave_folders(table)
        with session_confs(spark, {GUARD: str(case.guard).lower()}):
            plan = open_table(table, spark).plan_vacuum()
            files = set(plan.files["path"].to_pylist())
            assert files == {path for path in listed(spark, table) if (table / path).is_file()}
            twin = folders.copy(table, Path(folder, "twin"))
            before = content(twin)
            # VACUUM itself runs on a copy.
            take(spark, twin, "vacuum")
            gone = before - content(twin)
            assert {path for path in gone if (table / path).is_file()} == files
            # Whether VACUUM deletes the outer one of two empty folders is up to chance.
            assert {*plan.empty_directories} <= gone - files <= {*plan.empty_directories, "nest"}
            run_as_planned(spark, table, case, files)


def run_as_planned(spark: SparkSession, table: Path, case: Case, without_keep: set[str]) -> None:
    """Run a plan that keeps versions, and compare the deleted files and the lost versions with it."""
    readable, versions = probe_all(spark, table), open_table(table, spark).versions().to_pylist()
    assert {row["version"]: row["readable"] for row in versions} == readable
    choice = [row["version"] for row in versions if row["num_missing"] == 0 and row["readable"] != "log gone"]
    keep = sorted({choice[position] for position in case.keep if position < len(choice)})
    plan = open_table(table, spark).plan_vacuum(keep_versions=keep)
    files = set(plan.files["path"].to_pylist())
    assert files == without_keep if not keep else files <= without_keep
    before = content(table)
    with session_confs(spark, {PARALLEL_DELETE: str(case.parallel).lower()}):
        result = plan.run()
    assert before - content(table) == files | set(result.directories)
    assert result.directories == plan.empty_directories
    now, versions = probe_all(spark, table), open_table(table, spark).versions().to_pylist()
    assert {row["version"]: row["readable"] for row in versions} == now
    lost = [v for v, status in readable.items() if status == "yes" and now[v] != "yes"]
    assert plan.versions_lost == result.versions_lost == lost
    assert all(now[version] == "yes" for version in plan.content_survives_as.values())
    with session_confs(spark, {GUARD: "false"}):
        assert all(probe(spark, table, version) == "yes" for version in keep)
    assert result.as_planned


def leave_folders(table: Path) -> None:
    """Create folders without live files: empty, nested, with a young file, and with a hidden file."""
    for path in ("empty %41", "nest/ed", "_hidden empty"):
        (table / path).mkdir(parents=True, exist_ok=True)
    drop_file(table, "young/file")
    drop_file(table, "secretive/.file", 30)


def create(spark: SparkSession, table: Path, case: Case) -> None:
    writer = rows(spark, 0, 20).write.format("delta")
    for name in PROPERTIES:
        writer = writer.option(f"delta.{name}", str(name in case.properties).lower())
    # A column whose folders' names look hidden.
    (writer.partitionBy("_p") if case.partitioned else writer).save(str(table))


def rows(spark: SparkSession, start: int, count: int) -> DataFrame:
    return spark.range(start, start + count, 1, 2).selectExpr("id", "CAST(id % 2 AS INT) _p")


def take(spark: SparkSession, table: Path, what: str, number: int = 0) -> None:
    """Take one step; do nothing where it can't be taken."""
    name = f"delta.`{table}`"
    statements = {
        "delete": f"DELETE FROM {name} WHERE id % 5 = {number % 5}",
        "update": f"UPDATE {name} SET id = id + 100 WHERE id % 4 = {number % 4}",
        "optimize": f"OPTIMIZE {name}",
        "restore": f"RESTORE TABLE {name} TO VERSION AS OF {number}",
        "set a property": f"ALTER TABLE {name} SET TBLPROPERTIES ('kit.note' = '{number}')",
        "add a column": f"ALTER TABLE {name} ADD COLUMN c{number} STRING",
        "vacuum": f"VACUUM {name}",
    }
    if what == "append":
        rows(spark, 100 * number, 4).write.format("delta").mode("append").save(str(table))
    elif what in statements:
        # Delta refuses versions that are lost and columns that exist.
        with contextlib.suppress(PySparkException, Py4JJavaError):
            spark.sql(statements[what]).collect()
    elif what == "checkpoint":
        deltas_view.checkpoint(spark, table)
    elif what == "age":
        ageing.age(table, number % (RETENTION + 2) + 0.5)
    elif what == "trim the log":
        trim(table, number)
    elif what == "lose a file":
        files = sorted(folders.data_files(table) | set(table.rglob("deletion_vector_*.bin")))
        if files:
            files[number % len(files)].unlink()
    else:
        drop_file(table, ORPHANS[number % len(ORPHANS)], number)
    deltas_view.forget(spark)


def probe_all(spark: SparkSession, table: Path) -> dict[int, str]:
    """Try to read each version whose commit is in the log."""
    deltas_view.forget(spark)
    return {version: probe(spark, table, version) for version in commits_of(list_log(open_store(str(table))))}


def commits_of(files: list[LogFile]) -> list[int]:
    return [file.version or 0 for file in files if file.kind is Kind.COMMIT]


def trim(table: Path, number: int) -> None:
    files = list_log(open_store(str(table)))
    checkpoint = max(complete_checkpoints(files), default=0)
    handmade.remove_commits(table, *[v for v in commits_of(files) if v < checkpoint][: number + 1])
