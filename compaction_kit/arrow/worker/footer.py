"""A Parquet file's footer, as far as one must know it to put the file behind another.

Names, field numbers and types are those of apache/parquet-format's parquet.thrift.
"""

import os
from collections.abc import Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from compaction_kit.arrow.worker.files import DISK, Storage
from compaction_kit.arrow.worker.thrift import (
    Fields,
    Reader,
    read_binary,
    read_encoded,
    read_integer,
    read_list,
    read_located,
    read_struct,
    read_value,
    with_encoded,
)

MAGIC, _MAGIC_ENCRYPTED = b"PAR1", b"PARE"
TAIL_BYTES = 1 << 16
_CODECS = dict(enumerate(("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")))
# How a number in a row group's bytes is replaced.
SHIFTED, ORDINAL, INDEX_OFFSET, INDEX_LENGTH, ZERO = range(5)


class NotStitchable(Exception):
    """The files can't become one without decoding them; says why in a few words."""


class PageIndex(NamedTuple):
    """Where a part has a column chunk's ColumnIndex or OffsetIndex, in bytes."""

    offset: int
    length: int
    is_offset_index: bool


class RowGroup(NamedTuple):
    """A row group, and how to write it to another file.

    `start` and `stop` are where its pages begin and end, in bytes from the file's start, `chunks`
    where each column's do. `pieces` is its thrift, cut at the numbers that depend on its place in a
    file: bytes, and the kind and value of the number after them.
    """

    num_rows: int
    size_bytes: int
    codecs: frozenset[str]
    start: int
    stop: int
    chunks: tuple[tuple[int, int], ...]
    indexes: tuple[PageIndex, ...]
    pieces: tuple[tuple[bytes, int, int], ...]
    end: bytes


class Footer(NamedTuple):
    """A Parquet file's footer, as far as stitching needs it.

    Files of equal `schema` have the same columns; the root's name, which differs between writers, is left
    out. `row_groups` has only those with rows. `codecs` are CompressionCodec's names. `body_end` is
    where the copied bytes end, from the file's start: page indexes and the footer come after it.
    `encoded` has fields of FileMetaData as they are in the file.
    """

    path: str
    size_bytes: int
    modified_ns: int
    footer_bytes: int
    body_end: int
    num_rows: int
    schema: Hashable
    codecs: frozenset[str]
    key_values: dict[bytes, bytes]
    created_by: bytes
    row_groups: tuple[RowGroup, ...]
    encoded: dict[int, bytes]


def read_footer(path: str) -> Footer:
    """Read a Parquet file's footer; a file of up to 64 KiB is read at once.

    Args:
        path: The file's path.

    Raises:
        NotStitchable: The file is encrypted, or its footer has fields that aren't known here.
        OSError: The file can't be read, isn't a Parquet file or is damaged.
    """
    with open(path, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        file.seek(max(status.st_size - TAIL_BYTES, 0))
        tail = read_exactly(file, min(status.st_size, TAIL_BYTES))
        if tail[-4:] == _MAGIC_ENCRYPTED:
            raise NotStitchable("a file is encrypted")
        length = int.from_bytes(tail[-8:-4], "little")
        start = status.st_size - 8 - length
        if tail[-4:] != MAGIC or start < len(MAGIC):
            raise OSError(f"{path} isn't a whole Parquet file")
        if length + 8 > len(tail):
            file.seek(start)
            tail = read_exactly(file, length + 8)
    data = tail[-8 - length : -8]
    try:
        fields, _ = read_struct(data, 0, _FILE_READERS)
        return _footer(path, status, start, data, fields)
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise OSError(f"{path} has a damaged footer: {error}") from error


def _footer(path: str, status: os.stat_result, start: int, data: bytes, fields: Fields) -> Footer:
    check_known("FileMetaData", fields, 9)
    if 8 in fields or 9 in fields:
        raise NotStitchable("a file is encrypted")
    if sum(group.num_rows for group in fields[4]) != fields[3]:
        raise ValueError("the row groups' rows don't add up")
    schema, schema_bytes = fields[2]
    groups = tuple(group for group in fields[4] if group.num_rows)
    return Footer(
        path=path,
        size_bytes=status.st_size,
        modified_ns=status.st_mtime_ns,
        footer_bytes=len(data),
        body_end=_body_end(groups, start),
        num_rows=fields[3],
        schema=schema,
        codecs=frozenset().union(*(group.codecs for group in groups)),
        key_values={pair[1]: pair.get(2, b"") for pair in fields.get(5, ())},
        created_by=fields[6][0] if 6 in fields else b"",
        row_groups=groups,
        encoded={1: fields[1], 2: schema_bytes}
        | ({6: fields[6][1]} if 6 in fields else {})
        | ({7: fields[7]} if 7 in fields else {}),
    )


def _body_end(groups: Iterable[RowGroup], footer_start: int) -> int:
    """Where the page indexes right before the footer begin; without them, where the footer does."""
    end = footer_start
    for index in sorted((index for group in groups for index in group.indexes), reverse=True):
        if index.offset + index.length == end:
            end = index.offset
    for group in groups:
        if group.start < len(MAGIC) or group.stop > end:
            raise ValueError("a row group lies outside of the file")
    return end if groups else len(MAGIC)


def _row_group(data: bytes, pos: int, kind: int) -> tuple[RowGroup, int]:
    fields, stop = read_struct(data, pos, _ROW_GROUP_READERS)
    check_known("RowGroup", fields, 7)
    marks: list[tuple[int, int, int, int]] = []
    indexes: list[PageIndex] = []
    spans = [_mark_chunk(chunk, marks, indexes) for chunk in fields[1]]
    first_page = min((span[0] for span in spans), default=len(MAGIC))
    if 5 in fields:
        marks.append((*fields[5][1:], SHIFTED, first_page))
    if 7 in fields:
        marks.append((*fields[7][1:], ORDINAL, 0))
    pieces, at = [], pos
    for begin, end, what, value in sorted(marks):
        pieces.append((data[at:begin], what, value))
        at = end
    group = RowGroup(
        num_rows=fields[3],
        size_bytes=sum(chunk[3][7] for chunk in fields[1]),
        codecs=frozenset(_CODECS.get(chunk[3][4], str(chunk[3][4])) for chunk in fields[1]),
        start=first_page,
        stop=max((span[1] for span in spans), default=len(MAGIC)),
        chunks=tuple(
            (start, start + chunk[3][7]) for (start, _), chunk in zip(spans, fields[1], strict=True)
        ),
        indexes=tuple(indexes),
        pieces=tuple(pieces),
        end=data[at:stop],
    )
    return group, stop


def _mark_chunk(
    chunk: Fields, marks: list[tuple[int, int, int, int]], indexes: list[PageIndex]
) -> tuple[int, int]:
    """Note the numbers to change in a ColumnChunk; returns where its pages begin and end."""
    check_known("ColumnChunk", chunk, 9)
    if 1 in chunk:
        raise NotStitchable("a file's columns are in other files")
    if 8 in chunk or 9 in chunk:
        raise NotStitchable("a file is encrypted")
    column = chunk[3]
    check_known("ColumnMetaData", column, 17)
    # 0 stands for none, in some writers' files.
    offsets = [column[number] for number in (9, 10, 11, 14) if number in column and column[number][0]]
    marks += [(begin, end, SHIFTED, value) for value, begin, end in offsets]
    pages = [column[number][0] for number in (9, 11) if number in column and column[number][0]]
    # In parquet-java's files it is the first page. Others wrote a copy of the metadata there, which will
    # have old offsets: 0 stands for no copy.
    value, begin, end = chunk[2]
    marks.append((begin, end, SHIFTED if value in pages else ZERO, value))
    for number in (4, 6):
        if number in chunk and chunk[number][0]:
            marks.append((*chunk[number][1:], INDEX_OFFSET, len(indexes)))
            marks.append((*chunk[number + 1][1:], INDEX_LENGTH, len(indexes)))
            indexes.append(PageIndex(chunk[number][0], chunk[number + 1][0], number == 4))
    start = min(pages, default=0)
    return start, max([start + column[7], *(value for value, _, _ in offsets)])


def _schema(data: bytes, pos: int, kind: int) -> tuple[Hashable, int]:
    """The SchemaElements; of the root, which only names the whole, the number of children."""
    elements, pos = read_list(read_value, data, pos, kind)
    root = dict(elements[0])
    return (root.get(5), *elements[1:]), pos


def check_known(name: str, fields: Fields, last: int) -> None:
    """Refuse fields that are later than the last known one: they might be one more offset."""
    latest = max(fields, default=0)
    if latest > last:
        raise NotStitchable(f"a file has field {latest} in its {name}, which isn't known here")


def footer_bytes(path: str, data: bytes | None, storage: Storage = DISK) -> bytes:
    """Read the footer of a file; `data` are the file's bytes, if they have been read."""
    with storage.open(path) if data is None else pa.BufferReader(data) as file:
        size = file.size()
        file.seek(size - 8)
        length = int.from_bytes(file.read(4), "little")
        file.seek(size - 8 - length)
        return bytes(file.read(length))


def read_exactly(file: Any, size: int) -> bytes:
    """Read exactly so many bytes."""
    data = bytearray()
    while len(data) < size:
        more = file.read(size - len(data))
        if not more:
            raise OSError(f"{file.name} is shorter than expected")
        data += more
    return bytes(data)


_COLUMN_READERS: dict[int, Reader] = dict.fromkeys((4, 7), read_integer) | dict.fromkeys(
    (9, 10, 11, 14), read_located
)
_CHUNK_READERS: dict[int, Reader] = dict.fromkeys((2, 4, 5, 6, 7), read_located) | {
    3: lambda data, pos, kind: read_struct(data, pos, _COLUMN_READERS)
}
_ROW_GROUP_READERS: dict[int, Reader] = {
    1: partial(read_list, lambda data, pos, kind: read_struct(data, pos, _CHUNK_READERS)),
    3: read_integer,
    5: read_located,
    7: read_located,
}
_FILE_READERS: dict[int, Reader] = {
    1: read_encoded,
    2: partial(with_encoded, _schema),
    3: read_integer,
    4: partial(read_list, _row_group),
    5: partial(read_list, lambda data, pos, kind: read_struct(data, pos, {1: read_binary, 2: read_binary})),
    6: partial(with_encoded, read_binary),
    7: read_encoded,
}
