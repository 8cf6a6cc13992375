"""Labs of files: what a feed writes, what a reader of a version needs, what a vacuum deletes."""

from datetime import UTC, datetime, timedelta
from functools import partial

from compaction_kit.table import Table
from compaction_kit.text import format_count, format_seconds, format_size
from course.lab import Choice, Finding, Lab, Steps, run

_DAY = 24 * 60 * 60
_INTERVALS = {10: "10 s", 60: "minute", 300: "5 minutes", 900: "15 minutes", 3_600: "hour", _DAY: "day"}


def feed(interval: int = _DAY, partitions: int = 3, seconds_to_open: float = 0.05) -> Lab:
    """Show how many files a feed writes, and how long a reader waits until they are open.

    Each commit (`interval` seconds after the last one) writes a file in each partition that it touches. A
    reader opens each file once, by one request, and sends several requests at once.
    """

    def find(interval: int, partitions: int, seconds_to_open: float, at_once: int) -> Finding:
        code = f"""\
from math import ceil

from course import figures

interval, partitions, seconds_to_open, at_once = {interval}, {partitions}, {seconds_to_open!r}, {at_once}
hours = {{"1 hour": 1, "1 day": 24, "1 week": 7 * 24, "30 days": 30 * 24, "1 year": 365 * 24}}
files = {{f"after {{name}}": age * 3_600 // interval * partitions for name, age in hours.items()}}
files["compacted"] = partitions
figures.waiting({{name: (num, ceil(num / at_once) * seconds_to_open) for name, num in files.items()}})"""
        commits = _DAY // interval
        sentence = (
            f"{format_count(commits, 'commit')} a day, each into {format_count(partitions, 'partition')}: "
            f"{format_count(commits * partitions, 'file')} a day."
        )
        return Finding(sentence, run(code), code)

    steps = sorted({0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, seconds_to_open})
    return Lab(
        find,
        interval=Steps("A commit every", _INTERVALS, interval, _INTERVALS.__getitem__),
        partitions=Steps("Partitions that it touches", (1, 2, 3, 5, 10, 24, 50, 100, 200), partitions),
        seconds_to_open=Steps("Opening a file takes", steps, seconds_to_open, format_seconds),
        at_once=Steps("Requests at once", (1, 2, 4, 8, 16, 32, 64), 8),
    )


def log(table: Table) -> Lab:
    """Show which files each version of a table has, and which log files a reader reads to know them."""

    def finding(version: int) -> Finding:
        segment = table.log.segment(version)
        read = [f"the checkpoint of version {file.version}" for file in segment.checkpoint[:1]]
        if segment.commits:
            begin, end = segment.commits[0].version, segment.commits[-1].version
            read.append(f"commit {end}" if begin == end else f"commits {begin} to {end}")
        num_files = len(segment.checkpoint + segment.commits)
        sentence = (
            f"A reader of version {version} reads {format_count(num_files, 'file')} of the log, "
            f"{format_size(segment.size_bytes)}: {' and '.join(read)}. Without checkpoints it would read "
            f"{format_count(version + 1, 'commit')}."
        )
        code = f"""\
from course import figures

segment = table.log.segment({version})
needed = {{file.name for file in segment.checkpoint + segment.commits}}
_, lives = table.log.lifetimes()
figures.reading(lives, table.log.listing(), needed, {version})"""
        return Finding(sentence, run(code, {"table": table}), code)

    return Lab(finding, version=Steps("Version", table.history()["version"].to_pylist(), table.version))


def vacuum(table: Table) -> Lab:
    """Show which versions of a table can't be read after a vacuum; nothing is deleted."""

    def find(days: int, retention: int, keep: tuple[int, ...]) -> Finding:
        plan = table.plan_vacuum(f"{retention} days", keep, at=datetime.now(UTC) + timedelta(days))
        kept = f"keep_versions={list(keep)}, " if keep else ""
        code = f"""\
from datetime import UTC, datetime, timedelta

at = datetime.now(UTC) + timedelta(days={days})
vacuum = table.plan_vacuum(retention="{retention} days", {kept}at=at)
print(vacuum.explain())
vacuum.plot()"""
        first, *others = plan.explain().split("\n")
        ignored = [line for line in others if "RETAIN" in line]
        return Finding("\n".join([first, *ignored]), plan.plot(), code)

    in_days = partial(format_count, noun="day")
    versions = table.versions()["version"].to_pylist()
    return Lab(
        find,
        days=Steps("VACUUM runs in", range(61), 8, in_days),
        retention=Steps("Keeps removed files for", range(1, 61), 7, in_days),
        keep=Choice("Version to keep", {"none": ()} | {str(number): (number,) for number in versions}, ()),
    )
