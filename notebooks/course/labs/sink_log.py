"""Lesson 08's lab: which files a sink's log still has after a batch, and which of them a reader needs."""

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit.sinklog.policy import BatchFile, Policy, is_compaction, needed_files
from compaction_kit.text import format_count, format_list
from course import figures
from course.lab import Finding, Lab, Steps

NEEDED, KEPT, REMOVED = "a reader needs it", "kept, not needed", "removed"
_FILES = pa.schema({"name": pa.string(), "first": pa.int64(), "batch": pa.int64(), "state": pa.string()})
_NUM_BATCHES = 60
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class LogFiles:
    """The files that a stream has written to its sink's log, by the rules of CompactibleFileStreamLog.add.

    The stream began without a log, and a batch comes each minute.

    Attributes:
        policy: The log's settings.
        batch: The last batch that was written, from 0 on.
    """

    policy: Policy
    batch: int

    @cached_property
    def files(self) -> pa.Table:
        """One row per file that was written, in order.

        Columns: name (string), first and batch (int64, the first and the last batch whose entries it holds),
        state (string: "a reader needs it", "kept, not needed", "removed").
        """
        interval, minute = self.policy.default_interval, _MINUTE // timedelta(milliseconds=1)
        states: dict[BatchFile, str] = {}
        kept: dict[str, BatchFile] = {}
        for batch in range(self.batch + 1):
            file = BatchFile(batch, is_compaction(batch, interval), 0, batch * minute)
            states[file], kept[file.name] = KEPT, file
            for expired in self.policy.expired(kept.values(), batch, interval, batch * minute):
                states[kept.pop(expired.name)] = REMOVED
        states |= dict.fromkeys(needed_files(tuple(kept.values())), NEEDED)
        rows = [(one.name, 0 if one.is_compaction else one.batch, one.batch, states[one]) for one in states]
        return pa.Table.from_pylist([dict(zip(_FILES.names, row, strict=True)) for row in rows], _FILES)

    def names(self, *states: str) -> list[str]:
        """Return the names of the files in these states, in order."""
        return self.files.filter(pc.is_in(self.files["state"], pa.array(states)))["name"].to_pylist()

    def explain(self) -> str:
        """Say which files a reader needs, which may go, and what compaction has cost so far."""
        after = format_count(self.policy.min_batches_to_retain, "batch")
        rule = f"No compaction has {after} after it yet, so no file may go."
        if kept := self.policy.first_kept(self.batch, self.policy.default_interval):
            delay = self.policy.cleanup_delay // _MINUTE
            once = f" once they are {format_count(delay, 'minute')} old" if delay else ""
            last = f"{kept}.compact is the last compaction with {after} after it"
            rule = f"{last}, so files before it may go{once}."
        written = pc.sum(pc.subtract(self.files["batch"], self.files["first"])).as_py() + len(self.files)
        return (
            f"A reader needs {format_list(self.names(NEEDED), most=4)}. {rule}\nEach compaction copies all "
            f"entries before it: after {format_count(self.batch + 1, 'batch')}, the log has written entries "
            f"of {format_count(written, 'batch')}."
        )

    def plot(self) -> Figure:
        """Draw the batches whose entries each file holds, and which files are left."""
        kept, needed = len(self.names(NEEDED, KEPT)), len(self.names(NEEDED))
        written = format_count(len(self.files), "file")
        finding = f"After batch {self.batch}: {kept} of {written} left, a reader needs {needed}"
        num_batches = max(self.batch + 1, _NUM_BATCHES)
        compactions = num_batches // self.policy.default_interval
        return figures.log_files(self.files, num_batches, compactions, finding)


def sink_log(interval: int = 10, retained: int = 5, delay: int = 0, batch: int = 21) -> Lab:
    """Show which files of a sink's log are left after a batch, by the log's settings.

    Args:
        interval: The batches from one compaction to the next, 2 to 20.
        retained: The batches to keep (spark.sql.streaming.minBatchesToRetain).
        delay: The age in minutes at which a file may be removed; a batch comes each minute.
        batch: The last batch that was written, 0 to 59.
    """

    def find(interval: int, retained: int, delay: int, batch: int) -> Finding:
        log = LogFiles(Policy(interval, retained, timedelta(minutes=delay)), batch)
        code = f"""\
from datetime import timedelta

from course.labs.sink_log import LogFiles
from compaction_kit.sinklog import Policy

log = LogFiles(Policy({interval}, {retained}, timedelta(minutes={delay})), {batch})
print(log.explain())
log.plot()"""
        return Finding(log.explain(), log.plot(), code)

    batches = partial(format_count, noun="batch")
    return Lab(
        find,
        interval=Steps("Compaction interval", range(2, 21), interval, batches),
        retained=Steps("Batches to keep", (1, 2, 3, 5, 10, 15, 20, 30, 50, 100), retained, batches),
        delay=Steps("Cleanup delay", (0, 1, 2, 5, 10, 20, 30), delay, lambda chosen: f"{chosen} min"),
        batch=Steps("After batch", range(_NUM_BATCHES), batch),
    )
