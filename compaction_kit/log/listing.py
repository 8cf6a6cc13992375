"""The files of a `_delta_log` folder: their kinds, and the files that a version is read from."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from compaction_kit.errors import CorruptLogError, InvalidArgumentError, TableNotFoundError
from compaction_kit.storage import Entry, Store
from compaction_kit.text import parse_count

LOG_FOLDER, _SIDECARS, _STAGED = "_delta_log", "_sidecars", "_staged_commits"


class Kind(StrEnum):
    """The kind of a file of the log."""

    COMMIT = "commit"
    CHECKSUM = "checksum"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_PART = "checkpoint part"
    V2_CHECKPOINT = "v2 checkpoint"
    SIDECAR = "sidecar"
    COMPACTED = "compacted log"
    LAST_CHECKPOINT = "last checkpoint"
    OTHER = "other"


_VERSION = r"(?P<version>[0-9]{20})"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_PARTS = r"(?P<part>[0-9]{10})\.(?P<num_parts>[0-9]{10})"
_PATTERNS = {
    Kind.COMMIT: re.compile(rf"{_VERSION}\.json"),
    Kind.CHECKSUM: re.compile(rf"{_VERSION}\.crc"),
    Kind.CHECKPOINT: re.compile(rf"{_VERSION}\.checkpoint\.parquet"),
    Kind.CHECKPOINT_PART: re.compile(rf"{_VERSION}\.checkpoint\.{_PARTS}\.parquet"),
    Kind.V2_CHECKPOINT: re.compile(rf"{_VERSION}\.checkpoint\.{_UUID}\.(?:json|parquet)"),
    Kind.COMPACTED: re.compile(rf"{_VERSION}\.[0-9]{{20}}\.compacted\.json"),
    Kind.LAST_CHECKPOINT: re.compile("_last_checkpoint"),
    Kind.SIDECAR: re.compile(r"_sidecars/.*\.parquet"),
}


class LogFile(NamedTuple):
    """One file of the log: its name in `_delta_log`, its size in bytes and its time in ms since 1970.

    `identity` changes if another file takes the name.
    """

    name: str
    kind: Kind
    size_bytes: int
    modification_time: int
    version: int | None = None
    part: int | None = None
    num_parts: int | None = None
    identity: tuple[int, int] = (0, 0)

    @property
    def place(self) -> str:
        """The file's path in the table's folder."""
        return f"{LOG_FOLDER}/{self.name}"


def log_file(
    name: str, size_bytes: int = 0, modification_time: int = 0, identity: tuple[int, int] = (0, 0)
) -> LogFile:
    """Make a `LogFile`, with the kind and the version that its name shows."""
    for kind, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(name):
            numbers: dict[str, Any] = {key: int(value) for key, value in match.groupdict().items()}
            return LogFile(name, kind, size_bytes, modification_time, identity=identity, **numbers)
    return LogFile(name, Kind.OTHER, size_bytes, modification_time, identity=identity)


def list_log(store: Store) -> list[LogFile]:
    """List the files in the table's `_delta_log` and its `_sidecars`, by name, without Hadoop's .*.crc files.

    Raises:
        TableNotFoundError: The folder doesn't exist any more, or can't be read.
    """
    entries = _entries(store)
    files = _files_of(entries)
    if any(entry.name == _SIDECARS and entry.is_folder for entry in entries):
        files += _files_of(store.entries(f"{LOG_FOLDER}/{_SIDECARS}"), f"{_SIDECARS}/")
    return sorted(files, key=lambda file: file.name)


def look_at_log(store: Store) -> tuple[bool, bool]:
    """Return whether a log has files, and whether a catalog may have staged commits that the log lacks."""
    has_staged = any(_files_of(entries) for _, entries in store.walk(f"{LOG_FOLDER}/{_STAGED}"))
    # Listing a long log in a remote store takes seconds, and it is listed anyway when the table is read.
    has_files = not store.is_local and store.is_folder(LOG_FOLDER)
    return has_files or any(_files_of([entry]) for entry in _entries(store)), has_staged


def _entries(store: Store) -> list[Entry]:
    try:
        return store.entries(LOG_FOLDER)
    except TableNotFoundError:
        if store.is_folder(LOG_FOLDER):
            raise
        gone = f"The table at {store.root} was deleted: its {LOG_FOLDER} folder does not exist"
        raise TableNotFoundError(f"{gone}; put it back, or open another table.") from None


def _files_of(entries: Iterable[Entry], prefix: str = "") -> list[LogFile]:
    return [
        log_file(prefix + one.name, one.size_bytes, one.modification_time, (one.identity, one.modified_ns))
        for one in entries
        if one.is_file and not one.name.startswith(".")
    ]


@dataclass(frozen=True)
class Segment:
    """A checkpoint (its parts, or none) and the commits after it, up to `version` inclusive."""

    version: int
    checkpoint: tuple[LogFile, ...]
    commits: tuple[LogFile, ...]

    @property
    def size_bytes(self) -> int:
        """Size of all these files, in bytes."""
        return sum(file.size_bytes for file in self.checkpoint + self.commits)


def find_segment(files: Sequence[LogFile], version: int | None = None) -> Segment:
    """Return the newest complete checkpoint up to a version (None: the latest), and the commits after it.

    `_last_checkpoint` is not used, because it may be missing, stale or damaged.

    Raises:
        InvalidArgumentError: The version doesn't exist, or can't be read any more.
        CorruptLogError: No version can be read, or a commit after the checkpoint is missing.
    """
    commits, checkpoints = commits_by_version(files), complete_checkpoints(files)
    if not commits and not checkpoints:
        raise CorruptLogError(
            "The _delta_log folder holds no commit and no checkpoint: no version can be read."
        )
    latest = max([*commits, *checkpoints])
    target = latest if version is None else parse_count(version, "version", 0)
    if target > latest:
        raise InvalidArgumentError(f"version={target} does not exist: the latest is {latest}.")
    start = max((v for v in checkpoints if v <= target), default=-1)
    needed = range(start + 1, target + 1)
    missing = next((v for v in needed if v not in commits), None)
    if missing is None:
        return Segment(target, checkpoints.get(start, ()), tuple(commits[v] for v in needed))
    is_trimmed = start < 0 and not any(v < missing for v in commits)
    if is_trimmed and checkpoints and version is not None:
        earliest = min(checkpoints)
        raise InvalidArgumentError(
            f"version={target} can't be read any more: the log was cleaned up to version {earliest}; choose "
            f"{earliest} or later."
        )
    raise CorruptLogError(
        f"Version {target} can't be read: the log lacks the commit of version {missing} and no complete "
        "checkpoint replaces it; restore that file from a backup."
    )


def commits_by_version(files: Sequence[LogFile]) -> dict[int, LogFile]:
    """Return the commits among files of a log."""
    return {file.version: file for file in files if file.kind is Kind.COMMIT and file.version is not None}


def complete_checkpoints(files: Sequence[LogFile]) -> dict[int, tuple[LogFile, ...]]:
    """Return the files of one complete checkpoint for each version that has one, a single file if possible.

    Multi-part checkpoints with a missing part and empty files don't count; Delta skips both.
    """
    found: dict[int, tuple[LogFile, ...]] = {}
    parts: dict[tuple[int, int], dict[int, LogFile]] = defaultdict(dict)
    for file in files:
        if file.version is None or not file.size_bytes:
            continue
        if file.kind is Kind.CHECKPOINT_PART and file.part and file.num_parts:
            parts[file.version, file.num_parts][file.part] = file
        elif file.kind is Kind.CHECKPOINT or (file.kind is Kind.V2_CHECKPOINT and file.version not in found):
            found[file.version] = (file,)
    for (version, num_parts), have in parts.items():
        if version not in found and set(have) == set(range(1, num_parts + 1)):
            found[version] = tuple(have[part] for part in sorted(have))
    return found


def readable_range(files: Sequence[LogFile]) -> range:
    """Return the versions whose state can be read from the log, up to the latest.

    The range begins at version 0 or at a checkpoint, and the log has every later commit: versions before a
    missing commit are left out. Without the commit of version 0, and with n as the first version of
    the remaining commits, Delta's time travel begins at the first checkpoint of version n - 1 or later
    (DeltaHistoryManager.getEarliestRecreatableCommit); without the latest commit, time travel reads nothing.
    """
    latest, commits = find_segment(files).version, commits_by_version(files)
    if latest not in commits:
        return range(latest, latest + 1)
    begin = latest
    while begin - 1 in commits:
        begin -= 1
    earliest = 0 if begin == 0 else min(v for v in complete_checkpoints(files) if v >= begin - 1)
    return range(earliest, latest + 1)
