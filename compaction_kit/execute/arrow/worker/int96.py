"""INT96 timestamps as they are stored, for Arrow's own reading of them turns over at their ends.

Such a value is the nanoseconds of a day and the number of the day, from 4714 BC on. Arrow takes that
number for unsigned and 0 for null, and counts microseconds in 64 bits; Spark stores any of its own
timestamps, up to 290,000 years from now (ParquetWriteSupport, DateTimeUtils.toJulianDay).
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.execute.arrow.worker.encoding import all_leaves
from compaction_kit.execute.arrow.worker.fitting import Refused
from compaction_kit.execute.arrow.worker.footer import MAGIC, footer_bytes
from compaction_kit.execute.arrow.worker.thrift import read_list, read_located, read_struct

# Days of which each microsecond has a number in 64 bits, but for the years before 4714 BC.
_FIRST_DAY, _LAST_DAY = 1, 2_440_588 + 106_751_990
_DAY_NANOSECONDS = 86_400 * 10**9
_INT96, _WIDTH = 3, 12
# Thrift: the physical type FIXED_LEN_BYTE_ARRAY, and the field after it, type_length, which is 12.
_AS_BYTES, _LENGTH, _NEXT_FIELD, _FIELD_STEP = b"\x0e", b"\x15\x18", 0x25, 0x10


def int96_columns(schema: pq.ParquetSchema, columns: Sequence[str]) -> list[str]:
    """The leaf columns of some columns that are INT96, by their path in Parquet."""
    leaves = [schema.column(i) for i in range(len(schema))]
    of_type = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    return [path for path in of_type if path.split(".", 1)[0] in columns]


def check_days(rows: pa.Table) -> None:
    """Look at INT96 values that were read as bytes.

    Raises:
        Refused: Arrow would read another moment.
    """
    for path, leaf in all_leaves(rows):
        values = np.frombuffer(leaf.buffers()[1] or b"", np.uint8)[leaf.offset * _WIDTH :]
        stored = values[: len(leaf) * _WIDTH].view(np.dtype([("nanos", "<i8"), ("day", "<i4")]))
        days, nanos = stored["day"], stored["nanos"]
        wrong = (days < _FIRST_DAY) | (days > _LAST_DAY) | (nanos < 0) | (nanos >= _DAY_NANOSECONDS)
        if wrong.any() and (wrong & leaf.is_valid().to_numpy(zero_copy_only=False)).any():
            raise Refused(f"column {path} has timestamps that pyarrow reads as others")


def as_bytes(path: str, data: bytes | None) -> pq.FileMetaData:
    """A file's footer in which INT96 columns are of 12 bytes; `data` are its bytes, if they were read."""
    footer = _patched(footer_bytes(path, data))
    whole = MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC
    return pq.read_metadata(pa.BufferReader(whole))


def _patched(data: bytes) -> bytes:
    element = {1: read_located}
    chunk = {3: lambda data, pos, kind: read_struct(data, pos, {1: read_located})}
    chunks = {1: lambda data, pos, kind: read_list(lambda d, p, _: read_struct(d, p, chunk), data, pos, kind)}
    found, _ = read_struct(
        data,
        0,
        {
            2: lambda data, pos, kind: read_list(lambda d, p, _: read_struct(d, p, element), data, pos, kind),
            4: lambda data, pos, kind: read_list(lambda d, p, _: read_struct(d, p, chunks), data, pos, kind),
        },
    )
    edits = [(*one[1][1:], True) for one in found[2] if 1 in one and one[1][0] == _INT96]
    types = [column[3][1] for group in found[4] for column in group[1]]
    edits += [(start, stop, False) for kind, start, stop in types if kind == _INT96]
    written, at = bytearray(), 0
    for start, stop, is_element in sorted(edits):
        written += data[at:start] + _AS_BYTES
        at = stop
        if is_element:
            if data[stop] & 0xF0 != _NEXT_FIELD & 0xF0:
                raise Refused("a file has INT96 columns that aren't laid out as usual")
            written += _LENGTH + bytes([data[stop] - _FIELD_STEP])
            at += 1
    return bytes(written + data[at:])
