"""How Spark names, writes, compacts and cleans up the files of a log (CompactibleFileStreamLog)."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

import pyarrow as pa

from compaction_kit.errors import DAMAGE, CorruptLogError, InvalidArgumentError, first_line, show_value
from compaction_kit.log.lines import parse_lines
from compaction_kit.retention import parse_retention
from compaction_kit.storage import Store
from compaction_kit.text import parse_count

_VERSION = re.compile(rb"v1\r?(?:\n|$)")
_TIME = pa.timestamp("ms", "UTC")
_CURE = "restore it from a backup"


class Kind(StrEnum):
    """Whether a log is a sink's or a source's."""

    SINK = "sink"
    SOURCE = "source"


# JSON field, column and type of SinkFileStatus and of FileStreamSource.FileEntry, in the order of the fields.
_FIELDS = {
    Kind.SINK: (
        ("path", "path", pa.string()),
        ("size", "size_bytes", pa.int64()),
        ("isDir", "is_dir", pa.bool_()),
        ("modificationTime", "modification_time", _TIME),
        ("blockReplication", "block_replication", pa.int32()),
        ("blockSize", "block_size", pa.int64()),
        ("action", "action", pa.string()),
    ),
    Kind.SOURCE: (
        ("path", "path", pa.string()),
        ("timestamp", "timestamp", _TIME),
        ("batchId", "batch_id", pa.int64()),
    ),
}


@dataclass(frozen=True)
class BatchFile:
    """One file of a log, modified at a time in ms since 1970; a compaction has all earlier entries too."""

    batch: int
    is_compaction: bool
    size_bytes: int
    modification_time: int

    @property
    def name(self) -> str:
        """The file's name (CompactibleFileStreamLog.batchIdToPath)."""
        return f"{self.batch}.compact" if self.is_compaction else str(self.batch)

    @property
    def kind(self) -> str:
        """The kind of file: "batch" or "compaction"."""
        return "compaction" if self.is_compaction else "batch"


@dataclass(frozen=True)
class Policy:
    """When a log is compacted, and which of its files are kept.

    Attributes:
        default_interval: The number of batches from one compaction to the next, unless the existing
            compaction files imply another (`interval_of`).
        min_batches_to_retain: The number of batches that a stream must be able to go back.
        cleanup_delay: The minimum age of a file that is removed.
        deletion: Whether files are removed at all.
    """

    default_interval: int = 10
    min_batches_to_retain: int = 100
    cleanup_delay: timedelta = timedelta(minutes=10)
    deletion: bool = True

    def __post_init__(self) -> None:
        parse_count(self.default_interval, "default_interval")
        parse_count(self.min_batches_to_retain, "min_batches_to_retain")
        if not isinstance(self.cleanup_delay, timedelta):
            delay = show_value(self.cleanup_delay)
            raise InvalidArgumentError(f"cleanup_delay={delay} is no length of time: give a timedelta.")

    @classmethod
    def of_session(cls, kind: Kind, conf: Callable[[str], str | None]) -> "Policy":
        """Read the policy from a session's settings (None if not set), with Spark's defaults."""
        key = setting(kind, "compactInterval")
        interval = parse_count(int(conf(key) or cls.default_interval), key)
        delay = (conf(setting(kind, "cleanupDelay")) or "10min").strip()
        retained = int(conf("spark.sql.streaming.minBatchesToRetain") or cls.min_batches_to_retain)
        # A number alone is milliseconds (JavaUtils.timeStringAs).
        age = parse_retention(f"{delay}ms" if delay.isdigit() else delay, setting(kind, "cleanupDelay"))
        return cls(interval, retained, age, (conf(setting(kind, "deletion")) or "true").lower() != "false")

    def interval_of(self, files: Iterable[BatchFile]) -> int:
        """Return the compaction interval of a stream that starts with these files, in batches.

        With two or more compaction files it is the distance between the last two, whatever the setting; with
        one, a divisor of its batch + 1, if possible at least the setting; with none, the setting
        (CompactibleFileStreamLog.compactInterval, deriveCompactInterval).
        """
        compacted = sorted({file.batch for file in files if file.is_compaction})
        if len(compacted) >= 2:
            return compacted[-1] - compacted[-2]
        if not compacted:
            return self.default_interval
        length = compacted[0] + 1
        if self.default_interval >= length // 2:
            return length
        return next(n for n in range(self.default_interval, length + 1) if length % n == 0)

    def first_kept(self, batch: int, interval: int) -> int:
        """Return the first batch whose files are kept once `batch` is written; 0 if all files are kept.

        It is the last compaction batch with at least `min_batches_to_retain` batches after it
        (CompactibleFileStreamLog.deleteExpiredLog).
        """
        oldest = batch + 1 - self.min_batches_to_retain
        return oldest - oldest % interval - 1 if self.deletion and interval <= oldest else 0

    def expired(self, files: Iterable[BatchFile], batch: int, interval: int, time: int) -> list[BatchFile]:
        """Return the files that are removed after a batch at a time (ms since 1970)."""
        if not (first_kept := self.first_kept(batch, interval)):
            return []
        before = time - self.cleanup_delay / timedelta(milliseconds=1)
        return [file for file in files if file.batch < first_kept and file.modification_time <= before]


def needed_files(listed: tuple[BatchFile, ...]) -> tuple[BatchFile, ...]:
    """Return the latest compaction and all batches after it, which a reader reads (allFiles).

    Raises:
        CorruptLogError: One of these files is missing.
    """
    first = max(((file.batch, True) for file in listed if file.is_compaction), default=(0, False))
    needed = tuple(file for file in listed if (file.batch, file.is_compaction) >= first)
    existing, latest = {file.batch for file in needed}, listed[-1].batch
    missing = next((batch for batch in range(first[0], latest) if batch not in existing), None)
    if missing is not None:
        last = f"the latest compaction is {first[0]}.compact" if first[1] else "there is no compaction"
        raise CorruptLogError(
            f"The log misses batch {missing}: {last}, and the latest batch is {latest}; restore the missing "
            "files from a backup."
        )
    return needed


def read_entries(store: Store, name: str, kind: Kind) -> pa.Table:
    """Read the entries of one file of a log, in the order of its lines; see `SinkLog.entries`.

    Raises:
        CorruptLogError: The file is missing or damaged; the message says where.
    """
    try:
        version = _VERSION.match(store.read(name, 0, 64))
        text = store.read(name, version.end()) if version else b""
    except OSError as error:
        raise CorruptLogError(f"The log file {name} can't be read: {error.strerror}.") from None
    if version is None:
        raise CorruptLogError(f'The log file {name} does not begin with a line "v1", its version: {_CURE}.')
    # Times are numbers in JSON.
    fields = pa.schema([(field, pa.int64() if of == _TIME else of) for field, _, of in _FIELDS[kind]])
    columns = pa.schema([(column, of) for _, column, of in _FIELDS[kind]])
    if not text:
        return columns.empty_table()
    try:
        rows = parse_lines(text, fields, block_bytes=4 << 20)[0]
    except DAMAGE as error:
        raise CorruptLogError(f"The log file {name} is damaged ({first_line(error)}): {_CURE}.") from None
    missing = [field for field in fields.names if rows[field].null_count]
    if missing or len(rows) != text.count(b"\n") + (not text.endswith(b"\n")):
        reason = f"an entry has no {missing[0]}" if missing else "a line is blank"
        raise CorruptLogError(f"The log file {name} is damaged ({reason}): {_CURE}.")
    return rows.rename_columns(columns.names).cast(columns)


def is_compaction(batch: int, interval: int) -> bool:
    """Return whether a batch's file is a compaction: 9, 19, 29 … if the interval is 10."""
    return (batch + 1) % interval == 0


def setting(kind: Kind, name: str) -> str:
    """Return the full key of a setting of a log, such as "compactInterval"."""
    return f"spark.sql.streaming.file{kind.capitalize()}.log.{name}"
