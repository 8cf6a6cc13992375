"""Read the JSON files of the log: their bytes, their lines as a table, and the actions in a line."""

import codecs
import json
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from compaction_kit.errors import DAMAGE, CompactionKitError, CorruptLogError, first_line
from compaction_kit.log.listing import LogFile
from compaction_kit.storage import Store, checksum_place

_INT, _LONG, _TEXT, _NAMES = pa.int32(), pa.int64(), pa.string(), pa.list_(pa.string())
_VERSIONS, _FEATURES = ("minReaderVersion", "minWriterVersion"), ("readerFeatures", "writerFeatures")
_TEXTS = pa.map_(_TEXT, _TEXT)
# Actions without a data file, with the fields that are used here; fields of `_REQUIRED` must be present.
# Delta would read a sidecar without a size as empty.
OTHERS: dict[str, dict[str, pa.DataType]] = {
    "protocol": {**dict.fromkeys(_VERSIONS, _INT), **dict.fromkeys(_FEATURES, _NAMES)},
    "metaData": {"id": _TEXT, "schemaString": _TEXT, "partitionColumns": _NAMES, "configuration": _TEXTS},
    "txn": {"appId": _TEXT, "version": _LONG},
    "domainMetadata": {"domain": _TEXT, "configuration": _TEXT, "removed": pa.bool_()},
    "sidecar": {"path": _TEXT, "sizeInBytes": _LONG},
}
_REQUIRED = {"protocol": _VERSIONS, "sidecar": ("path", "sizeInBytes")}
Action = dict[str, Any]
# Marks a number while JSON is written; it is random, so no other text contains it.
_MARK = f"number {uuid.uuid4()} "
_MARKED = re.compile(f'"{_MARK}([^"]*)"')


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Convert errors of reading a file to a CorruptLogError with the file's name."""
    try:
        yield
    except CompactionKitError:
        raise
    except OSError as error:
        why = f"{error.strerror or first_line(error)}): check that it exists, and who may read it"
        raise CorruptLogError(f"The log file {name} can't be read ({why}.") from None
    except DAMAGE as error:
        raise CorruptLogError(
            f"The log file {name} is damaged ({first_line(error)}): restore it from a backup."
        ) from None


def read_log_file(store: Store, file: LogFile) -> bytes:
    """Read a JSON file of the log; raise CorruptLogError if it is empty or differs from its checksums."""
    with reading(file.name):
        data = store.read(file.place)
        if store.is_local and store.is_file(checksum_place(file.place)):
            # Hadoop's format: "crc", a zero byte, the chunk size, a CRC-32 for each chunk.
            sums = store.read(checksum_place(file.place))
            chunk, view = int.from_bytes(sums[4:8]), memoryview(data)
            if sums.startswith(b"crc\0") and chunk:
                found = [zlib.crc32(view[start : start + chunk]) for start in range(0, len(data), chunk)]
                if np.array(found, ">u4").tobytes() != sums[8:]:
                    raise ValueError(f"it differs from its checksums in .{file.name}.crc")
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data or data.isspace():
        raise CorruptLogError(f"The log file {file.name} is empty: restore it from a backup.")
    return data


def commit_actions(store: Store, file: LogFile) -> list[Action]:
    """Return the actions of one commit, as {name: fields} for each line, without names that are null."""
    lines = [line for line in read_log_file(store, file).split(b"\n") if line.strip()]
    with reading(file.name):
        # Parsing all lines at once takes half the time.
        actions = json.loads(b"[" + b",\n".join(lines) + b"]")
        if len(actions) != len(lines) or not all(isinstance(action, dict) for action in actions):
            raise ValueError("a line is not a JSON object")
    return [{name: fields for name, fields in action.items() if fields is not None} for action in actions]


def json_text(value: Any) -> str:
    """Return a value as JSON: decimals keep all digits, and other types that JSON lacks become strings."""
    # Decimals are written as marked strings; then the marks and quotes are removed.
    text = json.dumps(value, default=lambda one: f"{_MARK}{one}" if isinstance(one, Decimal) else str(one))
    return _MARKED.sub(r"\1", text)


def commit_info(actions: Iterable[Action]) -> Action:
    """Return the first commitInfo action that is a JSON object; {} if there is none."""
    return next((one["commitInfo"] for one in actions if isinstance(one.get("commitInfo"), dict)), {})


def parse_lines(
    text: bytes, schema: pa.Schema, block_bytes: int | None = None
) -> tuple[pa.Table, tuple[np.ndarray, np.ndarray]]:
    """Parse the lines of JSON that aren't blank; also return the start and end of each row's line.

    With `block_bytes`, several threads parse blocks of that size. Raises an error of `DAMAGE` if a line is
    not an object, or doesn't match the schema.
    """
    # pyarrow accepts invalid UTF-8, and crashes on a text that begins with null.
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
    rows = pj.read_json(
        pa.BufferReader(text),
        pj.ReadOptions(block_size=block_bytes or len(text) + 1, use_threads=block_bytes is not None),
        pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if len(rows) != has_text.sum():
        raise ValueError("a line holds several JSON objects")
    return rows, (starts[has_text], ends[has_text])


def others_in(line: bytes) -> list[tuple[str, Action]]:
    """Return a line's actions that have no data file; a commitInfo that is not an object is skipped."""
    actions = json.loads(line)
    found = [(name, checked(name, actions[name])) for name in OTHERS if actions.get(name) is not None]
    info = actions.get("commitInfo")
    return [*found, ("commitInfo", info)] if isinstance(info, dict) else found


def checked(name: str, action: Any) -> Action:
    """Check the fields of an action in `OTHERS`, and return the action unchanged."""
    if not isinstance(action, dict):
        raise TypeError(f"its {name} action is not an object")
    missing = [field for field in _REQUIRED.get(name, ()) if action.get(field) is None]
    if missing:
        raise ValueError(f"its {name} action has no {missing[0]}")
    pa.array([action], pa.struct(OTHERS[name]))
    return action
