"""Hadoop's checksums of the files of a log, where Spark left them beside the files.

On a local disk Hadoop writes a hidden file `.<name>.crc` for each file: "crc", a zero byte, the
number of bytes that a checksum is of, and then the CRC-32 of each such chunk, big-endian
(org.apache.hadoop.fs.ChecksumFileSystem). Delta refuses a file that differs from them, and so
does this module; a file without them is read as it is.
"""

import io
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from compaction_kit.errors import CorruptLogError

_MAGIC = b"crc\0"
_HEADER_BYTES = 8


def read_checked(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        CorruptLogError: They differ from the file's checksums.
        OSError: The file can't be read.
    """
    return _CheckedFile(path).read() if _checksum_file(path).exists() else path.read_bytes()


def open_checked(path: Path) -> io.FileIO | pa.MemoryMappedFile:
    """Open a file whose parts are checked as they are read, by `read()`.

    Raises:
        CorruptLogError: The checksums themselves are damaged; when reading, that they differ.
        OSError: The file can't be read.
    """
    return _CheckedFile(path) if _checksum_file(path).exists() else pa.memory_map(str(path))


def _checksum_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


class _CheckedFile(io.FileIO):
    """Reads whole chunks and compares their checksums before it hands out what was asked for."""

    def __init__(self, path: Path):
        super().__init__(path)
        data = _checksum_file(path).read_bytes()
        self._file_name = path.name
        self._size = path.stat().st_size
        self._chunk = int.from_bytes(data[len(_MAGIC) : _HEADER_BYTES])
        if not data.startswith(_MAGIC) or self._chunk == 0 or (len(data) - _HEADER_BYTES) % 4:
            raise self._error()
        self._sums = np.frombuffer(data, ">u4", offset=_HEADER_BYTES)
        if len(self._sums) != -(-self._size // self._chunk):
            raise self._error()

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
        view, chunk = memoryview(data), self._chunk
        sums = [zlib.crc32(view[i : i + chunk]) for i in range(0, len(data), chunk)]
        if not np.array_equal(sums, self._sums[first:last]):
            raise self._error()

    def _error(self) -> CorruptLogError:
        return CorruptLogError(
            f"The log file {self._file_name} differs from its checksums in .{self._file_name}.crc, so that "
            "one of the two is damaged: restore it from a backup."
        )
