"""Parse the entries in a log's files: a line "v1", then a JSON object per line (CompactibleFileStreamLog)."""

import re

import pyarrow as pa

from compaction_kit.errors import DAMAGE, CorruptLogError, first_line
from compaction_kit.log.lines import parse_lines
from compaction_kit.sinklog.policy import Kind
from compaction_kit.storage import Store

_BLOCK_BYTES = 4 << 20
_VERSION = re.compile(rb"v1\r?(?:\n|$)")
_TIME = pa.timestamp("ms", "UTC")
_CURE = "restore it from a backup"
# JSON field, column and type of SinkFileStatus and of FileStreamSource.FileEntry, in the order of the fields.
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


def read_entries(store: Store, name: str, kind: Kind) -> pa.Table:
    """Read the entries of one file of a log, in the order of its lines; see `SinkLog.entries`.

    Raises:
        CorruptLogError: The file is missing or damaged; the message says where.
    """
    try:
        version = _VERSION.match(store.read(name, 0, 64))
        text = store.read(name, version.end()) if version else b""
    except OSError as error:
        raise CorruptLogError(f"The log file {name} can't be read: {error.strerror}.") from None
    if version is None:
        raise CorruptLogError(f'The log file {name} does not begin with a line "v1", its version: {_CURE}.')
    # Times are numbers in JSON.
    fields = pa.schema([(field, pa.int64() if of == _TIME else of) for field, _, of in _FIELDS[kind]])
    columns = pa.schema([(column, of) for _, column, of in _FIELDS[kind]])
    if not text:
        return columns.empty_table()
    try:
        rows = parse_lines(text, fields, _BLOCK_BYTES)[0]
    except DAMAGE as error:
        raise CorruptLogError(f"The log file {name} is damaged ({first_line(error)}): {_CURE}.") from None
    missing = [field for field in fields.names if rows[field].null_count]
    if missing or len(rows) != text.count(b"\n") + (not text.endswith(b"\n")):
        reason = f"an entry has no {missing[0]}" if missing else "a line is blank"
        raise CorruptLogError(f"The log file {name} is damaged ({reason}): {_CURE}.")
    return rows.rename_columns(columns.names).cast(columns)
