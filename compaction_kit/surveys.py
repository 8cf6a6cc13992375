"""Read many tables and rank them by what compaction would gain; show them as text, HTML and a figure."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit import plots
from compaction_kit.active import active_spark
from compaction_kit.discovery import Where, discover
from compaction_kit.errors import CompactionKitError, EmptyTableError, InvalidArgumentError, first_line
from compaction_kit.execute.work import Progress, ProgressBar
from compaction_kit.files import Files
from compaction_kit.plan import BinPlan, Planner, SessionRules, Thresholds
from compaction_kit.plan.packing import OPEN_COST
from compaction_kit.plan.thresholds import session_rules, thresholds
from compaction_kit.records import TableRows
from compaction_kit.table import open_table
from compaction_kit.text import (
    as_html_table,
    element,
    format_count,
    format_factor,
    format_share,
    format_size,
    joined_lines,
)
from compaction_kit.times import in_zone, session_zone

# Several threads read each log already; more tables at once take memory and are hardly faster.
_AT_ONCE = 4
_MOST_LINES = 20
_MOST_ROWS = 50
# The finding names the number of tables that have this share of the gain.
_MOST_OF_IT = 0.8
_HEALTHY = "nothing to do"
RANK = (
    "Ranked by the bytes that a full read saves, if opening a file counts as reading "
    f"{format_size(OPEN_COST)} (Spark's default for spark.sql.files.openCostInBytes)."
)
SMALL = "Small: under 16 MiB, or under half of the target file size that the table sets."
# Fields of `FileStats`.
_STATS = (
    *("num_files", "size_bytes", "num_small_files", "median_size_bytes", "num_partitions", "skew"),
    *("num_commits", "log_bytes", "tombstoned_bytes", "reclaimable_bytes"),
)
_NAMES = (
    *("table", "version", *_STATS, "overlap", "overlap_column", "last_optimize"),
    *("files_removed", "files_added", "bytes_rewritten", "gain", "gain_per_byte", "error"),
)
_TYPES = {
    **dict.fromkeys(("table", "overlap_column", "error"), pa.string()),
    **dict.fromkeys(("skew", "overlap", "gain_per_byte"), pa.float64()),
    "last_optimize": pa.timestamp("ms", "UTC"),
}
ROW = pa.schema([(name, _TYPES.get(name, pa.int64())) for name in _NAMES])
Facts = dict[str, Any]
# Called with the number of surveyed tables, the number of all tables, and the name of the last one.
ReportTable = Callable[[int, int, str], None]


class Survey(TableRows):
    """Tables, ranked by what compaction would gain; made by `survey`."""

    def to_arrow(self) -> pa.Table:
        """Return one row per table: the highest gain first, tables with an error last.

        Columns (int64 and null if unknown, unless stated otherwise): table (string), version; num_files,
        size_bytes, num_small_files, median_size_bytes, num_partitions, skew (float64), num_commits,
        log_bytes, tombstoned_bytes, reclaimable_bytes, as in `FileStats`; overlap (float64), the average of
        `Files.overlap` for overlap_column (string), the first data column whose stats have bounds;
        last_optimize (timestamp), in the newest 1,000 commits; from the plan files_removed, files_added,
        bytes_rewritten, gain (the bytes that a full read saves, where opening a file counts as 4 MiB; see
        `packing.gains`) and gain_per_byte (float64, by bytes_rewritten); error (string), why the table can't
        be surveyed completely.
        """
        return self.rows

    @property
    def finding(self) -> str:
        """The finding, as a sentence without full stop."""
        if not len(self):
            return f"There is no Delta table in {self.where}"
        counts = list(map(fewer_files, self._surveyed()))
        if not counts:
            return f"{format_count(len(self), 'table')} can't be surveyed"
        total = sum(counts)
        read = f"After compaction, a full read of {format_count(len(counts), 'table')} would open"
        if total <= 0:
            return f"{read} {format_count(-total, 'more file') if total else 'as many files as now'}"
        cumulated = np.cumsum(counts)
        most = int(np.argmax(cumulated >= _MOST_OF_IT * total)) + 1
        fewer = f"{read} {format_count(total, 'fewer file')}"
        share = format_share(int(cumulated[most - 1]), total)
        return fewer if most == len(counts) else f"{fewer}, {share} of them in {format_count(most, 'table')}"

    def summary(self) -> str:
        """Return the finding in a sentence, then a line per table."""
        rows = self._surveyed()
        lines = [
            (row["table"], f"{row['num_files']:,} → {after}", f"{small} small" if small else _HEALTHY)
            for row in rows[:_MOST_LINES]
            for small in [cells(row)["small"]]
            for after in [format_count(row["num_files"] - fewer_files(row), "file")]
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in lines]
        failed = map(": ".join, self._failed())
        more = self._rest(len(rows), _MOST_LINES, "more table")
        return joined_lines([f"{self.finding}.", *aligned, *more, *failed, *self._skipped()])

    def plot(self) -> "plots.Chart":
        """Draw the number of files of each table, of small files, and of files after compaction."""
        return plots.survey(self.rows, self.finding)

    def parts(self) -> Sequence[object]:
        """Return the tables and the figure."""
        rows, failed = self._surveyed(), self._failed()
        parts: list[object] = [element("p", element("b", f"{self.finding}."))]
        if rows:
            more = self._rest(len(rows), _MOST_ROWS, "more table")
            drawn = [cells(row) for row in rows[:_MOST_ROWS]]
            table = as_html_table([*drawn[0]], ([*row.values()] for row in drawn))
            parts += [element("div", table, style="overflow-x:auto"), *more, SMALL, RANK]
        if failed:
            listed = (element("li", element("b", table), f": {error}") for table, error in failed)
            parts += ["Not surveyed, or only in part:", element("ul", *listed)]
        return *parts, *self._skipped(), *([self.plot()] if len(self) else [])

    def _surveyed(self) -> list[Facts]:
        return [row for row in self.rows.to_pylist() if row["error"] is None]

    def _failed(self) -> list[tuple[str, str]]:
        return [(row["table"], row["error"]) for row in self.rows.to_pylist() if row["error"] is not None]


def survey(
    where: Where,
    spark: SparkSession | None = None,
    max_file_size: int | str | None = None,
    progress: bool | ReportTable | None = None,
) -> Survey:
    """Read the logs of many tables, and rank the tables by what compaction would gain.

    Nothing is changed. Paths, except in HDFS, are read without Spark, several at once. A table that can't be
    read has a row that says why.

    Args:
        where: A Delta table, or a folder with Delta tables (see `find_tables`); or a list of paths, names
            and open tables; or, with a Spark session, the name of a schema, catalog.schema, catalog or
            table, with backticks where it needs them.
        spark: The session whose catalog and OPTIMIZE settings are used; None for the active session, if any.
        max_file_size: The target file size of the compaction. None: OPTIMIZE's setting in the session, or
            1 GiB.
        progress: True for a progress bar, or a function that is called with the number of surveyed tables,
            the number of all tables and the name of the last one.

    Raises:
        InvalidArgumentError: `where` or the size can't be used.
        TableNotFoundError: The path or name doesn't exist.
        NotADeltaTableError: `where` is not a folder, schema, catalog or Delta table.
        UnsupportedTableError, StorageError: The catalog can't list its tables, or a store can't be reached.

    Examples:
        >>> survey = ck.survey("data", max_file_size="128 MiB")
        >>> survey.to_arrow().select(["table", "num_files", "files_removed", "files_added"]).to_pylist()
        [{'table': 'data/flights', 'num_files': 1095, 'files_removed': 1095, 'files_added': 3}]
    """
    session = active_spark(spark)

    def conf(key: str) -> str | None:
        return None if session is None else session.conf.get(key, None)

    limits, rules = thresholds(conf, max_file_size=max_file_size), session_rules(conf, session)
    named, found = discover(where, session)
    pool = ThreadPoolExecutor(_AT_ONCE)
    with reporting(progress, "table") as report:
        try:
            surveys = {
                pool.submit(_survey_table, name, place, session, limits, rules): name
                for name, place in found.tables
            }
            for done, finished in enumerate(as_completed(surveys), start=1):
                report(done, len(surveys), surveys[finished])
            rows = [finished.result() for finished in surveys]
        finally:
            # After Ctrl-C, wait only for the tables that were begun.
            pool.shutdown(cancel_futures=True)
    rows.sort(key=lambda row: (row["error"] is not None, -(row["gain"] or 0)))
    return Survey(named, pa.Table.from_pylist(rows, schema=ROW), tuple(found.skipped))


@contextmanager
def reporting(progress: bool | ReportTable | None, noun: str) -> Iterator[ReportTable]:
    """Yield a function that reports progress as in `survey`; `noun` names the counted things."""
    if progress is not True:
        yield progress if callable(progress) else (lambda done, total, name: None)
        return
    with closing(ProgressBar()) as bar:
        yield lambda done, total, name: bar(
            Progress(f"{done:,} of {format_count(total, noun)}", done / total, 0, 0, 0.0)
        )


def _survey_table(
    name: str, place: str, spark: SparkSession | None, limits: Thresholds, rules: SessionRules
) -> Facts:
    row: Facts = dict.fromkeys(ROW.names) | {"table": name}
    try:
        log = open_table(place, spark).log.listed()
        # Snapshots aren't kept, because they would replace those of tables that the user works with.
        files = Files(log.snapshot(keep=False))
        stats = files.stats()
        row |= {"version": files.version} | {name: getattr(stats, name) for name in _STATS}
        row |= _overlap(files)
        found = log.last_operation("OPTIMIZE", metadata=files.snapshot.metadata)
        row["last_optimize"] = found and found[1]
        # Sizes aren't estimated from samples, because a survey reads no data files.
        plan = BinPlan.of(Planner(files, rules), limits)
    except EmptyTableError:
        return row | dict.fromkeys(("files_removed", "files_added", "bytes_rewritten", "gain"), 0)
    except Exception as error:
        return row | {"error": sentence(error)}
    return row | {
        "files_removed": plan.num_files_removed,
        "files_added": plan.num_files_added,
        "bytes_rewritten": plan.bytes_removed,
        "gain": plan.gain,
        "gain_per_byte": plan.gain / plan.bytes_removed if plan.bytes_removed else None,
    }


def _overlap(files: Files) -> Facts:
    # Without bounds, the loop would parse the stats of every file for each column.
    has_bounds = pc.any(pc.match_substring_regex(files.snapshot.stats, r'"minValues"\s*:\s*{\s*"')).as_py()
    for column in files.data_columns if has_bounds else ():
        with suppress(InvalidArgumentError):
            overlap = files.overlap(column)
            if len(overlap.depths):
                return {"overlap": overlap.mean, "overlap_column": column}
    return {}


def sentence(error: Exception) -> str:
    """Return why a table can't be read, as a sentence."""
    is_own = isinstance(error, CompactionKitError)
    return str(error) if is_own else f"{type(error).__name__}: {first_line(error)}."


def cells(row: Facts) -> dict[str, str]:
    """Return the texts that are shown for a row without an error, by column."""
    some, when = row["files_removed"] > 0, row["last_optimize"]
    return {
        "table": row["table"],
        "files": f"{row['num_files']:,}",
        # If compaction doesn't change a table, small files are no finding.
        "small": format_share(row["num_small_files"], row["num_files"]) if some else "",
        "size": format_size(row["size_bytes"]),
        "median file": format_size(row["median_size_bytes"]),
        "after": f"{row['num_files'] - fewer_files(row):,}",
        "to rewrite": format_size(row["bytes_rewritten"]) if some else "nothing",
        "fewer files": f"{fewer_files(row):,}" if some else _HEALTHY,
        "overlap": f"{format_factor(row['overlap'])} by {row['overlap_column']}" if row["overlap"] else "",
        "log to read": format_size(row["log_bytes"]),
        "last OPTIMIZE": f"{in_zone(when, session_zone()):%Y-%m-%d}" if when else "",
    }


def fewer_files(row: Facts) -> int:
    """Return by how many files compaction reduces a row's table."""
    return int(row["files_removed"] - row["files_added"])
