"""Rank many tables by what compaction would gain; show them as text, HTML and a figure."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from compaction_kit import plots
from compaction_kit.active import active_spark
from compaction_kit.errors import CompactionKitError, InvalidArgumentError, first_line
from compaction_kit.execute.work import Progress, ProgressBar
from compaction_kit.files import Files
from compaction_kit.plan import BinPlan, Planner, SessionRules, Thresholds
from compaction_kit.plan.packing import OPEN_COST
from compaction_kit.plan.thresholds import session_rules, thresholds
from compaction_kit.records import Record
from compaction_kit.surveys.find import Where, discover
from compaction_kit.table import Table, open_table
from compaction_kit.text import as_html_table, element, format_count, format_size, paragraph
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
# Fields of `FileStats`.
_STATS = (
    "num_files",
    "size_bytes",
    "num_small_files",
    "median_size_bytes",
    "num_partitions",
    "skew",
    "num_commits",
    "log_bytes",
    "tombstoned_bytes",
    "reclaimable_bytes",
)
_TYPES = {
    "table": pa.string(),
    "skew": pa.float64(),
    "overlap": pa.float64(),
    "overlap_column": pa.string(),
    "last_optimize": pa.timestamp("ms", "UTC"),
    "gain_per_byte": pa.float64(),
    "error": pa.string(),
}
_PLAN = ("files_removed", "files_added", "bytes_rewritten", "gain", "gain_per_byte")
_NAMES = ("table", "version", *_STATS, "overlap", "overlap_column", "last_optimize", *_PLAN, "error")
ROW = pa.schema([(name, _TYPES.get(name, pa.int64())) for name in _NAMES])
Facts = dict[str, Any]
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

        Values that can't be determined are null. Sizes are in bytes. num_files to reclaimable_bytes are as in
        `FileStats`; overlap is the average of `Files.overlap` for overlap_column, the first data column whose
        stats have bounds. last_optimize is searched in the newest 1,000 commits, without those that a RESTORE
        has undone. files_removed to gain_per_byte are of the plan: gain is what a full read saves, in bytes,
        where opening a file counts as 4 MiB (see `packing.gains`), gain_per_byte is gain divided by
        bytes_rewritten. error says why the table can't be surveyed completely, else null.

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

    @property
    def finding(self) -> str:
        """What was found, as a sentence without its full stop."""
        if not len(self):
            return f"There is no Delta table in {self.where}"
        counts = list(map(fewer_files, self._surveyed()))
        if not counts:
            return f"None of {len(self):,} tables can be surveyed"
        total = sum(counts)
        read = f"After compaction, a full read of {format_count(len(counts), 'table')} would open"
        if total <= 0:
            return f"{read} as many files as now"
        cumulated = np.cumsum(counts)
        most = int(np.argmax(cumulated >= _MOST_OF_IT * total)) + 1
        fewer = f"{read} {total:,} fewer {'file' if total == 1 else 'files'}"
        share = _percent(int(cumulated[most - 1]), total)
        return fewer if most == len(counts) else f"{fewer}, {share} of them in {most:,}"

    def summary(self) -> str:
        """Return the finding in a sentence, then a line per table."""
        rows = self._surveyed()
        lines = [
            (row["table"], f"{row['num_files']:,} → {_files_after(row):,} files", f"{_small(row)} small")
            for row in rows[:_MOST_LINES]
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in lines]
        failed = [f"{row['table']}: {row['error']}" for row in self._failed()]
        more = _more(len(rows), _MOST_LINES)
        return "\n".join([f"{self.finding}.", *aligned, *more, *failed, *self._skipped()])

    def plot(self) -> Figure:
        """Draw the number of files of each table, of small files, and of files after compaction."""
        return plots.survey(self.rows, self.finding)

    def parts(self) -> Sequence[object]:
        """Return the tables and the figure."""
        rows, failed = self._surveyed(), self._failed()
        shown = [element("p", element("b", f"{self.finding}."))]
        if rows:
            shown.append(as_html_table(HEAD, list(map(cells, rows[:_MOST_ROWS]))))
            shown += map(paragraph, [*_more(len(rows), _MOST_ROWS), SMALL, RANK])
        if failed:
            listed = (element("li", element("b", row["table"]), f": {row['error']}") for row in failed)
            shown += [paragraph("Not surveyed, or only in part:"), element("ul", *listed)]
        tables = element("div", *shown, style="overflow-x:auto")
        return tables, *map(paragraph, self._skipped()), *([self.plot()] if len(self) else [])

    def __repr__(self) -> str:
        return f"Survey({self.finding})"

    def _surveyed(self) -> list[Facts]:
        rows: list[Facts] = self.rows.filter(self.rows["error"].is_null()).to_pylist()
        return rows

    def _failed(self) -> list[Facts]:
        rows: list[Facts] = self.rows.filter(self.rows["error"].is_valid()).to_pylist()
        return rows

    def _skipped(self) -> list[str]:
        names = [*self.skipped[:_MOST_LINES], *(["…"] if len(self.skipped) > _MOST_LINES else [])]
        return [f"Skipped {len(self.skipped):,}: {', '.join(names)}."] if names else []


def survey(
    where: Where,
    spark: SparkSession | None = None,
    max_file_size: int | str | None = None,
    progress: bool | ReportTable | None = None,
) -> Survey:
    """Read the logs of many tables, and rank the tables by what compaction would gain.

    Nothing is changed. Tables given by paths are read without Spark, several at once. A table that can't be
    read has a row that says why.

    Args:
        where: A Delta table, or a folder with Delta tables (see `find_tables`); or a list of paths and names
            of tables; or, with a Spark session, the name of a schema, catalog.schema, catalog or table, with
            backticks where it needs them.
        spark: The session whose catalog and OPTIMIZE settings are used; None for the active session, if any.
        max_file_size: The target file size of the compaction. None: OPTIMIZE's setting in the session, or
            1 GiB.
        progress: True for a progress bar, or a function that is called with the number of surveyed tables,
            the number of all tables and the name of the last one.

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

    def conf(key: str) -> str | None:
        return None if session is None else session.conf.get(key, None)

    limits, rules = thresholds(conf, max_file_size=max_file_size), session_rules(conf, session)
    named, found = discover(where, session)
    bar, pool = ProgressBar() if progress is True else None, ThreadPoolExecutor(_AT_ONCE)
    try:
        surveys = {
            pool.submit(_survey_table, name, place, session, limits, rules): name
            for name, place in found.tables
        }
        for done, finished in enumerate(as_completed(surveys), start=1):
            if bar is not None:
                bar(Progress(f"{done:,} of {len(surveys):,} tables", done / len(surveys), 0, 0, 0.0))
            elif callable(progress):
                progress(done, len(surveys), surveys[finished])
        rows = [finished.result() for finished in surveys]
    finally:
        # After Ctrl-C, wait only for the tables that were begun.
        pool.shutdown(cancel_futures=True)
        if bar is not None:
            bar.close()
    rows.sort(key=lambda row: (row["error"] is not None, -(row["gain"] or 0)))
    return Survey(named, pa.Table.from_pylist(rows, schema=ROW), tuple(found.skipped))


def _survey_table(
    name: str, place: str, spark: SparkSession | None, limits: Thresholds, rules: SessionRules
) -> Facts:
    row: Facts = dict.fromkeys(ROW.names) | {"table": name}
    try:
        table = open_table(place, spark)
        # Not kept: the snapshots would replace those of tables that the user works with.
        files = Files(table.log.snapshot(keep=False))
    except Exception as error:
        return row | {"error": _sentence(error)}
    steps: list[Callable[[], Facts]] = [
        lambda: _stats(files),
        lambda: _overlap(files),
        lambda: _last_optimize(table),
        # Without an estimate from samples: a survey reads no data files.
        lambda: _plan(BinPlan.of(Planner(files, rules), limits)),
    ]
    for step in steps:
        try:
            row |= step()
        except Exception as error:
            row["error"] = row["error"] or _sentence(error)
    return row


def _stats(files: Files) -> Facts:
    stats = files.stats()
    return {"version": files.version} | {name: getattr(stats, name) for name in _STATS}


def _overlap(files: Files) -> Facts:
    # Without bounds, the loop would parse the stats of every file for each column.
    has_bounds = pc.any(pc.match_substring(files.snapshot.stats, '"minValues"')).as_py()
    for column in files.data_columns if has_bounds else ():
        try:
            overlap = files.overlap(column)
        except InvalidArgumentError:
            continue
        if len(overlap.depths):
            return {"overlap": overlap.mean, "overlap_column": overlap.column}
    return {}


def _last_optimize(table: Table) -> Facts:
    found = table.log.last_operation("OPTIMIZE")
    return {"last_optimize": None if found is None else found[1]}


def _plan(plan: BinPlan) -> Facts:
    per_byte = plan.gain / plan.bytes_removed if plan.bytes_removed else None
    counts = (plan.num_files_removed, plan.num_files_added, plan.bytes_removed, plan.gain, per_byte)
    return dict(zip(_PLAN, counts, strict=True))


def _sentence(error: Exception) -> str:
    if isinstance(error, CompactionKitError):
        return str(error)
    return f"{type(error).__name__}: {first_line(error)}."


def cells(row: Facts) -> Sequence[str]:
    """Return the texts of a row without an error, one for each of `HEAD`."""
    some = row["files_removed"] > 0
    when = row["last_optimize"]
    return (
        row["table"],
        f"{row['num_files']:,}",
        _small(row),
        format_size(row["size_bytes"]),
        format_size(row["median_size_bytes"]),
        f"{_files_after(row):,}",
        format_size(row["bytes_rewritten"]) if some else "nothing",
        f"{fewer_files(row):,}" if some else "none",
        "" if row["overlap"] is None else f"{row['overlap']:,.1f} by {row['overlap_column']}",
        format_size(row["log_bytes"]),
        f"{in_zone(when, session_zone()):%Y-%m-%d}" if when else "",
    )


def fewer_files(row: Facts) -> int:
    """Return how many files fewer a row's table has after compaction."""
    return int(row["files_removed"] - row["files_added"])


def _files_after(row: Facts) -> int:
    return int(row["num_files"]) - fewer_files(row)


def _small(row: Facts) -> str:
    return _percent(row["num_small_files"], row["num_files"])


def _more(count: int, most: int) -> list[str]:
    return [f"… and {format_count(count - most, 'more table')} in to_arrow()"] if count > most else []


def _percent(part: int, whole: int) -> str:
    """Format a share, as 0 % or 100 % only if it is exactly nothing or all."""
    if not whole:
        return "0 %"
    share = round(100 * part / whole)
    return f"{share if part in (0, whole) else min(max(share, 1), 99)} %"
