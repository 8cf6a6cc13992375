"""Read the files of a log that hold file actions, column by column, when columns are needed."""

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from compaction_kit.log.json_source import JsonSource
from compaction_kit.log.listing import LOG_FOLDER, LogFile
from compaction_kit.log.parquet_source import ParquetSource
from compaction_kit.storage import Store


class Source(Protocol):
    """Rows of the log, the same rows in the same order at each reading."""

    @property
    def size_bytes(self) -> int:
        """Size of the files with the rows, in bytes."""

    def rows(self, names: Iterable[str]) -> pa.Table:
        """Return the rows with these columns, for `actions.file_actions` and `actions.column`."""

    def num_records(self) -> pa.Array:
        """Return the number of records in each row's file, int64; null unless it is an add with stats."""

    def stats(self) -> pa.Array:
        """Return the stats of each row's file as JSON text; null unless it is an add with stats."""

    def other_actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name and fields of the actions without a data file, and of sidecars."""

    def actions(self) -> Iterator[dict[str, Any]]:
        """Yield every action with all fields: an object with the action's name as key."""

    def is_there(self) -> bool:
        """Return whether the rows can still be read."""


def checkpoint_sources(store: Store, files: Sequence[LogFile]) -> list[Source]:
    """Return the sources of a checkpoint: its own files and the sidecars of a V2 checkpoint."""
    own: list[Source] = [_checkpoint_file(store, file) for file in files]
    return own + [ParquetSource(store, place) for place in _sidecars(own)]


def sidecar_names(store: Store, files: Sequence[LogFile]) -> set[str]:
    """Return the names in the log of a checkpoint's sidecars, if it has any."""
    folder = f"{store.place(LOG_FOLDER)}/"
    paths = map(store.place, _sidecars([_checkpoint_file(store, file) for file in files]))
    return {path.removeprefix(folder) for path in paths if path.startswith(folder)}


def checkpoint_actions(store: Store, files: Sequence[LogFile]) -> Iterator[dict[str, Any]]:
    """Yield every action of a checkpoint and then of its sidecars, as a commit would write it."""
    for source in checkpoint_sources(store, files):
        yield from source.actions()


def _checkpoint_file(store: Store, file: LogFile) -> "JsonSource | ParquetSource":
    return JsonSource(store, [file]) if file.name.endswith(".json") else ParquetSource(store, file.place)


def _sidecars(sources: Iterable[Source]) -> list[str]:
    """Return the paths of the sidecars that a checkpoint's own files name."""
    actions = [action for source in sources for name, action in source.other_actions() if name == "sidecar"]
    # A path is absolute, or the name of a file in _sidecars.
    return [posixpath.join(LOG_FOLDER, "_sidecars", action["path"]) for action in actions]
