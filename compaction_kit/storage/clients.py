"""Reach object stores through pyarrow, and other storage through the session's Hadoop file systems.

A client has the few operations from which a remote store is made. It is opened with what the session has
resolved: endpoints, and credentials from keys, roles or vaults.
"""

import contextlib
import errno
import itertools
import os
import re
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyarrow import fs
from pyspark.sql import SparkSession

from compaction_kit.active import active_spark
from compaction_kit.compat import has_jvm, java_class
from compaction_kit.errors import CompactionKitError, StorageError, TableNotFoundError
from compaction_kit.session import get_spark
from compaction_kit.storage.local import Entry, LocalStore
from compaction_kit.storage.options import AZURE_SCHEMES, MOST_REQUESTS, Files, arrow_files

# Large files are read in ranges of so many bytes, side by side.
_RANGE_BYTES, _MOST_RANGES = 8 << 20, 32
# Of a request; in between the store is given time, in all some 10 s.
_MOST_TRIES = 5
# After so long credentials are resolved again: those of a role end some time.
_FRESH_SECONDS = 600
_STATUS = re.compile(
    r"FileStatus\{path=(.*?); isDirectory=(true|false); (?:length=(\d+); )?.*?modification_time=(\d+);"
)
# What Amazon's SDK says of an error: its kind; the code of one that it doesn't know; curl's words.
_AWS_ERROR = re.compile(r"AWS Error (\w+)")
_AWS_UNKNOWN = re.compile(r"Unable to parse ExceptionName: (\w+)")
_CURL = re.compile(r"curlCode: \d+, ([^;]+)")
_DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|TOKEN|HTTP status 40[13]|credential|Permission denied", re.I
)


class Client(Protocol):
    """The operations of a storage; every place is a URI."""

    files: Files | None

    def status(self, uri: str) -> Entry | None:
        """Return what is at a place; None for nothing."""

    def file(self, uri: str) -> Entry | None:
        """Return the file at a place; None for none. Quicker than `status`, which looks for a folder too."""

    def entries(self, uri: str) -> list[Entry]:
        """Return what is in a folder; nothing, if there is none."""

    def tree(self, uri: str) -> list[tuple[str, Entry]]:
        """Return everything below a folder, each with its path relative to that."""

    def open(self, uri: str) -> pa.NativeFile:
        """Open a file for Arrow."""

    def read(self, uri: str, start: int = 0, size: int | None = None) -> bytes:
        """Return bytes of a file."""

    def fetch(self, uri: str, size_bytes: int, path: str) -> None:
        """Copy a file to a local disk."""

    def delete(self, uri: str) -> None:
        """Delete a file, or a folder with all that is in it."""


def client_of(root: str) -> Client:
    """Return the client for a URI, opened with what the session at hand knows.

    Raises:
        StorageError: There is no way to reach it.
    """
    scheme, _, rest = root.partition(":")
    authority = rest.removeprefix("//").partition("/")[0] if rest.startswith("//") else ""
    spark = active_spark()
    spark = spark if spark is not None and has_jvm(spark) else None
    key = (scheme, authority, "" if spark is None else spark.sparkContext.applicationId)
    with _LOCK:
        since, client = _CLIENTS.get(key) or (0.0, None)
        if client is None or time.monotonic() - since > _FRESH_SECONDS:
            client = _opened(scheme, authority, root, spark)
            _CLIENTS[key] = time.monotonic(), client
        return client


_CLIENTS: dict[tuple[str, str, str], tuple[float, Client]] = {}
_LOCK = threading.Lock()


def _opened(scheme: str, authority: str, root: str, spark: SparkSession | None) -> Client:
    with reaching(root):
        files = arrow_files(scheme, authority, spark)
        if files is not None:
            return ArrowClient(files)
        session = spark or get_spark()
        if not has_jvm(session):
            raise StorageError(
                f"{root} can't be reached over Spark Connect, as Hadoop alone reaches it: open it with a "
                "session whose JVM is in reach, such as that of get_spark()."
            )
        return HadoopClient(session, root)


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
    except (OSError, pa.ArrowException, Py4JError) as error:
        reason = reason_of(error)
        if "NO_SUCH_BUCKET" in str(error):
            raise TableNotFoundError(f"No bucket for {place} ({reason}): check the spelling.") from None
        what = "the credentials and permissions" if _DENIED.search(str(error)) else "the endpoint and network"
        raise StorageError(f"{place} can't be reached ({reason}): check {what}.") from None


def reason_of(error: BaseException) -> str:
    """Return what a storage said, in a few words."""
    text = str(error)
    if found := _AWS_UNKNOWN.search(text) or _CURL.search(text) or _AWS_ERROR.search(text):
        return found[1].replace("_", " ").lower() if found.re is _AWS_ERROR else found[1]
    causes = re.findall(r"(?:Caused by: |^: )(?:[\w.$]+: )?(.*\S)", text, re.MULTILINE)
    return (causes[-1:] or text.strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]


class ArrowClient:
    """An object store, through one of pyarrow's file systems.

    Attributes:
        files: What it was opened with, for processes elsewhere that open it too. It holds credentials.
    """

    files: Files | None

    def __init__(self, files: Files):
        # The number of connections goes by it (S3FileSystem, maxConnections).
        if pa.io_thread_count() < MOST_REQUESTS:
            pa.set_io_thread_count(MOST_REQUESTS)
        self.files = files
        kind, options = files
        retry = {"retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=_MOST_TRIES)}
        extra = retry if kind == "S3FileSystem" else {}
        self._fs = getattr(fs, kind)(**dict(options), **extra)

    def status(self, uri: str) -> Entry | None:
        """See `Client`."""
        with reaching(uri):
            found = self._fs.get_file_info(_key(uri))
        return None if found.type == fs.FileType.NotFound else _entry(uri, found)

    def file(self, uri: str) -> Entry | None:
        """See `Client`."""
        if not isinstance(self._fs, fs.S3FileSystem):
            return self.status(uri)
        with reaching(uri):
            try:
                with self.open(uri) as file:
                    size_bytes, modified = file.size(), file.metadata().get("Last-Modified")
            except FileNotFoundError:
                return None
        if modified is None:
            return self.status(uri)
        seconds = int(datetime.fromisoformat(modified.decode()).timestamp())
        return _new_entry(_key(uri), False, size_bytes, seconds * 1_000_000_000)

    def entries(self, uri: str) -> list[Entry]:
        """See `Client`."""
        return [_entry(uri, info) for info in self._below(uri, False)]

    def tree(self, uri: str) -> list[tuple[str, Entry]]:
        """See `Client`."""
        prefix = f"{_key(uri)}/"
        return [(info.path.removeprefix(prefix), _entry(uri, info)) for info in self._below(uri, True)]

    def _below(self, uri: str, is_deep: bool) -> list[fs.FileInfo]:
        # pyarrow lists no folder of Google's that has no object of its own (gcsfs.cc, GetFileInfo): such
        # folders are seen by what is in them.
        hides_folders = isinstance(self._fs, fs.GcsFileSystem)
        key = _key(uri)
        selector = fs.FileSelector(key, allow_not_found=True, recursive=is_deep or hides_folders)
        with reaching(uri):
            found = self._fs.get_file_info(selector)
        if not hides_folders:
            return found
        known = {info.path: info for info in found}
        for info in found:
            for parent in itertools.takewhile(
                lambda parent: str(parent) != key, PurePosixPath(info.path).parents
            ):
                known.setdefault(str(parent), fs.FileInfo(str(parent), fs.FileType.Directory))
        return [info for info in known.values() if is_deep or "/" not in info.path[len(key) + 1 :]]

    def open(self, uri: str) -> pa.NativeFile:
        """See `Client`."""
        return self._fs.open_input_file(_key(uri))

    def read(self, uri: str, start: int = 0, size: int | None = None) -> bytes:
        """See `Client`."""
        with self.open(uri) as file:
            return file.read_at(max(file.size() - start, 0) if size is None else size, start)

    def fetch(self, uri: str, size_bytes: int, path: str) -> None:
        """See `Client`."""
        starts = range(0, size_bytes, _RANGE_BYTES)
        with open(path, "wb") as out, self.open(uri) as file:

            def copy(at: int) -> int:
                return os.pwrite(out.fileno(), file.read_at(_RANGE_BYTES, at), at)

            if len(starts) > 1:
                with ThreadPoolExecutor(_MOST_RANGES) as pool:
                    copied = sum(pool.map(copy, starts))
            else:
                copied = sum(map(copy, starts))
        if copied != size_bytes:
            raise OSError(errno.EIO, "it has another size than when it was listed", uri)

    def delete(self, uri: str) -> None:
        """See `Client`."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(_key(uri))


class HadoopClient:
    """Any storage that the session's Hadoop reaches, such as HDFS; files come by way of the driver's disk."""

    files: Files | None = None

    def __init__(self, spark: SparkSession, root: str):
        self._path = java_class(spark, "org.apache.hadoop.fs.Path")
        self._to_list = java_class(spark, "org.apache.hadoop.util.functional.RemoteIterators").toList
        self._fs = self._path(root).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def status(self, uri: str) -> Entry | None:
        """See `Client`."""
        with reaching(uri):
            found = self._listed(lambda path: self._fs.getFileStatus(path), uri)
        return found[0] if found else None

    # A name node knows both at once.
    file = status

    def entries(self, uri: str) -> list[Entry]:
        """See `Client`."""
        with reaching(uri):
            return self._listed(lambda path: self._to_list(self._fs.listStatusIterator(path)), uri)

    def tree(self, uri: str) -> list[tuple[str, Entry]]:
        """See `Client`."""
        found = []
        for entry in self.entries(uri):
            found.append((entry.name, entry))
            if entry.is_folder:
                inner = self.tree(f"{uri}/{entry.name}")
                found += [(f"{entry.name}/{place}", below) for place, below in inner]
        return found

    def open(self, uri: str) -> pa.NativeFile:
        """See `Client`."""
        return pa.BufferReader(self.read(uri))

    def read(self, uri: str, start: int = 0, size: int | None = None) -> bytes:
        """See `Client`."""
        with tempfile.TemporaryDirectory(prefix="compaction-kit-") as folder:
            path = os.path.join(folder, "file")
            self.fetch(uri, 0, path)
            return LocalStore(folder).read(path, start, size)

    def fetch(self, uri: str, size_bytes: int, path: str) -> None:
        """See `Client`."""
        try:
            # The last argument: write no checksum file beside it.
            self._fs.copyToLocalFile(False, self._path(uri), self._path(f"file:{path}"), True)
        except Py4JError as error:
            if "FileNotFoundException" in str(error):
                raise FileNotFoundError(errno.ENOENT, "it doesn't exist", uri) from error
            raise OSError(errno.EIO, reason_of(error), uri) from error

    def delete(self, uri: str) -> None:
        """See `Client`."""
        self._fs.delete(self._path(uri), True)

    def _listed(self, ask: Any, uri: str) -> list[Entry]:
        """Parse the text of Hadoop's FileStatus objects: else each field takes a call into the JVM."""
        try:
            text = ask(self._path(uri)).toString()
        except Py4JError as error:
            if "FileNotFoundException" in str(error):
                return []
            raise
        return [
            _new_entry(path, is_folder == "true", int(size or 0), int(millis) * 1_000_000)
            for path, is_folder, size, millis in _STATUS.findall(text)
        ]


def _key(uri: str) -> str:
    """Return the path by which pyarrow's file systems know a place: bucket or container, and key."""
    scheme, _, rest = uri.partition("://")
    authority, slash, key = rest.partition("/")
    if scheme in AZURE_SCHEMES:
        authority = authority.partition("@")[0]
    return f"{authority}{slash}{key}".rstrip("/")


def _entry(uri: str, info: fs.FileInfo) -> Entry:
    is_folder = info.type == fs.FileType.Directory
    modified = info.mtime_ns if isinstance(info.mtime, datetime) else 0
    return _new_entry(info.path, is_folder, info.size or 0, modified)


def _new_entry(path: str, is_folder: bool, size_bytes: int, modified_ns: int) -> Entry:
    # Stores have no inodes: a path stands for one, never 0.
    inode = zlib.crc32(path.encode()) + 1
    return Entry(
        path.rpartition("/")[2], not is_folder, is_folder, False, size_bytes, modified_ns, size_bytes, inode
    )
