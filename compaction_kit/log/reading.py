"""Read files of a log as bytes and as lines of JSON, and check Hadoop's checksums.

On a local disk Hadoop writes a hidden file `.<name>.crc` for each file: "crc", a zero byte, the chunk
size in bytes, and then the CRC-32 of each chunk, big-endian (org.apache.hadoop.fs.ChecksumFileSystem).
Delta refuses commits that differ from their checksums, and so does this module. Delta's Parquet reader
ignores checksums, so such a checkpoint is read with a warning. Files without checksums, or with a .crc
file of another form, are read unchecked.
"""

import codecs
import errno
import io
import json
import posixpath
import re
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
from compaction_kit.storage import Store, checksum_place

_MAGIC = b"crc\0"
_HEADER_BYTES = 8
# Errors that parsing damaged files raises; RecursionError if JSON is nested thousands deep.
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
# What py4j puts before the error of Java.
_PY4J = re.compile(r"^An error occurred while calling .*\n: (?:[\w.$]+: )?")


def read_checked(store: Store, place: str) -> bytes:
    """Read a file.

    Raises:
        CorruptLogError: It differs from its checksums.
        OSError: It can't be read.
    """
    if not store.has_checksums:
        return store.read(place)
    _check_is_file(store, place)
    sums = checksum_place(place)
    return _CheckedFile(store, place, _refuse).read() if store.is_file(sums) else store.read(place)


def open_checked(store: Store, place: str) -> "pa.NativeFile | _CheckedFile":
    """Open a file that checks what `read()` returns; it warns if that differs from the checksums.

    Raises:
        OSError: The file can't be read.
    """
    if not store.has_checksums:
        return store.open(place)
    _check_is_file(store, place)
    return _CheckedFile(store, place, _warn) if store.is_file(checksum_place(place)) else store.open(place)


def _refuse(name: str) -> None:
    raise CorruptLogError(
        f"The log file {name} differs from its checksums in .{name}.crc, so one of the two is damaged: "
        "restore it from a backup."
    )


def _warn(name: str) -> None:
    warnings.warn(
        f"The log file {name} differs from its checksums in .{name}.crc, so one of the two is damaged; "
        "it is read nevertheless, because Delta ignores checksums of checkpoints.",
        stacklevel=2,
    )


def _check_is_file(store: Store, place: str) -> None:
    """Refuse what is not a regular file: reading a pipe would block."""
    if not store.is_file(place) and store.status(place) is not None:
        raise OSError(errno.EINVAL, "it is not a file")


class _CheckedFile(io.RawIOBase):
    """Reads whole chunks and compares their checksums before it returns the requested bytes."""

    def __init__(self, store: Store, place: str, report: Callable[[str], None]):
        """`report` is called with the file's name at the first difference; after it nothing is checked."""
        self._file, self._name, self._report = store.open(place), posixpath.basename(place), report
        self._size = self._file.size()
        data = store.read(checksum_place(place))
        self._chunk = int.from_bytes(data[len(_MAGIC) : _HEADER_BYTES])
        self._is_checked = data.startswith(_MAGIC) and len(data) >= _HEADER_BYTES and self._chunk > 0
        if not self._is_checked:
            self._chunk = _HEADER_BYTES
        self._sums = np.frombuffer(data[_HEADER_BYTES : len(data) - len(data) % 4], ">u4")
        if self._is_checked and ((len(data) % 4) or len(self._sums) != -(-self._size // self._chunk)):
            self._differs()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the current position."""
        return self._file.tell()

    def seek(self, position: int, whence: int = 0, /) -> int:
        """Move to a position."""
        return self._file.seek(position, whence)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes from the current position and check them."""
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
    """Convert errors of reading a file to a CorruptLogError with the file's name.

    Raises:
        CorruptLogError: The file can't be read, or is damaged.
    """
    try:
        yield
    except CompactionKitError:
        raise
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise CorruptLogError(f"The log file {name} can't be read: {reason}.") from None
    except DAMAGE as error:
        raise damaged(name, error) from None


def commit_actions(store: Store, file: LogFile) -> list[dict[str, Any]]:
    """Return every action of one commit as the log writes it: an object with the action's name as key.

    Raises:
        CorruptLogError: The file is damaged or empty.
    """
    lines = lines_of(read_log_file(store, file))
    with reading(file.name):
        # All lines at once, which takes half the time.
        actions = json.loads(b"[" + b",\n".join(lines) + b"]")
        if len(actions) != len(lines) or not all(isinstance(action, dict) for action in actions):
            raise ValueError("a line is not a JSON object")
    return actions


def read_log_file(store: Store, file: LogFile) -> bytes:
    """Read a JSON file of the log as bytes.

    Raises:
        CorruptLogError: It can't be read, or is empty.
    """
    with reading(file.name):
        data = read_checked(store, file.place).removeprefix(codecs.BOM_UTF8)
    if not data or data.isspace():
        raise CorruptLogError(f"The log file {file.name} is empty: restore it from a backup.")
    return data


def damaged(name: str, error: Exception) -> CorruptLogError:
    """Return the error for a file of the log that can't be parsed."""
    return CorruptLogError(f"The log file {name} is damaged ({first_line(error)}): restore it from a backup.")


def first_line(error: Exception) -> str:
    """Return the first line of an error, shortened, or the name of its class."""
    line = (_PY4J.sub("", str(error)).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


def lines_of(text: bytes) -> list[bytes]:
    """Return the lines of a text that aren't blank."""
    return [line for line in text.split(b"\n") if line.strip()]


def parse_lines(
    text: bytes, schema: pa.Schema, block_bytes: int | None = None
) -> tuple[pa.Table, tuple[np.ndarray, np.ndarray]]:
    """Parse lines of JSON into rows, and return the start and end of each row's line too.

    Args:
        text: The lines; blank ones are skipped.
        schema: The fields to read from each line's object.
        block_bytes: Bytes per block, to parse with several threads; None for one thread.

    Raises:
        ValueError, pa.ArrowException: A line is not an object, or doesn't match the schema.
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


def _line_bounds(text: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and end of each line that isn't blank.

    Check what pyarrow doesn't: it accepts invalid UTF-8, and a text that begins with null crashes the
    process.
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
            raise ValueError("a line is not a JSON object")
        has_text[row] = bool(line)
    return (starts, ends) if has_text.all() else (starts[has_text], ends[has_text])
