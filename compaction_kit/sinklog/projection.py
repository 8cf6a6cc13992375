"""Project a log: the files of its next batches, the batch at which a stream fails, the driver's memory."""

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

from compaction_kit.compat import source_log_class
from compaction_kit.errors import InvalidArgumentError, SessionError
from compaction_kit.retention import parse_retention
from compaction_kit.sinklog.entries import write_entries
from compaction_kit.sinklog.policy import BatchFile, Kind, file_name, is_compaction, names_between
from compaction_kit.sinklog.state import SINK_FOLDER, VERSION_BYTES, Pace, SinkLogState
from compaction_kit.sql import uri
from compaction_kit.storage import LocalStore
from compaction_kit.times import millis

# A year, so that the times of the next batches are still valid datetimes.
_LONGEST = 366 * 86_400
# Some MiB of entries, beside which other changes of the heap, some tens of KiB, don't matter.
_NUM_ENTRIES = 50_000
_COPIES = 3
_TRIES = 3
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
    """The bytes of the driver's heap that each entry of a log takes, as long as the log is in use.

    For a sink they hold the file index of a DataFrame that reads the output; for a source, the entries that a
    stream reads when it starts. Reading the log takes more memory for a short time.

    Attributes:
        entry_bytes: The bytes per entry.
        num_entries: The number of entries in the measurement.
        line_bytes: The average length of their lines; entries with longer paths take more memory.
        java: The version of Java in the measurement.
    """

    entry_bytes: float
    num_entries: int
    line_bytes: float
    java: str

    def bytes_for(self, num_entries: int) -> int:
        """Return the bytes that a number of entries takes."""
        return round(self.entry_bytes * num_entries)

    def __str__(self) -> str:
        return (
            f"{self.entry_bytes:,.0f} bytes of the driver's heap per entry (measured: growth after garbage "
            f"collection with {self.num_entries:,} more entries, on Java {self.java})"
        )


@dataclass(frozen=True)
class Projection:
    """The next batches of a log, by Spark's rules and the pace so far.

    Attributes:
        batches: One row per batch to come: batch, time, kind ("batch" or "compaction"), num_entries and
            size_bytes of its file, num_live (the entries that a reader has to load then), num_files and
            log_bytes of the log after its cleanup.
        removals: One row per removed file: batch (after which it is removed), name, file_batch, size_bytes.
        interval: The number of batches from one compaction to the next.
        fails_at: The batch whose compaction fails, as a file that it reads is missing; else None.
        missing: That file.
        pace: How the log grows.
        memory: The memory that a driver needs, if it was measured.
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
        """Return the names of the log's files after a projected batch, sorted by batch.

        Raises:
            IndexError: The batch is not projected.
        """
        if batch not in self.batches["batch"].to_pylist():
            raise IndexError(f"batch {batch} is not projected")
        done = self.batches.filter(pc.less_equal(self.batches["batch"], batch)).to_pylist()
        written = (file_name(row["batch"], row["kind"] == "compaction") for row in done)
        removed = self.removals.filter(pc.less_equal(self.removals["batch"], batch))["name"].to_pylist()
        return sorted({*self.start, *written}.difference(removed), key=lambda name: int(name.split(".")[0]))

    @property
    def compactions(self) -> pa.Table:
        """The rows of `batches` that are compactions."""
        return self.batches.filter(pc.equal(self.batches["kind"], "compaction"))

    @property
    def driver_bytes(self) -> int | None:
        """The bytes in a reader's driver at the last batch; None if memory wasn't measured."""
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
    """Project the next batches of the log: its size, removed files, a failure; see `sink_log` for an example.

    The stream is assumed to start now with the policy's settings, at the pace of the batches whose files
    exist. Each batch writes its file, or a compaction if one is due, and then removes the files that the
    policy doesn't keep and that are old enough (CompactibleFileStreamLog.add). The interval doesn't change,
    as a stream reads it only at its start.

    Args:
        log: The log.
        num_batches: The number of batches to project.
        retention: A value of the sink's option `retention`, such as "7 days"; None for no retention.
        seconds_between: The seconds from one batch to the next; None for the median so far.
        memory: The result of `measure_memory`, to project the memory that a driver needs.

    Raises:
        InvalidArgumentError: An argument can't be used, or `retention` was given for a source.
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
                f"seconds_between={seconds_between!r} is not a time between batches: give seconds."
            )
        pace = replace(pace, between=timedelta(seconds=seconds_between))
    interval, first, begin = log.compact_interval, log.latest_batch + 1, millis(log.read_at)
    step = pace.between // timedelta(milliseconds=1)
    column = "modification_time" if log.kind == Kind.SINK else "timestamp"
    # The live entries: the times of the old ones, and the number of the first new batch with live entries.
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
        for expired in log.policy.expired(on_disk.values(), batch, interval, time):
            del on_disk[expired.name]
            log_bytes -= expired.size_bytes
            removals.append((batch, expired.name, expired.batch, expired.size_bytes))
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
    """Measure the memory of Spark's driver per entry of the log; this takes some seconds.

    Spark reads a log of 50,000 entries like these from a temporary folder several times. The result is how
    much the JVM's heap grows each time, after garbage collection.

    Raises:
        InvalidArgumentError: The log has no entry.
        SessionError: Other work in the session frees memory meanwhile.
    """
    if not log.num_entries:
        raise InvalidArgumentError(f"The log of {log.name} has no entry, so there is nothing to measure.")
    many = log.entries.take(np.resize(np.arange(log.num_entries), _NUM_ENTRIES))
    # Make the names of the repeated entries differ, as real names do.
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
    """Measure how much the heap grows with each object that `hold` returns.

    Raises:
        SessionError: It shrinks, for other work in the session has ended meanwhile.
    """
    for _ in range(_TRIES):
        grown = _growth(spark, hold)
        if grown > 0:
            return grown
    raise SessionError(
        "The memory can't be measured, for the heap shrinks meanwhile: try again when the session is idle."
    )


def _growth(spark: SparkSession, hold: Callable[[], Any]) -> float:
    objects, used = [], []
    for _ in range(_COPIES + 1):
        objects.append(hold())
        used.append(_used_bytes(spark))
    for held in objects:
        spark.sparkContext._gateway.detach(held)  # type: ignore[union-attr]
    # Growth, not shrinkage: Py4J's threads release a value later. The first object doesn't count, as it
    # loads classes. The median, as older garbage may be collected in between.
    return median(after - before for before, after in pairwise(used))


def _table(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _read_by_spark(spark: SparkSession, kind: Kind, folder: Path) -> Any:
    if kind == Kind.SINK:
        return spark.read.schema("value STRING").text(uri(folder.parent))._jdf
    return source_log_class(spark)(1, spark._jsparkSession, uri(folder)).allFiles()


def _used_bytes(spark: SparkSession) -> int:
    java = _java(spark)
    for _ in range(_COLLECTIONS):
        java.lang.System.gc()
    runtime = java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _java(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm.java  # type: ignore[union-attr]
