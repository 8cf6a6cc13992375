"""Compact a Delta table while a stream reads it, and count the rows that the stream delivers.

A stream delivers the rows of files that were added with dataChange=true, each row once. A compaction adds its
files with dataChange=false, so the stream skips them: it reads, or has read, the files that they replace.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log import TransactionLog
from compaction_kit.records import Result
from compaction_kit.session import get_spark, quiet_errors
from compaction_kit.sql import uri
from compaction_kit.table import open_table
from compaction_kit.text import format_count
from course import new_folder, read_ids

_INT = pa.int64()
_READ = {"batch_id": _INT, "num_rows": _INT, "source_version": _INT}
BATCHES = pa.schema(_READ | {"sink_version": _INT, "app_id": pa.string()})
_COMMIT_COLUMNS = ["version", "operation", "data_change", "num_added", "num_removed", "records_added"]
_NUM_FILES, _ROWS_A_FILE, _FILES_A_BATCH = 6, 10, 3
_POLL_SECONDS = 0.02
_DELTA_ERROR = re.compile(r"\[(DELTA_[\w.]+)\] ([^.]+\.?)")
_WAYS = {
    "optimize": "the source is compacted by Delta's OPTIMIZE",
    "rewrite": "the source is overwritten with its own rows with dataChange=false",
    "arrow": "the source is compacted by the strategy arrow",
    "overwrite": "the source is overwritten with its own rows by an ordinary write",
    "append": "new rows are appended to the source with dataChange=false",
}


@dataclass(frozen=True, repr=False)
class StreamStory(Result):
    """What a stream delivered; made by `compact_while_streaming`.

    Attributes:
        strategy: What was done to the source while the stream ran; one of `ways()`.
        options: The options of the stream's reader.
        folder: The folder with the tables "source" and "sink" and the stream's "checkpoint".
        commits: One row per commit of the source: some columns of `TransactionLog.commits`.
        batches: One row per micro-batch: batch_id, num_rows (int64, rows read), source_version (int64,
            the last version that it read, completely or in part), and sink_version (int64) and app_id
            (string) of its commit; Delta's sink writes no batch twice.
        ids_written, ids_delivered: The ids of the rows in source and sink at the end, sorted.
        error: Why the stream failed; None if it didn't.
    """

    strategy: str
    options: Mapping[str, str]
    folder: Path
    commits: pa.Table
    batches: pa.Table
    ids_written: tuple[int, ...]
    ids_delivered: tuple[int, ...]
    error: str | None

    @property
    def rows_doubled(self) -> int:
        """Number of rows that were delivered more often than they are in the source."""
        return (Counter(self.ids_delivered) - Counter(self.ids_written)).total()

    @property
    def rows_missing(self) -> int:
        """Number of the source's rows that were not delivered."""
        return (Counter(self.ids_written) - Counter(self.ids_delivered)).total()

    @property
    def finding(self) -> str:
        """The outcome in one line."""
        with_options = "".join(f", {name}={value}" for name, value in self.options.items())
        if self.error is not None:
            end = f"the stream failed, {format_count(self.rows_missing, 'row')} missing"
        elif self.rows_doubled or self.rows_missing:
            end = f"{format_count(self.rows_doubled, 'row')} twice, {self.rows_missing:,} missing"
        else:
            end = f"all {format_count(len(self.ids_written), 'row')} delivered once"
        return f"{self.strategy}{with_options}: {end}"

    def facts(self) -> dict[str, str]:
        """Return what was delivered, for people: names and values."""
        return {
            "while the stream runs": _WAYS[self.strategy],
            "rows": f"{len(self.ids_written):,} in the source, {len(self.ids_delivered):,} delivered",
            "delivered twice": f"{self.rows_doubled:,}",
            "missing": f"{self.rows_missing:,}",
            **({"the stream failed": self.error} if self.error else {}),
        }

    def parts(self) -> tuple[object, ...]:
        """Return the finding, the facts, the source's commits, and the stream's batches."""
        tables = ("The source's commits", self.commits, "The stream's batches", self.batches)
        return self.finding, self.facts(), *tables


def ways() -> dict[str, str]:
    """Return the strategies of `compact_while_streaming`: their names, and what they do to the source.

    Examples:
        >>> from course import streams
        >>> list(streams.ways())
        ['optimize', 'rewrite', 'arrow', 'overwrite', 'append']
    """
    return dict(_WAYS)


def compact_while_streaming(
    folder: str | Path,
    strategy: str = "optimize",
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> StreamStory:
    """Compact a table while a stream reads it, and count the rows that the stream delivers to another table.

    Both tables are new. The stream reads 3 of the source's 6 files of 10 rows. Before it reads the rest, rows
    are appended, the source is compacted, and rows are appended again. So the compaction rewrites files that
    were delivered, files of a version that was read in part, and a file that was not read.

    Args:
        folder: The folder in which a new folder with the tables is made.
        strategy: A name from `ways()`: a strategy of `CompactionPlan.run` or, to compare, another write.
        options: Options for the stream's reader, such as {"skipChangeCommits": "true"}.
        spark: The session; None for that of `get_spark()`.

    Returns:
        What was delivered in each batch; if the stream fails, what it delivered before.

    Raises:
        InvalidArgumentError: There is no such strategy, or the folder can't be used.
    """
    if strategy not in _WAYS:
        raise InvalidArgumentError(f'strategy="{strategy}" is unknown: use one of {", ".join(_WAYS)}.')
    place, spark = new_folder(folder, f"stream {strategy}"), spark or get_spark()
    nothing = pa.table({})
    story = StreamStory(strategy, dict(options or {}), place, nothing, BATCHES.empty_table(), (), (), None)
    source = place / "source"

    def append(first: int, num_files: int = 1, **more: str) -> None:
        rows = spark.range(first, first + num_files * _ROWS_A_FILE, 1, num_files)
        rows.write.save(uri(source), format="delta", mode="append", **more)

    append(0, _NUM_FILES)
    # Long enough that only the first batch runs.
    waiting = _start(spark, story, processingTime="1 hour")
    try:
        while waiting.lastProgress is None:
            # Raises the stream's error, if it failed.
            waiting.awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]
        append(_NUM_FILES * _ROWS_A_FILE)
        if strategy == "overwrite":
            rows = spark.read.format("delta").load(uri(source)).repartition(1)
            rows.write.save(uri(source), format="delta", mode="overwrite")
        elif strategy == "append":
            # These ids are in no other append.
            append(1_000, dataChange="false")
        else:
            open_table(source, spark).plan_compaction().run(strategy=strategy, verify=False)
        append((_NUM_FILES + 1) * _ROWS_A_FILE)
    finally:
        waiting.stop()
    return _finish(spark, replace(story, batches=_batches(story, waiting)))


def repeat_last_batch(story: StreamStory, spark: SparkSession | None = None) -> StreamStory:
    """Run a stream's last batch again, as after a crash between the sink's commit and the stream's.

    The stream's commit of the batch is deleted from its checkpoint, and the stream is started again.
    Delta's sink finds the batch in its txn actions and writes nothing.

    Returns:
        The story, with the repeated batch as the last of its batches.
    """
    commits = story.folder / "checkpoint" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    return _finish(spark or get_spark(), story)


def _start(spark: SparkSession, story: StreamStory, **trigger: Any) -> StreamingQuery:
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", _FILES_A_BATCH)
    rows = reader.options(**story.options).load(uri(story.folder / "source"))
    writer = rows.writeStream.format("delta").option("checkpointLocation", uri(story.folder / "checkpoint"))
    return writer.trigger(**trigger).start(uri(story.folder / "sink"))


def _finish(spark: SparkSession, story: StreamStory) -> StreamStory:
    """Let the stream read the rest, and count the rows."""
    error = None
    query = _start(spark, story, availableNow=True)
    try:
        with quiet_errors():
            query.awaitTermination()
    except StreamingQueryException as failure:
        found = _DELTA_ERROR.search(str(failure))
        error = f"{found[1]}: {found[2]}" if found else str(failure).splitlines()[0]
    source = story.folder / "source"
    return replace(
        story,
        commits=TransactionLog(source).commits().select(_COMMIT_COLUMNS),
        batches=pa.concat_tables([story.batches, _batches(story, query)]),
        ids_written=read_ids(spark, source),
        ids_delivered=read_ids(spark, story.folder / "sink"),
        error=error,
    )


def _batches(story: StreamStory, query: StreamingQuery) -> pa.Table:
    """Return the batches of one run of the stream, with the sink's commits."""
    log = TransactionLog(story.folder / "sink")
    commits = {}
    for version in range(log.segment().version + 1):
        for action in map(json.loads, log.actions(version)["fields"].to_pylist()):
            if txn := action.get("txn"):
                commits[txn["version"]] = {"sink_version": version, "app_id": txn["appId"]}
    rows = []
    for progress in query.recentProgress:
        offset, batch = json.loads(progress["sources"][0]["endOffset"]), progress["batchId"]
        # With index -1, no file of that version has been read.
        version = offset["reservoirVersion"] - (offset["index"] == -1)
        row = {"batch_id": batch, "num_rows": progress["numInputRows"], "source_version": version}
        rows.append(row | commits.get(batch, {}))
    return pa.Table.from_pylist(rows, schema=BATCHES)
