"""Folders on a local disk, and what any store says of a file or folder."""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from compaction_kit.errors import TableNotFoundError


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
    is_local = True
    # Hadoop writes a checksum file beside each file.
    has_checksums = True
    # Executors reach it as this process does.
    files = None

    def uri(self, place: str = "") -> str:
        """The URI of a place for Hadoop's Path, where nothing is percent-encoded.

        Hadoop would look for a path without a scheme on the session's default file system (fs.defaultFS).
        """
        return f"file:{self.place(place)}"

    def relative(self, uri: str) -> str | None:
        """Return None: what isn't on a local disk is elsewhere."""
        return None

    def place(self, place: str = "") -> str:
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
            ) from None

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

    def open_all(self, places: Iterable[str]) -> list[pa.NativeFile]:
        """Open small files; see `open`."""
        return list(map(self.open, places))

    def prepare(self, places: Iterable[str]) -> None:
        """Do nothing: files on a disk are read when they are needed."""

    def listed(self) -> "LocalStore":
        """Return the store itself: to look at a disk costs nothing."""
        return self

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
