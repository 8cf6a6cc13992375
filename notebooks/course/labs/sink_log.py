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
_MINUTE = timedelta(minutes=1)


def log_files(policy: Policy, last: int) -> pa.Table:
    """Return the files that a stream has written to its sink's log up to batch `last`, one batch a minute.

    Returns:
        One row per file, in order: name, first and batch (the first and the last batch whose entries it
        holds), state (one of `figures.LOG_STATES`, by CompactibleFileStreamLog.add).
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
    first = [0 if file.is_compaction else file.batch for file in states]
    columns = {"name": [file.name for file in states], "first": first, "batch": range(last + 1)}
    return pa.table(columns | {"state": [*states.values()]})


def explain(policy: Policy, files: pa.Table) -> str:
    """Say which files a reader needs, which files may be deleted, and what compaction has cost so far."""
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


def sink_log() -> Lab:
    """Show which files of a sink's log are left after a batch, by the log's settings."""

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
        interval=Steps("Compaction interval", range(2, 21), 10, batches),
        retained=Steps("Batches to keep", (1, 2, 3, 5, 10, 15, 20, 30, 50, 100), 5, batches),
        delay=Steps("Cleanup delay", (0, 1, 2, 5, 10, 20, 30), 0, "{} min".format),
        batch=Steps("After batch", range(figures.MOST_BATCHES), 21),
    )
