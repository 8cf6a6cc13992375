"""A stream from one Delta table to another, and a compaction of the first in its midst.

A stream delivers the rows of files that were added with dataChange=true, each once. A compaction adds
its files with dataChange=false, so that a stream passes them over: what they hold has come already, or
still comes from the files that they replaced, as long as VACUUM has not taken these.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log import TransactionLog
from compaction_kit.playground import new_folder, read_ids
from compaction_kit.session import get_spark, quiet_errors
from compaction_kit.sql import uri
from compaction_kit.table import open_table
from compaction_kit.text import as_text, format_count, shown

BATCHES = pa.schema(
    [
        ("batch_id", pa.int64()),
        ("num_rows", pa.int64()),
        ("source_version", pa.int64()),
        ("sink_version", pa.int64()),
        ("app_id", pa.string()),
    ]
)
_COMMIT_COLUMNS = ["version", "operation", "data_change", "num_added", "num_removed", "records_added"]
_NUM_FILES, _ROWS_A_FILE, _FILES_A_BATCH = 6, 10, 3
_POLL_SECONDS = 0.02
_DELTA_ERROR = re.compile(r"\[(DELTA_[\w.]+)\] ([^.]+\.?)")


@dataclass(frozen=True)
class StreamStory:
    """What a stream delivered; draws itself.

    Attributes:
        strategy: What was done to the source in the midst of the stream.
        options: With what the stream read it.
        folder: Where the tables "source" and "sink" and the stream's checkpoint are.
        commits: One row a commit of the source: version, operation, data_change, num_added,
            num_removed, records_added.
        batches: One row a micro-batch that was run: batch_id, num_rows read, source_version (the last
            of which it read all it will, or is in the midst of), and of its commit sink_version and
            app_id: Delta's sink keeps in a txn action which batch of which stream it holds, and takes
            none twice.
        ids_written: The ids of the source's rows in the end, sorted.
        ids_delivered: Those of the sink's.
        error: Why the stream ended before its time; None if it didn't.
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
        """Rows delivered more often than they are in the source."""
        return (Counter(self.ids_delivered) - Counter(self.ids_written)).total()

    @property
    def rows_missing(self) -> int:
        """Rows of the source that were not delivered."""
        return (Counter(self.ids_written) - Counter(self.ids_delivered)).total()

    @property
    def finding(self) -> str:
        """What came of it, in a line."""
        with_options = "".join(f", {name}={value}" for name, value in self.options.items())
        if self.error is not None:
            end = f"the stream failed, {format_count(self.rows_missing, 'row')} missing"
        elif self.rows_doubled or self.rows_missing:
            end = f"{format_count(self.rows_doubled, 'row')} twice, {self.rows_missing:,} missing"
        else:
            end = f"all {format_count(len(self.ids_written), 'row')} delivered once"
        return f"{self.strategy}{with_options}: {end}"

    def facts(self) -> dict[str, str]:
        """The outcome for people: name and value."""
        return {
            "in the midst of the stream": _WAYS[self.strategy].about,
            "rows": f"{len(self.ids_written):,} in the source, {len(self.ids_delivered):,} delivered",
            "delivered twice": f"{self.rows_doubled:,}",
            "missing": f"{self.rows_missing:,}",
            **({"the stream failed": self.error} if self.error else {}),
        }

    def summary(self) -> str:
        """The outcome in a few lines."""
        return as_text(self.facts())

    def _repr_html_(self) -> str:
        return shown(
            *(self.finding, self.facts()),
            *("The source's commits", self.commits, "The stream's batches", self.batches),
        )

    def __repr__(self) -> str:
        return f"StreamStory(\n{self.summary()}\n)"


def ways() -> dict[str, str]:
    """What can be done to the source in the midst of a stream: each way's name, and what it is."""
    return {name: way.about for name, way in _WAYS.items()}


def compact_while_streaming(
    folder: str | Path,
    strategy: str = "optimize",
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> StreamStory:
    """Compact a table while a stream reads it, and count what the stream delivers to another table.

    Both tables are made for it. The source begins with 6 files of 10 rows. The stream reads half of them;
    while it waits for its next batch, rows are appended, the source is compacted, and rows are appended
    again; then the stream reads what is left. So the compaction rewrites files that were delivered, files
    that the stream is in the midst of, and one that it has not seen.

    Args:
        folder: Where a folder for all this is made; another one each time.
        strategy: One of `ways()`: a strategy of `CompactionPlan.run`, or, for the contrast, a write
            that is none.
        options: For the stream's reader, such as {"skipChangeCommits": "true"}.
        spark: The session; None for that of `get_spark()`.

    Returns:
        What was delivered, batch by batch; if the stream fails, what it delivered until then.

    Raises:
        InvalidArgumentError: There is no such way, or the folder can't be used.
    """
    way = _WAYS.get(strategy)
    if way is None:
        raise InvalidArgumentError(f'strategy="{strategy}" is unknown: use one of {", ".join(_WAYS)}.')
    place = new_folder(Path(folder), f"stream {strategy}")
    session = spark or get_spark()
    source = place / "source"
    story = StreamStory(
        strategy, dict(options or {}), place, pa.table({}), BATCHES.empty_table(), (), (), None
    )
    rows = _NUM_FILES * _ROWS_A_FILE
    _append(session, source, 0, rows, _NUM_FILES)
    # Only its first batch comes before the hour is over.
    waiting = _start(session, story, processingTime="1 hour")
    try:
        _wait_for_a_batch(waiting)
        _append(session, source, rows, rows + _ROWS_A_FILE)
        way.act(session, source)
        _append(session, source, rows + _ROWS_A_FILE, rows + 2 * _ROWS_A_FILE)
    finally:
        waiting.stop()
    return _drain(session, replace(story, batches=_batches(story, waiting)))


def repeat_last_batch(story: StreamStory, spark: SparkSession | None = None) -> StreamStory:
    """Run a stream's last batch again, as after a crash: the sink has committed it, the stream doesn't know.

    The stream's own note that the batch is done is taken out of its checkpoint, and the stream is started
    again. Delta's sink finds the batch in its txn action and writes nothing.

    Args:
        story: What `compact_while_streaming` returned.
        spark: The session; None for that of `get_spark()`.

    Returns:
        The story with the batch that was repeated at the end of its batches.
    """
    notes = _checkpoint(story) / "commits"
    last = max(int(note.name) for note in notes.iterdir() if note.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (notes / name).unlink(missing_ok=True)
    return _drain(spark or get_spark(), story)


@dataclass(frozen=True)
class _Way:
    about: str
    act: Callable[[SparkSession, Path], object]


def _compaction(strategy: str) -> Callable[[SparkSession, Path], object]:
    def act(spark: SparkSession, source: Path) -> object:
        return open_table(source, spark).plan_compaction().run(strategy=strategy, verify=False)

    return act


def _overwrite(spark: SparkSession, source: Path) -> None:
    rows = spark.read.format("delta").load(uri(source)).repartition(1)
    rows.write.format("delta").mode("overwrite").save(uri(source))


def _append_unseen(spark: SparkSession, source: Path) -> None:
    # Ids of its own: those of the other appends are below.
    rows = spark.range(1_000, 1_000 + _ROWS_A_FILE, 1, 1)
    rows.write.format("delta").mode("append").option("dataChange", "false").save(uri(source))


_WAYS = {
    "optimize": _Way("the source is compacted by Delta's OPTIMIZE", _compaction("optimize")),
    "rewrite": _Way("the source is overwritten with its own rows, dataChange=false", _compaction("rewrite")),
    "arrow": _Way("the source is compacted by the strategy arrow", _compaction("arrow")),
    "overwrite": _Way("the source is overwritten with its own rows, as an ordinary write", _overwrite),
    "append": _Way("new rows are appended to the source, with dataChange=false", _append_unseen),
}


def _append(spark: SparkSession, table: Path, start: int, end: int, num_files: int = 1) -> None:
    spark.range(start, end, 1, num_files).write.format("delta").mode("append").save(uri(table))


def _checkpoint(story: StreamStory) -> Path:
    return story.folder / "checkpoint"


def _start(spark: SparkSession, story: StreamStory, **trigger: Any) -> StreamingQuery:
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", _FILES_A_BATCH)
    rows = reader.options(**story.options).load(uri(story.folder / "source"))
    writer = rows.writeStream.format("delta").option("checkpointLocation", uri(_checkpoint(story)))
    return writer.trigger(**trigger).start(uri(story.folder / "sink"))


def _wait_for_a_batch(query: StreamingQuery) -> None:
    while query.lastProgress is None:
        # Raises what ended it.
        query.awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]


def _drain(spark: SparkSession, story: StreamStory) -> StreamStory:
    """Have the stream read what is left, and count."""
    error = None
    query = _start(spark, story, availableNow=True)
    try:
        with quiet_errors():
            query.awaitTermination()
    except StreamingQueryException as failure:
        found = _DELTA_ERROR.search(str(failure))
        error = f"{found[1]}: {found[2]}" if found else str(failure).splitlines()[0]
    source, sink = (story.folder / name for name in ("source", "sink"))
    return replace(
        story,
        commits=TransactionLog(source).commits().select(_COMMIT_COLUMNS),
        batches=pa.concat_tables([story.batches, _batches(story, query)]),
        ids_written=read_ids(source),
        ids_delivered=read_ids(sink),
        error=error,
    )


def _batches(story: StreamStory, query: StreamingQuery) -> pa.Table:
    """The batches of one run of the stream, with what the sink's log says of them."""
    kept = _sink_commits(story.folder / "sink")
    rows = []
    for progress in query.recentProgress:
        offset = json.loads(progress["sources"][0]["endOffset"])
        # -1 stands before the first file of a version.
        version = offset["reservoirVersion"] - (offset["index"] == -1)
        batch = progress["batchId"]
        rows.append(
            {
                "batch_id": batch,
                "num_rows": progress["numInputRows"],
                "source_version": version,
                **kept.get(batch, {}),
            }
        )
    return pa.Table.from_pylist(rows, schema=BATCHES)


def _sink_commits(sink: Path) -> dict[int, dict[str, Any]]:
    """By batch, the version that holds it, from the txn actions."""
    log = TransactionLog(sink)
    found = {}
    for version in range(log.segment().version + 1):
        for action in map(json.loads, log.actions(version)["fields"].to_pylist()):
            if "txn" in action:
                txn = action["txn"]
                found[txn["version"]] = {"sink_version": version, "app_id": txn["appId"]}
    return found
