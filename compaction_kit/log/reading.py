"""Files of a log as bytes and lines: JSON, a line an action, checked by Hadoop's checksums beside them.

On a local disk Hadoop writes a hidden file `.<name>.crc` for each file: "crc", a zero byte, the
number of bytes that a checksum is of, and then the CRC-32 of each such chunk, big-endian
(org.apache.hadoop.fs.ChecksumFileSystem). Delta refuses a commit that differs from them, and so
does this module. Its Parquet reader doesn't look at them: such a checkpoint is read, with a warning.
A file without them is read as it is, and so is one whose checksums are no file of that form.
"""

import codecs
import errno
import io
import json
import posixpath
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from compaction_kit.errors import CompactionKitError, CorruptLogError
from compaction_kit.log.listing import LogFile
from compaction_kit.storage import Store

_MAGIC = b"crc\0"
_HEADER_BYTES = 8
# By which the reading of what is damaged fails; by recursion, where it is nested thousands deep.
DAMAGE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    pa.ArrowException,
)
_LONGEST = 300


def read_checked(store: Store, place: str) -> bytes:
    """The bytes of a file.

    Raises:
        CorruptLogError: They differ from the file's checksums.
        OSError: The file can't be read.
    """
    _refuse_others(store, place)
    sums = _checksum_file(place)
    return _CheckedFile(store, place, _refuse).read() if store.is_file(sums) else store.read(place)


def open_checked(store: Store, place: str) -> "pa.NativeFile | _CheckedFile":
    """Open a file whose parts are checked as they are read, by `read()`; a warning tells if they differ.

    Raises:
        OSError: The file can't be read.
    """
    _refuse_others(store, place)
    return _CheckedFile(store, place, _warn) if store.is_file(_checksum_file(place)) else store.open(place)


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


def _refuse_others(store: Store, place: str) -> None:
    """Refuse a pipe, say, which would be waited for."""
    if not store.is_file(place) and store.status(place) is not None:
        raise OSError(errno.EINVAL, "it is no file")


def _checksum_file(place: str) -> str:
    folder, slash, name = place.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


class _CheckedFile(io.RawIOBase):
    """Reads whole chunks and compares their checksums before it hands out what was asked for."""

    def __init__(self, store: Store, place: str, report: Callable[[str], None]):
        """`report` is called with the file's name where it differs; then no more is checked."""
        self._file, self._name, self._report = store.open(place), posixpath.basename(place), report
        self._size = self._file.size()
        data = store.read(_checksum_file(place))
        self._chunk = int.from_bytes(data[len(_MAGIC) : _HEADER_BYTES])
        self._is_checked = data.startswith(_MAGIC) and len(data) >= _HEADER_BYTES and self._chunk > 0
        if not self._is_checked:
            self._chunk = _HEADER_BYTES
        self._sums = np.frombuffer(data[_HEADER_BYTES : len(data) - len(data) % 4], ">u4")
        if self._is_checked and ((len(data) % 4) or len(self._sums) != -(-self._size // self._chunk)):
            self._differs()

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the file stands."""
        return self._file.tell()

    def seek(self, position: int, whence: int = 0, /) -> int:
        """Go to a position."""
        return self._file.seek(position, whence)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def read(self, size: int | None = -1, /) -> bytes:
        """Bytes from where the file stands, checked."""
        start = self.tell()
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        if end <= start:
            return b""
        first, last = start // self._chunk, -(-end // self._chunk)
        self.seek(first * self._chunk)
        data = self._file.read(last * self._chunk - first * self._chunk)
        self._check(data, first, last)
        self.seek(end)
        return data[start - first * self._chunk : end - first * self._chunk]

    def _check(self, data: bytes, first: int, last: int) -> None:
        if not self._is_checked:
            return
        view, chunk = memoryview(data), self._chunk
        sums = [zlib.crc32(view[i : i + chunk]) for i in range(0, len(data), chunk)]
        if not np.array_equal(sums, self._sums[first:last]):
            self._differs()

    def _differs(self) -> None:
        self._is_checked = False
        self._report(self._name)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Whatever the reading of a file fails by becomes one sentence with the file's name.

    Raises:
        CorruptLogError: The file can't be read, or is damaged.
    """
    try:
        yield
    except CompactionKitError:
        raise
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise CorruptLogError(f"The log file {name} can't be read: {reason}.") from error
    except DAMAGE as error:
        raise damaged(name, error) from error


def commit_actions(store: Store, file: LogFile) -> list[dict[str, Any]]:
    """Every action of one commit, as the log writes it: an object with the action's name as its key.

    Raises:
        CorruptLogError: The file is damaged or empty.
    """
    lines = lines_of(read_log_file(store, file))
    with reading(file.name):
        # At once: that takes half the time.
        actions = json.loads(b"[" + b",\n".join(lines) + b"]")
        if len(actions) != len(lines) or not all(isinstance(action, dict) for action in actions):
            raise ValueError("a line is no JSON object")
    return actions


def read_log_file(store: Store, file: LogFile) -> bytes:
    """The bytes of a file of the log in JSON.

    Raises:
        CorruptLogError: It can't be read, or is empty.
    """
    with reading(file.name):
        data = read_checked(store, file.place).removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise CorruptLogError(f"The log file {file.name} is empty: restore it from a backup.")
    return data


def damaged(name: str, error: Exception) -> CorruptLogError:
    """The error for a file of the log that doesn't parse."""
    return CorruptLogError(f"The log file {name} is damaged ({first_line(error)}): restore it from a backup.")


def first_line(error: Exception) -> str:
    """The first line of an error, or its class's name; what it quotes may be long."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


def lines_of(text: bytes) -> list[bytes]:
    """The lines of a text that aren't blank."""
    return [line for line in text.split(b"\n") if line.strip()]


def parse_lines(
    text: bytes | bytearray, schema: pa.Schema, block_bytes: int | None = None
) -> tuple[pa.Table, tuple[np.ndarray, np.ndarray]]:
    """The rows of lines of JSON, one a line, and where each of these lines starts and ends.

    Args:
        text: The lines; blank ones make no row.
        schema: What to take of each line's object.
        block_bytes: Parse by several threads, so many bytes each; None for one.

    Raises:
        ValueError, pa.ArrowException: A line is no object, or not of this schema.
    """
    starts, ends = _line_bounds(text)
    rows = pj.read_json(
        pa.BufferReader(text),
        pj.ReadOptions(block_size=block_bytes or len(text) + 1, use_threads=block_bytes is not None),
        pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if len(rows) != len(starts):
        raise ValueError("a line holds several JSON objects")
    return rows, (starts, ends)


def _line_bounds(text: bytes | bytearray) -> tuple[np.ndarray, np.ndarray]:
    """Where each line that isn't blank starts and ends.

    Refuses what pyarrow doesn't: it takes any bytes for UTF-8, and the process dies of a text that
    begins with null.
    """
    offsets = pa.array([0, len(text)], pa.int64()).buffers()[1]
    pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(text)]).validate(full=True)
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    starts = np.append(0, ends[:-1] + 1)
    has_text = np.ones(len(ends), dtype=bool)
    for row in np.flatnonzero(data[starts] != ord("{")).tolist():
        line = text[starts[row] : ends[row]].strip()
        if line and not line.startswith(b"{"):
            raise ValueError("a line is no JSON object")
        has_text[row] = bool(line)
    return (starts, ends) if has_text.all() else (starts[has_text], ends[has_text])
