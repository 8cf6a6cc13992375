"""The log of a file sink or file source: its files, their future, and the plans to reduce it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from compaction_kit import plots
from compaction_kit.records import Record
from compaction_kit.sinklog.move import plan_move
from compaction_kit.sinklog.policy import Kind, Policy, setting
from compaction_kit.sinklog.projection import Projection, measure_memory, project
from compaction_kit.sinklog.retention import plan_retention
from compaction_kit.sinklog.state import SinkLogState
from compaction_kit.text import format_count, format_seconds, format_size

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
        >>> log.latest_batch, log.next_compaction_batch, len(log.plan_retention("7 days").dropped)
        (0, 9, 0)
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
        >>> log.plan_move("table").explain()
        'A Delta table at ...'
    """
    return SinkLog.read(path, spark, policy)


@dataclass(frozen=True, repr=False)
class SinkLog(SinkLogState, Record):
    """The log of a file sink or a file source when it was read; made by `sink_log`.

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

    Every entry counts as an existing file, whatever its `action`: since 3.1 Spark neither writes "delete"
    nor looks at it.
    """

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

    # Each method is defined in the module of the class that it returns.
    project = project
    measure_memory = measure_memory
    plan_retention = plan_retention
    plan_move = plan_move

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
        ending = f"{begin}; at batch {batch:,} it will be about {format_size(size)}"
        if projection.driver_bytes is not None:
            ending += f", and take {format_size(projection.driver_bytes)} of the driver's heap"
        return ending

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
                "loads all of them into its driver's memory. See plan_retention() and plan_move()."
            )
        others = pc.sum(pc.not_equal(self.entries["action"], "add")).as_py() if self.kind == Kind.SINK else 0
        if others:
            verb = "entry isn't" if others == 1 else "entries aren't"
            lines.append(
                f'{others:,} {verb} "add": Spark before 3.1 skipped such files, later Spark reads them.'
            )
        return "\n".join(lines)

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
