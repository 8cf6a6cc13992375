"""Folders that are reached by one of pyarrow's own file systems, or by the session's Hadoop."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import fs

from compaction_kit.errors import CompactionKitError, StorageError, TableNotFoundError

S3_SCHEMES = ("s3", "s3a", "s3n")
# Parallel requests: 2,000 small files at 30 ms per request take 2.4 s with 64, 1.8 s with 128 or 256.
MOST_REQUESTS = 128
# Larger files are read in ranges of this size, in parallel.
RANGE_BYTES = 8 << 20
# In messages of Amazon's SDK: the code of an unknown error, curl's words, or the kind of the error.
_REASON = re.compile(
    r".*Unable to parse ExceptionName: (\w+)|.*curlCode: \d+, ([^;]+)|.*AWS Error (\w+)", re.DOTALL
)
_DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|TOKEN|HTTP status 40[13]|credential|Permission denied", re.I
)

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Entry(NamedTuple):
    """A file or folder; a symbolic link is neither."""

    name: str
    is_file: bool
    is_folder: bool
    size_bytes: int
    modified_ns: int
    identity: int = 0

    @property
    def modification_time(self) -> int:
        """The modification time in ms since 1970."""
        return self.modified_ns // 1_000_000


@dataclass(frozen=True)
class Store:
    """A folder on an object store, on HDFS, or elsewhere if the session's Hadoop reaches it, by its URI."""

    root: str
    is_local = False

    @property
    def filesystem(self) -> fs.FileSystem | None:
        """The file system for executors; None on local disks, and where executors can't reach the store."""
        found = None if self.is_local else self._filesystem
        return None if isinstance(found, fs.PyFileSystem) else found

    @property
    def _filesystem(self) -> fs.FileSystem:
        # This module needs PySpark, which local tables don't need.
        from compaction_kit.storage.filesystems import open_filesystem

        with _reaching(self.root):
            return open_filesystem(self.root)

    def place(self, place: str = "") -> str:
        """Return the URI of a place for Hadoop's Path, which is not percent-encoded."""
        return place if "://" in place else f"{self.root}/{place}".rstrip("/")

    uri = real = place

    def relative(self, uri: str) -> str | None:
        """Return the place in this folder that a URI names; None if it is elsewhere."""
        # Other clients use the scheme s3 or s3n for the same storage.
        place, root = (re.sub("^s3[an]://", "s3://", name) for name in (uri, self.root))
        return place[len(root) + 1 :] if place == root or place.startswith(f"{root}/") else None

    def status(self, place: str = "") -> Entry | None:
        """Return the file or folder at a place; None if there is nothing."""
        with _reaching(self.place(place)):
            found = self._filesystem.get_file_info(path_of(self.place(place)))
        return None if found.type == fs.FileType.NotFound else _entry_of(found)

    def is_file(self, place: str) -> bool:
        """Return whether a file is at a place."""
        return bool((found := self.status(place)) and found.is_file)

    def is_folder(self, place: str = "") -> bool:
        """Return whether a folder is at a place."""
        return bool((found := self.status(place)) and found.is_folder)

    def may_write(self, place: str) -> bool:
        """Return whether a folder can be written to; a remote store refuses only at the write."""
        return True

    def entries(self, place: str = "") -> list[Entry]:
        """List a folder; raise TableNotFoundError if it does not exist, StorageError if out of reach."""
        found = [_entry_of(info) for info in self._infos(place)]
        if not found and not self.is_folder(place):
            raise TableNotFoundError(f"The folder {self.place(place)} does not exist: check the spelling.")
        return found

    def walk(self, place: str = "", skipped: list[str] | None = None) -> Iterator[tuple[str, list[Entry]]]:
        """Yield each folder from a place down, and its entries, top down.

        Folders removed from a list are not visited; folders that can't be read are named in `skipped`.
        """
        try:
            found = self.entries(place)
        except TableNotFoundError:
            if not place and self.is_folder():
                raise
            if place and skipped is not None:
                skipped.append(f"{self.place(place)} can't be read")
            return
        yield place, found
        for entry in found:
            if entry.is_folder:
                yield from self.walk(posixpath.join(place, entry.name), skipped)

    def listed(self) -> Store:
        """List everything in the folder with few requests, and return a store that answers from the list."""
        prefix, folders = f"{path_of(self.root)}/", defaultdict[str, list[Entry]](list)
        tree = {info.path.removeprefix(prefix): _entry_of(info) for info in self._infos("", recursive=True)}
        for place, entry in tree.items():
            folders[posixpath.dirname(place)].append(entry)
        return _ListedStore(self.root, tree, folders)

    def _infos(self, place: str, recursive: bool = False) -> list[fs.FileInfo]:
        with _reaching(self.place(place)):
            filesystem, path = self._filesystem, path_of(self.place(place))
            # On Google's storage, pyarrow lists only folders that are objects (gcsfs.cc, GetFileInfo).
            is_google = isinstance(filesystem, fs.GcsFileSystem)
            selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive or is_google)
            found = filesystem.get_file_info(selector)
        return _with_folders(found, f"{path}/", recursive) if is_google else found

    def at_once(self, ask: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
        """Return the answer for each item, in order; a store is asked for many at a time."""
        with ThreadPoolExecutor(MOST_REQUESTS) as pool:
            return iter(list(pool.map(ask, items)))

    def read(self, place: str, start: int = 0, size: int | None = None) -> bytes:
        """Return `size` bytes of a file from a position on, all of them by default.

        Raises:
            OSError: The file can't be read.
        """
        with self.open(place) as file:
            wanted = file.size() - start if size is None else size
            if wanted <= RANGE_BYTES:
                return bytes(file.read_at(wanted, start))
            starts = range(start, start + wanted, RANGE_BYTES)
            return b"".join(self.at_once(partial(file.read_at, RANGE_BYTES), starts))[:wanted]

    def lines(self, place: str) -> Iterator[bytes]:
        """Yield the lines of a file; see `read`."""
        yield from self.read(place).splitlines(keepends=True)

    def open(self, place: str) -> pa.NativeFile:
        """Open a file for Arrow, which reads the parts that it needs; see `read`."""
        return self._filesystem.open_input_file(path_of(self.place(place)))

    def delete(self, place: str) -> None:
        """Delete a file, if it exists."""
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


def path_of(uri: str) -> str:
    """Return the path of a URI in its file system: bucket or container, and key; other URIs are unchanged."""
    scheme, _, rest = uri.partition("://")
    if scheme not in (*S3_SCHEMES, "gs", "gcs", "abfs", "abfss"):
        return uri
    authority, slash, key = rest.partition("/")
    return f"{authority.partition('@')[0]}{slash}{key}".rstrip("/")


@contextlib.contextmanager
def _reaching(place: str) -> Iterator[None]:
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


def _entry_of(info: fs.FileInfo) -> Entry:
    is_folder = info.type == fs.FileType.Directory
    return Entry(info.base_name, not is_folder, is_folder, info.size or 0, info.mtime_ns or 0)


def _with_folders(infos: list[fs.FileInfo], prefix: str, recursive: bool) -> list[fs.FileInfo]:
    """Add folders to a listing of files: all of them if `recursive`, else only entries directly below."""
    found: dict[str, fs.FileInfo] = {}
    for info in infos:
        parts = info.path.removeprefix(prefix).split("/")
        for end in range(1, len(parts)):
            folder = prefix + "/".join(parts[:end])
            found.setdefault(folder, fs.FileInfo(folder, fs.FileType.Directory))
        found.setdefault(info.path, info)
    return [info for path, info in found.items() if recursive or "/" not in path.removeprefix(prefix)]
