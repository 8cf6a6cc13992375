"""Many tables: where they are, and which of them compaction would help the most."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from compaction_kit import plots
from compaction_kit.errors import InvalidArgumentError, NotADeltaTableError, TableNotFoundError
from compaction_kit.execute.work import Progress, ProgressBar
from compaction_kit.folder import walk
from compaction_kit.log.names import LOG_FOLDER
from compaction_kit.session import active_spark
from compaction_kit.storage import local_path
from compaction_kit.survey.catalog import catalog_tables
from compaction_kit.survey.row import ROW, Facts, PlanSettings, survey_table
from compaction_kit.survey.words import finding, survey_html, survey_text
from compaction_kit.table import open_table
from compaction_kit.text import element, shown

# Logs are read by threads of their own already; more tables at once take memory and win little.
_AT_ONCE = 4

Where = str | Path | Iterable[str | Path]
# Called with the number of tables done, the number of all, and the name of the one just done.
ReportTable = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Survey:
    """Tables, ranked by what compaction would gain; made by `survey`.

    `where` says what was surveyed, in words.
    """

    where: str
    rows: pa.Table

    def to_arrow(self) -> pa.Table:
        """One row a table: the greatest gain first, then as found; those with an error last.

        What can't be told is null. Sizes are in bytes.

        Returns:
            table (string: the name as given or found), version, num_files, size_bytes (int64),
            num_small_files (int64: below half of delta.targetFileSize, or 16 MiB),
            median_size_bytes, num_partitions (int64), skew (double: the files of the fullest
            partition, in times of the average), num_commits (int64: since the checkpoint),
            log_bytes (int64: what a reader of the latest version reads of the log),
            tombstoned_bytes, reclaimable_bytes (int64; see `FileStats`), overlap (double: the
            files that a point of a column falls in, on average), overlap_column (string: the
            first data column whose stats have bounds), last_optimize (timestamp, UTC: of the last
            OPTIMIZE among the newest 1,000 commits in the log), files_removed, files_added,
            bytes_rewritten (int64: of the plan), gain (int64: bytes that a full read is spared,
            an opened file counted as 4 MiB; see `benefit.gains`), gain_per_byte (double: gain by
            bytes_rewritten, null if there is nothing to rewrite), error (string: why the table
            can't be surveyed, or not in full, in a sentence; null if it can).
        """
        return self.rows

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame."""
        return self.rows.to_pandas()

    def __len__(self) -> int:
        return self.rows.num_rows

    def summary(self) -> str:
        """What was found in a sentence, and a line a table."""
        return survey_text(self.where, self.rows)

    def plot(self) -> Figure:
        """Draw the files of each table, those that are small, and what would be left of them."""
        return plots.survey(self.rows, finding(self.where, self.rows))

    def _repr_html_(self) -> str:
        found = shown(survey_html(self.where, self.rows), *([self.plot()] if len(self) else []))
        return element("div", found, style="overflow-x:auto")

    def __repr__(self) -> str:
        return f"Survey({finding(self.where, self.rows)})"


def survey(
    where: Where,
    spark: SparkSession | None = None,
    max_file_size: int | str | None = None,
    progress: bool | ReportTable | None = None,
) -> Survey:
    """Look at many tables, and rank them by what compaction would gain.

    Nothing is changed. Tables on paths are read from their logs alone, several at once, without
    Spark; a table that can't be read is a row that says why.

    Args:
        where: A folder that holds Delta tables, six levels deep at most (see `find_tables`), or
            is one; or a list of their paths and names; or, with a Spark session, the name of a
            schema, catalog.schema, a catalog, or one table.
        spark: The session that knows the names; without one, the one that is running, if any.
            OPTIMIZE's settings in it are what is planned with.
        max_file_size: The size that compaction would aim for. None: as OPTIMIZE is set in the
            session, or 1 GiB.
        progress: True for a progress bar, or a function that is called with the number of tables
            done, the number of all and the name of the one just done.

    Raises:
        InvalidArgumentError: `where` or the size can't be used.
        TableNotFoundError: There is nothing by that name.
        NotADeltaTableError: It is the name of something else.
        UnsupportedTableError: The folder isn't on a local disk, or the catalog doesn't list its
            tables.
    """
    session = spark or active_spark()
    settings = PlanSettings.of(session, max_file_size)
    named, places = _places(where, session)
    bar = ProgressBar() if progress is True else None
    report = _on_bar(bar) if bar else progress if callable(progress) else _silent
    try:
        rows = _survey_all(places, session, settings, report)
    finally:
        if bar is not None:
            bar.close()
    return Survey(named, _ranked(rows))


def find_tables(root: str | Path) -> list[str]:
    """The Delta tables in a folder, or the folder itself if it is one.

    Hidden folders are passed over, and so is what is inside a table or more than six levels down.

    Args:
        root: A folder on a local disk; one that doesn't exist holds no tables.

    Returns:
        Their paths, each beginning with `root`, sorted.
    """
    found = []
    for folder, subfolders in walk(root):
        if LOG_FOLDER in subfolders:
            found.append(folder)
            subfolders.clear()
    return sorted(found)


def _places(where: Where, spark: SparkSession | None) -> tuple[str, list[tuple[str, str]]]:
    """What to survey in words, and the name and the place of each table."""
    if isinstance(where, (str, Path)):
        return str(where), _places_in(str(where), spark)
    names = list(where) if isinstance(where, Iterable) and not isinstance(where, bytes) else [where]
    for name in names:
        if not isinstance(name, (str, Path)) or not str(name).strip():
            raise InvalidArgumentError(
                f"where={name!r} names no table: give a folder, a schema, or a list of paths and names."
            )
    return "the list", [(str(name), str(name)) for name in names]


def _places_in(where: str, spark: SparkSession | None) -> list[tuple[str, str]]:
    if not where.strip():
        raise InvalidArgumentError(f'where="{where}" names no folder: "." is the one you are in.')
    path = local_path(where)
    if path.is_dir():
        return [(name, name) for name in find_tables(path)]
    if path.exists():
        raise NotADeltaTableError(f"{where} is a file: name a folder that holds Delta tables.")
    tables = None if spark is None else catalog_tables(spark, where)
    if tables is not None:
        return list(tables.items())
    try:
        open_table(where, spark)
    except TableNotFoundError as error:
        names = (
            "no Spark session is running that could know the name"
            if spark is None
            else "the session's catalog has no schema, catalog or Delta table of that name"
        )
        raise TableNotFoundError(
            f"Nothing to survey at {where}: there is no such path, and {names}; check the spelling."
        ) from error
    return [(where, where)]


def _survey_all(
    places: list[tuple[str, str]], spark: SparkSession | None, settings: PlanSettings, report: ReportTable
) -> list[Facts]:
    """The rows of all tables, in their order."""
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        surveys = {pool.submit(survey_table, name, place, spark, settings): name for name, place in places}
        for done, finished in enumerate(as_completed(surveys), start=1):
            report(done, len(places), surveys[finished])
        return [finished.result() for finished in surveys]
    finally:
        # Whoever interrupts waits for the tables begun, not for all.
        pool.shutdown(cancel_futures=True)


def _ranked(rows: list[Facts]) -> pa.Table:
    ranked = sorted(rows, key=lambda row: (row["error"] is not None, -(row["gain"] or 0)))
    return pa.Table.from_pylist(ranked, schema=ROW)


def _on_bar(bar: ProgressBar) -> ReportTable:
    def show(done: int, total: int, name: str) -> None:
        bar(Progress(f"{done:,} of {total:,} tables", done / total, 0, 0, 0.0))

    return show


def _silent(done: int, total: int, name: str) -> None:
    pass
