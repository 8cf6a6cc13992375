"""Folders of tables on local disks, object stores and HDFS, and the operations that reach them.

A store is a root folder and a `pyarrow.fs.FileSystem`. Its operations take places: paths relative to the
root, "" for the root itself, or absolute paths and URIs of files elsewhere, as `log.paths.places` returns
them. `LocalStore` uses the system's own calls, which are faster than pyarrow's and can move files.

Symbolic links inside a folder are not followed: they are listed as neither file nor folder. Names that are
not UTF-8 are not listed, as Java doesn't find such files. The root itself may be reached through links.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from compaction_kit.errors import (
    CompactionKitError,
    InvalidArgumentError,
    StorageError,
    TableNotFoundError,
    UnsupportedTableError,
    show_value,
)
from compaction_kit.storage.store import S3_SCHEMES as S3_SCHEMES
from compaction_kit.storage.store import Answer, Entry, Item, Store

__all__ = [
    "Entry", "LocalStore", "Store", "checksum_place", "is_folder", "local_path", "local_store", "open_store",
    "path_text",
]  # fmt: skip

# Databricks' file system has no authority in its URIs.
_REMOTE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://|dbfs:/")


@dataclass(frozen=True)
class LocalStore(Store):
    """A folder on a local disk, by its absolute path without symbolic links."""

    is_local = True

    def uri(self, place: str = "") -> str:
        # Hadoop looks for a path without a scheme on the session's default file system (fs.defaultFS).
        return f"file:{self.place(place)}"

    def place(self, place: str = "") -> str:
        return os.path.join(self.root, place) if place else self.root

    def real(self, place: str = "") -> str:
        """Return the absolute path of a place without symbolic links."""
        return os.path.realpath(self.place(place))

    def status(self, place: str = "") -> Entry | None:
        path = self.place(place)
        try:
            return _entry(os.path.basename(path), os.lstat(path))
        except PermissionError:
            raise StorageError(f"{path} can't be reached: check who may read the folder it is in.") from None
        except (OSError, ValueError):
            return None

    def may_write(self, place: str) -> bool:
        by_effective_id = os.access in os.supports_effective_ids
        return os.access(self.place(place), os.W_OK | os.X_OK, effective_ids=by_effective_id)

    def entries(self, place: str = "") -> list[Entry]:
        folder, entries = self.place(place), []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    # Files may be deleted meanwhile.
                    with contextlib.suppress(FileNotFoundError, UnicodeEncodeError):
                        entry.name.isascii() or entry.name.encode()
                        entries.append(_entry(entry.name, entry.stat(follow_symlinks=False)))
        except OSError as error:
            why = f"The folder {folder} can't be read ({error.strerror}): check the path and who may read it."
            raise TableNotFoundError(why) from None
        return entries

    def listed(self) -> LocalStore:
        return self

    def at_once(self, ask: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
        return map(ask, items)

    def read(self, place: str, start: int = 0, size: int | None = None) -> bytes:
        with open(self.place(place), "rb", buffering=0) as file:
            file.seek(start)
            return file.read(-1 if size is None else size)

    def lines(self, place: str) -> Iterator[bytes]:
        with open(self.place(place), "rb") as file:
            yield from file

    def open(self, place: str) -> pa.NativeFile:
        return pa.memory_map(self.place(place))

    def create(self, place: str, data: bytes) -> None:
        """Write a new file; raise FileExistsError if there is one."""
        with open(self.place(place), "xb") as file:
            file.write(data)

    def make_folder(self, place: str, exist_ok: bool = True) -> None:
        """Make a folder and its parents."""
        os.makedirs(self.place(place), exist_ok=exist_ok)

    def move(self, place: str, to: str) -> None:
        """Move a file or folder; missing folders are made, and folders that become empty are deleted."""
        os.renames(self.place(place), self.place(to))

    def delete_empty(self, place: str = "") -> None:
        """Delete a folder and the folders in it, as far as they hold no files."""
        for folder, _, _ in os.walk(self.place(place), topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def delete(self, place: str) -> None:
        if self.is_folder(place):
            shutil.rmtree(self.place(place), ignore_errors=True)
        else:
            Path(self.place(place)).unlink(missing_ok=True)


def path_text(name: object) -> str:
    """Return a path, URI or name as text; raise InvalidArgumentError for other values."""
    if not isinstance(name, (str, os.PathLike)):
        raise InvalidArgumentError(f"{show_value(name)} is no path: give text or a pathlib.Path.")
    return str(os.fspath(name))


def open_store(name: str | Path) -> Store:
    """Return the store of a folder, which need not exist, by its path or URI.

    Raises:
        InvalidArgumentError: `name` is neither text nor a path.
        TableNotFoundError: The path is invalid, or this process may not look there.
    """
    text = path_text(name)
    return Store(text.rstrip("/")) if _REMOTE.match(text) else LocalStore(os.path.realpath(local_path(text)))


def local_store(name: Store | str | Path, what: str) -> LocalStore:
    """Return the store of a path or URI, or the given store, if it is on a local disk.

    Raises:
        UnsupportedTableError: The store isn't on a local disk, and `what` works on local disks only.
    """
    store = name if isinstance(name, Store) else open_store(name)
    if isinstance(store, LocalStore):
        return store
    raise UnsupportedTableError(f"{what} works on local disks alone, and {store.root} is elsewhere.")


def is_folder(name: str) -> bool:
    """Return whether a path or URI names a folder; False for a name that can't be used."""
    with contextlib.suppress(CompactionKitError):
        return open_store(name).is_folder()
    return False


def local_path(name: str) -> Path:
    """Return the path for a path, which may begin with "~", or for a "file:" URI.

    Raises:
        UnsupportedTableError: The path isn't on a local disk.
        TableNotFoundError: The path is invalid, or this process may not look there.
    """
    if _REMOTE.match(name):
        raise UnsupportedTableError(f"{name} isn't on a local disk: give a path on one.")
    text = name.removeprefix("file:")
    plain = os.path.expanduser(name) if text == name else text.removeprefix("//")
    # Hadoop's URIs, such as a table's own, aren't encoded; others are.
    path = Path(plain if text == name or os.path.exists(plain) else unquote(plain))
    try:
        str(path).encode()
        # This fails if the working folder was deleted.
        path.absolute()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    except (OSError, ValueError) as error:
        is_text = not isinstance(error, UnicodeError)
        reason = getattr(error, "strerror", error) if is_text else "its name is not UTF-8"
        raise TableNotFoundError(f"No table at {name[:200]!r}: {reason}; check the path.") from None
    return path


def checksum_place(place: str) -> str:
    """Return the place where Hadoop keeps the checksums of a file, on local disks only."""
    folder, name = posixpath.split(place)
    return posixpath.join(folder, f".{name}.crc")


def _entry(name: str, status: os.stat_result) -> Entry:
    is_file, is_folder = stat.S_ISREG(status.st_mode), stat.S_ISDIR(status.st_mode)
    # A copy may keep the size and the modification time, but not the time of its last change.
    identity = status.st_ino ^ status.st_ctime_ns
    return Entry(name, is_file, is_folder, status.st_size, status.st_mtime_ns, identity)
