"""Folders: where tables may be, and what is in one, live or not, as VACUUM sees it."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

_DEEPEST = 6
_SHOWN = ("_delta_index", "_change_data")
COLUMNS = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("modification_time", pa.int64())])


@dataclass(frozen=True)
class Folder:
    """What is in a table's folder.

    Attributes:
        files: What VACUUM looks at: path (relative to the table, as on disk), size_bytes,
            modification_time (ms since 1970).
        directories: What each folder among them holds directly, however hidden: how many
            entries, by its path.
        hidden: What VACUUM passes over: files and folders, by their paths.
    """

    files: pa.Table
    directories: dict[str, int]
    hidden: list[str]


@dataclass
class _Found:
    files: list[tuple[str, int, int]] = field(default_factory=list)
    directories: dict[str, int] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)


def walk(root: str | Path, hidden: tuple[str, ...] = (".", "_")) -> Iterator[tuple[str, list[str]]]:
    """Folders below a root, top down, as far as six levels.

    Args:
        root: Where to begin; if it doesn't exist, there are none.
        hidden: Folders whose names begin so are passed over.

    Yields:
        A folder's path, beginning with `root`, and the names of all of its subfolders: clear that
        list, or take names from it, and they are not gone into.
    """
    for folder, subfolders, _ in os.walk(str(root)):
        yield folder, subfolders
        if len(Path(folder).relative_to(str(root)).parts) == _DEEPEST:
            subfolders.clear()
        subfolders[:] = sorted(name for name in subfolders if not name.startswith(hidden))


def look_through(
    table: Path, partition_columns: Sequence[str], hides_iceberg_metadata: bool = False
) -> Folder:
    """Look at every file and folder of a table but for what hidden folders hold.

    Args:
        table: The table's folder.
        partition_columns: By which it is partitioned: their folders are shown whatever their names
            (DeltaTableUtils.isHiddenDirectory).
        hides_iceberg_metadata: Whether what is called "metadata" is hidden, as it is where Delta
            writes Iceberg's metadata too.
    """
    shown = (*_SHOWN, *(f"{column}=" for column in partition_columns))
    found = _Found()
    _walk(str(table), "", shown, "metadata" if hides_iceberg_metadata else None, found)
    columns = zip(*found.files, strict=True) if found.files else ([], [], [])
    arrays = [pa.array(list(column), kind.type) for column, kind in zip(columns, COLUMNS, strict=True)]
    return Folder(pa.table(arrays, COLUMNS), found.directories, found.hidden)


def list_folder(table: Path, partition_columns: Sequence[str]) -> pa.Table:
    """Every file that VACUUM looks at; see `Folder.files`.

    Args:
        table: The table's folder.
        partition_columns: By which it is partitioned.
    """
    return look_through(table, partition_columns).files


def count_files(table: Path, paths: Sequence[str]) -> tuple[int, int]:
    """How many files some files and folders are or hold, at any depth, and their bytes.

    Args:
        table: The table's folder.
        paths: Relative to it.
    """
    number = size_bytes = 0
    for path in paths:
        place = table / path
        inner = (os.path.join(top, name) for top, _, names in os.walk(place) for name in names)
        for file in inner if place.is_dir() else [str(place)]:
            number += 1
            size_bytes += os.lstat(file).st_size
    return number, size_bytes


def _walk(folder: str, prefix: str, shown: tuple[str, ...], metadata: str | None, found: _Found) -> int:
    """Add what is in a folder to what was found; how many entries it has."""
    subfolders, number = [], 0
    with os.scandir(folder) as entries:
        for entry in entries:
            number += 1
            name = entry.name
            if name == metadata or (name.startswith((".", "_")) and not name.startswith(shown)):
                found.hidden.append(prefix + name)
            elif entry.is_dir():
                subfolders.append(name)
            else:
                status = entry.stat()
                found.files.append((prefix + name, status.st_size, status.st_mtime_ns // 1_000_000))
    for name in subfolders:
        inner = _walk(f"{folder}/{name}", f"{prefix}{name}/", shown, metadata, found)
        found.directories[prefix + name] = inner
    return number
