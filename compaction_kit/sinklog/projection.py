"""Project a log: the files of its next batches, if the stream has the files that it needs."""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.sinklog.policy import BatchFile, Policy, is_compaction

VERSION_BYTES = len("v1")
_INT, _STR, _TIME = pa.int64(), pa.string(), pa.timestamp("ms", "UTC")
_COUNTS = ("num_entries", "size_bytes", "num_live", "num_files", "log_bytes")
_BATCHES = pa.schema({"batch": _INT, "time": _TIME, "kind": _STR} | dict.fromkeys(_COUNTS, _INT))
_REMOVALS = pa.schema({"batch": _INT, "name": _STR, "file_batch": _INT, "size_bytes": _INT})


@dataclass(frozen=True)
class Pace:
    """How a log grows: entries per batch, bytes per entry with its newline, time between batches."""

    entries_per_batch: float
    entry_bytes: float
    between: timedelta

    def written(self, num_batches: int) -> int:
        """Return how many entries a number of batches writes; 0.5 per batch means one in two batches."""
        return int(self.entries_per_batch * num_batches + 1e-9)


@dataclass(frozen=True)
class Projection:
    """The next batches of a log; made by `SinkLog.project`.

    Attributes:
        batches: One row per batch to come: batch, time, kind ("batch" or "compaction"), num_entries and
            size_bytes of its file, num_live (the entries that a reader has to load then), num_files and
            log_bytes of the log after its cleanup.
        removals: One row per removed file: batch (after which it is removed), name, file_batch, size_bytes.
    """

    batches: pa.Table
    removals: pa.Table

    @property
    def compactions(self) -> pa.Table:
        """The rows of `batches` that are compactions."""
        return self.batches.filter(pc.equal(self.batches["kind"], "compaction"))


def project(
    files: tuple[BatchFile, ...],
    entry_times: np.ndarray,
    begin: int,
    policy: Policy,
    pace: Pace,
    num_batches: int,
    retention: timedelta | None,
) -> Projection:
    """Project the next batches of a log, the first at the time `begin`; see `SinkLog.project`.

    Each batch writes its file, or a compaction if one is due, and then removes expired files
    (CompactibleFileStreamLog.add). Times are in ms since 1970.
    """
    interval, first = policy.interval_of(files), files[-1].batch + 1
    step = pace.between // timedelta(milliseconds=1)
    # The live entries: the times of the old ones, and the number of the first new batch with live entries.
    old, first_live = np.sort(entry_times), 0
    on_disk = {file.name: file for file in files}
    log_bytes = sum(file.size_bytes for file in files)
    rows, removals = [], []
    for number in range(num_batches):
        batch, time = first + number, begin + number * step
        compacts = is_compaction(batch, interval)
        if compacts and retention is not None:
            # FileStreamSinkLog.shouldRetain
            oldest = time - retention // timedelta(milliseconds=1)
            old = old[np.searchsorted(old, oldest) :]
            first_live = max(-((begin - oldest) // step), 0) if step else 0
        num_live = len(old) + pace.written(number + 1) - pace.written(first_live)
        count = num_live if compacts else pace.written(number + 1) - pace.written(number)
        file = BatchFile(batch, compacts, VERSION_BYTES + round(count * pace.entry_bytes), time)
        on_disk[file.name] = file
        log_bytes += file.size_bytes
        for expired in policy.expired(on_disk.values(), batch, interval, time):
            del on_disk[expired.name]
            log_bytes -= expired.size_bytes
            removal = batch, expired.name, expired.batch, expired.size_bytes
            removals.append(dict(zip(_REMOVALS.names, removal, strict=True)))
        row = batch, time, file.kind, count, file.size_bytes, num_live, len(on_disk), log_bytes
        rows.append(dict(zip(_BATCHES.names, row, strict=True)))
    return Projection(pa.Table.from_pylist(rows, _BATCHES), pa.Table.from_pylist(removals, _REMOVALS))
