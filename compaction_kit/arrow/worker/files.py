"""How executors reach files: by the system's own calls on local disks, by `pyarrow.fs` on object stores.

A place is an absolute path on a disk, or a URI on a store, as Hadoop has it and with nothing encoded.
"""

import contextlib
import os
import pickle
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, BinaryIO, ClassVar, TypeVar

import pyarrow as pa
from pyarrow import fs

from compaction_kit.arrow.worker.checksums import check_file, checksum_path, write_checksums

# Requests that a task has in flight at most, unless the executor's environment says how many.
_MOST_REQUESTS, _REQUESTS_VARIABLE = 64, "COMPACTION_KIT_REQUESTS"
# On a disk, files of at most so many bytes are read whole, so many bytes and files of them ahead.
SMALL_BYTES = 4 << 20
_AHEAD_BYTES = 8 << 20
_AHEAD_FILES = 64
# On a store each read takes a while, so that more is read at once.
STORED_SMALL_BYTES = 16 << 20
_STORED_AHEAD_BYTES = 64 << 20
_BLOCK_BYTES = 8 << 20
# Shares of at most so many bytes together are rewritten at once.
_SHARES, _SHARES_BYTES = 8, 16 << 20
# Of files that aren't read whole, each column is read ahead by so many bytes on a disk: else all columns of
# a row group are read before the first row is decoded.
_BUFFER_BYTES = 1 << 20

# A place, and how many bytes are there.
Input = tuple[str, int]
# Takes a number of bytes and where in a file they begin; gives them.
ReadAt = Callable[[int, int], bytes]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Disk:
    """Files on local disks."""

    # Of a ParquetFile.
    reading: ClassVar[dict[str, Any]] = {"buffer_size": _BUFFER_BYTES, "pre_buffer": False}
    is_local = True

    def exists(self, place: str) -> bool:
        """Whether a file or folder is there."""
        return os.path.exists(place)

    def status(self, place: str) -> tuple[int, int]:
        """The bytes of a file, and when it was written, in milliseconds since 1970."""
        status = os.stat(place)
        return status.st_size, int(status.st_mtime * 1000)

    def source(self, place: str) -> Any:
        """What pyarrow.parquet reads a file from."""
        return place

    def open(self, place: str) -> pa.NativeFile:
        """Open a file to read parts of it."""
        return pa.memory_map(place)

    @contextlib.contextmanager
    def pages(self, place: str) -> Iterator[ReadAt]:
        """Read a file's bytes, a page at a time."""
        with open(place, "rb", buffering=0) as file:
            yield lambda size, at: os.pread(file.fileno(), size, at)

    def loaded(self, inputs: Sequence[Input]) -> Iterator[tuple[str, bytes | None]]:
        """The bytes of the small files, of others none; all compared with Hadoop's checksums."""
        chunks = list(_chunks(inputs))
        if len(chunks) == 1:
            # A thread takes longer to start than a few small files to be read.
            yield from _load(chunks[0])
            return
        with ThreadPoolExecutor(1) as pool:
            waiting = iter(chunks)
            loading = deque(pool.submit(_load, chunk) for chunk in islice(waiting, 2))
            while loading:
                loaded = loading.popleft().result()
                loading.extend(pool.submit(_load, chunk) for chunk in islice(waiting, 1))
                yield from loaded

    @contextlib.contextmanager
    def on_disk(self, inputs: Sequence[Input]) -> Iterator[list[str]]:
        """The paths of files for readers that know nothing but disks."""
        yield [place for place, _ in inputs]

    def create(self, place: str) -> BinaryIO:
        """Open a new file, to be written at once."""
        return open(place, "xb")

    def sink(self, place: str) -> contextlib.AbstractContextManager[Any]:
        """What pyarrow.parquet writes a file to."""
        return contextlib.nullcontext(place)

    def finish(self, place: str, source: str) -> None:
        """Write checksums beside a new file, if one that it is made of has some."""
        if os.path.exists(checksum_path(source)):
            write_checksums(place)

    def delete(self, place: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(place)

    def each(
        self, work: Callable[[Item], Result], items: Sequence[Item], sizes: Sequence[int]
    ) -> Generator[Result]:
        """Do some work for each item, of so many bytes, and give the results in turn."""
        for item in items:
            yield work(item)


class ObjectStore:
    """Objects in a store, such as S3's, many of them asked for at once."""

    # A row group's columns come in few requests, at once.
    reading: ClassVar[dict[str, Any]] = {"buffer_size": 0, "pre_buffer": True}
    is_local = False

    def __init__(self, files: fs.FileSystem):
        self._requests = int(os.environ.get(_REQUESTS_VARIABLE, _MOST_REQUESTS))
        # A file system has as many connections as there are I/O threads when it is made.
        pa.set_io_thread_count(max(self._requests, pa.io_thread_count()))
        self._system = pickle.loads(pickle.dumps(files))

    def exists(self, place: str) -> bool:
        """Whether an object is there."""
        return bool(self._system.get_file_info(_key(place)).type != fs.FileType.NotFound)

    def status(self, place: str) -> tuple[int, int]:
        """The bytes of an object, and when it was written, in milliseconds since 1970."""
        found = self._system.get_file_info(_key(place))
        if not found.is_file:
            raise FileNotFoundError(f"{place} is gone, though it was written")
        return found.size, found.mtime_ns // 1_000_000

    def source(self, place: str) -> Any:
        """What pyarrow.parquet reads an object from."""
        return self.open(place)

    def open(self, place: str) -> pa.NativeFile:
        """Open an object to read parts of it."""
        return self._system.open_input_file(_key(place))

    @contextlib.contextmanager
    def pages(self, place: str) -> Iterator[ReadAt]:
        """Read an object's bytes, a page at a time, with those after it."""
        with self.open(place) as file:
            block, start = b"", 0

            def read(size: int, at: int) -> bytes:
                nonlocal block, start
                if not start <= at <= at + size <= start + len(block):
                    block, start = file.read_at(max(size, _BLOCK_BYTES), at), at
                return block[at - start : at - start + size]

            yield read

    def loaded(self, inputs: Sequence[Input]) -> Iterator[tuple[str, bytes | None]]:
        """The bytes of the small objects, of others none."""
        sizes = [size_bytes if size_bytes <= STORED_SMALL_BYTES else 0 for _, size_bytes in inputs]
        return _in_turn(self._load, inputs, sizes, self._requests, _STORED_AHEAD_BYTES)

    def _load(self, one: Input) -> tuple[str, bytes | None]:
        place, size_bytes = one
        if size_bytes > STORED_SMALL_BYTES:
            return place, None
        try:
            with self.open(place) as file:
                return place, file.read_at(file.size(), 0)
        except OSError as error:
            raise OSError(f"{place} can't be read: {error}") from error

    @contextlib.contextmanager
    def on_disk(self, inputs: Sequence[Input]) -> Iterator[list[str]]:
        """The paths of copies of objects, deleted at the end, for readers that know nothing but disks."""
        with tempfile.TemporaryDirectory(prefix="compaction-kit-") as folder:
            paths = [f"{folder}/{number}.parquet" for number in range(len(inputs))]
            blocks = [
                (place, path, at, min(_BLOCK_BYTES, size_bytes - at))
                for (place, size_bytes), path in zip(inputs, paths, strict=True)
                for at in range(0, size_bytes, _BLOCK_BYTES)
            ]
            sizes = [size for *_, size in blocks]
            for _ in _in_turn(self._copy, blocks, sizes, self._requests, _STORED_AHEAD_BYTES):
                pass
            yield paths

    def _copy(self, block: tuple[str, str, int, int]) -> None:
        place, path, at, size_bytes = block
        with self.open(place) as source, open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as copy:
            copy.seek(at)
            copy.write(source.read_at(size_bytes, at))

    def create(self, place: str) -> pa.NativeFile:
        """Open a new object, which is there when it is closed, also by an error."""
        return self._system.open_output_stream(_key(place))

    def sink(self, place: str) -> contextlib.AbstractContextManager[Any]:
        """What pyarrow.parquet writes an object to; see `create`."""
        return self.create(place)

    def finish(self, place: str, source: str) -> None:
        """Nothing: Hadoop has no checksums beside objects."""

    def delete(self, place: str) -> None:
        """Delete an object, as far as that can be: the driver looks for what is left."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._system.delete_file(_key(place))

    def each(
        self, work: Callable[[Item], Result], items: Sequence[Item], sizes: Sequence[int]
    ) -> Generator[Result]:
        """Do some work for each item, of so many bytes, and give the results in turn.

        Most of the time work waits for the store, so that several small items are done at once.
        """
        return _in_turn(work, items, sizes, _SHARES, _SHARES_BYTES)


Storage = Disk | ObjectStore
DISK = Disk()


def storage_of(files: fs.FileSystem | None) -> Storage:
    """How to reach files; None stands for those on local disks."""
    return DISK if files is None else ObjectStore(files)


def is_there(place: str, files: fs.FileSystem | None) -> bool:
    """Whether a file or folder is at a place."""
    return storage_of(files).exists(place)


def _key(place: str) -> str:
    """What pyarrow calls an object: s3a://bucket/a and abfss://container@account/a have no scheme there."""
    authority, slash, path = place.partition("://")[2].partition("/")
    return authority.partition("@")[0] + slash + path


def _in_turn(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    sizes: Iterable[int],
    num_threads: int,
    most_bytes: int,
) -> Generator[Result]:
    """Work on items in threads, of so many bytes in all at once, or on a larger one alone."""
    waiting = deque(zip(items, sizes, strict=True))
    working: deque[tuple[Future[Result], int]] = deque()
    held = 0
    pool = ThreadPoolExecutor(num_threads)
    try:
        while waiting or working:
            while waiting and len(working) < 2 * num_threads:
                item, size = waiting[0]
                if working and held + size > most_bytes:
                    break
                waiting.popleft()
                working.append((pool.submit(work, item), size))
                held += size
            future, size = working.popleft()
            yield future.result()
            held -= size
    finally:
        pool.shutdown(cancel_futures=True)


def _chunks(inputs: Sequence[Input]) -> Iterator[list[Input]]:
    """The files in turn, small ones together."""
    chunk: list[Input] = []
    size = 0
    for path, size_bytes in inputs:
        if chunk and (size + size_bytes > _AHEAD_BYTES or len(chunk) == _AHEAD_FILES):
            yield chunk
            chunk, size = [], 0
        chunk.append((path, size_bytes))
        size += size_bytes
    if chunk:
        yield chunk


def _load(chunk: Sequence[Input]) -> list[tuple[str, bytes | None]]:
    """The bytes of the small files, of others none; all compared with their checksums."""
    loaded: list[tuple[str, bytes | None]] = []
    for path, size_bytes in chunk:
        data = None
        if size_bytes <= SMALL_BYTES:
            with open(path, "rb", buffering=0) as file:
                data = file.read()
        check_file(path, data)
        loaded.append((path, data))
    return loaded
