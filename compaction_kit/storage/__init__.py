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
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from compaction_kit.errors import CompactionKitError, StorageError, TableNotFoundError, UnsupportedTableError

S3_SCHEMES = ("s3", "s3a", "s3n")
# Requests in flight: 2,000 small files at 30 ms a request take 2.4 s with 64, 1.8 s with 128 and with 256.
MOST_REQUESTS = 128
# Larger files are read in ranges of this size, in parallel.
_RANGE_BYTES = 8 << 20
_MOST_SHOWN = 200
# Databricks' file system has no authority in its URIs.
_REMOTE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://|dbfs:/")
# In messages of Amazon's SDK: the code of an error that it doesn't know; curl's words; the kind of the error.
_REASON = re.compile(
    r".*Unable to parse ExceptionName: (\w+)|.*curlCode: \d+, ([^;]+)|.*AWS Error (\w+)", re.DOTALL
)
_DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|TOKEN|HTTP status 40[13]|credential|Permission denied", re.I
)

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Entry(NamedTuple):
    """A file or folder; a symbolic link, or a pipe, is neither."""

    name: str
    is_file: bool
    is_folder: bool
    size_bytes: int
    modified_ns: int
    inode: int = 0

    @property
    def modification_time(self) -> int:
        """The modification time in ms since 1970."""
        return self.modified_ns // 1_000_000


@dataclass(frozen=True)
class Store:
    """A folder on an object store, HDFS, or whatever else the session's Hadoop reaches, by its URI."""

    root: str
    is_local = False

    @property
    def filesystem(self) -> fs.FileSystem | None:
        """The file system for executors; None on local disks, and where executors can't reach the store."""
        found = None if self.is_local else self._filesystem
        return None if isinstance(found, fs.PyFileSystem) else found

    @property
    def _filesystem(self) -> fs.FileSystem:
        # Needs PySpark, which local tables do not.
        from compaction_kit.storage.filesystems import open_filesystem

        with reaching(self.root):
            return open_filesystem(self.root, MOST_REQUESTS)

    def place(self, place: str = "") -> str:
        """Return the URI of a place."""
        return place if "://" in place else f"{self.root}/{place}".rstrip("/")

    uri = real = place

    def below(self, place: str) -> Store:
        """Return the store of a folder."""
        return Store(self.place(place))

    def relative(self, uri: str) -> str | None:
        """Return the place in this folder that a URI names; None if it is elsewhere."""
        # Other clients call the same storage s3 or s3n.
        place, root = (re.sub("^s3[an]://", "s3://", name) for name in (uri, self.root))
        return place[len(root) + 1 :] if place == root or place.startswith(f"{root}/") else None

    def status(self, place: str = "") -> Entry | None:
        """Return what is at a place; None for nothing."""
        with reaching(self.place(place)):
            found = self._filesystem.get_file_info(path_of(self.place(place)))
        return None if found.type == fs.FileType.NotFound else _entry_of(found)

    def is_file(self, place: str) -> bool:
        """Return whether a file is at a place."""
        found = self.status(place)
        return found is not None and found.is_file

    def is_folder(self, place: str = "") -> bool:
        """Return whether a folder is at a place."""
        found = self.status(place)
        return found is not None and found.is_folder

    def is_taken(self, place: str) -> bool:
        """Return whether anything is at a place."""
        return self.status(place) is not None

    def may_write(self, place: str = "") -> bool:
        """Return True: a store refuses when it is written to."""
        return True

    def entries(self, place: str = "") -> list[Entry]:
        """List a folder; raise TableNotFoundError if it does not exist, StorageError if out of reach."""
        found = [_entry_of(info) for info in self._infos(place)]
        if not found and not self.is_folder(place):
            raise TableNotFoundError(f"The folder {self.place(place)} does not exist: check the spelling.")
        return found

    def walk(self, place: str = "") -> Iterator[tuple[str, list[Entry]]]:
        """Yield each folder from a place down, and its entries, top down.

        Folders that are removed from a list are not visited; folders that can't be read are left out.
        """
        try:
            found = self.entries(place)
        except TableNotFoundError:
            return
        yield place, found
        for entry in found:
            if entry.is_folder:
                yield from self.walk(posixpath.join(place, entry.name))

    def listed(self) -> Store:
        """List everything in the folder with few requests, and return a store that answers from the list."""
        prefix, folders = f"{path_of(self.root)}/", defaultdict[str, list[Entry]](list)
        tree = {info.path.removeprefix(prefix): _entry_of(info) for info in self._infos("", recursive=True)}
        for place, entry in tree.items():
            folders[posixpath.dirname(place)].append(entry)
        return _ListedStore(self.root, tree, folders)

    def _infos(self, place: str, recursive: bool = False) -> list[fs.FileInfo]:
        with reaching(self.place(place)):
            filesystem, path = self._filesystem, path_of(self.place(place))
            # pyarrow lists no folder of Google's that has no object of its own (gcsfs.cc, GetFileInfo).
            is_google = isinstance(filesystem, fs.GcsFileSystem)
            selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive or is_google)
            found = filesystem.get_file_info(selector)
        return _with_folders(found, f"{path}/", recursive) if is_google else found

    def at_once(self, ask: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
        """Return the answer for each item, in their order; a store is asked for many at a time."""
        wanted = list(items)
        with ThreadPoolExecutor(max(min(MOST_REQUESTS, len(wanted)), 1)) as pool:
            return iter(list(pool.map(ask, wanted)))

    def read(self, place: str, start: int = 0, size: int | None = None) -> bytes:
        """Return `size` bytes of a file from a position on, all of them by default.

        Raises:
            OSError: It can't be read.
        """
        with self.open(place) as file:
            wanted = file.size() - start if size is None else size
            if wanted <= _RANGE_BYTES:
                return bytes(file.read_at(wanted, start))
            starts = range(start, start + wanted, _RANGE_BYTES)
            return b"".join(self.at_once(partial(file.read_at, _RANGE_BYTES), starts))[:wanted]

    def lines(self, place: str) -> Iterator[bytes]:
        """Yield the lines of a file; see `read`."""
        yield from self.read(place).splitlines(keepends=True)

    def open(self, place: str) -> pa.NativeFile:
        """Open a file for Arrow, which reads the parts that it needs; see `read`."""
        return self._filesystem.open_input_file(path_of(self.place(place)))

    def delete(self, place: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_file(path_of(self.place(place)))


@dataclass(frozen=True)
class _ListedStore(Store):
    tree: Mapping[str, Entry] = field(repr=False)
    folders: Mapping[str, list[Entry]] = field(repr=False)

    def status(self, place: str = "") -> Entry | None:
        return self.tree.get(place) if place and "://" not in place else super().status(place)

    def entries(self, place: str = "") -> list[Entry]:
        return list(self.folders.get(place, []))


@dataclass(frozen=True)
class LocalStore(Store):
    """A folder on a local disk, by its absolute path without symbolic links."""

    is_local = True

    def uri(self, place: str = "") -> str:
        """Return the URI of a place for Hadoop's Path, where nothing is percent-encoded.

        Hadoop would look for a path without a scheme on the session's default file system (fs.defaultFS).
        """
        return f"file:{self.place(place)}"

    def relative(self, uri: str) -> str | None:
        return None

    def place(self, place: str = "") -> str:
        return os.path.join(self.root, place) if place else self.root

    def real(self, place: str = "") -> str:
        """Return the absolute path of a place without symbolic links."""
        return os.path.realpath(self.place(place))

    def below(self, place: str) -> LocalStore:
        return LocalStore(self.real(place))

    def status(self, place: str = "") -> Entry | None:
        path = self.place(place)
        try:
            return _entry(os.path.basename(path), os.lstat(path))
        except (OSError, ValueError):
            return None

    def may_write(self, place: str = "") -> bool:
        by_effective_id = os.access in os.supports_effective_ids
        return os.access(self.place(place), os.W_OK | os.X_OK, effective_ids=by_effective_id)

    def entries(self, place: str = "") -> list[Entry]:
        folder, entries = self.place(place), []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    try:
                        entry.name.isascii() or entry.name.encode()
                        entries.append(_entry(entry.name, entry.stat(follow_symlinks=False)))
                    except (FileNotFoundError, UnicodeEncodeError):
                        # Files may vanish meanwhile.
                        continue
        except OSError as error:
            raise TableNotFoundError(
                f"The folder {folder} can't be read ({error.strerror}): check the path and who may read it."
            ) from None
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
        """Move a file or folder; missing folders are made, and folders left empty below the root deleted."""
        target = self.place(to)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(self.place(place), target)
        with contextlib.suppress(OSError):
            while not os.path.isabs(place) and (place := os.path.dirname(place)):
                os.rmdir(self.place(place))

    def delete_empty(self, place: str = "") -> None:
        """Delete a folder and those in it, as far as they hold nothing else."""
        for folder, _, _ in os.walk(self.place(place), topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def delete(self, place: str) -> None:
        path = self.place(place)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink(missing_ok=True)


def open_store(name: str | Path) -> Store:
    """Return the store of a folder, which need not exist, by its path or URI.

    Raises:
        TableNotFoundError: The path is invalid, or this process may not look there.
    """
    text = str(name)
    return Store(text.rstrip("/")) if _REMOTE.match(text) else LocalStore(os.path.realpath(local_path(text)))


def local_store(name: Store | str | Path, what: str) -> LocalStore:
    """Return a store, or that of a path or URI, if it is on a local disk.

    Raises:
        UnsupportedTableError: It isn't, and `what` works on local disks only.
    """
    store = open_store(name) if isinstance(name, (str, Path)) else name
    if isinstance(store, LocalStore):
        return store
    raise UnsupportedTableError(f"{what} works on local disks alone, and {store.root} is elsewhere.")


def is_folder(name: str) -> bool:
    """Return whether a path or URI names a folder; False for a name that can't be used."""
    try:
        return open_store(name).is_folder()
    except CompactionKitError:
        return False


def local_path(name: str) -> Path:
    """Return the path that a path or a "file:" URI names.

    Raises:
        UnsupportedTableError: It isn't on a local disk.
        TableNotFoundError: The path is invalid, or this process may not look there.
    """
    if _REMOTE.match(name):
        raise UnsupportedTableError(f"{name} isn't on a local disk: give a path on one.")
    path = Path(unquote(name.removeprefix("file:").removeprefix("//")) if name.startswith("file:") else name)
    try:
        str(path).encode()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        not_text = "its name is not UTF-8" if isinstance(error, UnicodeError) else None
        reason = not_text or getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise TableNotFoundError(f"No table at {name[:_MOST_SHOWN]!r}: {reason}; check the path.") from None
    return path


def checksum_place(place: str) -> str:
    """Return the place where Hadoop keeps the checksums of a file, on local disks only."""
    folder, name = posixpath.split(place)
    return posixpath.join(folder, f".{name}.crc")


def path_of(uri: str) -> str:
    """Return the path by which a file system knows a URI: bucket or container, and key; else the URI."""
    scheme, _, rest = uri.partition("://")
    if scheme not in (*S3_SCHEMES, "gs", "gcs", "abfs", "abfss"):
        return uri
    authority, slash, key = rest.partition("/")
    return f"{authority.partition('@')[0]}{slash}{key}".rstrip("/")


@contextlib.contextmanager
def reaching(place: str) -> Iterator[None]:
    """Convert errors of a storage to an error of this package, in one sentence.

    Raises:
        TableNotFoundError: There is no such bucket, file or folder.
        StorageError: The storage refuses, or can't be reached.
    """
    try:
        yield
    except CompactionKitError:
        raise
    except FileNotFoundError:
        raise TableNotFoundError(f"Nothing is at {place}: check the spelling.") from None
    except (OSError, pa.ArrowException) as error:
        text = str(error)
        found = _REASON.search(text)
        lines = (getattr(error, "strerror", None) or text).strip().splitlines() or [type(error).__name__]
        reason = next(filter(None, found.groups())) if found else lines[0].rstrip(".")[:300]
        if found and found[3]:
            reason = reason.replace("_", " ").lower()
        if "NO_SUCH_BUCKET" in text:
            raise TableNotFoundError(f"No bucket for {place} ({reason}): check the spelling.") from None
        what = "the credentials and permissions" if _DENIED.search(text) else "the endpoint and network"
        raise StorageError(f"{place} can't be reached ({reason}): check {what}.") from None


def _entry(name: str, status: os.stat_result) -> Entry:
    is_file, is_folder = stat.S_ISREG(status.st_mode), stat.S_ISDIR(status.st_mode)
    return Entry(name, is_file, is_folder, status.st_size, status.st_mtime_ns, status.st_ino)


def _entry_of(info: fs.FileInfo) -> Entry:
    is_folder = info.type == fs.FileType.Directory
    return Entry(info.base_name, not is_folder, is_folder, info.size or 0, info.mtime_ns or 0)


def _with_folders(infos: list[fs.FileInfo], prefix: str, recursive: bool) -> list[fs.FileInfo]:
    """Add the folders of files in a deep listing; all of it if `recursive`, else what is directly below."""
    found: dict[str, fs.FileInfo] = {}
    for info in infos:
        parts = info.path.removeprefix(prefix).split("/")
        for end in range(1, len(parts)):
            folder = prefix + "/".join(parts[:end])
            found.setdefault(folder, fs.FileInfo(folder, fs.FileType.Directory))
        found.setdefault(info.path, info)
    return [info for path, info in found.items() if recursive or "/" not in path.removeprefix(prefix)]
