"""The log of a file sink or file source: its files, and their future."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from numbers import Real
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from compaction_kit import plots
from compaction_kit.active import active_spark
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.records import Record
from compaction_kit.retention import parse_retention
from compaction_kit.sinklog.entries import count_entries, read_entries
from compaction_kit.sinklog.find import list_batches
from compaction_kit.sinklog.policy import (
    BatchFile,
    Kind,
    Policy,
    names_between,
    needed_files,
    next_compaction,
    setting,
)
from compaction_kit.sinklog.projection import VERSION_BYTES, Pace, Projection, Start, project
from compaction_kit.storage import open_store
from compaction_kit.text import format_count, format_seconds, format_size
from compaction_kit.times import millis

_FILES = pa.schema(
    [
        ("batch", pa.int64()),
        ("name", pa.string()),
        ("kind", pa.string()),
        ("size_bytes", pa.int64()),
        ("modification_time", pa.timestamp("ms", "UTC")),
        ("num_entries", pa.int64()),
        ("needed", pa.bool_()),
        ("removed_after", pa.int64()),
    ]
)
# How many batches are projected for the files that the cleanup removes, and for the growth.
_MOST_AHEAD = 10_000
_AHEAD = 100
# A year, so that the times of the next batches are still valid datetimes.
_LONGEST = 366 * 86_400


def sink_log(path: str | Path, spark: SparkSession | None = None, policy: Policy | None = None) -> "SinkLog":
    """Read the log of a file sink or of a stream's file source, as it is now.

    Args:
        path: The sink's output folder or its `_spark_metadata`; for a source, the stream's checkpoint (its
            first source) or a folder in it, such as `sources/0`.
        spark: The session whose settings say when the log is compacted and cleaned up. None for the running
            session, or for Spark's defaults if none is running: reading a log needs no session.
        policy: These settings, instead of the session's.

    Raises:
        TableNotFoundError: The path doesn't exist.
        NotASinkLogError: The path has no such log, or the log has no batch yet.
        CorruptLogError: A file that a reader needs is missing or damaged.
        InvalidArgumentError: A setting of the session can't be used.
        UnsupportedTableError: The path isn't on a local disk.

    Examples:
        >>> from pathlib import Path
        >>> here = Path.cwd()
        >>> rows = spark.readStream.schema("flight BIGINT").parquet(f"{here}/data/flights/origin=JFK")
        >>> stream = rows.writeStream.trigger(availableNow=True)
        >>> stream.start(f"{here}/output", checkpointLocation=f"{here}/checkpoint").awaitTermination()
        >>> ck.find_sink_logs(".")
        ['./checkpoint/sources/0', './output']
        >>> log = ck.sink_log("output")
        >>> log.latest_batch, log.next_compaction_batch
        (0, 9)
        >>> log.project(num_batches=10).compactions.schema
        batch: int64
        time: timestamp[ms, tz=UTC]
        kind: string
        num_entries: int64
        size_bytes: int64
        num_live: int64
        num_files: int64
        log_bytes: int64
        >>> log.files.schema
        batch: int64
        name: string
        kind: string
        size_bytes: int64
        modification_time: timestamp[ms, tz=UTC]
        num_entries: int64
        needed: bool
        removed_after: int64
    """
    store, kind, listed = list_batches(path)
    session = spark or active_spark()
    if policy is None:
        policy = Policy() if session is None else Policy.of_session(kind, session.conf.get)
    needed = needed_files(listed)
    entries = pa.concat_tables([read_entries(store, file.name, kind) for file in needed])
    now = datetime.now(UTC)
    return SinkLog(str(path), Path(store.root), kind, listed, needed, entries, policy, now)


@dataclass(frozen=True, repr=False)
class SinkLog(Record):
    """The log of a file sink or a file source when it was read; made by `sink_log`.

    Every entry counts as an existing file, whatever its `action`: since 3.1 Spark neither writes "delete"
    nor looks at it.

    Attributes:
        name: The path as it was given.
        folder: The folder of the log.
        kind: "sink" or "source".
        listed: The log's files, the oldest batch first.
        needed: The files that a reader needs: the latest compaction and the batches after it.
        entries: One row per entry that a reader sees. Of a sink: path (a URI, as in the log), size_bytes,
            is_dir, modification_time, block_replication, block_size, action. Of a source: path, timestamp
            (the file's modification time), batch_id.
        policy: When the log is compacted and cleaned up.
        read_at: When the log was read.
    """

    name: str
    folder: Path
    kind: Kind
    listed: tuple[BatchFile, ...]
    needed: tuple[BatchFile, ...]
    entries: pa.Table
    policy: Policy
    read_at: datetime

    @property
    def latest_batch(self) -> int:
        """The latest batch."""
        return self.needed[-1].batch

    @property
    def num_entries(self) -> int:
        """The number of entries that a reader sees."""
        return len(self.entries)

    @property
    def size_bytes(self) -> int:
        """The bytes of the log that a reader reads."""
        return sum(file.size_bytes for file in self.needed)

    @property
    def compact_interval(self) -> int:
        """The compaction interval of a stream that starts now, in batches; see `Policy.interval_of`."""
        return self.policy.interval_of(self.listed)

    @property
    def next_compaction_batch(self) -> int:
        """The next batch whose file is a compaction, if a stream starts now."""
        return next_compaction(self.latest_batch, self.compact_interval)

    @property
    def unreadable(self) -> str | None:
        """The missing file that Spark needs to read the log with these settings; None if there is none.

        Spark uses only the interval. If the log has no compaction and more batches than the interval, Spark
        looks for a compaction that doesn't exist.
        """
        existing = {file.name for file in self.listed}
        last_compaction = self.next_compaction_batch - self.compact_interval
        # CompactibleFileStreamLog.getAllValidBatches
        names = names_between(last_compaction, self.latest_batch + 1, self.compact_interval)
        return next((name for name in names if name not in existing), None)

    @cached_property
    def num_entries_in(self) -> dict[str, int | None]:
        """The number of entries of each file, by its name; None if the file is missing by now."""
        store = open_store(self.folder)
        return {file.name: count_entries(store, file.name) for file in self.listed}

    @cached_property
    def pace(self) -> Pace:
        """How the log has grown, by the files of single batches that exist."""
        counts = [self.num_entries_in[file.name] for file in self.listed if not file.is_compaction]
        own = [count for count in counts if count is not None]
        per_batch = sum(own) / len(own) if own else self.num_entries / (self.latest_batch + 1)
        entry_bytes = max(self.size_bytes - VERSION_BYTES * len(self.needed), 0) / max(self.num_entries, 1)
        gaps = [b.modification_time - a.modification_time for a, b in pairwise(self.listed)]
        return Pace(per_batch, entry_bytes, timedelta(milliseconds=max(median(gaps or [0]), 0)))

    @cached_property
    def files(self) -> pa.Table:
        """The log's files, one row per file, the oldest batch first.

        kind is "batch" (the batch's own entries) or "compaction" (all entries up to the batch); num_entries
        is null if the file is missing by now; needed is whether a reader needs the file; removed_after is the
        batch after which the cleanup removes it, at the pace so far, or null if that is far ahead.
        """
        ahead = min(self.policy.min_batches_to_retain + 2 * self.compact_interval, _MOST_AHEAD)
        removed = {row["name"]: row["batch"] for row in self.project(ahead).removals.to_pylist()}
        rows = [
            {
                "batch": file.batch,
                "name": file.name,
                "kind": "compaction" if file.is_compaction else "batch",
                "size_bytes": file.size_bytes,
                "modification_time": file.modification_time,
                "num_entries": self.num_entries_in[file.name],
                "needed": file in self.needed,
                "removed_after": removed.get(file.name),
            }
            for file in self.listed
        ]
        return pa.Table.from_pylist(rows, _FILES)

    @property
    def compactions(self) -> pa.Table:
        """The rows of `files` that are compactions."""
        return self.files.filter(pc.equal(self.files["kind"], "compaction"))

    def project(
        self, num_batches: int = 100, retention: str | None = None, seconds_between: float | None = None
    ) -> Projection:
        """Project the next batches: the size of the log, files that are removed, a failure.

        The stream is assumed to start now with the policy's settings, at the pace of the batches whose files
        exist. Each batch writes its file, or a compaction if one is due, and then removes the files that the
        policy doesn't keep and that are old enough (CompactibleFileStreamLog.add). The interval doesn't
        change, because a stream reads it only at its start.

        Args:
            num_batches: The number of batches to project.
            retention: A value of the sink's option `retention`, such as "7 days"; None for no retention. Each
                compaction then leaves out entries of older files, and readers no longer see their rows.
            seconds_between: The seconds from one batch to the next; None for the median so far.

        Raises:
            InvalidArgumentError: An argument can't be used, or `retention` was given for a source.
        """
        if isinstance(num_batches, bool) or not isinstance(num_batches, int) or num_batches < 0:
            raise InvalidArgumentError(
                f"num_batches={num_batches!r} is not a number of batches: give 0 or more."
            )
        if retention is not None and self.kind == Kind.SOURCE:
            raise InvalidArgumentError(
                f'retention="{retention}" is for sinks, but {self.name} is the log of a source: name the '
                "output folder of a file sink."
            )
        pace = self.pace
        if seconds_between is not None:
            if not isinstance(seconds_between, Real) or not 0 <= seconds_between < _LONGEST:
                raise InvalidArgumentError(
                    f"seconds_between={seconds_between!r} is not a time between batches: give seconds."
                )
            pace = replace(pace, between=timedelta(seconds=float(seconds_between)))
        column = "modification_time" if self.kind == Kind.SINK else "timestamp"
        times = self.entries[column].cast(pa.int64()).to_numpy()
        length = None if retention is None else parse_retention(retention)
        start = Start(self.listed, times, self.compact_interval, millis(self.read_at))
        return project(start, self.policy, pace, num_batches, length)

    def plot(self, num_batches: int = 100, retention: str | None = None) -> Figure:
        """Draw the size of the compaction file so far and projected, and the files that the cleanup removes.

        Args:
            num_batches: The number of batches to project.
            retention: Also draw the projection with this value of the sink's option, such as "7 days".
        """
        projection = self.project(num_batches)
        return plots.sink_log(
            self.files,
            projection.batches,
            projection.removals,
            self.finding(projection),
            projection.fails_at,
            None if retention is None else self.project(num_batches, retention).batches,
        )

    def finding(self, projection: Projection) -> str:
        """Say how large the compaction file is and will be, in a sentence without its full stop."""
        last = [file for file in self.needed if file.is_compaction]
        begin = f"{last[0].name} is {format_size(last[0].size_bytes)}" if last else "No compaction yet"
        if projection.fails_at is not None:
            return f"{begin}; a stream fails at batch {projection.fails_at:,}: no {projection.missing}"
        if not len(projection.compactions):
            return begin
        batch, size = (projection.compactions[name][-1].as_py() for name in ("batch", "size_bytes"))
        return f"{begin}; at batch {batch:,} it will be about {format_size(size)}"

    def explain(self) -> str:
        """Explain the log's state, its growth, and any problem, one sentence or two per line."""
        projection = self.project(_AHEAD)
        key = setting(self.kind, "compactInterval")
        cure = f"Set {key} to more than {self.latest_batch + 1:,}, or back to its former value."
        lines = [
            f"The log of the file {self.kind} {self.name}: batch {self.latest_batch:,}, "
            f"{self.num_entries:,} entries. {self.finding(projection)}.",
            f"Interval: {self._interval()}.",
            f"Cleanup: {self._cleanup()}.",
        ]
        if self.unreadable is not None:
            lines.append(
                f"Spark with these settings can't read the log: it needs {self.unreadable}, which is "
                f"missing. {cure}"
            )
        if projection.fails_at is not None:
            failure = f"A stream with these settings fails at batch {projection.fails_at:,}"
            if len(projection.removals):
                num_files = format_count(len(projection.removals), "file")
                failure += f", after the cleanup has removed {num_files} that it needs"
            lines.append(f"{failure}: its compaction reads {projection.missing}, which is missing. {cure}")
        elif self.kind == Kind.SOURCE:
            lines.append("Growth: the log lists every file that the stream has read, without a retention.")
        else:
            num_live = projection.batches["num_live"][-1].as_py()
            lines.append(
                f"Growth: {self.num_entries:,} entries now, about {num_live:,} at batch "
                f"{self.latest_batch + _AHEAD:,}; each compaction writes all of them again, and each reader "
                "loads all of them into its driver's memory. The sink's option retention drops old entries; "
                "a Delta table needs no such log."
            )
        others = pc.sum(pc.not_equal(self.entries["action"], "add")).as_py() if self.kind == Kind.SINK else 0
        if others:
            verb = "entry isn't" if others == 1 else "entries aren't"
            lines.append(
                f'{others:,} {verb} "add": Spark before 3.1 skipped such files, later Spark reads them.'
            )
        return "\n".join(lines)

    def explain_retention(self, retention: str) -> str:
        """Say what the next compaction leaves out under the sink's option `retention`.

        The option drops the entries of files that are older, by the modification time in the entry
        (FileStreamSinkLog.shouldRetain, since Spark 3.1).

        Args:
            retention: The maximum age, such as "7 days".

        Raises:
            InvalidArgumentError: It is not a length of time, or the log is a source's.
        """
        compactions = self.project(self.compact_interval, retention).compactions.to_pylist()
        if not compactions:
            return f"No compaction is possible with retention {retention}: a stream fails before it."
        batch, kept = compactions[0]["batch"], compactions[0]["num_live"]
        total = self.project(self.compact_interval).compactions["num_live"][0].as_py()
        if kept == total:
            return f"With retention {retention}, the compaction at batch {batch:,} drops no entry."
        return (
            f"With retention {retention}, the compaction at batch {batch:,} drops {total - kept:,} of "
            f"{total:,} entries. Readers of the output then miss the rows of these files; the files stay."
        )

    def facts(self) -> dict[str, str]:
        """Return the log for people: name and value."""
        log_bytes = sum(file.size_bytes for file in self.listed)
        return {
            "log": f"of a file {self.kind}, {self.folder}",
            "batches": f"up to {self.latest_batch:,}; a compaction every {self.compact_interval} batches, "
            f"the next at {self.next_compaction_batch:,}",
            "entries": f"{self.num_entries:,}, of {self.pace.entry_bytes:,.0f} B; "
            f"{self.pace.entries_per_batch:,.1f} per batch",
            "a reader reads": " to ".join(dict.fromkeys((self.needed[0].name, self.needed[-1].name)))
            + f", {format_size(self.size_bytes)}",
            "on disk": f"{format_count(len(self.listed), 'file')}, {format_size(log_bytes)}",
            "cleanup": self._cleanup(),
        }

    def parts(self) -> Sequence[object]:
        """Return the facts and the figure."""
        return self.facts(), self.plot()

    def _interval(self) -> str:
        names = [file.name for file in self.listed if file.is_compaction][-2:]
        default, interval = self.policy.default_interval, self.compact_interval
        key = setting(self.kind, "compactInterval")
        if not names:
            return f"{interval}, from {key}, as there is no compaction yet"
        if len(names) == 1:
            return f"{interval}, which fits {names[0]} and {key}={default}"
        ignored = f"; {key}={default} has no effect while both files exist" if default != interval else ""
        return f"{interval}, the distance between {' and '.join(names)}{ignored}"

    def _cleanup(self) -> str:
        if not self.policy.deletion:
            return f"switched off by {setting(self.kind, 'deletion')}: no file is ever removed"
        delay = format_seconds(self.policy.cleanup_delay.total_seconds())
        kept = f"{self.policy.min_batches_to_retain} batches are kept, and files younger than {delay}"
        batches = self.files["removed_after"].drop_null().to_pylist()
        if not batches:
            return f"no file will be removed soon; {kept}"
        num_files = format_count(batches.count(min(batches)), "file")
        return f"after batch {min(batches):,}, {num_files} will be removed; {kept}"
