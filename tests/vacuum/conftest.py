"""Tables of a few bytes with a past, written by hand, and VACUUM itself, to compare with."""

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from pyspark.sql import SparkSession

from tests import deltas_view, handmade
from tests.ageing import age_file

DAY = 86_400_000
Aged = Callable[..., Path]


@pytest.fixture
def aged(tmp_path: Path) -> Aged:
    """Writes commits of so many days ago, each a list of actions, and the files that they add."""

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
    """A remove action of so many days ago."""
    return handmade.remove(path, int(time.time() * 1000 - days * DAY))


def listed(spark: SparkSession, table: Path) -> set[str]:
    """The files and folders that VACUUM says it would delete, relative to the table."""
    deltas_view.forget(spark)
    rows = spark.sql(f"VACUUM delta.`{table}` DRY RUN").collect()
    return {str(Path(row["path"].removeprefix("file:")).relative_to(table)) for row in rows}


def content(table: Path) -> set[str]:
    """All files and folders but the log's, and Hadoop's checksums."""
    paths = (path.relative_to(table) for path in table.rglob("*"))
    return {str(path) for path in paths if path.parts[0] != "_delta_log" and not path.name.endswith(".crc")}


def drop_file(table: Path, path: str, days_old: float = 0) -> None:
    """Put a file there that no log knows of."""
    file = table / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    age_file(file, days_old)
