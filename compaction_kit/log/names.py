"""The files of a `_delta_log` folder, by their names (protocol, "Delta Log Entries" and "Checkpoints")."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from compaction_kit.errors import TableNotFoundError
from compaction_kit.folder import files_in

LOG_FOLDER = "_delta_log"


class Kind(StrEnum):
    """What a file of the log is."""

    COMMIT = "commit"
    CHECKSUM = "checksum"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_PART = "checkpoint part"
    V2_CHECKPOINT = "v2 checkpoint"
    SIDECAR = "sidecar"
    COMPACTED = "compacted log"
    LAST_CHECKPOINT = "last checkpoint"
    OTHER = "other"


@dataclass(frozen=True)
class LogFile:
    """One file of the log: what its name and its folder entry say.

    `identity` tells a file from another that took its name: inode, and time in ns.
    """

    name: str
    kind: Kind
    size_bytes: int
    modification_time: int
    version: int | None = None
    end_version: int | None = None
    part: int | None = None
    num_parts: int | None = None
    identity: tuple[int, int] = (0, 0)


_LARGEST = 2**63 - 1
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PATTERNS = (
    (Kind.COMMIT, re.compile(r"(?P<version>[0-9]{20})\.json")),
    (Kind.CHECKSUM, re.compile(r"(?P<version>[0-9]{20})\.crc")),
    (Kind.CHECKPOINT, re.compile(r"(?P<version>[0-9]{20})\.checkpoint\.parquet")),
    (
        Kind.CHECKPOINT_PART,
        re.compile(
            r"(?P<version>[0-9]{20})\.checkpoint\.(?P<part>[0-9]{10})\.(?P<num_parts>[0-9]{10})\.parquet"
        ),
    ),
    (Kind.V2_CHECKPOINT, re.compile(rf"(?P<version>[0-9]{{20}})\.checkpoint\.{_UUID}\.(?:json|parquet)")),
    (Kind.COMPACTED, re.compile(r"(?P<version>[0-9]{20})\.(?P<end_version>[0-9]{20})\.compacted\.json")),
    (Kind.LAST_CHECKPOINT, re.compile(r"_last_checkpoint")),
)


def log_file(name: str, size_bytes: int = 0, modification_time: int = 0) -> LogFile:
    """Describe a file by its name in `_delta_log`, its size in bytes and its time in ms since 1970."""
    for kind, pattern in _PATTERNS:
        if match := pattern.fullmatch(name):
            numbers: dict[str, Any] = {key: int(value) for key, value in match.groupdict().items()}
            # No writer's version is larger than a long.
            if max(numbers.values(), default=0) <= _LARGEST:
                return LogFile(name, kind, size_bytes, modification_time, **numbers)
    kind = Kind.SIDECAR if name.startswith("_sidecars/") and name.endswith(".parquet") else Kind.OTHER
    return LogFile(name, kind, size_bytes, modification_time)


def list_log(table: Path) -> list[LogFile]:
    """Every file in the table's `_delta_log` and its `_sidecars`, by name; Hadoop's own .*.crc left out.

    Raises:
        TableNotFoundError: There is no such folder any more, or it can't be read.
    """
    folder = table / LOG_FOLDER
    if not folder.is_dir():
        raise TableNotFoundError(f"The table at {table} is gone: its {LOG_FOLDER} folder does not exist.")
    found = []
    for place, prefix in ((folder, ""), (folder / "_sidecars", "_sidecars/")):
        if not place.is_dir():
            continue
        for name, status in files_in(place):
            if not name.startswith("."):
                file = log_file(prefix + name, status.st_size, status.st_mtime_ns // 1_000_000)
                found.append(replace(file, identity=(status.st_ino, status.st_mtime_ns)))
    return sorted(found, key=lambda file: file.name)
