"""Lesson 01: how often a feed commits, into how many partitions, and how long a reader waits then."""

from compaction_kit.lessons.lab import Finding, Lab, Steps, run
from compaction_kit.text import format_count, format_seconds

_DAY = 24 * 60 * 60
_INTERVALS = {10: "10 s", 60: "minute", 300: "5 minutes", 900: "15 minutes", 3_600: "hour", _DAY: "day"}
_PARTITIONS = (1, 2, 3, 5, 10, 24, 50, 100, 200)
_SECONDS_TO_OPEN = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_AT_ONCE = (1, 2, 4, 8, 16, 32, 64)


def feed(interval: int = _DAY, partitions: int = 3, seconds_to_open: float = 0.05) -> Lab:
    """Show how many files a feed writes, and how long a reader waits until they are open.

    Each commit writes a file in each partition that it touches. A reader opens each file once, by one
    request, and sends some requests at once.

    Args:
        interval: Seconds from one commit to the next.
        partitions: The partitions that a commit touches.
        seconds_to_open: The seconds that opening a file takes, such as those measured.

    Raises:
        InvalidArgumentError: A slider has no such step.
    """
    steps = sorted({*_SECONDS_TO_OPEN, seconds_to_open})
    return Lab(
        _finding,
        interval=Steps("A commit every", _INTERVALS, interval, _INTERVALS.__getitem__),
        partitions=Steps("Partitions that it touches", _PARTITIONS, partitions),
        seconds_to_open=Steps("Opening a file takes", steps, seconds_to_open, format_seconds),
        at_once=Steps("Requests at once", _AT_ONCE, 8),
    )


def _finding(interval: int, partitions: int, seconds_to_open: float, at_once: int) -> Finding:
    code = f"""\
from compaction_kit import plots

interval, partitions, seconds_to_open, at_once = {interval}, {partitions}, {seconds_to_open!r}, {at_once}
hours = {{"1 hour": 1, "1 day": 24, "1 week": 7 * 24, "30 days": 30 * 24, "1 year": 365 * 24}}
files = {{f"after {{name}}": age * 3_600 // interval * partitions for name, age in hours.items()}}
files["compacted"] = partitions
plots.waiting({{name: (num, num * seconds_to_open / at_once) for name, num in files.items()}})"""
    commits = _DAY // interval
    sentence = (
        f"{format_count(commits, 'commit')} a day, each into {format_count(partitions, 'partition')}: "
        f"{format_count(commits * partitions, 'file')} a day."
    )
    return Finding(sentence, run(code), code)
