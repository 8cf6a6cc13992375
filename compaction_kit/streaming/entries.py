"""The entries of a log's files, column by column.

A file is a line "v1" and a JSON object a line (CompactibleFileStreamLog.serialize). Spark always
writes the same fields in the same order, so that cutting lines at their commas does for most
files; where it doesn't, the lines are parsed as JSON, which takes several times as long.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.reading import DAMAGE, first_line, parse_lines
from compaction_kit.streaming.names import Kind

_BLOCK_BYTES = 4 << 20
_HEAD_BYTES = 64
_VERSION = re.compile(rb"v(\d+)")
_TIME = pa.timestamp("ms", "UTC")
_CURE = "restore it from a backup"


class _Field(NamedTuple):
    """A field as the log has it, the type that Spark reads it with, and the column made of it."""

    name: str
    type: pa.DataType
    column: str
    column_type: pa.DataType


_FIELDS = {
    # SinkFileStatus
    Kind.SINK: (
        _Field("path", pa.string(), "path", pa.string()),
        _Field("size", pa.int64(), "size_bytes", pa.int64()),
        _Field("isDir", pa.bool_(), "is_dir", pa.bool_()),
        _Field("modificationTime", pa.int64(), "modification_time", _TIME),
        _Field("blockReplication", pa.int32(), "block_replication", pa.int32()),
        _Field("blockSize", pa.int64(), "block_size", pa.int64()),
        _Field("action", pa.string(), "action", pa.string()),
    ),
    # FileStreamSource.FileEntry
    Kind.SOURCE: (
        _Field("path", pa.string(), "path", pa.string()),
        _Field("timestamp", pa.int64(), "timestamp", _TIME),
        _Field("batchId", pa.int64(), "batch_id", pa.int64()),
    ),
}


def schema_of(kind: Kind) -> pa.Schema:
    """The columns of a log's entries."""
    return pa.schema([(field.column, field.column_type) for field in _FIELDS[kind]])


def read_entries(path: Path, kind: Kind) -> pa.Table:
    """The entries of one file of a log, in its order; `schema_of` has the columns.

    Raises:
        CorruptLogError: The file is gone or damaged; the message says where.
    """
    try:
        with path.open("rb") as file:
            start = _start_of_entries(file.read(_HEAD_BYTES), path.name)
        if path.stat().st_size == start:
            return schema_of(kind).empty_table()
        columns = _cut(path, _FIELDS[kind])
        if columns is None:
            columns = _parse(path.read_bytes()[start:], _FIELDS[kind], path.name)
    except OSError as error:
        raise CorruptLogError(f"The log file {path.name} can't be read: {error.strerror}.") from error
    typed = [column.cast(field.column_type) for column, field in zip(columns, _FIELDS[kind], strict=True)]
    return pa.table(typed, schema=schema_of(kind))


def count_entries(path: Path) -> int | None:
    """How many entries a file has, without a look at them; None if it is gone."""
    count, last = 0, b"\n"
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                count, last = count + block.count(b"\n"), block[-1:]
    except OSError:
        return None
    return count - 1 if last == b"\n" and count else count


def _start_of_entries(head: bytes, name: str) -> int:
    """Where a file goes on after the line with the version (MetadataVersionUtil.validateVersion)."""
    if not head:
        raise CorruptLogError(f"The log file {name} is empty, not even a version is in it: {_CURE}.")
    line, end, _ = head.partition(b"\n")
    version = _VERSION.fullmatch(line.rstrip(b"\r"))
    if version is None:
        raise CorruptLogError(f'The log file {name} does not begin with a line "v1", its version: {_CURE}.')
    if int(version[1]) != 1:
        raise CorruptLogError(
            f"The log file {name} has the version v{int(version[1])}, and v1 alone is known to Spark and to "
            "this kit: read it with the Spark that wrote it."
        )
    return len(line) + len(end)


def _cut(path: Path, fields: Sequence[_Field]) -> list[pa.ChunkedArray] | None:
    """The columns of a file whose lines are laid out as Spark writes them; None if one isn't.

    Block by block: memory that is used for the first time costs more than what is done in it.
    """
    names = [field.name for field in fields]
    parts: list[list[pa.Array]] = []
    try:
        blocks = pyarrow.csv.open_csv(
            str(path),
            pyarrow.csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES, skip_rows=1),
            pyarrow.csv.ParseOptions(delimiter=",", quote_char=False, ignore_empty_lines=False),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
        for block in blocks:
            parts.append([])
            for field in fields:
                parts[-1].append(_values(block[field.name], field, fields))
                if parts[-1][-1] is None:
                    return None
    except pa.ArrowInvalid:
        return None
    columns = zip(*parts, strict=True)
    return [pa.chunked_array(list(column), field.type) for column, field in zip(columns, fields, strict=True)]


def _values(cells: pa.Array, field: _Field, fields: Sequence[_Field]) -> pa.Array | None:
    """The values of cells such as `"size":78`; None if one is written otherwise."""
    if len(cells) > 1 and pc.all(pc.equal(cells, cells[0])).as_py():
        # As most fields are: then one is enough to look at.
        values = _values(cells.slice(0, 1), field, fields)
        return None if values is None else pa.repeat(values[0], len(cells))
    quote = '"' if field.type == pa.string() else ""
    start = f'{"{" if field is fields[0] else ""}"{field.name}":{quote}'
    end = f"{quote}{'}' if field is fields[-1] else ''}"
    if not pc.all(pc.starts_with(cells, start)).as_py() or not pc.all(pc.ends_with(cells, end)).as_py():
        return None
    values = pc.utf8_slice_codeunits(cells, len(start), -len(end) or None)
    if field.type == pa.string():
        return values if _is_plain(values) else None
    if field.type == pa.bool_():
        known = pc.is_in(values, pa.array(["true", "false"]))
        return pc.equal(values, "true") if pc.all(known).as_py() else None
    return values.cast(field.type) if pc.all(pc.ascii_is_decimal(values)).as_py() else None


def _is_plain(texts: pa.Array) -> bool:
    """Whether no text has a quote or an escape in it; pc.match_substring takes five times as long."""
    buffer = texts.buffers()[2]
    data = b"" if buffer is None else buffer.to_pybytes()
    return b'"' not in data and b"\\" not in data


def _parse(text: bytes, fields: Sequence[_Field], name: str) -> list[pa.ChunkedArray]:
    """The columns of lines of JSON, whatever their layout.

    Raises:
        CorruptLogError: A line is no entry.
    """
    schema = pa.schema([(field.name, field.type) for field in fields])
    try:
        rows = parse_lines(text, schema, _BLOCK_BYTES)[0]
        if len(rows) == text.count(b"\n") + (not text.endswith(b"\n")) and not any(
            column.null_count for column in rows.columns
        ):
            return list(rows.columns)
    except DAMAGE:
        pass
    raise _damaged_line(text, schema, name)


def _damaged_line(text: bytes, schema: pa.Schema, name: str) -> CorruptLogError:
    """The error that tells which line is no entry, and why."""
    lines = text.split(b"\n")
    for number, line in enumerate(lines, start=2):
        reason = _what_is_wrong(line, schema)
        # The last one is what follows the last line's end.
        if reason and not (number == len(lines) + 1 and not line):
            cut = " It is the last one: the file was cut off." if number == len(lines) + 1 else ""
            return CorruptLogError(
                f"Line {number:,} of the log file {name} is no entry ({reason}).{cut} {_CURE.capitalize()}."
            )
    return CorruptLogError(f"The log file {name} is damaged: {_CURE}.")


def _what_is_wrong(line: bytes, schema: pa.Schema) -> str | None:
    if not line.strip():
        return "it is blank"
    try:
        row = parse_lines(line, schema)[0]
    except DAMAGE as error:
        return first_line(error).removeprefix("JSON parse error: ")
    missing = [field for field in schema.names if row[field].null_count]
    return f"it has no {missing[0]}" if missing else None
