"""Handmade tables of a few bytes with a history, and VACUUM itself to compare with."""

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.execute.jobs import session_confs
from compaction_kit.retention import GUARD
from tests import deltas_view, handmade
from tests.ageing import age_file

DAY = 86_400_000
Aged = Callable[..., Path]


@pytest.fixture
def aged(tmp_path: Path) -> Aged:
    """Returns a function that writes commits, each with its age in days, and the files that they add."""

    def write(*commits: tuple[float, list[handmade.Action]], folder: Path | None = None) -> Path:
        table = folder or tmp_path / "table"
        handmade.write_log(table, *(actions for _, actions in commits))
        for version, (days, actions) in enumerate(commits):
            age_file(handmade.commit_path(table, version), days)
            for action in actions:
                for kind in ("add", "cdc"):
                    if kind in action:
                        drop_file(table, unquote(action[kind]["path"]), days)
        return table

    return write


def removed(path: str, days: float) -> handmade.Action:
    """Return a remove action from `days` days ago."""
    return handmade.remove(path, int(time.time() * 1000 - days * DAY))


def listed(spark: SparkSession, table: Path) -> set[str]:
    """The files and folders that VACUUM says it would delete, relative to the table."""
    deltas_view.forget(spark)
    rows = spark.sql(f"VACUUM delta.`{table}` DRY RUN").collect()
    return {str(Path(row["path"].removeprefix("file:")).relative_to(table)) for row in rows}


def content(table: Path) -> set[str]:
    """Return all files and folders, without the log and Hadoop's checksums."""
    paths = (path.relative_to(table) for path in table.rglob("*"))
    return {str(path) for path in paths if path.parts[0] != "_delta_log" and not path.name.endswith(".crc")}


def drop_file(table: Path, path: str, days_old: float = 0) -> None:
    """Write a small file without changing the log."""
    file = table / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    age_file(file, days_old)


def probe(spark: SparkSession, table: Path, version: int) -> str:
    """Try to read a version; returns the value that `Table.versions` should have in `readable`."""
    try:
        # A count would be answered from statistics alone.
        spark.read.format("delta").option("versionAsOf", version).load(str(table)).select("id").collect()
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if "BEYOND_DELETED_FILE_RETENTION_DURATION" in text:
            with session_confs(spark, {GUARD: "false"}):
                found = probe(spark, table, version)
            return "blocked" if found == "yes" else found
        if "FILE_NOT_EXIST" in text or "FileNotFoundException" in text:
            return "missing files"
        gone = ["VersionNotFound", "DELTA_VERSION", "LOG_FILE_NOT_FOUND", "Did not get the last delta file"]
        # The last message is from Delta before 4.1.
        gone += ["Could not find any delta files", "non-existent version", "Cannot time travel Delta table"]
        if any(what in text for what in gone):
            return "log gone"
        raise
    return "yes"
