"""Folders: where tables may be, and what is in one, live or not, as VACUUM sees it."""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from compaction_kit.errors import TableNotFoundError

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
        links: What of all this is a symbolic link, by its path.
    """

    files: pa.Table
    directories: dict[str, int]
    hidden: list[str]
    links: list[str]


@dataclass
class _Found:
    files: list[tuple[str, int, int]] = field(default_factory=list)
    directories: dict[str, int] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


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


def entries_in(folder: str | Path) -> list[os.DirEntry[str]]:
    """What is in a folder.

    Raises:
        TableNotFoundError: The folder is gone, or can't be read.
    """
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise TableNotFoundError(
            f"The folder {folder} can't be read ({error.strerror}): check the path and who may read it."
        ) from error


def status_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What an entry of a folder is, links followed; None if it is gone, or a link that leads nowhere."""
    try:
        return entry.stat()
    except OSError:
        return None


def files_in(folder: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """The name of each file in a folder, and what it is; folders, pipes and the like left out.

    A name that isn't UTF-8 comes with a mark in the place of each byte that isn't, so that it can
    be shown: no file that anybody looks for has one.

    Raises:
        TableNotFoundError: The folder is gone, or can't be read.
    """
    for entry in entries_in(folder):
        status = status_of(entry)
        if status is not None and stat.S_ISREG(status.st_mode):
            yield readable(entry.name), status


def readable(name: str) -> str:
    """A name with a mark in the place of each byte that isn't UTF-8."""
    return os.fsencode(name).decode(errors="replace")


def is_file(path: str | Path) -> bool:
    """Whether a file is at a path, which anybody may have written."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        # The name is too long, or no name at all.
        return False


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
    _walk(str(table), "", shown, "metadata" if hides_iceberg_metadata else None, found, ())
    columns = zip(*found.files, strict=True) if found.files else ([], [], [])
    arrays = [pa.array(list(column), kind.type) for column, kind in zip(columns, COLUMNS, strict=True)]
    return Folder(pa.table(arrays, COLUMNS), found.directories, found.hidden, found.links)


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
            # Somebody may delete it meanwhile.
            with contextlib.suppress(FileNotFoundError):
                size_bytes += os.lstat(file).st_size
                number += 1
    return number, size_bytes


def _walk(
    folder: str,
    prefix: str,
    shown: tuple[str, ...],
    metadata: str | None,
    found: _Found,
    above: tuple[tuple[int, int], ...],
) -> int:
    """Add what is in a folder to what was found; how many entries it has.

    `above` are the folders that it is in. Hidden is also what can't be named in UTF-8, which Java
    doesn't find, and a link that leads back to one of those: VACUUM would go round.
    """
    entries, subfolders = entries_in(folder), []
    here = (*above, _identity(os.stat(folder)))
    for entry in entries:
        name, status = entry.name, status_of(entry)
        if entry.is_symlink():
            found.links.append(prefix + name)
        if (
            status is None
            or name == metadata
            or (name.startswith((".", "_")) and not name.startswith(shown))
            or readable(name) != name
            or _identity(status) in here
        ):
            found.hidden.append(prefix + name)
        elif stat.S_ISDIR(status.st_mode):
            subfolders.append(name)
        else:
            found.files.append((prefix + name, status.st_size, status.st_mtime_ns // 1_000_000))
    for name in subfolders:
        inner = _walk(f"{folder}/{name}", f"{prefix}{name}/", shown, metadata, found, here)
        found.directories[prefix + name] = inner
    return len(entries)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
