"""Where the bytes of tables are, and the operations by which all of the kit reaches them.

A store is one folder: a table's, or one that tables are in. Its operations take places: paths relative
to that folder, or absolute ones for a file elsewhere, as `log.paths.places` gives them; "" is the folder
itself. `LocalStore` is the one for local disks. Another kind of storage is a class with the same
operations, which `open_store` chooses by the scheme of a name.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from compaction_kit.errors import CompactionKitError, TableNotFoundError, UnsupportedTableError

_MOST_SHOWN = 200


class Entry(NamedTuple):
    """A file or folder, links followed.

    A pipe, or a link that leads nowhere, is neither.
    """

    name: str
    is_file: bool
    is_folder: bool
    is_link: bool
    size_bytes: int
    modified_ns: int
    device: int
    inode: int

    @property
    def identity(self) -> tuple[int, int]:
        """What tells one file or folder from another, by whatever name each is reached."""
        return self.device, self.inode

    @property
    def is_gone(self) -> bool:
        """Whether it is a link that leads nowhere, or was deleted meanwhile."""
        return not self.inode

    @property
    def modification_time(self) -> int:
        """When it was written, ms since 1970."""
        return self.modified_ns // 1_000_000


@dataclass(frozen=True)
class LocalStore:
    """A folder on a local disk.

    Attributes:
        root: Its path, absolute and without symbolic links.
    """

    root: str

    def place(self, place: str) -> str:
        """The absolute path of a place."""
        return os.path.join(self.root, place) if place else self.root

    def real(self, place: str) -> str:
        """The absolute path of a place without symbolic links: one for each file, whatever leads to it."""
        return os.path.realpath(self.place(place))

    def below(self, place: str) -> "LocalStore":
        """The store of a folder."""
        return LocalStore(self.real(place))

    def status(self, place: str = "") -> Entry | None:
        """What is at a place, links followed; None for nothing, or a name that no file can have."""
        path = self.place(place)
        try:
            return _entry(os.path.basename(path), os.stat(path), os.path.islink(path))
        except (OSError, ValueError):
            return None

    def is_file(self, place: str) -> bool:
        """Whether a file is at a place."""
        try:
            return os.path.isfile(self.place(place))
        except ValueError:
            return False

    def is_folder(self, place: str = "") -> bool:
        """Whether a folder is at a place."""
        return os.path.isdir(self.place(place))

    def is_taken(self, place: str) -> bool:
        """Whether anything is at a place, be it a link that leads nowhere."""
        return os.path.lexists(self.place(place))

    def may_write(self, place: str = "") -> bool:
        """Whether this process may make and delete files in a folder."""
        by_effective_id = os.access in os.supports_effective_ids
        return os.access(self.place(place), os.W_OK | os.X_OK, effective_ids=by_effective_id)

    def entries(self, place: str = "") -> list[Entry]:
        """What is in a folder.

        Raises:
            TableNotFoundError: The folder is gone, or can't be read.
        """
        folder = self.place(place)
        try:
            with os.scandir(folder) as found:
                return list(map(_entry_of, found))
        except OSError as error:
            raise TableNotFoundError(
                f"The folder {folder} can't be read ({error.strerror}): check the path and who may read it."
            ) from error

    def walk(self, place: str = "") -> Iterator[tuple[str, list[Entry]]]:
        """Each folder below a place, top down, and what is in it.

        Remove folders from a list and they are not gone into; links never are, nor what can't be read.
        """
        try:
            found = self.entries(place)
        except TableNotFoundError:
            return
        yield place, found
        for entry in found:
            if entry.is_folder and not entry.is_link:
                yield from self.walk(os.path.join(place, entry.name))

    def read(self, place: str, start: int = 0, size: int | None = None) -> bytes:
        """Bytes of a file: as many from a position on, or all of them from there.

        Raises:
            OSError: It can't be read.
        """
        with open(self.place(place), "rb", buffering=0) as file:
            file.seek(start)
            return file.read(-1 if size is None else size)

    def lines(self, place: str) -> Iterator[bytes]:
        """The lines of a file, read as they are asked for.

        Raises:
            OSError: It can't be read.
        """
        with open(self.place(place), "rb") as file:
            yield from file

    def open(self, place: str) -> pa.NativeFile:
        """Open a file for Arrow, which reads the parts that it needs.

        Raises:
            OSError: It can't be read.
        """
        return pa.memory_map(self.place(place))

    def create(self, place: str, data: bytes) -> None:
        """Write a new file.

        Raises:
            FileExistsError: There is one.
        """
        with open(self.place(place), "xb") as file:
            file.write(data)

    def make_folder(self, place: str, exist_ok: bool = True) -> None:
        """Make a folder, and those that it is in, where there is none."""
        os.makedirs(self.place(place), exist_ok=exist_ok)

    def move(self, place: str, to: str) -> None:
        """Move a file or folder, with the folders that it needs; those that it empties below the root go."""
        target = self.place(to)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(self.place(place), target)
        with contextlib.suppress(OSError):
            while not os.path.isabs(place) and (place := os.path.dirname(place)):
                os.rmdir(self.place(place))

    def may_move_to(self, other: "LocalStore") -> bool:
        """Whether files can be moved to another store without a copy: it is on the same disk."""
        return os.stat(self.root).st_dev == os.stat(other.root).st_dev

    def delete_empty(self, place: str = "") -> None:
        """Delete a folder and those in it, as far as they hold nothing else."""
        for folder, _, _ in os.walk(self.place(place), topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def delete(self, place: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing, if nothing is there."""
        path = self.place(place)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink(missing_ok=True)


# The operations that a storage has; the next one makes this a union or a protocol.
Store = LocalStore


def open_store(name: str | Path) -> Store:
    """The store of a folder, there or not, by its path or URI.

    Raises:
        UnsupportedTableError: It isn't on a local disk.
        TableNotFoundError: Nothing can be at such a path, or nobody may look there.
    """
    return LocalStore(os.path.realpath(local_path(str(name))))


def is_folder(name: str) -> bool:
    """Return whether a path or URI names a folder; False for a name that can't be used."""
    try:
        return open_store(name).is_folder()
    except CompactionKitError:
        return False


def local_path(name: str) -> Path:
    """The path that a path or a URI stands for; see `open_store`."""
    path = _path_of(name)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise TableNotFoundError(f"No table at {name[:_MOST_SHOWN]!r}: {reason}; check the path.") from error
    return path


def checksum_place(place: str) -> str:
    """The place of the file in which Hadoop keeps another one's checksums, if it does."""
    folder, name = os.path.split(place)
    return os.path.join(folder, f".{name}.crc")


def shown_name(name: str) -> str:
    """A name with a mark in the place of each byte that isn't UTF-8, as no file has that is looked for."""
    return name if name.isascii() else os.fsencode(name).decode(errors="replace")


def _path_of(name: str) -> Path:
    if name.startswith("file:"):
        return Path(unquote(name.removeprefix("file:").removeprefix("//")))
    scheme, separator, _ = name.partition("://")
    if separator:
        raise UnsupportedTableError(
            f"{name} is on {scheme}, and only local disks are read: copy the table here."
        )
    return Path(name)


def _entry_of(entry: os.DirEntry[str]) -> Entry:
    try:
        return _entry(entry.name, entry.stat(), entry.is_symlink())
    except OSError:
        # Gone meanwhile, or a link that leads nowhere.
        return Entry(entry.name, False, False, entry.is_symlink(), 0, 0, 0, 0)


def _entry(name: str, status: os.stat_result, is_link: bool) -> Entry:
    mode, inode = status.st_mode, status.st_ino
    is_file, is_folder = stat.S_ISREG(mode), stat.S_ISDIR(mode)
    size_bytes, modified_ns = status.st_size, status.st_mtime_ns
    return Entry(name, is_file, is_folder, is_link, size_bytes, modified_ns, status.st_dev, inode)
