"""Prove or refute, by reading rows, commits that say that they rewrite files and change no data."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit.active import active_spark
from compaction_kit.discovery import Where, discover
from compaction_kit.errors import CorruptLogError, RunFailedError, UnsupportedTableError
from compaction_kit.handle import Handle
from compaction_kit.history.content import PROVED, changed_rows
from compaction_kit.history.readable import read_files_by_version
from compaction_kit.log import TransactionLog
from compaction_kit.log.commits import COMMIT_COLUMNS, STAMP
from compaction_kit.records import TableRows
from compaction_kit.surveys import Facts, ReportTable, reporting, sentence
from compaction_kit.table import open_table
from compaction_kit.text import format_count, format_list, joined_lines
from compaction_kit.times import now, to_instant

REFUTED, UNREADABLE, GONE = "refuted", "can't be read", "files are gone"
# Outcomes in the order in which they are shown, with their words in the finding.
_OUTCOMES = {REFUTED: "refuted", UNREADABLE: "unreadable", PROVED: "proved", GONE: "whose files are gone"}
_COMMIT = (
    *("version", "timestamp", "operation", "engine"),
    *("num_removed", "num_added", "bytes_removed", "bytes_added"),
)
_COUNTS, _TEXTS = ("rows_removed", "rows_added"), ("hashes_removed", "hashes_added", "readers")
ROW = pa.schema([
    ("table", pa.string()), *map(COMMIT_COLUMNS.field, _COMMIT), ("outcome", pa.string()),
    ("reason", pa.string()), *((name, pa.int64()) for name in _COUNTS),
    *((name, pa.string()) for name in _TEXTS),
])  # fmt: skip
_SHOWN = ("table", "version", "outcome", "reason", "rows_added", *_COMMIT[1:6])
_MOST_ROWS = 50


@dataclass(frozen=True, repr=False)
class Audit(TableRows):
    """Which rewrites have kept the rows; made by `audit`.

    `at` is the audit's time. `to_dict()` is a receipt: versions, rows, hashes, readers and times as JSON.
    """

    at: datetime = field(kw_only=True)

    def to_arrow(self) -> pa.Table:
        """Return one row per rewrite: refuted ones first, then unreadable, proved, and those without files.

        Columns: table (string); version, timestamp, operation, engine, num_removed, num_added, bytes_removed
        and bytes_added, as in `TransactionLog.commits`; outcome (string: "refuted", "can't be read", "proved"
        or "files are gone") and reason (string; null if proved); rows_removed and rows_added (int64), the
        rows of the files that were live only before the commit, and only after it; hashes_removed and
        hashes_added (string), the sums of two hashes of each row in hexadecimal, without rows that were
        compared as bytes; readers (string), what read the rows (see `verify.Fingerprint`). A table that can't
        be read has one row without a version.
        """
        return self.rows

    def count(self, outcome: str) -> int:
        """Return the number of rows with an outcome, such as "refuted"."""
        return self.rows["outcome"].to_pylist().count(outcome)

    @property
    def finding(self) -> str:
        """The finding, as a sentence without full stop."""
        tables, counts = self.rows["version"].null_count, Counter(self.rows["outcome"].to_pylist())
        counts[UNREADABLE] -= tables
        found = format_list([f"{counts[one]:,} {words}" for one, words in _OUTCOMES.items() if counts[one]])
        finding = f"{format_count(counts.total(), 'rewrite')} in {self.where}{found and f': {found}'}"
        return finding + (f"; {format_count(tables, 'table')} can't be read" if tables else "")

    def explain(self) -> str:
        """Return the finding in a sentence, then a line per rewrite."""
        lines = map(_line, self.rows.slice(0, _MOST_ROWS).to_pylist())
        return joined_lines([f"{self.finding}.", *lines, *self._more()])

    summary = explain

    def parts(self) -> Sequence[object]:
        """Return the finding, and a table of the rewrites."""
        rows = self.rows.select(_SHOWN).slice(0, _MOST_ROWS)
        return f"{self.finding}.", *([rows] if len(rows) else []), *self._more()

    def _more(self) -> list[str]:
        return [*self._rest(len(self), _MOST_ROWS, "more rewrite"), *self._skipped()]


def audit(
    where: Where,
    since: datetime | str | None = None,
    progress: bool | ReportTable | None = None,
) -> Audit:
    """Prove or refute each commit that rewrites files and says that it changes no data, whoever wrote it.

    All file actions of such a commit have dataChange=false, as in OPTIMIZE and REORG. Any writer may set this
    and no reader checks it, so nobody notices if the commit loses, doubles, changes or brings back rows. The
    rows of the files that were live only before the commit, with their deletion vectors and partition values
    of that time, are compared with the rows of the files that were live only after it, as far as they are
    still there. Version 0 replaces nothing. Nothing is changed, and Spark is started only if there are rows
    to read.

    Args:
        where: Tables, as for `survey`.
        since: Commits before this time are left out; a time without a zone is in the session's time zone.
        progress: True for a progress bar, or a function that is called with the number of compared commits,
            the number of all commits, and the table of the last one.

    Raises:
        InvalidArgumentError: `where` can't be used, or `since` is not a time.
        TableNotFoundError, NotADeltaTableError, UnsupportedTableError, StorageError: As for `survey`.
        SessionError: There are rows to read, and no Spark session could be started.

    Examples:
        >>> ck.audit("data").explain()
        '0 rewrites in data.'
    """
    session = active_spark()
    start = None if since is None else to_instant(since, "since", session)
    named, found = discover(where, session)
    claims = [claim for name, place in found.tables for claim in _claims(name, place, session, start)]
    unread = [(handle, row) for handle, row in claims if row["outcome"] is None]
    with reporting(progress, "rewrite") as report:
        for done, (handle, row) in enumerate(unread, start=1):
            row |= _compare(handle, row)
            report(done, len(unread), row["table"])
    order = [*_OUTCOMES]
    rows = sorted((row for _, row in claims), key=lambda row: order.index(row["outcome"]))
    return Audit(named, pa.Table.from_pylist(rows, schema=ROW), tuple(found.skipped), at=now(session))


def rewrites(log: TransactionLog, since: datetime | None = None) -> pa.Table:
    """Return commits that rewrite files and claim to change no data, with times as in `Table.history`."""
    # Commits that create a table, such as a clone, may say so too.
    is_rewrite = ~pc.field("data_change") & (pc.field("version") > 0)
    is_rewrite &= pc.field("num_added") + pc.field("num_removed") > 0
    if since is not None:
        is_rewrite &= pc.field("timestamp") >= pa.scalar(since, STAMP)
    log = log.listed()
    return log.commits().set_column(1, "timestamp", log.commit_times()).filter(is_rewrite)


def _claims(
    name: str, place: str, spark: SparkSession | None, since: datetime | None
) -> list[tuple[Any, Facts]]:
    """Return a row per rewrite of a table; rows without an outcome must be compared."""
    row, handle = dict.fromkeys(ROW.names) | {"table": name}, None
    try:
        handle = open_table(place, spark).handle.listed()
        handle.log.segment()  # raises if a commit is missing, which may have been a rewrite
        commits = rewrites(handle.log, since).select(_COMMIT).to_pylist()
        reasons = _why_gone(handle, [commit["version"] for commit in commits]) if commits else []
    except Exception as error:
        return [(handle, row | {"outcome": UNREADABLE, "reason": sentence(error).rstrip(".")})]
    return [
        (handle, row | commit | {"outcome": reason and GONE, "reason": reason})
        for commit, reason in zip(commits, reasons, strict=True)
    ]


def _why_gone(handle: Handle, versions: Sequence[int]) -> list[str | None]:
    """Say for each commit why its rows can't be read any more; None if its files and the log are there."""
    needs = read_files_by_version(handle)
    known, lives = {*needs.versions.tolist()}, needs.lifetimes
    lost = lives.filter(pc.is_in(lives["path"], value_set=needs.missing))
    counts = Counter([*lost["added"].to_pylist(), *lost["removed"].to_pylist()])

    def why(version: int) -> str | None:
        if not {version - 1, version} <= known:
            return f"the log no longer has version {version - 1}"
        return f"{format_count(counts[version], 'file')} can't be found" if counts[version] else None

    return [why(version) for version in versions]


def _compare(handle: Handle, row: Facts) -> Facts:
    version = row["version"]
    try:
        schemas = [handle.log.snapshot(one).metadata.schema for one in (version - 1, version)]
        if schemas[0] != schemas[1]:
            return {"outcome": UNREADABLE, "reason": "the commit changes the columns too"}
        before, after = changed_rows(handle, version - 1, version)
    except FileNotFoundError:
        return {"outcome": GONE, "reason": "a file can't be found"}
    except (RunFailedError, UnsupportedTableError, CorruptLogError) as error:
        return {"outcome": UNREADABLE, "reason": str(error).rstrip(".")}
    texts = [f"{first:x} {second:x}" for first, second in (before.hash_sums, after.hash_sums)]
    texts.append("+".join(sorted({*before.readers, *after.readers})))
    facts = dict(zip((*_COUNTS, *_TEXTS), (before.num_rows, after.num_rows, *texts), strict=True))
    if before == after:
        return facts | {"outcome": PROVED}
    became = "other rows" if before.num_rows == after.num_rows else f"{after.num_rows:,}"
    reason = f"{format_count(before.num_rows, 'row')} became {became}"
    num_live = pc.sum(pc.equal(handle.log.lifetimes()[1]["removed"], version)).as_py() or 0
    if (not_live := row["num_removed"] - num_live) > 0:
        reason += f", and {not_live:,} of {row['num_removed']:,} removed files had not been live"
    return facts | {"outcome": REFUTED, "reason": reason}


def _line(row: Facts) -> str:
    if row["outcome"] == UNREADABLE:
        return f"{row['table']}: {row['reason']}."
    by = row["readers"]
    read = f"{format_count(row['rows_added'], 'row')} by {by}" if by else "the same files"
    outcome = f"{row['outcome']}, {row['reason'] or read}"
    what = (row["table"], f"version {row['version']}", outcome, row["operation"], row["engine"])
    return "  ".join(filter(None, what))
