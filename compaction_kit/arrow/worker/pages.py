"""Pages of column chunks, as they are stored: their checksums, and their INT96 timestamps.

Pages are copied without being decoded: the CRC-32 in a page's header (parquet.thrift, PageHeader) shows
damage that would be copied too.

An INT96 timestamp is the nanoseconds of a day and the number of the day, from 4714 BC on. Arrow takes both
for unsigned and the day 0 for null, and counts microseconds in 64 bits; Spark stores any of its own
timestamps, up to 290,000 years from now (ParquetWriteSupport, DateTimeUtils.toJulianDay). Several stored
values become the same one in Arrow, so they are checked in their pages. Most writers have each value once, in
a dictionary, and other pages needn't be read then.
"""

import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.arrow.worker.columns import Refused
from compaction_kit.arrow.worker.thrift import Fields, Reader, read_integer, read_struct, read_value

_HEADER_BYTES = 1 << 10
# Fields of PageHeader: uncompressed_page_size, compressed_page_size, crc, and the header of each kind of
# page with the field that has its encoding.
_UNPACKED, _PACKED, _CRC, _DATA, _DICTIONARY, _DATA_V2 = 2, 3, 4, 5, 7, 8
_ENCODINGS = {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}
_LEVEL_ENCODINGS, _LEVEL_BYTES, _IS_COMPRESSED = (4, 3), (5, 6), 7
# PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY; a dictionary itself may have the first two.
_AS_THEY_ARE, _BY_DICTIONARY, _RLE = {0, 2}, {2, 8}, 3
_CHECKSUMS: dict[int, Reader] = dict.fromkeys((_PACKED, _CRC), read_integer)
_PAGE: dict[int, Reader] = dict.fromkeys((_UNPACKED, _PACKED), read_integer) | dict.fromkeys(
    _ENCODINGS, lambda data, pos, kind: read_struct(data, pos, {}, read_value)
)
_INT96 = np.dtype([("nanos", "<u8"), ("day", "<u4")])
_DAY_NANOSECONDS = 86_400 * 10**9
# Days of which each microsecond has a number in 64 bits, but for the years before 4714 BC: from 1 on.
_LAST_DAY = 2_440_588 + 106_751_990

# Takes a number of bytes and where in a file they begin; gives them.
ReadAt = Callable[[int, int], bytes]


def _read_pages(
    read: ReadAt, start: int, stop: int, readers: Mapping[int, Reader]
) -> Iterator[tuple[Fields, int]]:
    """The header of each page between two places of a file, and where the bytes after it begin.

    A damaged header is a LookupError, TypeError or ValueError.
    """
    at = start
    while at < stop:
        try:
            header, length = read_struct(read(min(_HEADER_BYTES, stop - at), at), 0, readers)
        except IndexError:
            # It has large statistics.
            header, length = read_struct(read(stop - at, at), 0, readers)
        at += length
        if not 0 <= header[_PACKED] <= stop - at:
            raise ValueError("it has more bytes than there are")
        yield header, at
        at += header[_PACKED]


def check_pages(path: str, chunks: Iterable[tuple[int, int]]) -> None:
    """Compare a Parquet file's pages with the checksums in their headers, where they have one.

    Args:
        path: The file's path.
        chunks: Where each column chunk's pages begin and end, in bytes.

    Raises:
        OSError: They differ.
    """
    with open(path, "rb") as file:
        read = partial(os.pread, file.fileno())
        for start, stop in chunks:
            try:
                is_sound = all(
                    _CRC not in page or zlib.crc32(read(page[_PACKED], at)) == page[_CRC] & 0xFFFFFFFF
                    for page, at in _read_pages(read, start, stop, _CHECKSUMS)
                )
            except (LookupError, TypeError, ValueError) as error:
                raise OSError(f"{path} has a damaged page header: {error}") from error
            if not is_sound:
                raise OSError(f"{path} has a page that differs from its checksum: it is damaged")


def int96_columns(schema: pq.ParquetSchema, columns: Collection[str]) -> dict[int, pq.ColumnSchema]:
    """The leaf columns of some top-level columns that are INT96, by their numbers."""
    leaves = enumerate(map(schema.column, range(len(schema))))
    return {
        number: leaf
        for number, leaf in leaves
        if leaf.physical_type == "INT96" and leaf.path.split(".", 1)[0] in columns
    }


def check_int96(read: ReadAt, metadata: pq.FileMetaData, columns: Mapping[int, pq.ColumnSchema]) -> None:
    """Check that Arrow reads a file's INT96 timestamps as they are.

    Args:
        read: Of the file.
        metadata: Of its footer.
        columns: Those that are INT96, by their numbers.

    Raises:
        Refused: Arrow would read another moment.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for number, column in columns.items():
            try:
                is_kept = all(_is_kept(values) for values in _stored(read, group.column(number), column))
            except (LookupError, TypeError, ValueError) as error:
                raise Refused(f"column {column.path} has pages that can't be checked: {error}") from error
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
    for page, at in _read_pages(read, first, first + chunk.total_compressed_size, _PAGE):
        kind = next((kind for kind in _ENCODINGS if kind in page), None)
        encoding = page[kind][_ENCODINGS[kind]] if kind else None
        if encoding is None or (kind != _DICTIONARY and encoding in _BY_DICTIONARY):
            continue
        if encoding not in _AS_THEY_ARE:
            raise ValueError(f"their encoding is {encoding}")
        data = _unpacked(read(page[_PACKED], at), page, codec)
        start = _levels_end(data, page[kind], column) if kind == _DATA else 0
        yield np.frombuffer(data, _INT96, offset=start)


def _unpacked(data: bytes, page: Fields, codec: pa.Codec | None) -> bytes:
    """A page without compression, and without levels if they are apart from the values."""
    apart = page.get(_DATA_V2, {})
    levels = sum(apart.get(field, 0) for field in _LEVEL_BYTES)
    data, size = data[levels:], page[_UNPACKED] - levels
    if codec is None or not size or not apart.get(_IS_COMPRESSED, True):
        return data
    return codec.decompress(data, size, asbytes=True)


def _levels_end(data: bytes, header: Fields, column: pq.ColumnSchema) -> int:
    """Where the levels of repetition and of definition end, which come before the values."""
    end = 0
    most = column.max_repetition_level, column.max_definition_level
    for field, level in zip(_LEVEL_ENCODINGS, most, strict=True):
        if level:
            if header[field] != _RLE:
                raise ValueError(f"the encoding of their levels is {header[field]}")
            end += 4 + int.from_bytes(data[end : end + 4], "little")
    return end
