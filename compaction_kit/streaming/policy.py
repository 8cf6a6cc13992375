"""The rules by which Spark compacts a log and cleans it up (CompactibleFileStreamLog)."""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice

from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.streaming.names import BatchFile, Kind, file_name

_STREAMING = "spark.sql.streaming"
_SECTION = {Kind.SINK: "fileSink.log", Kind.SOURCE: "fileSource.log"}
# JavaUtils.timeStringAs, in milliseconds; a number alone is milliseconds.
_TIME = re.compile(r"(\d+)([a-z]*)")
# Enough for all lengths up to 10^12: no stream comes to so many batches.
_MOST_TRIED = 1_000_000
_UNITS = {"us": 0.001, "ms": 1, "": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Policy:
    """When a log is compacted, and which of its files are kept.

    Attributes:
        default_interval: Every so many batches one is a compaction batch, unless the compaction
            files that exist say otherwise (`interval_of`).
        min_batches_to_retain: So many batches back a stream must be able to go.
        cleanup_delay: How old a file has to be before it is removed.
        deletion: Whether files are removed at all.
    """

    default_interval: int = 10
    min_batches_to_retain: int = 100
    cleanup_delay: timedelta = timedelta(minutes=10)
    deletion: bool = True

    @classmethod
    def of_session(cls, kind: Kind, conf: Callable[[str], str | None]) -> "Policy":
        """The policy that a session's settings make; Spark's defaults where it says nothing.

        Args:
            kind: Whose log it is.
            conf: The value of a setting, None if it has none.

        Raises:
            InvalidArgumentError: A setting can't be used.
        """
        default = cls()
        interval = conf(setting(kind, "compactInterval"))
        retained = conf(f"{_STREAMING}.minBatchesToRetain")
        delay = conf(setting(kind, "cleanupDelay"))
        if interval is not None and int(interval) < 1:
            raise InvalidArgumentError(
                f"{setting(kind, 'compactInterval')}={interval} is no interval: set it to 1 or more."
            )
        return cls(
            default.default_interval if interval is None else int(interval),
            default.min_batches_to_retain if retained is None else int(retained),
            default.cleanup_delay if delay is None else _parse_time(delay),
            conf(setting(kind, "deletion")) != "false",
        )

    def interval_of(self, files: Iterable[BatchFile]) -> int:
        """Every how many batches a stream that starts on these files compacts.

        With two compaction files or more it is the distance of the last two, whatever is set;
        with one, a divisor of its batch + 1, at least as large as the setting where there is
        one; with none, the setting (CompactibleFileStreamLog.compactInterval).
        """
        compacted = sorted({file.batch for file in files if file.is_compaction})
        if len(compacted) >= 2:
            return compacted[-1] - compacted[-2]
        return _fitting(self.default_interval, compacted[0] + 1) if compacted else self.default_interval

    def first_kept(self, batch: int, interval: int) -> int:
        """Below which batch files may be removed once this one is written; 0 if none may.

        It is the last compaction batch that leaves `min_batches_to_retain` batches after it
        (CompactibleFileStreamLog.deleteExpiredLog).
        """
        oldest = batch + 1 - self.min_batches_to_retain
        return oldest - oldest % interval - 1 if self.deletion and interval <= oldest else 0


def needed_files(listed: tuple[BatchFile, ...]) -> tuple[BatchFile, ...]:
    """The latest compaction and all batches after it (CompactibleFileStreamLog.allFiles).

    Args:
        listed: A log's files, the oldest batch first.

    Raises:
        CorruptLogError: One of them isn't there.
    """
    start = max((file.batch for file in listed if file.is_compaction), default=None)
    needed = [
        file
        for file in listed
        if start is None or file.batch > start or (file.is_compaction and file.batch == start)
    ]
    there, latest = {file.batch for file in needed}, listed[-1].batch
    # One at a time: a file's name may be any number.
    missing = list(islice((batch for batch in range(start or 0, latest) if batch not in there), 6))
    if missing:
        names = ", ".join(map(str, missing[:5])) + (" …" if len(missing) > 5 else "")
        last = "no compaction is" if start is None else f"{file_name(start, True)} is the latest compaction"
        raise CorruptLogError(
            f"The log misses batch {names}: {last} there, and the latest batch is {latest}; restore the "
            "missing files from a backup."
        )
    return tuple(needed)


def is_compaction(batch: int, interval: int) -> bool:
    """Whether a batch's file is a compaction: 9, 19, 29 … if the interval is 10."""
    return (batch + 1) % interval == 0


def next_compaction(batch: int, interval: int) -> int:
    """The first compaction batch after a batch."""
    return (batch + interval + 1) // interval * interval - 1


def files_to_read(batch: int, interval: int) -> Iterator[str]:
    """The names of the files that Spark reads for all entries up to a batch (getAllValidBatches)."""
    start = max((batch + 1) // interval * interval - 1, 0)
    return (file_name(one, is_compaction(one, interval)) for one in range(start, batch + 1))


def files_to_compact(batch: int, interval: int) -> Iterator[str]:
    """The names of the files that go into a compaction batch's (getValidBatchesBeforeCompactionBatch)."""
    return (file_name(one, is_compaction(one, interval)) for one in range(max(batch - interval, 0), batch))


def setting(kind: Kind, name: str) -> str:
    """The whole name of a setting of a log, such as "compactInterval"."""
    return f"{_STREAMING}.{_SECTION[kind]}.{name}"


def _fitting(default: int, length: int) -> int:
    """The interval for a single compaction file of so many batches (deriveCompactInterval)."""
    if default >= length // 2:
        return length
    # Of a divisor and its partner one is at most the root.
    small = [n for n in range(1, min(math.isqrt(length), _MOST_TRIED) + 1) if length % n == 0]
    return min((n for n in (*small, *(length // n for n in small)) if n >= default), default=length)


def _parse_time(text: str) -> timedelta:
    match = _TIME.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise InvalidArgumentError(f'"{text}" is not a length of time as Spark has it: set it to "10min".')
    return timedelta(milliseconds=int(match[1]) * _UNITS[match[2]])
