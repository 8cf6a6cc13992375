"""Time one query at two versions of a table, to see what a compaction changed for readers."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compaction_kit import plots
from compaction_kit.compat import compute, has_jvm
from compaction_kit.errors import InvalidArgumentError, RunFailedError, reason_of
from compaction_kit.execute.jobs import session_confs
from compaction_kit.execute.proof import ANY_VERSION
from compaction_kit.query import MISSING_FILE, SPARK_ERRORS, ParsedQuery, Query, parse_query, with_table
from compaction_kit.records import Record
from compaction_kit.retention import GUARD
from compaction_kit.session import quiet_errors
from compaction_kit.sql import plain_path
from compaction_kit.storage import Store, open_store
from compaction_kit.text import format_change, format_count, format_factor, format_seconds, parse_count
from compaction_kit.verify import fingerprint

_TOO_OLD = "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"
_FEWEST_RUNS = 3
_WHY_OTHER_ROWS = "rows changed between the versions, or the query is random (LIMIT without ORDER BY, rand())"
_RUNS = pa.schema([("version", pa.int64()), ("repeat", pa.int64()), ("seconds", pa.float64())])


@dataclass(frozen=True, repr=False)
class ReadComparison(Record):
    """How one query ran at two versions of a table; made by `measure_reads`.

    Attributes:
        query: The query's text, or the name of the function.
        versions: The two versions: before, after.
        seconds_before, seconds_after: Median seconds of the runs at each version.
        files_before, files_after: Data files that the query opens at each version, without skipped ones.
        bytes_before, bytes_after: Total size of these files; None if one is in another storage.
        runs: One row per timed run, in their order: version, repeat (int64, from 0), seconds (float64).
        same_files: Whether the query opens the same files at both versions, so that times differ by chance.
        same_result: Whether the query returns the same rows in any order, with eight digits of floats,
            because sums depend on the order of rows; if not, times can't be compared.
    """

    query: str
    versions: tuple[int, int]
    seconds_before: float
    seconds_after: float
    files_before: int
    files_after: int
    bytes_before: int | None
    bytes_after: int | None
    runs: pa.Table
    same_files: bool
    same_result: bool

    @property
    def speedup(self) -> float:
        """Median time at the first version divided by the median time at the second."""
        return self.seconds_before / self.seconds_after

    @property
    def is_clear(self) -> bool:
        """Whether the same version was faster in nine of ten pairs of runs, one at each version.

        By chance this happens in 3 % of cases with five runs at each version, and in 10 % with three. False
        with fewer runs, or if the query reads the same files at both versions.
        """
        if self.same_files or len(self.runs) < 2 * _FEWEST_RUNS:
            return False
        pairs = list(product(*map(self.seconds_at, self.versions)))
        later_won = sum((b > a) + (b == a) / 2 for b, a in pairs)
        return max(later_won, len(pairs) - later_won) >= 0.9 * len(pairs)

    @property
    def finding(self) -> str:
        """The outcome in one line."""
        files = f"{self.files_before:,} → {format_count(self.files_after, 'file')}"
        if self.bytes_before is not None and self.bytes_after is not None:
            files += f", {format_change(self.bytes_before, self.bytes_after)}"
        if not self.same_result:
            return f"The query returned other rows, so the times can't be compared; {files}"
        spent = f"{format_seconds(self.seconds_before)} → {format_seconds(self.seconds_after)}"
        if self.same_files:
            count = self.files_before
            same = f"The same {format_count(count, 'file')} read" if count else "No file read"
            return f"{same} at both versions, so times differ only by chance: {spent}"
        if len(self.runs) < 2 * _FEWEST_RUNS:
            return f"Too few runs to call: median {spent}; {files}"
        if not self.is_clear:
            return f"Timings overlap: median {spent}, too noisy to call; {files}"
        word, factor = ("fast", self.speedup) if self.speedup >= 1 else ("slow", 1 / self.speedup)
        times = f"{format_factor(factor)} times as {word}" if factor >= 1.05 else "About as fast"
        return f"{times}: {spent}, {files}"

    def seconds_at(self, version: int) -> list[float]:
        """Return the seconds of each run at a version, in the order of the runs."""
        return [row["seconds"] for row in self.runs.to_pylist() if row["version"] == version]

    def facts(self) -> dict[str, str]:
        """Return the outcome as readable text: names and values."""
        runs = [self.seconds_at(version) for version in self.versions]
        ranges = [f"{format_seconds(min(times))} to {format_seconds(max(times))}" for times in runs]
        rows = "the same at both versions" if self.same_result else f"NOT the same; {_WHY_OTHER_ROWS}"
        return {
            "query": self.query,
            "outcome": self.finding,
            "versions": " → ".join(map(str, self.versions)),
            "single runs": f"{' → '.join(ranges)} ({len(runs[0])} at each version, alternating)",
            "rows that came out": rows,
        }

    def plot(self) -> "plots.Chart":
        """Draw both medians with the single runs, and the files read."""
        return plots.reads(
            self.query,
            self.finding,
            self.versions,
            [self.seconds_at(version) for version in self.versions],
            (self.files_before, self.files_after),
            (self.bytes_before, self.bytes_after),
        )


class Read(NamedTuple):
    """A query at one version: its rows, and the data files that it opens, as Spark names them."""

    query: ParsedQuery
    version: int
    rows: DataFrame
    files: list[str]


def measure_reads(
    spark: SparkSession, table: str | Path, before: int, after: int, query: Query, repeats: int = 5
) -> ReadComparison:
    """Time the same query at two versions of a table, alternating between them.

    The first run at each version is not counted. A run plans the query, skips files by stats, and computes
    every row (over Spark Connect, its hashes too); it does not read the log. The files are in the system's
    cache by then, so times cover opening and decoding files, not a disk.

    Args:
        spark: The session to run the query in.
        table: The table's folder, as a path or URI.
        before: The version to compare with.
        after: The version that is compared.
        query: SQL with {table}, or the table's own name, for the table ("SELECT count(*) FROM {table} WHERE
            id < 3"); or a condition ("id < 3"), which selects all columns of the rows that meet it; or a
            function that takes the table's DataFrame and returns one. Files that are read for a subquery that
            is a value (WHERE id = (SELECT …)) are not counted. Files that Spark skips only while the query
            runs, because of such a subquery or of a join with a small table, are counted.
        repeats: Number of timed runs at each version.

    Raises:
        InvalidArgumentError: The query can't be used, or a version doesn't exist or can't be read.
        RunFailedError: The query failed during a run.
    """
    if before == after:
        raise InvalidArgumentError(f"before={before} and after={after} are the same version: give two.")
    named = {"before": parse_count(before, "before", 0), "after": parse_count(after, "after", 0)}
    store, repeats = open_store(table), parse_count(repeats, "repeats")
    # A version whose files exist can be read, however old it is.
    with quiet_errors(), session_confs(spark, ANY_VERSION):
        frames = {version: frame_at(spark, table, version, name) for name, version in named.items()}
        parsed = parse_query(spark, with_table(query, store, str(table)))
        reads = [prepare_read(parsed, frame, version) for version, frame in frames.items()]
        sizes = [_size(read, store) for read in reads]
        for read in reads:
            _run(read)
        turns = [(repeat, read) for repeat in range(repeats) for read in reads[:: -1 if repeat % 2 else 1]]
        timed = [(read.version, repeat, _run(read)) for repeat, read in turns]
        prints = [_guarded(read, partial(fingerprint, _rounded(read.rows))) for read in reads]
    medians = [median(s for version, _, s in timed if version == read.version) for read in reads]
    return ReadComparison(
        query=parsed.name,
        versions=(before, after),
        seconds_before=medians[0],
        seconds_after=medians[1],
        files_before=len(reads[0].files),
        files_after=len(reads[1].files),
        bytes_before=sizes[0],
        bytes_after=sizes[1],
        runs=pa.table(list(map(list, zip(*timed, strict=True))), _RUNS),
        same_files=set(reads[0].files) == set(reads[1].files),
        same_result=prints[0] == prints[1],
    )


def frame_at(spark: SparkSession, table: str | Path, version: int, name: str) -> DataFrame:
    """Return the table at a version; Delta looks up the version in the log at once."""
    try:
        return spark.read.format("delta").option("versionAsOf", version).load(open_store(table).uri())
    except SPARK_ERRORS as error:
        reason = f"can't be read: {reason_of(error)}"
        if _TOO_OLD in str(error):
            reason = (
                "is older than the table's delta.deletedFileRetentionDuration, and Delta refuses to read it: "
                f"choose a newer version, or set {GUARD}=false in the session"
            )
        raise InvalidArgumentError(f"{name}={version} {reason}.") from None


def prepare_read(query: ParsedQuery, frame: DataFrame, version: int) -> Read:
    """Apply a query to a version; Spark plans it at once, and so skips files, without running it."""
    try:
        rows = query.apply(frame)
        if not isinstance(rows, DataFrame) or not rows.columns:
            what = "no column" if isinstance(rows, DataFrame) else type(rows).__name__
            raise InvalidArgumentError(
                f'query="{query.name}" returned {what}: make it return a DataFrame with columns.'
            )
        # Columns by position: a query may return two with the same name.
        rows = rows.toDF(*[f"column{position}" for position in range(len(rows.columns))])
        return Read(query, version, rows, _files_of(rows))
    except SPARK_ERRORS as error:
        what = f'query="{query.name}" can\'t be used at version {version}'
        raise InvalidArgumentError(f"{what}: {reason_of(error)}.") from None


def _files_of(rows: DataFrame) -> list[str]:
    """Return the data files that a query opens; over Spark Connect, those that Delta doesn't skip."""
    files = rows.inputFiles()
    if not has_jvm(rows.sparkSession):
        return files
    # Spark finds more partition filters for a scan than Delta, such as those that an OR implies.
    leaves = rows._jdf.queryExecution().sparkPlan().collectLeaves()
    nodes = [leaves.apply(number) for number in range(leaves.size())]
    scans = [node for node in nodes if node.getClass().getSimpleName() == "FileSourceScanExec"]
    if all(scan.partitionFilters().isEmpty() for scan in scans):
        return files
    listed, opened = set[str](), set[str]()
    for scan in scans:
        location, filters = scan.relation().location(), scan.partitionFilters()
        names = set(location.inputFiles())
        listed |= names
        is_delta = location.getClass().getName().startswith("org.apache.spark.sql.delta.")
        # Dynamic filters are known only once the query runs.
        if not is_delta or filters.isEmpty() or "dynamicpruning" in filters.toString():
            opened |= names
            continue
        folders = location.listFiles(filters, scan.dataFilters())
        for folder in map(folders.apply, range(folders.size())):
            found = folder.files()
            opened.update(found.apply(number).getPath().toString() for number in range(found.size()))
    return [name for name in files if name in opened or name not in listed]


def _size(read: Read, store: Store) -> int | None:
    """Return the size of the files that the query opens; None if one of them is on another storage."""
    if store.is_local:
        paths = [path if path.startswith("/") else None for path in map(plain_path, read.files)]
    else:
        paths = [store.relative(name) for name in read.files]
    if None in paths:
        return None
    listed = store.listed()
    # Delta gives paths; other formats, which a query may join, give encoded URIs.
    found = [listed.status(path) or listed.status(unquote(path)) for path in paths if path is not None]
    if None in found:
        raise _missing(read.version)
    return sum(file.size_bytes for file in found if file is not None)


def _run(read: Read) -> float:
    """Return the seconds that it takes to plan the query and compute its rows, which are not stored."""
    work, start = compute if has_jvm(read.rows.sparkSession) else fingerprint, time.perf_counter()
    _guarded(read, partial(work, read.rows))
    return time.perf_counter() - start


def _rounded(rows: DataFrame) -> DataFrame:
    floats = [name for name, kind in rows.dtypes if kind in ("float", "double")]
    return rows.withColumns({name: F.format_string("%.7e", name) for name in floats})


def _guarded(read: Read, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except SPARK_ERRORS as error:
        if any(sign in str(error) for sign in MISSING_FILE):
            raise _missing(read.version) from None
        what = f'query="{read.query.name}" failed at version {read.version}'
        raise RunFailedError(f"{what}: {reason_of(error)}.") from None


def _missing(version: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"version {version} can't be read any more, because some of its files were deleted (probably by "
        "VACUUM): measure a version that has all of its files."
    )
