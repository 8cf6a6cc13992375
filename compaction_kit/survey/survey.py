"""Many tables, ranked by what compaction would gain; in words, as HTML, and drawn."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from compaction_kit import plots
from compaction_kit.execute.work import Progress, ProgressBar
from compaction_kit.plan.packing import OPEN_COST
from compaction_kit.records import Record
from compaction_kit.session import active_spark
from compaction_kit.survey.find import Where, places
from compaction_kit.survey.row import ROW, Facts, PlanSettings, survey_table
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

# Logs are read by threads of their own already; more tables at once take memory and win little.
_AT_ONCE = 4
_MOST_LINES = 20
_MOST_ROWS = 50
# The share of all that is worth naming the tables of.
_MOST_OF_IT = 0.8
_COUNTED = f"each opened file counts as {format_size(OPEN_COST)}"
GAIN = (
    f"Gain: what a full read of the table is spared. In it {_COUNTED}, as by Spark's default for "
    "spark.sql.files.openCostInBytes."
)
_HEAD = (
    "table",
    "files",
    "small",
    "size",
    "median file",
    "after",
    "to rewrite",
    "gain",
    "gain a byte",
    "overlap",
    "log to read",
    "last OPTIMIZE",
)

# Called with the number of tables done, the number of all, and the name of the one just done.
ReportTable = Callable[[int, int, str], None]


@dataclass(frozen=True, repr=False)
class Survey(Record):
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
            an opened file counted as 4 MiB; see `packing.gains`), gain_per_byte (double: gain by
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
        return _text(self.where, self.rows)

    def plot(self) -> Figure:
        """Draw the files of each table, those that are small, and what would be left of them."""
        return plots.survey(self.rows, finding(self.where, self.rows))

    def parts(self) -> Sequence[object]:
        """The tables, and the figure."""
        rows = element("div", _html(self.where, self.rows), style="overflow-x:auto")
        return rows, *([self.plot()] if len(self) else [])

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
    named, found = places(where, session)
    bar = ProgressBar() if progress is True else None
    report = _on_bar(bar) if bar else progress if callable(progress) else _silent
    try:
        rows = _survey_all(found, session, settings, report)
    finally:
        if bar is not None:
            bar.close()
    return Survey(named, _ranked(rows))


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


def finding(where: str, rows: pa.Table) -> str:
    """What a survey found, in a sentence without its full stop."""
    if not len(rows):
        return f"There is no Delta table in {where}"
    gains = [gain or 0 for gain in _surveyed(rows)["gain"].to_pylist()]
    if not gains:
        return f"No table of {len(rows):,} can be surveyed"
    total, tables = sum(gains), format_count(len(gains), "table")
    if not total:
        return f"Compaction would gain nothing in {tables}"
    spared = f"Compaction would spare readers {format_size(total)}"
    cumulated = np.cumsum(gains)
    most = int(np.searchsorted(cumulated, _MOST_OF_IT * total)) + 1
    if most == len(gains):
        return f"{spared} in {tables}; {_COUNTED}"
    share = _percent(int(cumulated[most - 1]), total)
    return f"{spared}, {share} of it in {most:,} of {tables}; {_COUNTED}"


def _text(where: str, rows: pa.Table) -> str:
    """The finding, and a line a table."""
    surveyed = _surveyed(rows).to_pylist()
    lines = [f"{finding(where, rows)}."]
    cells = [(row["table"], _files(row), _small(row), _spared(row)) for row in surveyed[:_MOST_LINES]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines += [
        f"{name:<{widths[0]}}  {files:>{widths[1]}}  {small:>{widths[2]}}  {spared:>{widths[3]}}"
        for name, files, small, spared in cells
    ]
    lines += _more(len(surveyed), _MOST_LINES)
    return "\n".join([*lines, *(f"{row['table']}: {row['error']}" for row in _failed(rows))])


def _html(where: str, rows: pa.Table) -> Html:
    """The finding, a table of the tables, and the errors in words."""
    surveyed, failed = _surveyed(rows).to_pylist(), _failed(rows)
    parts = [element("p", element("b", f"{finding(where, rows)}."))]
    if surveyed:
        parts.append(as_html_table(_HEAD, [_cells(row) for row in surveyed[:_MOST_ROWS]]))
        parts += map(paragraph, [*_more(len(surveyed), _MOST_ROWS), GAIN])
    if failed:
        listed = (element("li", element("b", row["table"]), f": {row['error']}") for row in failed)
        parts += [paragraph("Not surveyed, or not in full:"), element("ul", *listed)]
    return joined(*parts)


def _surveyed(rows: pa.Table) -> pa.Table:
    return rows.filter(rows["error"].is_null())


def _failed(rows: pa.Table) -> list[Facts]:
    failed: list[Facts] = rows.filter(rows["error"].is_valid()).to_pylist()
    return failed


def _cells(row: Facts) -> Sequence[str]:
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
        format_size(row["gain"]) if some else "none",
        "" if row["gain_per_byte"] is None else _ratio(row["gain_per_byte"]),
        "" if row["overlap"] is None else f"{row['overlap']:,.1f} by {row['overlap_column']}",
        format_size(row["log_bytes"]),
        f"{in_zone(when, session_zone()):%Y-%m-%d}" if when else "",
    )


def _files(row: Facts) -> str:
    after = row["num_files"] - row["files_removed"] + row["files_added"]
    return f"{row['num_files']:,} → {after:,} files"


def _small(row: Facts) -> str:
    return f"{_percent(row['num_small_files'], row['num_files'])} small"


def _spared(row: Facts) -> str:
    return f"spares {format_size(row['gain'])}" if row["files_removed"] else "nothing to gain"


def _more(count: int, most: int) -> list[str]:
    return [f"… and {format_count(count - most, 'table')} more in to_arrow()"] if count > most else []


def _ratio(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _percent(part: int, whole: int) -> str:
    """A share that is 0 % or 100 % only if it is all or nothing."""
    if not whole:
        return "0 %"
    share = round(100 * part / whole)
    return f"{share if part in (0, whole) else min(max(share, 1), 99)} %"
