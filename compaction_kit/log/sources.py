"""The files of a log that hold file actions, read column by column, as often as columns are wanted."""

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from compaction_kit.log.json_source import JsonSource
from compaction_kit.log.listing import LOG_FOLDER, LogFile
from compaction_kit.log.parquet_source import ParquetSource
from compaction_kit.storage import Store


class Source(Protocol):
    """Rows of the log, the same ones in the same order at each reading."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that the rows are in."""

    def rows(self, names: Iterable[str]) -> pa.Table:
        """The rows, as `actions.file_actions` and `actions.column` take them, with these columns."""

    def num_records(self) -> pa.Array:
        """The records in each row's file if it is an add whose stats say so, int64, else null."""

    def stats(self) -> pa.Array:
        """The stats of each row's file as JSON text if it is an add that has any, else null."""

    def other_actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The actions in the rows that are about no file, and sidecars: name and fields."""

    def actions(self) -> Iterator[dict[str, Any]]:
        """Every action of the rows, whole: an object with the action's name as its key."""

    def is_there(self) -> bool:
        """Whether the rows can still be read."""


def checkpoint_sources(store: Store, files: Sequence[LogFile]) -> list[Source]:
    """The sources of a checkpoint: its own files and, for a V2 checkpoint, its sidecars."""
    own: list[Source] = [_checkpoint_file(store, file) for file in files]
    return own + [ParquetSource(store, place) for place in _sidecars(own)]


def sidecar_names(store: Store, files: Sequence[LogFile]) -> set[str]:
    """The sidecars of a checkpoint, by their names in the log; none of a checkpoint without."""
    folder = f"{store.place(LOG_FOLDER)}/"
    paths = map(store.place, _sidecars([_checkpoint_file(store, file) for file in files]))
    return {path.removeprefix(folder) for path in paths if path.startswith(folder)}


def checkpoint_actions(store: Store, files: Sequence[LogFile]) -> Iterator[dict[str, Any]]:
    """Every action of a checkpoint, its sidecars' after its own, as a commit would write it."""
    for source in checkpoint_sources(store, files):
        yield from source.actions()


def _checkpoint_file(store: Store, file: LogFile) -> "JsonSource | ParquetSource":
    return JsonSource(store, [file]) if file.name.endswith(".json") else ParquetSource(store, file.place)


def _sidecars(sources: Iterable[Source]) -> list[str]:
    """The places of the sidecars that a checkpoint's own files name."""
    actions = [action for source in sources for name, action in source.other_actions() if name == "sidecar"]
    # A path with a slash is absolute; one without is a file's name in _sidecars.
    return [posixpath.join(LOG_FOLDER, "_sidecars", action["path"]) for action in actions]
