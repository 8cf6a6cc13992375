"""Hadoop's checksums of the files of a log, where Spark left them beside the files.

On a local disk Hadoop writes a hidden file `.<name>.crc` for each file: "crc", a zero byte, the
number of bytes that a checksum is of, and then the CRC-32 of each such chunk, big-endian
(org.apache.hadoop.fs.ChecksumFileSystem). Delta refuses a commit that differs from them, and so
does this module. Its Parquet reader doesn't look at them: such a checkpoint is read, with a warning.
A file without them is read as it is, and so is one whose checksums are no file of that form.
"""

import errno
import io
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from compaction_kit.errors import CorruptLogError
from compaction_kit.folder import is_file

_MAGIC = b"crc\0"
_HEADER_BYTES = 8


def read_checked(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        CorruptLogError: They differ from the file's checksums.
        OSError: The file can't be read.
    """
    _refuse_others(path)
    return _CheckedFile(path, _refuse).read() if is_file(_checksum_file(path)) else path.read_bytes()


def open_checked(path: Path) -> io.FileIO | pa.MemoryMappedFile:
    """Open a file whose parts are checked as they are read, by `read()`; a warning tells if they differ.

    Raises:
        OSError: The file can't be read.
    """
    _refuse_others(path)
    return _CheckedFile(path, _warn) if is_file(_checksum_file(path)) else pa.memory_map(str(path))


def _refuse(name: str) -> None:
    raise CorruptLogError(
        f"The log file {name} differs from its checksums in .{name}.crc, so that one of the two is damaged: "
        "restore it from a backup."
    )


def _warn(name: str) -> None:
    warnings.warn(
        f"The log file {name} differs from its checksums in .{name}.crc, so that one of the two is damaged; "
        "it is read as it is, as Delta reads it, which doesn't look at them.",
        stacklevel=2,
    )


def _refuse_others(path: Path) -> None:
    """Refuse a pipe, say, which would be waited for."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no file")


def _checksum_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


class _CheckedFile(io.FileIO):
    """Reads whole chunks and compares their checksums before it hands out what was asked for."""

    def __init__(self, path: Path, tell: Callable[[str], None]):
        """`tell` is called with the file's name where it differs; then no more is checked."""
        super().__init__(path)
        self._file_name, self._tell = path.name, tell
        self._size = path.stat().st_size
        data = _checksum_file(path).read_bytes()
        self._chunk = int.from_bytes(data[len(_MAGIC) : _HEADER_BYTES])
        self._is_checked = data.startswith(_MAGIC) and len(data) >= _HEADER_BYTES and self._chunk > 0
        if not self._is_checked:
            self._chunk = _HEADER_BYTES
        self._sums = np.frombuffer(data[_HEADER_BYTES : len(data) - len(data) % 4], ">u4")
        if self._is_checked and ((len(data) % 4) or len(self._sums) != -(-self._size // self._chunk)):
            self._differs()

    def read(self, size: int | None = -1, /) -> bytes:
        """Bytes from where the file stands, checked."""
        start = self.tell()
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        if end <= start:
            return b""
        first, last = start // self._chunk, -(-end // self._chunk)
        self.seek(first * self._chunk)
        data = super().read(last * self._chunk - first * self._chunk) or b""
        self._check(data, first, last)
        self.seek(end)
        return data[start - first * self._chunk : end - first * self._chunk]

    def readall(self) -> bytes:
        """The rest of the file, checked."""
        return self.read()

    def _check(self, data: bytes, first: int, last: int) -> None:
        if not self._is_checked:
            return
        view, chunk = memoryview(data), self._chunk
        sums = [zlib.crc32(view[i : i + chunk]) for i in range(0, len(data), chunk)]
        if not np.array_equal(sums, self._sums[first:last]):
            self._differs()

    def _differs(self) -> None:
        self._is_checked = False
        self._tell(self._file_name)
