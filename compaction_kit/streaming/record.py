"""The front door to the log of a file sink or a file source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from numbers import Real
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit import plots
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.retention import parse_retention
from compaction_kit.session import active_spark, get_spark
from compaction_kit.storage import local_path
from compaction_kit.streaming import words
from compaction_kit.streaming.entries import count_entries, read_entries
from compaction_kit.streaming.growth import VERSION_BYTES, Pace, Projection, Start, project
from compaction_kit.streaming.memory import DriverMemory, measure_memory
from compaction_kit.streaming.names import BatchFile, Kind, find_log, kind_of, list_files
from compaction_kit.streaming.policy import Policy, files_to_read, needed_files, next_compaction
from compaction_kit.text import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from compaction_kit.streaming.move import MovePlan
    from compaction_kit.streaming.retain import RetentionPlan

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
_SAMPLE = 1_000
# A year: the next batches shall come before calendars end.
_LONGEST = 366 * 86_400
# Batches that are looked ahead for what the cleanup removes.
_MOST_AHEAD = 10_000


def sink_log(path: str | Path, spark: SparkSession | None = None, policy: Policy | None = None) -> "SinkLog":
    """Read the log of a file sink or of a stream's file source, as it is now.

    Args:
        path: The sink's output folder or the `_spark_metadata` in it; for a source, the stream's
            checkpoint (its first source) or a folder such as `sources/0` in it.
        spark: The session whose settings say when the log is compacted and cleaned up; without
            one, the one that is running, if any; else Spark's defaults count. Reading needs none.
        policy: Those settings, instead of the session's.

    Raises:
        TableNotFoundError: There is nothing at the path.
        NotASinkLogError: What is there is no such log, or has no batch yet.
        CorruptLogError: A file that a reader needs is missing or damaged.
        InvalidArgumentError: A setting of the session can't be used.
        UnsupportedTableError: It isn't on a local disk.
    """
    folder = find_log(local_path(str(path))).resolve()
    listed = list_files(folder)
    kind = kind_of(folder, listed)
    session = spark or active_spark()
    if policy is None:
        policy = Policy() if session is None else Policy.of_session(kind, session.conf.get)
    needed = needed_files(listed)
    parts = [read_entries(folder / file.name, kind) for file in needed]
    read_at = datetime.now(UTC)
    return SinkLog(str(path), folder, kind, listed, needed, pa.concat_tables(parts), policy, read_at, spark)


@dataclass(frozen=True)
class SinkLog:
    """A log of a file sink or a file source as it was when it was read; made by `sink_log`.

    Attributes:
        name: The path as it was given.
        folder: The folder that the log is in.
        kind: "sink" or "source".
        listed: Its files, the oldest batch first.
        needed: Those of them that a reader needs: the latest compaction and the batches after it.
        entries: One row an entry that a reader sees. Of a sink: path (a URI, as the log writes
            it), size_bytes, is_dir, modification_time (UTC), block_replication, block_size,
            action. Of a source: path, timestamp (UTC, the file's), batch_id.
        policy: When it is compacted and cleaned up.
        read_at: When it was read.

    Spark takes every entry for a file that is there, whatever its `action`: since 3.1 nothing
    writes or looks at "delete" any more.
    """

    name: str
    folder: Path
    kind: Kind
    listed: tuple[BatchFile, ...]
    needed: tuple[BatchFile, ...]
    entries: pa.Table
    policy: Policy
    read_at: datetime
    session: SparkSession | None = None

    @property
    def latest_batch(self) -> int:
        """The latest batch."""
        return self.needed[-1].batch

    @property
    def num_entries(self) -> int:
        """How many entries a reader sees."""
        return len(self.entries)

    @property
    def size_bytes(self) -> int:
        """Bytes that a reader reads."""
        return sum(file.size_bytes for file in self.needed)

    @property
    def compact_interval(self) -> int:
        """Every how many batches a stream that starts now compacts; see `Policy.interval_of`."""
        return self.policy.interval_of(self.listed)

    @property
    def next_compaction_batch(self) -> int:
        """The next batch whose file is a compaction, if a stream starts now."""
        return next_compaction(self.latest_batch, self.compact_interval)

    @property
    def unreadable(self) -> str | None:
        """The file that Spark, set like this, looks for to read the log and that isn't there; else None.

        Spark goes by the interval alone. Set shorter than a log without a compaction file is
        long, it looks for compactions that nobody made.
        """
        names = {file.name for file in self.listed}
        wanted = files_to_read(self.latest_batch, self.compact_interval)
        return next((name for name in wanted if name not in names), None)

    @cached_property
    def files(self) -> pa.Table:
        """One row a file of the log, the oldest batch first.

        Returns:
            batch, name, kind ("batch": the batch's own entries; "compaction": all up to it),
            size_bytes, modification_time (UTC), num_entries (null if the file is gone since),
            needed (whether a reader needs it), removed_after (the batch after which the cleanup
            removes it, if batches come as they did; null if not that soon).
        """
        kept = min(self.policy.min_batches_to_retain + 2 * self.compact_interval, _MOST_AHEAD)
        removals = self.project(kept).removals
        removed = dict(zip(removals["name"].to_pylist(), removals["batch"].to_pylist(), strict=True))
        rows = [
            {
                "batch": file.batch,
                "name": file.name,
                "kind": "compaction" if file.is_compaction else "batch",
                "size_bytes": file.size_bytes,
                "modification_time": file.modification_time,
                "num_entries": self._counts[file.name],
                "needed": file in self.needed,
                "removed_after": removed.get(file.name),
            }
            for file in self.listed
        ]
        return pa.Table.from_pylist(rows, _FILES)

    @property
    def compactions(self) -> pa.Table:
        """The rows of `files` that are compactions: how the compaction file has grown."""
        return self.files.filter(pc.equal(self.files["kind"], "compaction"))

    def project(
        self,
        num_batches: int = 100,
        retention: str | None = None,
        seconds_between: float | None = None,
        memory: DriverMemory | None = None,
    ) -> Projection:
        """What the next batches make of the log: its size, what the cleanup removes, where it fails.

        As a stream would that starts now with the policy's settings, at the pace of the batches
        whose files are there.

        Args:
            num_batches: How many batches to come.
            retention: What the sink's option of that name would be set to: "7 days". None for none.
            seconds_between: Time from batch to batch. None: the median so far.
            memory: What `measure_memory` returned, to say what a driver will need.

        Raises:
            InvalidArgumentError: An argument can't be used, or is not for a source.
        """
        if isinstance(num_batches, bool) or not isinstance(num_batches, int) or num_batches < 0:
            raise InvalidArgumentError(
                f"num_batches={num_batches!r} is not a number of batches: give 0 or more."
            )
        if retention is not None and self.kind == Kind.SOURCE:
            raise InvalidArgumentError(
                f'retention="{retention}" is for sinks: Spark keeps every entry of a source\'s log.'
            )
        pace = self.pace
        if seconds_between is not None:
            if not isinstance(seconds_between, Real) or not 0 <= seconds_between < _LONGEST:
                raise InvalidArgumentError(
                    f"seconds_between={seconds_between!r} is no time between batches: give seconds."
                )
            pace = replace(pace, between=timedelta(seconds=seconds_between))
        return replace(
            project(
                Start(self.listed, self.latest_batch, self._entry_times, self._live_bytes),
                self.policy,
                pace,
                num_batches,
                int(self.read_at.timestamp() * 1000),
                None if retention is None else parse_retention(retention),
            ),
            memory=memory,
        )

    @cached_property
    def pace(self) -> Pace:
        """How the log has grown: by the batches' own files, as far as they are there."""
        own = [file for file in self.listed if not file.is_compaction and self._counts[file.name] is not None]
        per_batch = (
            sum(self._counts[file.name] or 0 for file in own) / len(own)
            if own
            else self.num_entries / (self.latest_batch + 1)
        )
        gaps = [b.modification_time - a.modification_time for a, b in pairwise(self.listed)]
        between = timedelta(milliseconds=max(median(gaps), 0)) if gaps else timedelta()
        return Pace(per_batch, self._live_bytes / max(self.num_entries, 1), between)

    def measure_memory(self) -> DriverMemory:
        """Measure what Spark's driver holds for each entry of such a log; it takes some seconds.

        Spark reads a log of 50,000 entries like these from a temporary folder, again and again;
        what counts is by how much the JVM's heap has grown each time, after garbage collection.

        Raises:
            InvalidArgumentError: The log has no entry to go by.
        """
        for file in reversed(self.needed):
            lines = (self.folder / file.name).read_bytes().splitlines()[1 : _SAMPLE + 1]
            if lines:
                return measure_memory(self.session or get_spark(), self.kind, lines)
        raise InvalidArgumentError(f"The log of {self.name} has no entry, so that there is none to measure.")

    def plan_retention(self, retention: str, at: datetime | str | None = None) -> "RetentionPlan":
        """What the sink's option `retention` would drop at the next compaction; see `RetentionPlan`.

        Args:
            retention: How old an entry may become: "7 days".
            at: When that compaction is; None for now. Without a zone it is in the session's.

        Raises:
            InvalidArgumentError: It is no length of time, or the log is a source's.
        """
        from compaction_kit.streaming.retain import plan_retention

        return plan_retention(self, retention, at)

    def plan_move(
        self,
        to: str | Path,
        partition_by: str | Sequence[str] | None = None,
        schema: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> "MovePlan":
        """Plan to copy the sink's output to a new Delta table; see `MovePlan`.

        Args:
            to: The table's folder; there must be nothing yet.
            partition_by: Its partition columns. None: as the output is partitioned.
            schema: The output's schema in SQL, such as "id BIGINT, name STRING". None: as Spark
                infers it.
            options: Options to read the output with, such as {"header": "true"} for CSV.

        Raises:
            InvalidArgumentError: An argument can't be used, or the log is a source's.
            EmptyTableError: The log lists no file.
            CorruptLogError: A file that it lists is gone, Spark can't read the log, or one of its
                files differs from its checksums.
            UnsupportedTableError: The files aren't Parquet, JSON or CSV.
        """
        from compaction_kit.streaming.move import plan_move

        return plan_move(self, local_path(str(to)), partition_by, schema, options or {})

    def plot(self, num_batches: int = 100, retention: str | None = None) -> "Figure":
        """Draw the size of the compaction file, what it will be, and what the cleanup removes.

        Args:
            num_batches: How many batches to come.
            retention: To be drawn beside, as the sink's option of that name: "7 days".
        """
        projection = self.project(num_batches)
        with_retention = None if retention is None else self.project(num_batches, retention).batches
        return plots.sink_log(
            self.files,
            projection.batches,
            projection.removals,
            words.finding(self, projection),
            projection.fails_at,
            with_retention,
        )

    def explain(self) -> str:
        """What the log is, what becomes of it, and what to beware of, in sentences."""
        return words.explain(self)

    def facts(self) -> dict[str, str]:
        """The log for people: name and value."""
        return words.facts(self)

    def _repr_html_(self) -> str:
        return shown(self.facts(), self.plot())

    def __repr__(self) -> str:
        return f'SinkLog("{self.name}", {self.kind}, batch {self.latest_batch}, {self.num_entries:,} entries)'

    @cached_property
    def _counts(self) -> dict[str, int | None]:
        return {file.name: count_entries(self.folder / file.name) for file in self.listed}

    @property
    def _entry_times(self) -> np.ndarray:
        column = "modification_time" if self.kind == Kind.SINK else "timestamp"
        times: np.ndarray = self.entries[column].cast(pa.int64()).to_numpy()
        return times

    @property
    def _live_bytes(self) -> int:
        return max(self.size_bytes - VERSION_BYTES * len(self.needed), 0)
