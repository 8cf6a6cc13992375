"""Rank many tables by what compaction would gain; show them as text, HTML and a figure."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from compaction_kit import plots
from compaction_kit.active import active_spark
from compaction_kit.execute.work import Progress, ProgressBar
from compaction_kit.plan.packing import OPEN_COST
from compaction_kit.records import Record
from compaction_kit.surveys.find import Where, places
from compaction_kit.surveys.row import ROW, Facts, PlanSettings, survey_table
from compaction_kit.text import (
    Html,
    as_html_table,
    element,
    format_count,
    format_size,
    joined,
    paragraph,
)
from compaction_kit.times import in_zone, session_zone

# Each log is read by several threads already; more tables at once take memory and are hardly faster.
_AT_ONCE = 4
_MOST_LINES = 20
_MOST_ROWS = 50
# The finding names the number of tables that have this share of the gain.
_MOST_OF_IT = 0.8
RANK = (
    "Ranked by what a full read saves, where to open a file costs as much as to read "
    f"{format_size(OPEN_COST)} (Spark's default for spark.sql.files.openCostInBytes)."
)
SMALL = "Small: under 16 MiB, or under half of the target file size that the table sets."
HEAD = (
    "table",
    "files",
    "small",
    "size",
    "median file",
    "after",
    "to rewrite",
    "fewer files",
    "overlap",
    "log to read",
    "last OPTIMIZE",
)

# Called with the number of surveyed tables, the number of all tables, and the name of the last one.
ReportTable = Callable[[int, int, str], None]


@dataclass(frozen=True, repr=False)
class Survey(Record):
    """Tables, ranked by what compaction would gain; made by `survey`.

    `where` describes what was surveyed; `skipped` says what a schema or catalog has beside Delta tables, as
    in "sales.recent is a view".
    """

    where: str
    rows: pa.Table
    skipped: tuple[str, ...] = ()

    def to_arrow(self) -> pa.Table:
        """Return one row per table: the highest gain first, tables with an error last.

        Values that can't be determined are null. Sizes are in bytes.

        Returns:
            num_small_files to reclaimable_bytes are as in `FileStats`. overlap is the average of
            `Files.overlap` for overlap_column, the first data column whose stats have bounds.
            last_optimize is searched in the newest 1,000 commits, without those that a RESTORE has
            undone. files_removed to gain_per_byte are of
            the plan: gain is what a full read saves, in bytes, where opening a file counts as 4 MiB (see
            `packing.gains`), gain_per_byte is gain divided by bytes_rewritten. error says why the table
            can't be surveyed completely, else null.

        Examples:
            >>> ck.survey("data").to_arrow().schema
            table: string
            version: int64
            num_files: int64
            size_bytes: int64
            num_small_files: int64
            median_size_bytes: int64
            num_partitions: int64
            skew: double
            num_commits: int64
            log_bytes: int64
            tombstoned_bytes: int64
            reclaimable_bytes: int64
            overlap: double
            overlap_column: string
            last_optimize: timestamp[ms, tz=UTC]
            files_removed: int64
            files_added: int64
            bytes_rewritten: int64
            gain: int64
            gain_per_byte: double
            error: string
        """
        return self.rows

    def to_pandas(self) -> Any:
        """Return the same as a pandas DataFrame."""
        return self.rows.to_pandas()

    def __len__(self) -> int:
        return self.rows.num_rows

    def summary(self) -> str:
        """Return the finding in a sentence, then a line per table."""
        return "\n".join([_text(self.where, self.rows), *_skipped(self.skipped)])

    def plot(self) -> Figure:
        """Draw the number of files of each table, of small files, and of files after compaction."""
        return plots.survey(self.rows, finding(self.where, self.rows))

    def parts(self) -> Sequence[object]:
        """Return the tables and the figure."""
        rows = element("div", _html(self.where, self.rows), style="overflow-x:auto")
        return rows, *map(paragraph, _skipped(self.skipped)), *([self.plot()] if len(self) else [])

    def __repr__(self) -> str:
        return f"Survey({finding(self.where, self.rows)})"


def survey(
    where: Where,
    spark: SparkSession | None = None,
    max_file_size: int | str | None = None,
    progress: bool | ReportTable | None = None,
) -> Survey:
    """Read the logs of many tables, and rank the tables by what compaction would gain.

    Nothing is changed. Tables given by paths are read without Spark, several at once. A table that
    can't be read has a row that says why.

    Args:
        where: A Delta table, or a folder with Delta tables (see `find_tables`); or a list of paths
            and names of tables; or, with a Spark session, the name of a schema, catalog.schema,
            catalog or table, with backticks where it needs them.
        spark: The session whose catalog and OPTIMIZE settings are used; None for the active session,
            if any.
        max_file_size: The target file size of the compaction. None: OPTIMIZE's setting in the
            session, or 1 GiB.
        progress: True for a progress bar, or a function that is called with the number of surveyed
            tables, the number of all tables and the name of the last one.

    Raises:
        InvalidArgumentError: `where` or the size can't be used.
        TableNotFoundError: The path or name doesn't exist.
        NotADeltaTableError: It is not a folder, schema, catalog or Delta table.
        UnsupportedTableError: The catalog can't list its tables.

    Examples:
        >>> survey = ck.survey("data", max_file_size="128 MiB")
        >>> survey.to_arrow().select(["table", "num_files", "files_removed", "files_added"]).to_pylist()
        [{'table': 'data/flights', 'num_files': 1095, 'files_removed': 1095, 'files_added': 3}]
    """
    session = spark or active_spark()
    settings = PlanSettings.of(session, max_file_size)
    named, found = places(where, session)
    bar = ProgressBar() if progress is True else None
    report = _on_bar(bar) if bar else progress if callable(progress) else _silent
    try:
        rows = _survey_all(found.tables, session, settings, report)
    finally:
        if bar is not None:
            bar.close()
    return Survey(named, _ranked(rows), tuple(found.skipped))


def _survey_all(
    places: list[tuple[str, str]], spark: SparkSession | None, settings: PlanSettings, report: ReportTable
) -> list[Facts]:
    """Return the rows of all tables, in their order."""
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        surveys = {pool.submit(survey_table, name, place, spark, settings): name for name, place in places}
        for done, finished in enumerate(as_completed(surveys), start=1):
            report(done, len(places), surveys[finished])
        return [finished.result() for finished in surveys]
    finally:
        # After Ctrl-C, wait only for the tables that were begun.
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


def finding(where: str, rows: pa.Table) -> str:
    """Return what a survey found, as a sentence without its full stop."""
    if not len(rows):
        return f"There is no Delta table in {where}"
    counts = list(map(fewer_files, _surveyed(rows).to_pylist()))
    if not counts:
        return f"None of {len(rows):,} tables can be surveyed"
    total, tables = sum(counts), format_count(len(counts), "table")
    read = f"After compaction, a full read of {tables} would open"
    if total <= 0:
        return f"{read} as many files as now"
    fewer = f"{read} {total:,} fewer {'file' if total == 1 else 'files'}"
    cumulated = np.cumsum(counts)
    most = int(np.argmax(cumulated >= _MOST_OF_IT * total)) + 1
    share = _percent(int(cumulated[most - 1]), total)
    return fewer if most == len(counts) else f"{fewer}, {share} of them in {most:,}"


def _text(where: str, rows: pa.Table) -> str:
    """Return the finding, and a line per table."""
    surveyed = _surveyed(rows).to_pylist()
    lines = [f"{finding(where, rows)}."]
    cells = [(row["table"], _files(row), _small(row)) for row in surveyed[:_MOST_LINES]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines += [
        f"{name:<{widths[0]}}  {files:>{widths[1]}}  {small:>{widths[2]}}" for name, files, small in cells
    ]
    lines += _more(len(surveyed), _MOST_LINES)
    return "\n".join([*lines, *(f"{row['table']}: {row['error']}" for row in _failed(rows))])


def _html(where: str, rows: pa.Table) -> Html:
    """Return the finding, a table with a row per Delta table, and the errors."""
    surveyed, failed = _surveyed(rows).to_pylist(), _failed(rows)
    parts = [element("p", element("b", f"{finding(where, rows)}."))]
    if surveyed:
        parts.append(as_html_table(HEAD, [cells(row) for row in surveyed[:_MOST_ROWS]]))
        parts += map(paragraph, [*_more(len(surveyed), _MOST_ROWS), SMALL, RANK])
    if failed:
        listed = (element("li", element("b", row["table"]), f": {row['error']}") for row in failed)
        parts += [paragraph("Not surveyed, or only in part:"), element("ul", *listed)]
    return joined(*parts)


def _surveyed(rows: pa.Table) -> pa.Table:
    return rows.filter(rows["error"].is_null())


def _failed(rows: pa.Table) -> list[Facts]:
    failed: list[Facts] = rows.filter(rows["error"].is_valid()).to_pylist()
    return failed


def cells(row: Facts) -> Sequence[str]:
    """Return the texts of a row without an error, one for each of `HEAD`."""
    some = row["files_removed"] > 0
    when = row["last_optimize"]
    return (
        row["table"],
        f"{row['num_files']:,}",
        _percent(row["num_small_files"], row["num_files"]),
        format_size(row["size_bytes"]),
        format_size(row["median_size_bytes"]),
        f"{row['num_files'] - row['files_removed'] + row['files_added']:,}",
        format_size(row["bytes_rewritten"]) if some else "nothing",
        f"{fewer_files(row):,}" if some else "none",
        "" if row["overlap"] is None else f"{row['overlap']:,.1f} by {row['overlap_column']}",
        format_size(row["log_bytes"]),
        f"{in_zone(when, session_zone()):%Y-%m-%d}" if when else "",
    )


def fewer_files(row: Facts) -> int:
    """Return how many files fewer a row's table has after compaction."""
    return int(row["files_removed"] - row["files_added"])


def _files(row: Facts) -> str:
    after = row["num_files"] - row["files_removed"] + row["files_added"]
    return f"{row['num_files']:,} → {after:,} files"


def _small(row: Facts) -> str:
    return f"{_percent(row['num_small_files'], row['num_files'])} small"


def _skipped(sentences: Sequence[str]) -> list[str]:
    shown = [*sentences[:_MOST_LINES], *(["…"] if len(sentences) > _MOST_LINES else [])]
    return [f"Skipped {len(sentences):,}: {', '.join(shown)}."] if shown else []


def _more(count: int, most: int) -> list[str]:
    return [f"… and {format_count(count - most, 'more table')} in to_arrow()"] if count > most else []


def _percent(part: int, whole: int) -> str:
    """Format a share, as 0 % or 100 % only if it is exactly nothing or all."""
    if not whole:
        return "0 %"
    share = round(100 * part / whole)
    return f"{share if part in (0, whole) else min(max(share, 1), 99)} %"
