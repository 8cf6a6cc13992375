"""Where the log of a file sink or a file source is, and which files are in it."""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from compaction_kit.errors import NotASinkLogError, TableNotFoundError
from compaction_kit.folder import files_in

SINK_FOLDER = "_spark_metadata"
SOURCES_FOLDER = "sources"
_BATCH = re.compile(r"(0|[1-9][0-9]*)(\.compact)?")
_LARGEST = 2**63 - 1
_HEAD_BYTES = 1 << 16
_ADVICE = (
    f"name the output folder of a file sink, its {SINK_FOLDER}, or a folder such as sources/0 in the "
    "checkpoint of a stream that reads files"
)


class Kind(StrEnum):
    """Whose log it is."""

    SINK = "sink"
    SOURCE = "source"


@dataclass(frozen=True)
class BatchFile:
    """One file of a log: a batch's own entries, or a compaction of all up to that batch.

    `modification_time` is in ms since 1970.
    """

    batch: int
    is_compaction: bool
    size_bytes: int
    modification_time: int

    @property
    def name(self) -> str:
        """Its name, as CompactibleFileStreamLog.batchIdToPath gives it."""
        return file_name(self.batch, self.is_compaction)


def file_name(batch: int, is_compaction: bool) -> str:
    """The name of a batch's file."""
    return f"{batch}.compact" if is_compaction else str(batch)


def find_log(path: Path) -> Path:
    """The folder of the log that a path stands for.

    Args:
        path: The output folder of a file sink, a checkpoint, or the log's folder itself.

    Raises:
        TableNotFoundError: There is nothing at the path.
        NotASinkLogError: No log is there.
    """
    if not path.exists():
        raise TableNotFoundError(f"No sink log at {path}: the path does not exist; check the spelling.")
    if not path.is_dir():
        raise NotASinkLogError(f"{path} is a file: {_ADVICE}.")
    for folder in (path / SINK_FOLDER, path / SOURCES_FOLDER / "0"):
        if folder.is_dir():
            return folder
    return path


def list_files(folder: Path) -> tuple[BatchFile, ...]:
    """The files of a log, the oldest batch first; what else is in the folder left out.

    Raises:
        NotASinkLogError: There is none.
    """
    found = []
    for name, status in files_in(folder):
        match = _BATCH.fullmatch(name)
        if match and int(match[1]) <= _LARGEST:
            time = status.st_mtime_ns // 1_000_000
            found.append(BatchFile(int(match[1]), bool(match[2]), status.st_size, time))
    if found:
        return tuple(sorted(found, key=lambda file: (file.batch, file.is_compaction)))
    if folder.name == SINK_FOLDER:
        raise NotASinkLogError(
            f"{folder} is empty: the stream has not committed a batch yet, and Spark reads no row there."
        )
    raise NotASinkLogError(f"{folder} holds no log of a file sink or a file source: {_ADVICE}.")


def kind_of(folder: Path, files: tuple[BatchFile, ...]) -> Kind:
    """Whose log it is: by the folder's name, else by an entry, as other logs of a checkpoint look alike.

    Raises:
        NotASinkLogError: It is another log, such as that of a stream's offsets.
    """
    if folder.name == SINK_FOLDER:
        return Kind.SINK
    for file in reversed(files):
        entry = _an_entry(folder / file.name)
        if entry is not None:
            names = set(entry) if isinstance(entry, dict) else set()
            if {"path", "batchId"} <= names:
                return Kind.SOURCE
            if {"path", "action"} <= names:
                return Kind.SINK
            raise NotASinkLogError(
                f"{folder} holds another log of a stream, whose entries aren't files: {_ADVICE}."
            )
    if folder.parent.name == SOURCES_FOLDER:
        return Kind.SOURCE
    raise NotASinkLogError(f"{folder} holds no log of a file sink or a file source: {_ADVICE}.")


def _an_entry(path: Path) -> object:
    """What the second line of a file says; None if that can't be told."""
    try:
        with path.open("rb") as file:
            lines = file.read(_HEAD_BYTES).splitlines()
        return json.loads(lines[1])
    except (OSError, IndexError, ValueError, RecursionError):
        return None
