"""Access files on executors by a `pyarrow.fs.FileSystem`, and on local disks by the system's own calls.

A place is an absolute path on a local disk, or a URI in Hadoop's form, without encoded characters. Hadoop
keeps checksums beside files on local disks (org.apache.hadoop.fs.ChecksumFileSystem): `.<name>.crc` holds
"crc", a zero byte, the number of bytes per checksum, and the CRC-32 of each such piece of the file,
big-endian.
"""

import contextlib
import io
import os
import pickle
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
from pyarrow import fs

# The most requests of a task at once, and tries of a request to a busy store: 6 tries take 5 to 20 s.
MOST_REQUESTS, MOST_TRIES = 128, 6
# On a local disk, files of at most this many bytes are read whole, this many bytes and files ahead.
SMALL_BYTES, _AHEAD_BYTES, _AHEAD_FILES = 4 << 20, 8 << 20, 64
# Local files of fewer bytes on average are not read ahead.
_TINY_BYTES = 256 << 10
# Each read from a store takes a while, so more is read at once.
STORED_SMALL_BYTES, _STORED_AHEAD_BYTES, _BLOCK_BYTES = 16 << 20, 64 << 20, 8 << 20
# On a store, tasks' bins of at most this many bytes together are rewritten at once.
_BINS, _BINS_BYTES = 8, 16 << 20
# In local files that aren't read whole, each column is read ahead by this many bytes; otherwise all columns
# of a row group would be read before the first row is decoded.
_BUFFER_BYTES = 1 << 20
# Readers use the file's own bytes per checksum, so outputs can have larger pieces than Hadoop's 512 bytes.
_MAGIC, _PIECE_BYTES, _SUMMED_BYTES = b"crc\0", 1 << 16, 1 << 20

# A place, and the size in bytes of the file.
Input = tuple[str, int]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Storage:
    """Reads and writes a table's files; `reading` are options of a ParquetFile."""

    def __init__(self, files: fs.FileSystem | None = None):
        """`files` is None for local disks."""
        self.is_local = files is None
        self._threads = 1 if files is None else MOST_REQUESTS
        self._pool = ThreadPoolExecutor(self._threads)
        if files is None:
            self._system = fs.LocalFileSystem()
            self._ahead_bytes, self._small_bytes = _AHEAD_BYTES, SMALL_BYTES
            self.reading: dict[str, Any] = {"buffer_size": _BUFFER_BYTES, "pre_buffer": False}
            return
        self._ahead_bytes, self._small_bytes = _STORED_AHEAD_BYTES, STORED_SMALL_BYTES
        # A row group's columns are read in a few requests, at once.
        self.reading = {"buffer_size": 0, "pre_buffer": True}
        # A file system uses as many connections as there are I/O threads when it is made.
        pa.set_io_thread_count(max(self._threads, pa.io_thread_count()))
        self._system = _made_again(files)

    def is_there(self, place: str) -> bool:
        """Return whether a file or folder exists."""
        return bool(self._system.get_file_info(_key(place)).type != fs.FileType.NotFound)

    def status(self, place: str) -> tuple[int, int]:
        """Return a file's size in bytes, and its modification time in milliseconds since 1970."""
        found = self._system.get_file_info(_key(place))
        if not found.is_file:
            raise FileNotFoundError(f"{place} is gone, though it was written")
        return found.size, found.mtime_ns // 1_000_000

    def open(self, place: str) -> pa.NativeFile:
        """Open a file to read parts of it."""
        return self._system.open_input_file(_key(place))

    def create(self, place: str) -> pa.NativeFile:
        """Open a new file; an object exists once it is closed, even by an error."""
        return self._system.open_output_stream(_key(place))

    @contextlib.contextmanager
    def writing(self, place: str, at_once: bool) -> Iterator[pa.NativeFile]:
        """Yield a stream to write a new file, perhaps at once at the end; no file is left after an error."""
        try:
            with pa.BufferOutputStream() if at_once else self.create(place) as sink:
                yield sink
                if at_once:
                    with self.create(place) as file:
                        file.write(sink.getvalue())
        except BaseException:
            self.delete(place)
            raise

    def delete(self, place: str) -> None:
        """Delete a file if possible; the driver looks for files that are left."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._system.delete_file(_key(place))

    def loaded(self, inputs: Sequence[Input]) -> Iterator[tuple[str, bytes | None]]:
        """Read small files ahead; yields each place with its bytes, or with None for a large file."""
        chunks: list[list[Input]] = []
        size = 0
        for place, size_bytes in inputs:
            size += size_bytes
            is_full = size > self._ahead_bytes or not chunks or len(chunks[-1]) == _AHEAD_FILES
            if is_full or not self.is_local:
                chunks.append([])
                size = size_bytes
            chunks[-1].append((place, size_bytes))
        if self.is_local and sum(size for _, size in inputs) < _TINY_BYTES * len(inputs):
            # Threads would gain less time than they would spend waiting for Python's lock.
            for chunk in chunks:
                yield from self._load(chunk)
            return
        sizes = (sum(size for _, size in chunk if size <= self._small_bytes) for chunk in chunks)
        for loaded in self._ahead(self._load, chunks, sizes):
            yield from loaded

    def _load(self, chunk: list[Input]) -> list[tuple[str, bytes | None]]:
        loaded: list[tuple[str, bytes | None]] = []
        for place, size_bytes in chunk:
            data = self._read(place) if size_bytes <= self._small_bytes else None
            self.check(place, data)
            loaded.append((place, data))
        return loaded

    def _read(self, place: str) -> bytes:
        if self.is_local:
            with open(place, "rb", buffering=0) as file:
                return file.read()
        try:
            with self.open(place) as stored:
                return stored.read_at(stored.size(), 0)
        except OSError as error:
            raise OSError(f"{place} can't be read: {error}") from error

    def check(self, place: str, data: bytes | None = None) -> None:
        """Compare a local file with Hadoop's checksums, if it has any; OSError if they differ."""
        if self.is_local and os.path.exists(checksum_path(place)):
            check_file(place, data)

    def finish(self, place: str, source: str) -> None:
        """Write checksums beside a new local file, if one of its inputs has some."""
        if self.is_local and os.path.exists(checksum_path(source)):
            write_checksums(place)

    def spans(self, spans: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
        """Read parts of files, given by place, offset and number of bytes."""

        def read(span: tuple[str, int, int]) -> bytes:
            place, offset, size_bytes = span
            with self.open(place) as file:
                return file.read_at(size_bytes, offset)

        return self._ahead(read, spans, (size for *_, size in spans))

    @contextlib.contextmanager
    def on_disk(self, inputs: Sequence[Input]) -> Iterator[list[str]]:
        """Yield local paths of files; objects are copied, and the copies are deleted at the end."""
        if self.is_local:
            yield [place for place, _ in inputs]
            return
        with tempfile.TemporaryDirectory(prefix="compaction-kit-") as folder:
            paths = [f"{folder}/{number}.parquet" for number in range(len(inputs))]
            blocks = [
                (place, path, at, min(_BLOCK_BYTES, size_bytes - at))
                for (place, size_bytes), path in zip(inputs, paths, strict=True)
                for at in range(0, size_bytes, _BLOCK_BYTES)
            ]
            sizes = [size for *_, size in blocks]
            for _ in self._ahead(self._copy, blocks, sizes):
                pass
            yield paths

    def _copy(self, block: tuple[str, str, int, int]) -> None:
        place, path, at, size_bytes = block
        with self.open(place) as source, open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as copy:
            copy.seek(at)
            copy.write(source.read_at(size_bytes, at))

    def each(
        self, work: Callable[[Item], Result], items: Sequence[Item], sizes: Sequence[int]
    ) -> Generator[Result]:
        """Work on items of given sizes in bytes, and yield the results in order.

        On a store most of the time is waiting, so several small items are worked on at once.
        """
        if self.is_local:
            yield from map(work, items)
            return
        with ThreadPoolExecutor(_BINS) as pool:
            yield from _in_turn(pool, work, items, sizes, 2 * _BINS, _BINS_BYTES)

    def _ahead(
        self, work: Callable[[Item], Result], items: Sequence[Item], sizes: Iterable[int]
    ) -> Generator[Result]:
        return _in_turn(self._pool, work, items, sizes, 2 * self._threads, self._ahead_bytes)


def checksum_path(path: str) -> str:
    """Return where Hadoop keeps the checksums of a file."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def check_file(path: str, data: bytes | None = None) -> None:
    """Compare a file, or its bytes if they were read, with its checksums; OSError if they differ."""
    with open(checksum_path(path), "rb") as sums:
        known = sums.read()
    size = int.from_bytes(known[4:8])
    with open(path, "rb") if data is None else io.BytesIO(data) as file:
        if known[:4] != _MAGIC or not 0 < size <= _SUMMED_BYTES or b"".join(_sums(file, size)) != known[8:]:
            raise OSError(f"{path} differs from its checksums in {checksum_path(path)}: one is damaged")


def write_checksums(path: str) -> None:
    """Write checksums of a file as Hadoop does."""
    with open(path, "rb") as file, open(checksum_path(path), "xb") as sums:
        sums.write(_MAGIC + _PIECE_BYTES.to_bytes(4) + b"".join(_sums(file, _PIECE_BYTES)))


def _sums(file: BinaryIO, size: int) -> Iterator[bytes]:
    while block := file.read(_SUMMED_BYTES // size * size):
        view = memoryview(block)
        yield b"".join(zlib.crc32(view[at : at + size]).to_bytes(4) for at in range(0, len(view), size))


def _made_again(files: fs.FileSystem) -> fs.FileSystem:
    if not isinstance(files, fs.S3FileSystem):
        return pickle.loads(pickle.dumps(files))
    # Pickling loses the number of tries of a request.
    _, (options,) = files.__reduce__()
    return fs.S3FileSystem(**options, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=MOST_TRIES))


def _key(place: str) -> str:
    """Return pyarrow's name of a file: s3a://bucket/a and abfss://container@account/a lose the scheme."""
    _, _, rest = place.partition("://")
    if not rest or place.startswith("/"):
        return place
    authority, slash, path = rest.partition("/")
    return authority.partition("@")[0] + slash + path


def _in_turn(
    pool: ThreadPoolExecutor,
    work: Callable[[Item], Result],
    items: Sequence[Item],
    sizes: Iterable[int],
    most_items: int,
    most_bytes: int,
) -> Generator[Result]:
    """Work on items in threads; limits their number and bytes at once, and works on a larger item alone."""
    waiting = deque(zip(items, sizes, strict=True))
    working: deque[tuple[Future[Result], int]] = deque()
    held = 0
    try:
        while waiting or working:
            while waiting and len(working) < most_items:
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
        left = [future for future, _ in working]
        for future in left:
            future.cancel()
        wait(left)
