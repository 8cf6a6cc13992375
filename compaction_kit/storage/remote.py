"""Folders on object stores, HDFS and whatever else a session's Hadoop reaches."""

from __future__ import annotations

import atexit
import hashlib
import os
import posixpath
import re
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from compaction_kit.errors import TableNotFoundError
from compaction_kit.storage.local import Entry, LocalStore
from compaction_kit.storage.options import MOST_REQUESTS, Files

if TYPE_CHECKING:
    from compaction_kit.storage.clients import Client

T = TypeVar("T")
# Of the driver, for copies of files by their absolute paths.
_DISK = LocalStore("/")
# Folders whose files never change.
_LASTING = ("_delta_log", "_delta_log/_sidecars")


@dataclass(frozen=True)
class RemoteStore:
    """A folder that isn't on a local disk.

    Files of a Delta log are kept on the driver's disk once they were read, as they never change; which
    files there are is asked each time.

    Attributes:
        root: Its URI, such as "s3a://bucket/tables/sales".
    """

    root: str
    is_local = False
    # Hadoop writes checksum files beside files on local disks alone.
    has_checksums = False

    @property
    def files(self) -> Files | None:
        """How executors open the store by pyarrow, with credentials; None if they can't."""
        return self._client.files

    @property
    def _client(self) -> Client:
        # Clients need PySpark, which local tables do not.
        from compaction_kit.storage.clients import client_of

        return client_of(self.root)

    def place(self, place: str = "") -> str:
        """The URI of a place."""
        return place if "://" in place else f"{self.root}/{place}".rstrip("/")

    # A store has no links.
    real = place
    uri = place

    def below(self, place: str) -> RemoteStore:
        """The store of a folder."""
        return RemoteStore(self.place(place))

    def relative(self, uri: str) -> str | None:
        """Return the place, in this folder, of a URI; None if it is elsewhere."""
        place, root = _family(uri), _family(self.root)
        return place[len(root) + 1 :] if place == root or place.startswith(f"{root}/") else None

    def status(self, place: str = "") -> Entry | None:
        """What is at a place; None for nothing."""
        return self._client.status(self.place(place))

    def is_file(self, place: str) -> bool:
        """Whether a file is at a place."""
        if self._is_kept(place):
            return True
        found = self.status(place)
        return found is not None and found.is_file

    def is_folder(self, place: str = "") -> bool:
        """Whether a folder is at a place."""
        found = self.status(place)
        return found is not None and found.is_folder

    def is_taken(self, place: str) -> bool:
        """Whether anything is at a place."""
        return self._is_kept(place) or self.status(place) is not None

    def may_write(self, place: str = "") -> bool:
        """Return True: only a request to write tells."""
        return True

    def entries(self, place: str = "") -> list[Entry]:
        """What is in a folder.

        Raises:
            TableNotFoundError: There is no such folder.
            StorageError: The storage can't be reached.
        """
        folder = self.place(place)
        found = self._client.entries(folder)
        if not found and not self.is_folder(place):
            raise TableNotFoundError(f"The folder {folder} does not exist: check the spelling.")
        if place.endswith(_LASTING):
            _LISTED.update({f"{folder}/{entry.name}": _version_of(entry) for entry in found})
            _NUM_LISTED[folder] = len(found)
        return found

    def entries_if_there(self, place: str) -> list[Entry]:
        """What is in a folder; nothing, if there is none.

        Raises:
            StorageError: The storage can't be reached.
        """
        return self._client.entries(self.place(place))

    @property
    def lists_by_page(self) -> bool:
        """Whether a folder of many files takes many requests to list, one after the other."""
        return self.files is not None

    def num_listed(self, place: str) -> int | None:
        """How many files and folders were in a folder of a log when it was last listed; None if it wasn't."""
        return _NUM_LISTED.get(self.place(place))

    def files_at(self, places: Iterable[str]) -> list[Entry | None]:
        """The file at each place, None for none: many requests at once."""
        wanted = list(places)
        found = _at_once(lambda place: self._client.file(self.place(place)), wanted)
        for place, entry in zip(wanted, found, strict=True):
            if entry is not None and _is_lasting(place):
                _LISTED[self.place(place)] = _version_of(entry)
        return found

    def walk(self, place: str = "") -> Iterator[tuple[str, list[Entry]]]:
        """Each folder below a place, top down, and what is in it; see `LocalStore.walk`."""
        try:
            found = self.entries(place)
        except TableNotFoundError:
            return
        yield place, found
        for entry in found:
            if entry.is_folder:
                yield from self.walk(posixpath.join(place, entry.name))

    def listed(self) -> ListedStore:
        """Look at everything in the folder at once: few requests, however many folders there are."""
        tree, folders = dict(self._client.tree(self.root)), defaultdict[str, list[Entry]](list)
        for place, entry in tree.items():
            folders[posixpath.dirname(place)].append(entry)
        return ListedStore(self.root, tree, folders)

    def read(self, place: str, start: int = 0, size: int | None = None) -> bytes:
        """Bytes of a file: as many from a position on, or all of them from there.

        Raises:
            OSError: It can't be read.
        """
        if not _is_lasting(place):
            return self._client.read(self.place(place), start, size)
        return _DISK.read(self._kept(place), start, size)

    def read_if_there(self, place: str) -> bytes | None:
        """All bytes of a file; None if there is none.

        Raises:
            StorageError: It can't be read.
        """
        from compaction_kit.storage.clients import reaching

        with reaching(self.place(place)):
            try:
                return self.read(place)
            except FileNotFoundError:
                return None

    def lines(self, place: str) -> Iterator[bytes]:
        """The lines of a file.

        Raises:
            OSError: It can't be read.
        """
        yield from self.read(place).splitlines(keepends=True)

    def open(self, place: str) -> pa.NativeFile:
        """Open a file for Arrow, which reads the parts that it needs.

        Raises:
            OSError: It can't be read.
        """
        if _is_lasting(place):
            return _DISK.open(self._kept(place))
        return self._client.open(self.place(place))

    def open_all(self, places: Iterable[str]) -> list[pa.NativeFile]:
        """Open small files, which are read whole, many at once."""
        return [pa.BufferReader(data) for data in _at_once(self.read, list(places))]

    def prepare(self, places: Iterable[str]) -> None:
        """Fetch files of the log that are about to be read, many at once."""
        missing = [place for place in places if _is_lasting(place) and not self._is_kept(place)]
        if len(missing) > 1:
            _at_once(self._kept, missing)

    def delete(self, place: str) -> None:
        """Delete a file; nothing, if nothing is there."""
        self._client.delete(self.place(place))

    def _is_kept(self, place: str) -> bool:
        version = _LISTED.get(self.place(place)) if _is_lasting(place) else None
        return version is not None and os.path.exists(_kept_path(self.place(place), version))

    def _kept(self, place: str) -> str:
        """Return the path of the driver's copy of a file of the log; fetch it if there is none."""
        uri = self.place(place)
        version = _LISTED.get(uri)
        if version is None:
            found = self.status(place)
            if found is None:
                raise FileNotFoundError(2, "it doesn't exist", uri)
            version = _LISTED[uri] = _version_of(found)
        path = _kept_path(uri, version)
        if not os.path.exists(path):
            partial = f"{path}.{threading.get_ident()}"
            self._client.fetch(uri, version[0], partial)
            os.replace(partial, path)
        return path


@dataclass(frozen=True)
class ListedStore(RemoteStore):
    """A folder as it was when it was listed: to look at what is in it takes no more requests."""

    tree: Mapping[str, Entry] = field(repr=False)
    folders: Mapping[str, list[Entry]] = field(repr=False)
    lists_by_page = False

    def status(self, place: str = "") -> Entry | None:
        """What was at a place; None for nothing."""
        return self.tree.get(place) if place and "://" not in place else super().status(place)

    def entries(self, place: str = "") -> list[Entry]:
        """What was in a folder."""
        return list(self.folders.get(place, []))


# Size and time of each file of a log when it was last seen, by its URI; how many were in its folder.
_LISTED: dict[str, tuple[int, int]] = {}
_NUM_LISTED: dict[str, int] = {}


@cache
def _scratch() -> str:
    folder = tempfile.mkdtemp(prefix="compaction-kit-log-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _kept_path(uri: str, version: tuple[int, int]) -> str:
    return os.path.join(_scratch(), hashlib.sha256(f"{uri} {version}".encode()).hexdigest())


def _version_of(entry: Entry) -> tuple[int, int]:
    """What tells a file of a log from another that has its name, as where a table was made anew."""
    return entry.size_bytes, entry.modified_ns


def _is_lasting(place: str) -> bool:
    """Whether a file of the log never changes: all but hints, such as _last_checkpoint."""
    folder, _, name = place.rpartition("/")
    return folder.endswith(_LASTING) and not name.startswith(("_", "."))


def _at_once(ask: Callable[[str], T], places: Sequence[str]) -> list[T]:
    """Ask for each place, many requests at once; what was answered, in the same order."""
    with ThreadPoolExecutor(max(min(MOST_REQUESTS, len(places)), 1)) as pool:
        return list(pool.map(ask, places))


def _family(uri: str) -> str:
    """A URI whose scheme is the same whatever a client calls the storage."""
    return re.sub("^s3[an]://", "s3://", uri)
