"""Tables that Spark wrote in random steps."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.execute.jobs import session_confs
from compaction_kit.log.listing import Kind, complete_checkpoints, list_log
from compaction_kit.retention import GUARD
from compaction_kit.storage import open_store
from tests import ageing, deltas_view, folders, handmade

_STEPS = [*3 * ["append"], *2 * ["delete", "checkpoint", "age", "trim the log"], "update", "optimize"]
_STEPS += ["restore", "set a property", "add a column", "lose a file", "orphan", "vacuum"]
# How long removed files are kept, in days; steps of "age" make tables older by about as much.
RETENTION_DAYS = 7
_MOST_STEPS = 7


@dataclass(frozen=True)
class Step:
    """One change or event; `number` says where, which, or how many days."""

    what: str
    number: int = 0


@dataclass(frozen=True)
class History:
    """A table's properties, and the steps after it was written with a few rows."""

    vectors: bool
    in_commit_timestamps: bool
    change_data: bool
    partitioned: bool
    steps: tuple[Step, ...]


def histories(most: int = _MOST_STEPS) -> st.SearchStrategy[History]:
    step = st.builds(Step, st.sampled_from(_STEPS), st.integers(0, 11))
    steps = st.lists(step, min_size=2, max_size=most).map(tuple)
    return st.builds(History, *[st.booleans() for _ in range(4)], steps)


@contextlib.contextmanager
def made(spark: SparkSession, history: History) -> Iterator[Path]:
    """Make a table with this history, for the time of a `with` block."""
    folder = Path(tempfile.mkdtemp(prefix="history-"))
    table = folder / "table"
    try:
        with session_confs(spark, {GUARD: "false"}):
            _create(spark, table, history)
            for step in history.steps:
                take(spark, table, step)
        deltas_view.forget(spark)
        yield table
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def take(spark: SparkSession, table: Path, step: Step) -> None:
    """Take one step; do nothing where it can't be taken."""
    name, number = f"delta.`{table}`", step.number
    statements = {
        "delete": f"DELETE FROM {name} WHERE id % 5 = {number % 5}",
        "update": f"UPDATE {name} SET id = id + 100 WHERE id % 4 = {number % 4}",
        "optimize": f"OPTIMIZE {name}",
        "restore": f"RESTORE TABLE {name} TO VERSION AS OF {number}",
        "set a property": f"ALTER TABLE {name} SET TBLPROPERTIES ('kit.note' = '{number}')",
        "add a column": f"ALTER TABLE {name} ADD COLUMN c{number} STRING",
        "vacuum": f"VACUUM {name}",
    }
    if step.what == "append":
        _rows(spark, 100 * number, 4).write.format("delta").mode("append").save(str(table))
    elif step.what in statements:
        # Delta refuses versions that are lost and columns that exist.
        with contextlib.suppress(PySparkException, Py4JJavaError):
            spark.sql(statements[step.what]).collect()
    elif step.what == "checkpoint":
        deltas_view.checkpoint(spark, table)
    elif step.what == "age":
        ageing.age(table, number % (RETENTION_DAYS + 2) + 0.5)
        deltas_view.forget(spark)
    elif step.what == "trim the log":
        _trim(table, number)
        deltas_view.forget(spark)
    elif step.what == "lose a file":
        files = sorted(folders.data_files(table) | set(table.rglob("deletion_vector_*.bin")))
        if files:
            files[number % len(files)].unlink()
    else:
        _leave_orphans(table, number)


def probe(spark: SparkSession, table: Path, version: int) -> str:
    """Try to read a version; returns the value that `Table.versions` should have in `readable`."""
    try:
        # A count would be answered by statistics alone.
        spark.read.format("delta").option("versionAsOf", version).load(str(table)).select("id").collect()
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if "BEYOND_DELETED_FILE_RETENTION_DURATION" in text:
            return "blocked"
        if "FILE_NOT_EXIST" in text or "FileNotFoundException" in text:
            return "missing files"
        # The last is Delta's before 4.1.
        gone = "VersionNotFound", "DELTA_VERSION", "LOG_FILE_NOT_FOUND", "Cannot time travel Delta table"
        if any(what in text for what in gone):
            return "log gone"
        raise
    return "yes"


def probe_all(spark: SparkSession, table: Path) -> dict[int, str]:
    """Try to read each version whose commit is in the log."""
    deltas_view.forget(spark)
    commits = [file.version or 0 for file in list_log(open_store(str(table))) if file.kind is Kind.COMMIT]
    return {version: probe(spark, table, version) for version in commits}


def _create(spark: SparkSession, table: Path, history: History) -> None:
    properties = {
        "delta.enableDeletionVectors": history.vectors,
        "delta.enableInCommitTimestamps": history.in_commit_timestamps,
        "delta.enableChangeDataFeed": history.change_data,
    }
    writer = _rows(spark, 0, 20).write.format("delta")
    for name, value in properties.items():
        writer = writer.option(name, str(value).lower())
    # A column whose folders' names look hidden.
    (writer.partitionBy("_p") if history.partitioned else writer).save(str(table))


def _rows(spark: SparkSession, start: int, count: int):  # type: ignore[no-untyped-def]
    return spark.range(start, start + count, 1, 2).selectExpr("id", "CAST(id % 2 AS INT) _p")


def _trim(table: Path, number: int) -> None:
    files = list_log(open_store(str(table)))
    checkpoint = max(complete_checkpoints(files), default=0)
    commits = sorted(file.version or 0 for file in files if file.kind is Kind.COMMIT)
    handmade.remove_commits(table, *[v for v in commits if v < checkpoint][: number + 1])


def _leave_orphans(table: Path, number: int) -> None:
    names = ("orphan", "a folder/an orphan %20", "_hidden/orphan", ".orphan", "_change_data/orphan", "_p=0/o")
    file = table / names[number % len(names)]
    file.parent.mkdir(exist_ok=True)
    file.write_text("x")
    ageing.age_file(file, number)
