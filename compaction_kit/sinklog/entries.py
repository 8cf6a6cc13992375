"""Parse the entries in a log's files, column by column.

A file is a line "v1" and a JSON object a line (CompactibleFileStreamLog.serialize). Spark always writes the
same fields in the same order, so that cutting lines at their commas does for most files; where it doesn't,
the lines are parsed as JSON, which takes several times as long.
"""

import json
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.reading import DAMAGE, first_line, parse_lines
from compaction_kit.sinklog.policy import Kind
from compaction_kit.storage import Store

_BLOCK_BYTES = 4 << 20
_VERSION_BYTES = 64
_LINE_BYTES = 1 << 16
_VERSION = re.compile(rb"v(\d+)")
_TIME = pa.timestamp("ms", "UTC")
_CURE = "restore it from a backup"
# Field of the JSON, column, type: of SinkFileStatus and of FileStreamSource.FileEntry, in their order.
_FIELDS = {
    Kind.SINK: (
        ("path", "path", pa.string()),
        ("size", "size_bytes", pa.int64()),
        ("isDir", "is_dir", pa.bool_()),
        ("modificationTime", "modification_time", _TIME),
        ("blockReplication", "block_replication", pa.int32()),
        ("blockSize", "block_size", pa.int64()),
        ("action", "action", pa.string()),
    ),
    Kind.SOURCE: (
        ("path", "path", pa.string()),
        ("timestamp", "timestamp", _TIME),
        ("batchId", "batch_id", pa.int64()),
    ),
}
# The JSON has times as numbers.
_JSON = {
    kind: pa.schema([(name, pa.int64() if of == _TIME else of) for name, _, of in fields])
    for kind, fields in _FIELDS.items()
}
ENTRIES = {kind: pa.schema([(column, of) for _, column, of in fields]) for kind, fields in _FIELDS.items()}


def read_entries(store: Store, name: str, kind: Kind) -> pa.Table:
    """Read the entries of one file of a log, in its order; `ENTRIES` has the columns.

    Raises:
        CorruptLogError: The file is missing or damaged; the message says where.
    """
    fields, columns = _JSON[kind], ENTRIES[kind]
    try:
        start = _start_of_entries(store.read(name, 0, _VERSION_BYTES), name)
        with store.open(name) as file:
            if file.size() == start:
                return columns.empty_table()
            rows = _cut(file, fields)
        if rows is None:
            rows = _parse(store.read(name, start), fields, name)
    except OSError as error:
        raise CorruptLogError(f"The log file {name} can't be read: {error.strerror}.") from error
    return rows.rename_columns(columns.names).cast(columns)


def write_entries(store: Store, name: str, kind: Kind, entries: pa.Table) -> int:
    """Write a file of a log with such entries, as Spark does; how many bytes it has."""
    fields = _JSON[kind]
    rows = entries.rename_columns(fields.names).cast(fields).to_pylist()
    lines = (json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows)
    text = "\n".join(["v1", *lines]).encode()
    store.create(name, text)
    return len(text)


def count_entries(store: Store, name: str) -> int | None:
    """Count the entries of a file by its lines; None if the file is missing."""
    num_lines, ended = 0, True
    try:
        with store.open(name) as file:
            while block := file.read(_BLOCK_BYTES):
                num_lines, ended = num_lines + block.count(b"\n"), block.endswith(b"\n")
    except OSError:
        return None
    return max(num_lines - ended, 0)


def field_names(store: Store, name: str) -> set[str] | None:
    """Return the names of the fields of a file's first entry; None if there is none that can be read."""
    try:
        entry = json.loads(store.read(name, 0, _LINE_BYTES).splitlines()[1])
    except (OSError, IndexError, ValueError, RecursionError):
        return None
    return set(entry) if isinstance(entry, dict) else set()


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


def _cut(file: pa.NativeFile, fields: pa.Schema) -> pa.Table | None:
    """The fields of a file whose lines are laid out as Spark writes them; None if one isn't.

    Block by block: memory that is used for the first time costs more than what is done in it.
    """
    batches = []
    try:
        blocks = pyarrow.csv.open_csv(
            file,
            pyarrow.csv.ReadOptions(column_names=fields.names, block_size=_BLOCK_BYTES, skip_rows=1),
            pyarrow.csv.ParseOptions(delimiter=",", quote_char=False, ignore_empty_lines=False),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(fields.names, pa.string())),
        )
        for block in blocks:
            columns = []
            for field in fields:
                columns.append(_values(block[field.name], field, fields))
                if columns[-1] is None:
                    return None
            batches.append(pa.record_batch(columns, schema=fields))
    except pa.ArrowInvalid:
        return None
    return pa.Table.from_batches(batches, fields)


def _values(cells: pa.Array, field: pa.Field, fields: pa.Schema) -> pa.Array | None:
    """The values of cells such as `"size":78`; None if one is written otherwise."""
    if len(cells) > 1 and pc.all(pc.equal(cells, cells[0])).as_py():
        # As most fields are: then one is enough to look at.
        values = _values(cells.slice(0, 1), field, fields)
        return None if values is None else pa.repeat(values[0], len(cells))
    quote = '"' if field.type == pa.string() else ""
    start = f'{"{" if field.name == fields.names[0] else ""}"{field.name}":{quote}'
    end = f"{quote}{'}' if field.name == fields.names[-1] else ''}"
    if not pc.all(pc.starts_with(cells, start)).as_py() or not pc.all(pc.ends_with(cells, end)).as_py():
        return None
    values = pc.utf8_slice_codeunits(cells, len(start), -len(end) or None)
    if quote:
        # pc.match_substring takes five times as long.
        buffer = values.buffers()[2]
        data = b"" if buffer is None else buffer.to_pybytes()
        return None if b'"' in data or b"\\" in data else values
    if field.type == pa.bool_():
        known = pc.is_in(values, pa.array(["true", "false"]))
        return pc.equal(values, "true") if pc.all(known).as_py() else None
    return values.cast(field.type) if pc.all(pc.ascii_is_decimal(values)).as_py() else None


def _parse(text: bytes, fields: pa.Schema, name: str) -> pa.Table:
    """The fields of lines of JSON, whatever their layout."""
    try:
        rows = parse_lines(text, fields, _BLOCK_BYTES)[0]
        is_whole = len(rows) == text.count(b"\n") + (not text.endswith(b"\n"))
        if is_whole and not any(column.null_count for column in rows.columns):
            return rows
    except DAMAGE:
        pass
    raise _damaged_line(text, fields, name)


def _damaged_line(text: bytes, fields: pa.Schema, name: str) -> CorruptLogError:
    """The error that says which line is no entry, and why."""
    lines = text.removesuffix(b"\n").split(b"\n")
    for number, line in enumerate(lines, start=2):
        reason = _what_is_wrong(line, fields)
        if reason:
            is_cut = number == len(lines) + 1 and not text.endswith(b"\n")
            cut = " It is the last one: the file was cut off." if is_cut else ""
            return CorruptLogError(
                f"Line {number:,} of the log file {name} is no entry ({reason}).{cut} {_CURE.capitalize()}."
            )
    return CorruptLogError(f"The log file {name} is damaged: {_CURE}.")


def _what_is_wrong(line: bytes, fields: pa.Schema) -> str | None:
    if not line.strip():
        return "it is blank"
    try:
        row = parse_lines(line, fields)[0]
    except DAMAGE as error:
        return first_line(error).removeprefix("JSON parse error: ")
    missing = [name for name in fields.names if row[name].null_count]
    return f"it has no {missing[0]}" if missing else None
