"""Project a log: the files of its next batches, where a stream fails, what a driver needs to read it."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from numbers import Real
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.retention import parse_retention
from compaction_kit.sinklog.entries import write_entries
from compaction_kit.sinklog.policy import BatchFile, Kind, file_name, is_compaction, names_between
from compaction_kit.sinklog.state import SINK_FOLDER, VERSION_BYTES, Pace, SinkLogState
from compaction_kit.sql import uri
from compaction_kit.storage import LocalStore
from compaction_kit.times import millis

# A year: the next batches shall come before calendars end.
_LONGEST = 366 * 86_400
# Enough for what else goes on in the JVM not to show: some tens of KiB beside some MiB.
_NUM_ENTRIES = 50_000
_COPIES = 3
_COLLECTIONS = 2
_BATCHES = pa.schema(
    [
        ("batch", pa.int64()),
        ("time", pa.timestamp("ms", "UTC")),
        ("kind", pa.string()),
        ("num_entries", pa.int64()),
        ("size_bytes", pa.int64()),
        ("num_live", pa.int64()),
        ("num_files", pa.int64()),
        ("log_bytes", pa.int64()),
    ]
)
_REMOVALS = pa.schema(
    [("batch", pa.int64()), ("name", pa.string()), ("file_batch", pa.int64()), ("size_bytes", pa.int64())]
)


@dataclass(frozen=True)
class DriverMemory:
    """Bytes that the driver's heap holds for each entry of a log, as long as it uses the log.

    For a sink they are the file index of a DataFrame that reads the output; for a source, the entries that a
    stream takes in when it starts. What it takes to get there comes on top.

    Attributes:
        entry_bytes: Bytes for each entry.
        num_entries: How many entries it was measured with.
        line_bytes: How long their lines are on average; longer paths take more.
        java: The Java that it was measured on.
    """

    entry_bytes: float
    num_entries: int
    line_bytes: float
    java: str

    def bytes_for(self, num_entries: int) -> int:
        """Return the bytes that so many entries take."""
        return round(self.entry_bytes * num_entries)

    def __str__(self) -> str:
        return (
            f"{self.entry_bytes:,.0f} bytes of the driver's heap for an entry (measured: heap after garbage "
            f"collection with {self.num_entries:,} more of them, less without, on Java {self.java})"
        )


@dataclass(frozen=True)
class Projection:
    """What the next batches will make of a log, by Spark's rules and the pace so far.

    Attributes:
        batches: One row a batch to come: batch (int64), time (timestamp, UTC), kind (string, "batch" or
            "compaction"), num_entries and size_bytes of its file (int64), num_live (int64, the entries that a
            reader has to take in then), num_files and log_bytes (int64, of the log, after its cleanup).
        removals: One row a file that is removed: batch (int64, after which), name (string), file_batch and
            size_bytes (int64).
        interval: Every how many batches there is a compaction.
        fails_at: The batch whose compaction fails, as a file that it reads is missing; else None.
        missing: That file.
        pace: How the log grows.
        memory: What a driver needs, if it was measured.
        start: The names of the files at the start.
    """

    batches: pa.Table
    removals: pa.Table
    interval: int
    fails_at: int | None
    missing: str | None
    pace: Pace
    memory: DriverMemory | None = None
    start: tuple[str, ...] = field(default=(), repr=False)

    def files_after(self, batch: int) -> list[str]:
        """Name the log's files once a batch to come is done, sorted by batch.

        Raises:
            IndexError: It isn't one of the batches projected.
        """
        if batch not in self.batches["batch"].to_pylist():
            raise IndexError(f"batch {batch} is not projected")
        done = self.batches.filter(pc.less_equal(self.batches["batch"], batch)).to_pylist()
        written = (file_name(row["batch"], row["kind"] == "compaction") for row in done)
        gone = self.removals.filter(pc.less_equal(self.removals["batch"], batch))["name"].to_pylist()
        return sorted({*self.start, *written}.difference(gone), key=lambda name: int(name.split(".")[0]))

    @property
    def compactions(self) -> pa.Table:
        """The rows of `batches` that are compactions."""
        return self.batches.filter(pc.equal(self.batches["kind"], "compaction"))

    @property
    def driver_bytes(self) -> int | None:
        """Bytes that a reader's driver holds at the last batch; None if memory wasn't measured."""
        if self.memory is None or not len(self.batches):
            return None
        return self.memory.bytes_for(self.batches["num_live"][-1].as_py())


def project(
    log: SinkLogState,
    num_batches: int = 100,
    retention: str | None = None,
    seconds_between: float | None = None,
    memory: DriverMemory | None = None,
) -> Projection:
    """Project what the next batches make of the log: its size, removed files, a failure.

    As a stream would that starts now with the policy's settings, at the pace of the batches whose files are
    there. Each batch writes its file, a compaction if it is its turn, and then removes the files that the
    policy doesn't keep and that are old enough (CompactibleFileStreamLog.add). The interval stays as it is
    at the start: a running stream takes it once.

    Args:
        log: The log.
        num_batches: How many batches to come.
        retention: What the sink's option of that name would be set to: "7 days". None for none.
        seconds_between: Time from batch to batch. None: the median so far.
        memory: What `measure_memory` returned, to say what a driver will need.

    Raises:
        InvalidArgumentError: An argument can't be used, or is not for a source.
    """
    if isinstance(num_batches, bool) or not isinstance(num_batches, int) or num_batches < 0:
        raise InvalidArgumentError(f"num_batches={num_batches!r} is not a number of batches: give 0 or more.")
    pace, length = log.pace, None
    if retention is not None:
        log.check_sink(f'retention="{retention}"')
        length = parse_retention(retention)
    if seconds_between is not None:
        if not isinstance(seconds_between, Real) or not 0 <= seconds_between < _LONGEST:
            raise InvalidArgumentError(
                f"seconds_between={seconds_between!r} is no time between batches: give seconds."
            )
        pace = replace(pace, between=timedelta(seconds=seconds_between))
    interval, first, begin = log.compact_interval, log.latest_batch + 1, millis(log.read_at)
    step = pace.between // timedelta(milliseconds=1)
    column = "modification_time" if log.kind == Kind.SINK else "timestamp"
    # The live entries: times of those at the start, and the first of the new batches whose are live.
    old, first_live = np.sort(log.entries[column].cast(pa.int64()).to_numpy()), 0
    on_disk = {file.name: file for file in log.listed}
    log_bytes = sum(file.size_bytes for file in log.listed)
    rows, removals, fails_at, missing = [], [], None, None
    for number in range(num_batches):
        batch, time = first + number, begin + number * step
        compacts = is_compaction(batch, interval)
        if compacts:
            # CompactibleFileStreamLog.getValidBatchesBeforeCompactionBatch
            reads = names_between(batch - interval, batch, interval)
            missing = next((name for name in reads if name not in on_disk), None)
            if missing is not None:
                fails_at = batch
                break
        if compacts and length is not None:
            # FileStreamSinkLog.shouldRetain
            oldest = time - length // timedelta(milliseconds=1)
            old = old[np.searchsorted(old, oldest) :]
            first_live = max(-((begin - oldest) // step), 0) if step else 0
        num_live = len(old) + pace.written(number + 1) - pace.written(first_live)
        count = num_live if compacts else pace.written(number + 1) - pace.written(number)
        file = BatchFile(batch, compacts, VERSION_BYTES + round(count * pace.entry_bytes), time)
        on_disk[file.name] = file
        log_bytes += file.size_bytes
        for gone in log.policy.expired(on_disk.values(), batch, interval, time):
            del on_disk[gone.name]
            log_bytes -= gone.size_bytes
            removals.append((batch, gone.name, gone.batch, gone.size_bytes))
        kind = "compaction" if compacts else "batch"
        rows.append((batch, time, kind, count, file.size_bytes, num_live, len(on_disk), log_bytes))
    return Projection(
        _table(rows, _BATCHES),
        _table(removals, _REMOVALS),
        interval,
        fails_at,
        missing,
        pace,
        memory,
        tuple(file.name for file in log.listed),
    )


def measure_memory(log: SinkLogState) -> DriverMemory:
    """Measure what Spark's driver holds for each entry of such a log; it takes some seconds.

    Spark reads a log of 50,000 entries like these from a temporary folder, again and again; what counts is
    by how much the JVM's heap has grown each time, after garbage collection.

    Raises:
        InvalidArgumentError: The log has no entry to go by.
    """
    if not log.num_entries:
        raise InvalidArgumentError(f"The log of {log.name} has no entry, so that there is none to measure.")
    many = log.entries.take(np.resize(np.arange(log.num_entries), _NUM_ENTRIES))
    # Names differ in some places, as they do from batch to batch.
    paths = [f"{path[:-8]}{number:08d}" for number, path in enumerate(many["path"].to_pylist())]
    many = many.set_column(0, "path", pa.array(paths, pa.string()))
    with tempfile.TemporaryDirectory(prefix="compaction-kit-") as scratch:
        store, name = LocalStore(f"{scratch}/{SINK_FOLDER}"), file_name(0, is_compaction=True)
        store.make_folder("")
        line_bytes = write_entries(store, name, log.kind, many) / _NUM_ENTRIES
        folder = Path(store.root)
        held = held_bytes(log.spark, lambda: _read_by_spark(log.spark, log.kind, folder))
    java = str(_java(log.spark).lang.System.getProperty("java.version"))
    return DriverMemory(held / _NUM_ENTRIES, _NUM_ENTRIES, line_bytes, java)


def held_bytes(spark: SparkSession, hold: Callable[[], Any]) -> float:
    """Measure by how much the heap grows with each further object that `hold` returns."""
    objects, used = [], []
    for _ in range(_COPIES + 1):
        objects.append(hold())
        used.append(_used_bytes(spark))
    for held in objects:
        spark.sparkContext._gateway.detach(held)  # type: ignore[union-attr]
    # Not by how much it shrinks again: Py4J's threads let go of a value later. Not the first object's,
    # which brings classes along. And the median, as what was left over before may go meanwhile.
    return median(after - before for before, after in pairwise(used))


def _table(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _read_by_spark(spark: SparkSession, kind: Kind, folder: Path) -> Any:
    if kind == Kind.SINK:
        return spark.read.schema("value STRING").text(uri(folder.parent))._jdf
    streaming = spark.sparkContext._jvm.org.apache.spark.sql.execution.streaming  # type: ignore[union-attr]
    # Up to Spark 4.0 there was no package of that name.
    runtime = streaming.runtime if spark.version >= "4.1" else streaming
    return runtime.FileStreamSourceLog(1, spark._jsparkSession, uri(folder)).allFiles()


def _used_bytes(spark: SparkSession) -> int:
    java = _java(spark)
    for _ in range(_COLLECTIONS):
        java.lang.System.gc()
    runtime = java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _java(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm.java  # type: ignore[union-attr]
