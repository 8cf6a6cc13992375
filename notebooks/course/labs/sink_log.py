"""Lesson 08's lab: which files a sink's log still has after a batch, and which of them a reader needs."""

from datetime import timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.sinklog.policy import BatchFile, Policy, is_compaction, needed_files
from compaction_kit.text import format_count, format_list
from course import figures
from course.lab import Finding, Lab, Steps

NEEDED, KEPT, REMOVED = figures.LOG_STATES
_FILES = pa.schema({"name": pa.string(), "first": pa.int64(), "batch": pa.int64(), "state": pa.string()})
_MINUTE = timedelta(minutes=1)


def log_files(policy: Policy, last: int) -> pa.Table:
    """Return the files that a stream has written to its sink's log, by CompactibleFileStreamLog.add.

    Args:
        policy: The log's settings. The stream began without a log, and a batch comes each minute.
        last: The last batch that was written, from 0 on.

    Returns:
        One row per file that was written, in order: name (string), first and batch (int64, the first and the
        last batch whose entries it holds), state (string, one of `figures.LOG_STATES`).
    """
    interval, minute = policy.default_interval, _MINUTE // timedelta(milliseconds=1)
    states: dict[BatchFile, str] = {}
    kept: dict[str, BatchFile] = {}
    for batch in range(last + 1):
        file = BatchFile(batch, is_compaction(batch, interval), 0, batch * minute)
        states[file], kept[file.name] = KEPT, file
        for expired in policy.expired(kept.values(), batch, interval, batch * minute):
            states[kept.pop(expired.name)] = REMOVED
    states |= dict.fromkeys(needed_files(tuple(kept.values())), NEEDED)
    rows = [(one.name, 0 if one.is_compaction else one.batch, one.batch, states[one]) for one in states]
    return pa.Table.from_pylist([dict(zip(_FILES.names, row, strict=True)) for row in rows], _FILES)


def explain(policy: Policy, files: pa.Table) -> str:
    """Say which of the files a reader needs, which may go, and what compaction has cost so far."""
    after = format_count(policy.min_batches_to_retain, "batch")
    rule = f"No compaction has {after} after it yet, so no file may go."
    if kept := policy.first_kept(len(files) - 1, policy.default_interval):
        delay = policy.cleanup_delay // _MINUTE
        once = f" once they are {format_count(delay, 'minute')} old" if delay else ""
        last = f"{kept}.compact is the last compaction with {after} after it"
        rule = f"{last}, so files before it may go{once}."
    needed = files.filter(pc.field("state") == NEEDED)["name"].to_pylist()
    written = pc.sum(pc.subtract(files["batch"], files["first"])).as_py() + len(files)
    return (
        f"A reader needs {format_list(needed, most=4)}. {rule}\nEach compaction copies all entries before "
        f"it: after {format_count(len(files), 'batch')}, the log has written entries of "
        f"{format_count(written, 'batch')}."
    )


def sink_log(interval: int = 10, retained: int = 5, delay: int = 0, batch: int = 21) -> Lab:
    """Show which files of a sink's log are left after a batch, by the log's settings.

    Args:
        interval: The batches from one compaction to the next, 2 to 20.
        retained: The batches to keep (spark.sql.streaming.minBatchesToRetain).
        delay: The age in minutes at which a file may be removed; a batch comes each minute.
        batch: The last batch that was written, 0 to 59.
    """

    def find(interval: int, retained: int, delay: int, batch: int) -> Finding:
        policy = Policy(interval, retained, timedelta(minutes=delay))
        files = log_files(policy, batch)
        code = f"""\
from datetime import timedelta

from compaction_kit.sinklog import Policy
from course import figures
from course.labs.sink_log import explain, log_files

policy = Policy({interval}, {retained}, timedelta(minutes={delay}))
files = log_files(policy, last={batch})
print(explain(policy, files))
figures.log_files(files, {interval})"""
        return Finding(explain(policy, files), figures.log_files(files, interval), code)

    batches = partial(format_count, noun="batch")
    return Lab(
        find,
        interval=Steps("Compaction interval", range(2, 21), interval, batches),
        retained=Steps("Batches to keep", (1, 2, 3, 5, 10, 15, 20, 30, 50, 100), retained, batches),
        delay=Steps("Cleanup delay", (0, 1, 2, 5, 10, 20, 30), delay, lambda chosen: f"{chosen} min"),
        batch=Steps("After batch", range(figures.MOST_BATCHES), batch),
    )
