"""What becomes of a log: its next batches' files, what each leaves on disk, and where a stream fails."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.streaming.memory import DriverMemory
from compaction_kit.streaming.names import BatchFile, file_name
from compaction_kit.streaming.policy import Policy, files_to_compact, is_compaction

VERSION_BYTES = len("v1")
_TIME = pa.timestamp("ms", "UTC")
BATCHES = pa.schema(
    [
        ("batch", pa.int64()),
        ("time", _TIME),
        ("kind", pa.string()),
        ("num_entries", pa.int64()),
        ("size_bytes", pa.int64()),
        ("num_live", pa.int64()),
        ("num_files", pa.int64()),
        ("log_bytes", pa.int64()),
    ]
)
REMOVALS = pa.schema(
    [("batch", pa.int64()), ("name", pa.string()), ("file_batch", pa.int64()), ("size_bytes", pa.int64())]
)


@dataclass(frozen=True)
class Pace:
    """How a log grows: entries a batch, bytes an entry with its line's end, time between batches."""

    entries_per_batch: float
    entry_bytes: float
    between: timedelta


@dataclass(frozen=True)
class Projection:
    """What the next batches will make of a log, by Spark's rules and the pace so far.

    Attributes:
        batches: One row a batch to come: batch, time (UTC), kind ("batch", "compaction"),
            num_entries and size_bytes of its file, num_live (the entries that a reader has to
            take in then), num_files and log_bytes (of the log, after its cleanup).
        removals: One row a file that is removed: batch (after which), name, file_batch, size_bytes.
        interval: Every how many batches there is a compaction.
        fails_at: The batch whose compaction fails, as a file that it reads isn't there; else None.
        missing: That file.
        pace: How the log grows.
        memory: What a driver needs, if it was measured.
        start: The names of the files that were there.
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
        """The names of the log's files once a batch to come is done, sorted by batch.

        Raises:
            IndexError: It isn't one of the batches projected.
        """
        done = self.batches.filter(pc.less_equal(self.batches["batch"], batch))
        if not len(done) or done["batch"][-1].as_py() != batch:
            raise IndexError(f"batch {batch} is not projected")
        kinds = zip(done["batch"].to_pylist(), done["kind"].to_pylist(), strict=True)
        written = [file_name(one, kind == "compaction") for one, kind in kinds]
        gone = self.removals.filter(pc.less_equal(self.removals["batch"], batch))["name"].to_pylist()
        left = {*self.start, *written} - set(gone)
        return sorted(left, key=lambda name: int(name.split(".")[0]))

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


@dataclass(frozen=True)
class Start:
    """What a projection begins with.

    Attributes:
        files: The log's files.
        latest: The latest batch.
        modification_times: Of each live entry, in ms since 1970.
        live_bytes: The entries' bytes, each with its line's end.
    """

    files: tuple[BatchFile, ...]
    latest: int
    modification_times: np.ndarray
    live_bytes: int


def project(
    start: Start,
    policy: Policy,
    pace: Pace,
    num_batches: int,
    begin_ms: int,
    retention: timedelta | None = None,
) -> Projection:
    """Play the next batches of a stream that is started with these settings.

    Each batch writes its file, a compaction if it is its turn, and then removes what the policy
    lets go and is old enough (CompactibleFileStreamLog.add). The interval stays as it is at the
    start: a running stream takes it once.

    Args:
        start: What there is.
        policy: The settings.
        pace: How the log grows.
        num_batches: How many batches.
        begin_ms: When the first of them is, in ms since 1970.
        retention: What a sink's option of that name is set to; None for none.
    """
    interval = policy.interval_of(start.files)
    entries = _Entries(start, pace, retention)
    on_disk = {file.name: file for file in start.files}
    total = sum(file.size_bytes for file in start.files)
    rows, removals = [], []
    fails_at = missing = None
    step = pace.between // timedelta(milliseconds=1)
    for batch in range(start.latest + 1, start.latest + 1 + num_batches):
        time = begin_ms + (batch - start.latest - 1) * step
        compacting = is_compaction(batch, interval)
        added = entries.add(time)
        if compacting:
            missing = next((name for name in files_to_compact(batch, interval) if name not in on_disk), None)
            if missing is not None:
                fails_at = batch
                break
            entries.compact(time)
        count = entries.count if compacting else added
        size = VERSION_BYTES + round(entries.size_bytes if compacting else added * pace.entry_bytes)
        written = BatchFile(batch, compacting, size, time)
        on_disk[written.name] = written
        total += size
        for file in expired(on_disk.values(), policy, batch, interval, time):
            del on_disk[file.name]
            total -= file.size_bytes
            removals.append((batch, file.name, file.batch, file.size_bytes))
        kind = "compaction" if compacting else "batch"
        rows.append((batch, time, kind, count, size, entries.count, len(on_disk), total))
    return Projection(
        _table(rows, BATCHES),
        _table(removals, REMOVALS),
        interval,
        fails_at,
        missing,
        pace,
        start=tuple(file.name for file in start.files),
    )


def expired(
    files: Iterable[BatchFile], policy: Policy, batch: int, interval: int, time_ms: int
) -> list[BatchFile]:
    """The files that are removed when a batch is written at a time (in ms since 1970), the oldest first."""
    first_kept = policy.first_kept(batch, interval)
    if not first_kept:
        return []
    before = time_ms - policy.cleanup_delay / timedelta(milliseconds=1)
    old = [file for file in files if file.batch < first_kept and file.modification_time <= before]
    return sorted(old, key=lambda file: file.batch)


class _Entries:
    """The entries of a log while batches come and a retention drops them at compactions."""

    def __init__(self, start: Start, pace: Pace, retention: timedelta | None):
        self._old = np.sort(start.modification_times)
        self._old_bytes = start.live_bytes / max(len(self._old), 1)
        self._new: list[tuple[int, int]] = []
        self._num_new = 0
        self._pace = pace
        self._retention = retention
        self._carry = 0.0

    @property
    def count(self) -> int:
        return len(self._old) + self._num_new

    @property
    def size_bytes(self) -> float:
        return len(self._old) * self._old_bytes + self._num_new * self._pace.entry_bytes

    def add(self, time: int) -> int:
        """A batch's entries, made at a time; how many they are."""
        self._carry += self._pace.entries_per_batch
        # Half an entry a batch is one every other batch.
        count = int(self._carry + 1e-9)
        self._carry -= count
        self._new.append((time, count))
        self._num_new += count
        return count

    def compact(self, time: int) -> None:
        """Drop what is older than the retention (FileStreamSinkLog.shouldRetain)."""
        if self._retention is None:
            return
        oldest = time - self._retention // timedelta(milliseconds=1)
        self._old = self._old[np.searchsorted(self._old, oldest) :]
        self._new = [(made, count) for made, count in self._new if made >= oldest]
        self._num_new = sum(count for _, count in self._new)


def _table(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)
