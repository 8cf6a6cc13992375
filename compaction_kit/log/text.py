"""The files of a log that are JSON: a line an action."""

import codecs
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from compaction_kit.errors import CompactionKitError, CorruptLogError
from compaction_kit.log.checksums import read_checked
from compaction_kit.log.names import LOG_FOLDER, LogFile

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


def commit_actions(table: Path, file: LogFile) -> list[dict[str, Any]]:
    """Every action of one commit, as the log writes it: an object with the action's name as its key.

    Raises:
        CorruptLogError: The file is damaged or empty.
    """
    lines = lines_of(read_log_file(table, file))
    with reading(file.name):
        # At once: that takes half the time.
        actions = json.loads(b"[" + b",\n".join(lines) + b"]")
        if len(actions) != len(lines) or not all(isinstance(action, dict) for action in actions):
            raise ValueError("a line is no JSON object")
    return actions


def read_log_file(table: Path, file: LogFile) -> bytes:
    """The bytes of a file of the log in JSON.

    Raises:
        CorruptLogError: It can't be read, or is empty.
    """
    with reading(file.name):
        data = read_checked(table / LOG_FOLDER / file.name).removeprefix(codecs.BOM_UTF8)
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
