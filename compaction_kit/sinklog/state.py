"""Find the logs of file sinks and file sources, and read the state of a log."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Self

import pyarrow as pa
from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError, NotASinkLogError, TableNotFoundError
from compaction_kit.folder import walk
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.session import active_spark, get_spark
from compaction_kit.sinklog.entries import count_entries, field_names, read_entries
from compaction_kit.sinklog.policy import (
    BatchFile,
    Kind,
    Policy,
    names_between,
    needed_files,
    next_compaction,
)
from compaction_kit.storage import LocalStore, Store, local_store, open_store

SINK_FOLDER = "_spark_metadata"
VERSION_BYTES = len("v1")
_SOURCES_FOLDER = "sources"
_BATCH = re.compile(r"(0|[1-9][0-9]*)(\.compact)?")
# Spark's batch numbers are below 2^63; leave room for batches to come.
_LARGEST = 2**62
_ADVICE = (
    f"name the output folder of a file sink, its {SINK_FOLDER}, or a folder such as sources/0 in the "
    "checkpoint of a stream that reads files"
)


@dataclass(frozen=True)
class Pace:
    """How a log grows: entries per batch, bytes per entry with its newline, time between batches."""

    entries_per_batch: float
    entry_bytes: float
    between: timedelta

    def written(self, num_batches: int) -> int:
        """Return how many entries a number of batches writes; 0.5 per batch is one in every second batch."""
        return int(self.entries_per_batch * num_batches + 1e-9)


@dataclass(frozen=True, repr=False)
class SinkLogState:
    """The files and entries of a log when it was read; see `SinkLog`."""

    name: str
    folder: Path
    kind: Kind
    listed: tuple[BatchFile, ...]
    needed: tuple[BatchFile, ...]
    entries: pa.Table
    policy: Policy
    read_at: datetime
    session: SparkSession | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: str | Path, spark: SparkSession | None = None, policy: Policy | None = None) -> Self:
        """Read a log; see `sink_log`."""
        store = _log_store(local_store(path, "A sink log"))
        listed = _list_files(store)
        kind = _kind_of(store, listed)
        session = spark or active_spark()
        if policy is None:
            policy = Policy() if session is None else Policy.of_session(kind, session.conf.get)
        needed = needed_files(listed)
        entries = pa.concat_tables([read_entries(store, file.name, kind) for file in needed])
        return cls(
            str(path), Path(store.root), kind, listed, needed, entries, policy, datetime.now(UTC), spark
        )

    @cached_property
    def store(self) -> Store:
        """The store of the log's files."""
        return open_store(self.folder)

    @cached_property
    def output_store(self) -> Store:
        """The output folder's files."""
        return open_store(self.output)

    @property
    def output(self) -> Path:
        """The output folder of a sink's log."""
        return self.folder.parent

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
        """The bytes of the log that a reader reads."""
        return sum(file.size_bytes for file in self.needed)

    @property
    def compact_interval(self) -> int:
        """The compaction interval of a stream that starts now, in batches; see `Policy.interval_of`."""
        return self.policy.interval_of(self.listed)

    @property
    def next_compaction_batch(self) -> int:
        """The next batch whose file is a compaction, if a stream starts now."""
        return next_compaction(self.latest_batch, self.compact_interval)

    @property
    def unreadable(self) -> str | None:
        """The missing file that Spark needs to read the log with these settings; None if there is none.

        Spark uses only the interval. If the log has no compaction and more batches than the interval, Spark
        looks for a compaction that doesn't exist.
        """
        existing = {file.name for file in self.listed}
        last_compaction = self.next_compaction_batch - self.compact_interval
        # CompactibleFileStreamLog.getAllValidBatches
        names = names_between(last_compaction, self.latest_batch + 1, self.compact_interval)
        return next((name for name in names if name not in existing), None)

    @cached_property
    def num_entries_in(self) -> dict[str, int | None]:
        """The number of entries of each file, by its name; None if the file is missing by now."""
        return {file.name: count_entries(self.store, file.name) for file in self.listed}

    @cached_property
    def pace(self) -> Pace:
        """How the log has grown, by the files of single batches that exist."""
        counts = [self.num_entries_in[file.name] for file in self.listed if not file.is_compaction]
        own = [count for count in counts if count is not None]
        per_batch = sum(own) / len(own) if own else self.num_entries / (self.latest_batch + 1)
        entry_bytes = max(self.size_bytes - VERSION_BYTES * len(self.needed), 0) / max(self.num_entries, 1)
        gaps = [b.modification_time - a.modification_time for a, b in pairwise(self.listed)]
        return Pace(per_batch, entry_bytes, timedelta(milliseconds=max(median(gaps or [0]), 0)))

    @property
    def spark(self) -> SparkSession:
        """The session that works on the log; it is started when first needed."""
        return self.session or get_spark()

    def check_sink(self, what: str) -> None:
        """Raise InvalidArgumentError if this is a source's log; `what` is the request to refuse."""
        if self.kind == Kind.SOURCE:
            raise InvalidArgumentError(
                f"{what} is for sinks, but {self.name} is the log of a source: name the output folder of a "
                "file sink."
            )


def find_sink_logs(root: str | Path) -> list[str]:
    """Find the logs of file sinks and file sources in a folder; see `sink_log` for an example.

    Hidden folders, and folders more than six levels down, are skipped. Inside of a table or a sink's output
    only folders that begin with "_" are searched, as streams often keep their checkpoints there.

    Args:
        root: A folder on a local disk; if it doesn't exist, there are no logs.

    Returns:
        Paths for `sink_log`, sorted, each beginning with `root`: a sink's output folder, or the folder of one
        source in a checkpoint, such as `checkpoint/sources/0`.
    """
    found = []
    for folder, subfolders in walk(root, hidden=(".", LOG_FOLDER, SINK_FOLDER)):
        if SINK_FOLDER in subfolders:
            found.append(folder)
        if SINK_FOLDER in subfolders or LOG_FOLDER in subfolders:
            subfolders[:] = [name for name in subfolders if name.startswith("_")]
        if _SOURCES_FOLDER in subfolders:
            sources = f"{folder}/{_SOURCES_FOLDER}"
            names = [entry.name for entry in open_store(sources).entries()]
            found += [
                f"{sources}/{name}" for name in names if _is_file_source(open_store(f"{sources}/{name}"))
            ]
            subfolders.clear()
    return sorted(found)


def _log_store(store: LocalStore) -> LocalStore:
    """Return the folder of the log in an output folder or a checkpoint; else the folder itself."""
    if store.status() is None:
        raise TableNotFoundError(f"No sink log at {store.root}: the path does not exist; check the spelling.")
    if not store.is_folder():
        raise NotASinkLogError(f"{store.root} is a file: {_ADVICE}.")
    folders = (SINK_FOLDER, f"{_SOURCES_FOLDER}/0")
    return next((store.below(folder) for folder in folders if store.is_folder(folder)), store)


def _list_files(store: Store) -> tuple[BatchFile, ...]:
    """List the files of a log, the oldest batch first; skip other files in the folder."""
    found = []
    for entry in store.entries():
        match = _BATCH.fullmatch(entry.name)
        if entry.is_file and match and int(match[1]) <= _LARGEST:
            found.append(BatchFile(int(match[1]), bool(match[2]), entry.size_bytes, entry.modification_time))
    return tuple(sorted(found, key=lambda file: (file.batch, file.is_compaction)))


def _kind_of(store: Store, files: tuple[BatchFile, ...]) -> Kind:
    """Return the kind of a log: by its folder's name, or by an entry, as checkpoints have other logs too."""
    folder = Path(store.root)
    if folder.name == SINK_FOLDER:
        if files:
            return Kind.SINK
        raise NotASinkLogError(
            f"{folder} is empty: the stream has not committed a batch yet, so Spark reads no row there."
        )
    all_names = (field_names(store, file.name) for file in reversed(files))
    names = next((names for names in all_names if names is not None), None)
    if names is None:
        if files and folder.parent.name == _SOURCES_FOLDER:
            return Kind.SOURCE
        raise NotASinkLogError(f"{folder} holds no log of a file sink or a file source: {_ADVICE}.")
    if names >= {"path", "batchId"}:
        return Kind.SOURCE
    if names >= {"path", "action"}:
        return Kind.SINK
    raise NotASinkLogError(f"{folder} has another log of a stream, whose entries aren't files: {_ADVICE}.")


def _is_file_source(store: Store) -> bool:
    try:
        return store.is_folder() and _kind_of(store, _list_files(store)) == Kind.SOURCE
    except NotASinkLogError:
        return False
