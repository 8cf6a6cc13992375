"""INT96 timestamps as they are stored, for Arrow's own reading of them turns over at their ends.

Such a value is the nanoseconds of a day and the number of the day, from 4714 BC on. Arrow takes both
for unsigned and the day 0 for null, and counts microseconds in 64 bits; Spark stores any of its own
timestamps, up to 290,000 years from now (ParquetWriteSupport, DateTimeUtils.toJulianDay).

What Arrow has decoded doesn't tell: several stored values become the same one. So they are looked at in
their pages. Most writers have each value once, in a dictionary, and other pages needn't be read then.
"""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.execute.arrow.worker.fitting import Refused
from compaction_kit.execute.arrow.worker.pages import ReadAt, read_pages
from compaction_kit.execute.arrow.worker.thrift import Fields, Reader, read_integer, read_struct, read_value

_STORED = np.dtype([("nanos", "<u8"), ("day", "<u4")])
_DAY_NANOSECONDS = 86_400 * 10**9
# Days of which each microsecond has a number in 64 bits, but for the years before 4714 BC: from 1 on.
_LAST_DAY = 2_440_588 + 106_751_990
# parquet.thrift, PageHeader: uncompressed_page_size, compressed_page_size, and the headers by the kind
# of page, each with its encoding.
_UNPACKED, _PACKED, _DATA, _DICTIONARY, _DATA_V2 = 2, 3, 5, 7, 8
_ENCODINGS = {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}
_LEVEL_ENCODINGS, _LEVEL_BYTES, _IS_COMPRESSED = (4, 3), (5, 6), 7
# PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY; a dictionary itself may have the first two.
_AS_THEY_ARE, _BY_DICTIONARY, _RLE = {0, 2}, {2, 8}, 3
_PAGE: dict[int, Reader] = dict.fromkeys((_UNPACKED, _PACKED), read_integer) | dict.fromkeys(
    _ENCODINGS, lambda data, pos, kind: read_struct(data, pos, {}, read_value)
)


def int96_columns(schema: pq.ParquetSchema, columns: Collection[str]) -> dict[int, pq.ColumnSchema]:
    """The leaf columns of some columns that are INT96, by their numbers."""
    leaves = {i: schema.column(i) for i in range(len(schema))}
    return {
        i: leaf
        for i, leaf in leaves.items()
        if leaf.physical_type == "INT96" and leaf.path.split(".", 1)[0] in columns
    }


def check_int96(read: ReadAt, metadata: pq.FileMetaData, columns: Mapping[int, pq.ColumnSchema]) -> None:
    """Look at a file's INT96 values.

    Args:
        read: Of the file.
        metadata: Of its footer.
        columns: Those that are INT96, by their numbers.

    Raises:
        Refused: Arrow would read another moment.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for i, column in columns.items():
            try:
                is_kept = all(_is_kept(values) for values in _stored(read, group.column(i), column))
            except (LookupError, TypeError, ValueError) as error:
                raise Refused(f"column {column.path} has pages that can't be looked at: {error}") from error
            if not is_kept:
                raise Refused(f"column {column.path} has timestamps that pyarrow reads as others")


def _is_kept(values: np.ndarray) -> bool:
    # Unsigned, so that one comparison is of both ends.
    days = values["day"] - np.uint32(1) < _LAST_DAY
    return bool(days.all() and (values["nanos"] < _DAY_NANOSECONDS).all())


def _stored(read: ReadAt, chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema) -> Iterator[np.ndarray]:
    """The values in a chunk's pages, those in its dictionary once."""
    name = chunk.compression
    codec = None if name == "UNCOMPRESSED" else pa.Codec({"LZ4": "lz4_raw"}.get(name, name.lower()))
    first = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
    for page, at in read_pages(read, first, first + chunk.total_compressed_size, _PAGE):
        kind = next((kind for kind in _ENCODINGS if kind in page), None)
        encoding = page[kind][_ENCODINGS[kind]] if kind else None
        if encoding is None or (kind != _DICTIONARY and encoding in _BY_DICTIONARY):
            continue
        if encoding not in _AS_THEY_ARE:
            raise ValueError(f"their encoding is {encoding}")
        data = _unpacked(read(page[_PACKED], at), page, codec)
        start = _levels_end(data, page[kind], column) if kind == _DATA else 0
        yield np.frombuffer(data, _STORED, offset=start)


def _unpacked(data: bytes, page: Fields, codec: pa.Codec | None) -> bytes:
    """A page without compression, and without levels if they are apart from the values."""
    apart = page.get(_DATA_V2, {})
    levels = sum(apart.get(field, 0) for field in _LEVEL_BYTES)
    data, size = data[levels:], page[_UNPACKED] - levels
    if codec is None or not size or not apart.get(_IS_COMPRESSED, True):
        return data
    return codec.decompress(data, size, asbytes=True)


def _levels_end(data: bytes, header: Fields, column: pq.ColumnSchema) -> int:
    """Where the levels end that are before the values: of repetition, of definition."""
    end = 0
    most = column.max_repetition_level, column.max_definition_level
    for field, level in zip(_LEVEL_ENCODINGS, most, strict=True):
        if level:
            if header[field] != _RLE:
                raise ValueError(f"the encoding of their levels is {header[field]}")
            end += 4 + int.from_bytes(data[end : end + 4], "little")
    return end
