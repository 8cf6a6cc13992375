"""Find and read the logs of file sinks and file sources, and predict how they grow."""

import json
import posixpath
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit import plots
from compaction_kit.active import active_spark
from compaction_kit.errors import InvalidArgumentError, NotASinkLogError, TableNotFoundError, show_value
from compaction_kit.folder import walk, warn_of
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.records import Record
from compaction_kit.retention import parse_retention
from compaction_kit.sinklog.policy import BatchFile, Kind, Policy, needed_files, read_entries, setting
from compaction_kit.sinklog.projection import VERSION_BYTES, Pace, Projection, project
from compaction_kit.storage import LocalStore, Store, local_store, open_store
from compaction_kit.text import (
    format_count,
    format_factor,
    format_seconds,
    format_size,
    joined_lines,
    parse_count,
    parse_number,
)
from compaction_kit.times import millis

_SINK_FOLDER = "_spark_metadata"
_SOURCES_FOLDER = "sources"
# Spark's batch numbers are below 2^63; leave room for batches to come.
_BATCH = re.compile(r"(0|[1-9][0-9]{0,17})(\.compact)?")
_ADVICE = (
    f"name the output folder of a file sink, its {_SINK_FOLDER}, or a folder such as sources/0 in the "
    "checkpoint of a stream that reads files"
)
_INT, _STR, _TIME = pa.int64(), pa.string(), pa.timestamp("ms", "UTC")
_FILE = {"batch": _INT, "name": _STR, "kind": _STR, "size_bytes": _INT, "modification_time": _TIME}
_FILES = pa.schema(_FILE | {"num_entries": _INT, "needed": pa.bool_(), "removed_after": _INT})


def find_sink_logs(root: str | Path) -> list[str]:
    """Find the logs of file sinks and file sources in a folder; see `sink_log` for an example.

    Hidden folders, and folders more than six levels down, are skipped. Inside of a table or a sink's output
    only folders that begin with "_" are searched, as streams often keep their checkpoints there. A warning
    names folders that can't be read.

    Returns:
        Paths for `sink_log`, sorted, each beginning with `root`: a sink's output folder, or the folder of one
        source in a checkpoint, such as `checkpoint/sources/0`.

    Raises:
        InvalidArgumentError: `root` is neither text nor a path.
        StorageError: A store can't be reached.
    """
    found, skipped = look_for_sink_logs(root)
    warn_of(skipped)
    return found


def look_for_sink_logs(root: str | Path) -> tuple[list[str], list[str]]:
    """Return what `find_sink_logs` finds, and the folders that can't be read; it doesn't warn."""
    found, skipped = list[str](), list[str]()
    for folder, subfolders in walk(root, (".", LOG_FOLDER, _SINK_FOLDER), skipped):
        if _SINK_FOLDER in subfolders:
            found.append(folder)
        if _SINK_FOLDER in subfolders or LOG_FOLDER in subfolders:
            subfolders[:] = [name for name in subfolders if name.startswith("_")]
        if _SOURCES_FOLDER in subfolders:
            subfolders[:] = [_SOURCES_FOLDER]
        if posixpath.basename(posixpath.dirname(folder)) == _SOURCES_FOLDER:
            store = open_store(folder)
            if _kind_of(store, _list_files(store)) == Kind.SOURCE:
                found.append(folder)
            subfolders.clear()
    return sorted(found), skipped


def sink_log(path: str | Path, policy: Policy | None = None) -> "SinkLog":
    """Read the log of a file sink or of a stream's file source, as it is now.

    Args:
        path: The sink's output folder or its `_spark_metadata`; for a source, the stream's checkpoint (its
            first source) or a folder in it, such as `sources/0`.
        policy: The settings that say when the log is compacted and cleaned up. None for the running
            session's, or for Spark's defaults if none is running: reading a log needs no session.

    Raises:
        TableNotFoundError: The path doesn't exist.
        NotASinkLogError: The path has no such log, or the log has no batch yet.
        CorruptLogError: A file that a reader needs is missing or damaged.
        InvalidArgumentError: A setting of the session can't be used.
        UnsupportedTableError: The path isn't on a local disk.

    Examples:
        >>> from pathlib import Path
        >>> here = Path.cwd()
        >>> rows = spark.readStream.schema("flight BIGINT").parquet(f"{here}/data/flights/origin=JFK")
        >>> stream = rows.writeStream.trigger(availableNow=True)
        >>> stream.start(f"{here}/output", checkpointLocation=f"{here}/checkpoint").awaitTermination()
        >>> ck.find_sink_logs(".")
        ['./checkpoint/sources/0', './output']
        >>> log = ck.sink_log("output")
        >>> log.latest_batch, log.next_compaction_batch
        (0, 9)
    """
    store = local_store(path, "A sink log")
    if store.status() is None:
        raise TableNotFoundError(f"No sink log at {store.root}: the path does not exist; check the spelling.")
    if not store.is_folder():
        raise NotASinkLogError(f"{store.root} is a file: {_ADVICE}.")
    below = (folder for folder in (_SINK_FOLDER, f"{_SOURCES_FOLDER}/0") if store.is_folder(folder))
    store = LocalStore(store.real(next(below, "")))
    listed = _list_files(store)
    kind = _kind_of(store, listed)
    if kind is None or not listed:
        reason = "holds no log of a file sink or a file source"
        if kind == Kind.SINK:
            reason = "is empty: the stream has not committed a batch yet"
        raise NotASinkLogError(f"{store.root} {reason}: {_ADVICE}.")
    if policy is None:
        session = active_spark()
        policy = Policy() if session is None else Policy.of_session(kind, session.conf.get)
    if not isinstance(policy, Policy):
        raise InvalidArgumentError(f"policy={show_value(policy)} is no policy: give a sinklog.Policy.")
    needed = needed_files(listed)
    entries = pa.concat_tables([read_entries(store, file.name, kind) for file in needed])
    return SinkLog(str(path), Path(store.root), kind, listed, needed, entries, policy, datetime.now(UTC))


def _list_files(store: Store) -> tuple[BatchFile, ...]:
    found = []
    for entry in store.entries():
        if entry.is_file and (match := _BATCH.fullmatch(entry.name)):
            found.append(BatchFile(int(match[1]), bool(match[2]), entry.size_bytes, entry.modification_time))
    return tuple(sorted(found, key=lambda file: (file.batch, file.is_compaction)))


def _kind_of(store: Store, files: tuple[BatchFile, ...]) -> Kind | None:
    """Return a log's kind, by its folder or an entry, as checkpoints have other logs with such names."""
    if Path(store.root).name == _SINK_FOLDER:
        return Kind.SINK
    for file in reversed(files):
        try:
            fields = set(json.loads(store.read(file.name, 0, 1 << 16).splitlines()[1]))
        except (OSError, IndexError, ValueError, TypeError, RecursionError):
            continue
        if fields >= {"path", "batchId"}:
            return Kind.SOURCE
        return Kind.SINK if fields >= {"path", "action"} else None
    return Kind.SOURCE if files and Path(store.root).parent.name == _SOURCES_FOLDER else None


@dataclass(frozen=True, repr=False)
class SinkLog(Record):
    """The log of a file sink or a file source when it was read; made by `sink_log`.

    Attributes:
        name: The path as it was given.
        folder: The folder of the log.
        kind: "sink" or "source".
        listed: The log's files, the oldest batch first.
        needed: The files that a reader needs: the latest compaction and the batches after it.
        entries: One row per entry that a reader sees. For a sink: path (a URI, as in the log), size_bytes,
            is_dir, modification_time, block_replication, block_size, action. For a source: path, timestamp
            (the file's modification time), batch_id.
        policy: When the log is compacted and cleaned up.
        read_at: When the log was read.
    """

    name: str
    folder: Path
    kind: Kind
    listed: tuple[BatchFile, ...]
    needed: tuple[BatchFile, ...]
    entries: pa.Table
    policy: Policy
    read_at: datetime

    @property
    def latest_batch(self) -> int:
        """The latest batch."""
        return self.needed[-1].batch

    @property
    def num_entries(self) -> int:
        """The number of entries that a reader sees."""
        return len(self.entries)

    @property
    def size_bytes(self) -> int:
        """The bytes that a reader reads."""
        return sum(file.size_bytes for file in self.needed)

    @property
    def compact_interval(self) -> int:
        """The compaction interval of a stream that starts now, in batches; see `Policy.interval_of`."""
        return self.policy.interval_of(self.listed)

    @property
    def next_compaction_batch(self) -> int:
        """The next batch whose file is a compaction, if a stream starts now."""
        interval = self.compact_interval
        return (self.latest_batch + interval + 1) // interval * interval - 1

    @cached_property
    def num_entries_in(self) -> dict[str, int | None]:
        """The number of entries of each file, by its name; None if the file is gone."""
        store = open_store(self.folder)
        counts: dict[str, int | None] = {file.name: None for file in self.listed}
        for name in counts:
            with suppress(OSError):
                # The first line is the version.
                counts[name] = max(sum(1 for _ in store.lines(name)) - 1, 0)
        return counts

    @cached_property
    def pace(self) -> Pace:
        """How the log has grown, according to the existing files of single batches."""
        counts = [self.num_entries_in[file.name] for file in self.listed if not file.is_compaction]
        own = [count for count in counts if count is not None]
        per_batch = sum(own) / len(own) if own else self.num_entries / (self.latest_batch + 1)
        entry_bytes = max(self.size_bytes - VERSION_BYTES * len(self.needed), 0) / max(self.num_entries, 1)
        gaps = [b.modification_time - a.modification_time for a, b in pairwise(self.listed)]
        return Pace(per_batch, entry_bytes, timedelta(milliseconds=max(median(gaps or [0]), 0)))

    @cached_property
    def files(self) -> pa.Table:
        """The log's files, one row per file, the oldest batch first.

        Columns: batch, name, kind ("batch", or "compaction" with all entries up to the batch), size_bytes,
        modification_time, num_entries (null if the file is gone), needed (by a reader), removed_after (the
        batch after which the cleanup removes it, at the pace so far; null if far ahead).
        """
        ahead = min(self.policy.min_batches_to_retain + 2 * self.compact_interval, 10_000)
        removed = {row["name"]: row["batch"] for row in self.project(ahead).removals.to_pylist()}
        rows = [
            {name: getattr(file, name) for name in _FILE}
            | {"num_entries": self.num_entries_in[file.name], "needed": file in self.needed}
            | {"removed_after": removed.get(file.name)}
            for file in self.listed
        ]
        return pa.Table.from_pylist(rows, _FILES)

    @property
    def compactions(self) -> pa.Table:
        """The rows of `files` that are compactions."""
        return self.files.filter(pc.equal(self.files["kind"], "compaction"))

    def project(
        self, num_batches: int = 100, retention: str | None = None, seconds_between: float | None = None
    ) -> Projection:
        """Project the next batches of a stream that starts now, at the pace of the batches whose files exist.

        Args:
            num_batches: The number of batches to project.
            retention: A value of the sink's option `retention`, such as "7d"; None for no retention. Each
                compaction then leaves out entries of older files, and readers no longer see their rows.
            seconds_between: The seconds from one batch to the next; None for the median so far.

        Raises:
            InvalidArgumentError: A value can't be used, or `retention` was given for a source.
        """
        is_source = self.kind == Kind.SOURCE
        if retention is not None and is_source:
            raise InvalidArgumentError(f"retention={retention!r} is for sinks, and this is a source's log.")
        num_batches, between = parse_count(num_batches, "num_batches", most=100_000), self.pace.between
        if seconds_between is not None:
            between = timedelta(seconds=parse_number(seconds_between, "seconds_between", most=10**9))
        pace, begin = replace(self.pace, between=between), millis(self.read_at)
        times = self.entries["timestamp" if is_source else "modification_time"].cast(pa.int64()).to_numpy()
        length = None if retention is None else parse_retention(retention)
        return project(self.listed, times, begin, self.policy, pace, num_batches, length)

    def plot(self, num_batches: int = 100) -> "plots.Chart":
        """Draw the size of the compaction file, as it is and as projected, and what the cleanup removes."""
        ahead = self.project(num_batches)
        return plots.sink_log(self.files, ahead.batches, ahead.removals, self._growth(ahead))

    def explain(self, num_batches: int = 100) -> str:
        """Explain the log's state, and its growth in the next batches, one sentence or two per line."""
        ahead = self.project(num_batches)
        lines = [
            f"The log of the file {self.kind} {self.name}: batch {self.latest_batch:,}, "
            f"{format_count(self.num_entries, 'entry')}. {self._growth(ahead)}.",
            f"Cleanup: {self._cleanup()}.",
        ]
        if self.kind == Kind.SOURCE:
            lines.append("Growth: the log lists every file that the stream has read, without a retention.")
        else:
            last = ahead.batches.to_pylist()[-1]
            lines.append(
                f"Growth: about {format_count(last['num_live'], 'entry')} at batch "
                f"{last['batch']:,}; each compaction writes all of them again, and each reader "
                "loads all of them into its driver's memory. The sink's option retention drops old entries; "
                "a Delta table needs no such log."
            )
        return joined_lines(lines)

    def facts(self) -> dict[str, str]:
        """Return the log as readable text: names and values."""
        log_bytes = sum(file.size_bytes for file in self.listed)
        read = " to ".join(dict.fromkeys((self.needed[0].name, self.needed[-1].name)))
        every = format_count(self.compact_interval, "batch").removeprefix("1 ")
        return {
            "log": f"of a file {self.kind}, {self.folder}",
            "batches": f"up to {self.latest_batch:,}; a compaction every {every}, "
            f"the next at {self.next_compaction_batch:,}",
            "entries": f"{self.num_entries:,}, of {self.pace.entry_bytes:,.0f} B; "
            f"{format_factor(self.pace.entries_per_batch)} per batch",
            "a reader reads": f"{read}, {format_size(self.size_bytes)}",
            "on disk": f"{format_count(len(self.listed), 'file')}, {format_size(log_bytes)}",
            "cleanup": self._cleanup(),
        }

    def _growth(self, ahead: Projection) -> str:
        last, begin = self.needed[0], "No compaction yet"
        if last.is_compaction:
            begin = f"{last.name} is {format_size(last.size_bytes)}"
        if not len(ahead.compactions):
            return begin
        batch, size = (ahead.compactions[name][-1].as_py() for name in ("batch", "size_bytes"))
        return f"{begin}; the one of batch {batch:,} will be about {format_size(size)}"

    def _cleanup(self) -> str:
        if not self.policy.deletion:
            return f"switched off by {setting(self.kind, 'deletion')}: no file is ever removed"
        delay = format_seconds(self.policy.cleanup_delay.total_seconds())
        least = format_count(self.policy.min_batches_to_retain, "batch")
        kept = f"{least} and files younger than {delay} are kept"
        batches = self.files["removed_after"].drop_null().to_pylist()
        if not batches:
            return f"no file will be removed soon; {kept}"
        num_files = format_count(batches.count(min(batches)), "file")
        return f"after batch {min(batches):,}, {num_files} will be removed; {kept}"
