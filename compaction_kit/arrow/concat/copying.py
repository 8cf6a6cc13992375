"""Concatenate Parquet files without decoding them: pages are copied, footers are merged.

The output is "PAR1", the files' pages with their bloom filters, in order, all column indexes, all offset
indexes, and one footer. A file's pages move together, so one number is added to all its offsets. Names and
field numbers are those of apache/parquet-format's parquet.thrift.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

from compaction_kit.arrow.concat.thrift import BINARY, I16, I64, LIST, STRUCT, Struct, decode, encode

_MAGIC = b"PAR1"
COPY_BYTES = 1 << 20
# Values of created_by whose statistics or pages readers don't trust (Arrow's ApplicationVersion,
# parquet-java's CorruptStatistics).
MISTRUSTED = re.compile(rb"parquet-mr(?! version (1\.[1-9]\d|[2-9]|\d\d))|parquet-cpp(?!-)|$")
# The last known field of each struct: a later field might be another offset, or encryption.
_LAST_FIELDS = {
    "FileMetaData": 7,
    "RowGroup": 7,
    "ColumnChunk": 7,
    "ColumnMetaData": 17,
    "OffsetIndex": 2,
    "PageLocation": 3,
}
# Fields of ColumnMetaData: the offsets of the first data page, the index page, the dictionary page and the
# bloom filter.
_DATA, _DICTIONARY, _OFFSETS = 9, 11, (9, 10, 11, 14)
# Fields of ColumnChunk: the offsets of its ColumnIndex and OffsetIndex; the next field is the length.
_COLUMN_INDEX, _OFFSET_INDEX = 6, 4
_DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


class CannotConcatenate(Exception):
    """The files can't be concatenated without decoding them; the message says why."""


class _Part(NamedTuple):
    """A file: its footer, the row groups that have rows, and where its pages and bloom filters end."""

    path: str
    footer: Struct
    groups: list[Struct]
    body_end: int


def concatenate(paths: Sequence[str], output: str, key_values: Mapping[str, str]) -> int:
    """Write a Parquet file with the row groups of others, in their order, by copying bytes.

    Args:
        paths: The files, at least one; their codecs may differ.
        output: The new file, which must not exist yet; if writing fails, it is deleted.
        key_values: The output's key-value metadata, instead of the files' own.

    Returns:
        The number of rows.

    Raises:
        CannotConcatenate: The files don't fit together, or have unknown features.
        OSError: A file is damaged, or can't be read or written.
    """
    parts = [_read_part(path) for path in paths]
    _check_together(parts)
    with open(output, "xb") as out:
        try:
            row_groups = _write_row_groups(parts, out)
            footer = _merged(parts, row_groups, key_values)
            out.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)
            out.flush()
        except BaseException:
            os.remove(output)
            raise
    return sum(group[3][1] for group in row_groups)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise OSError(f"{path} has a damaged footer or page index: {error}") from error


def _read_part(path: str) -> _Part:
    with open(path, "rb") as file, _naming(path):
        size = os.fstat(file.fileno()).st_size
        tail = _read(file, max(size - 8, 0), 8)
        length = int.from_bytes(tail[:4], "little")
        start = size - 8 - length
        if tail[4:] != _MAGIC or start < len(_MAGIC):
            raise OSError(f"{path} isn't a whole Parquet file")
        footer = _known("FileMetaData", decode(_read(file, start, length))[0])
        groups = [group for group in footer[4][1][1] if group[3][1]]
        chunks = [chunk for group in groups for chunk in _known("RowGroup", group)[1][1][1]]
        return _Part(path, footer, groups, _body_end(chunks, start))


def _body_end(chunks: Sequence[Struct], footer_start: int) -> int:
    """Return where the page indexes before the footer begin; without indexes, where the footer begins."""
    end = footer_start
    indexes = [_index(chunk, field) for chunk in chunks for field in (_COLUMN_INDEX, _OFFSET_INDEX)]
    for offset, length in sorted(filter(None, indexes), reverse=True):
        if offset + length == end:
            end = offset
    for chunk in chunks:
        column = _known("ColumnMetaData", _known("ColumnChunk", chunk)[3][1])
        stop = max([_start(column) + column[7][1], *(column[k][1] for k in _OFFSETS if k in column)])
        if _start(column) < len(_MAGIC) or stop > end:
            raise ValueError("a row group lies outside of the file")
    return end if chunks else len(_MAGIC)


def _start(column: Struct) -> int:
    """Return where the pages of a ColumnMetaData begin; some writers write 0 if there is no page."""
    return min(column[k][1] for k in (_DATA, _DICTIONARY) if k in column and column[k][1])


def _index(chunk: Struct, field: int) -> tuple[int, int] | None:
    return (chunk[field][1], chunk[field + 1][1]) if field in chunk and chunk[field][1] else None


def _known(name: str, fields: Struct) -> Struct:
    latest = max(fields)
    if latest > _LAST_FIELDS[name]:
        raise CannotConcatenate(f"a file has field {latest} in its {name}, which isn't known here")
    return fields


def _check_together(parts: Sequence[_Part]) -> None:
    # The root of a schema has only a name, which differs between writers.
    with _naming(parts[0].path):
        schemas = [(root.get(5), columns) for root, *columns in (part.footer[2][1][1] for part in parts)]
    if any(schema != schemas[0] for schema in schemas):
        raise CannotConcatenate("the files differ in their schemas")
    writers = {part.footer.get(6, (BINARY, b""))[1] for part in parts}
    if len(writers) > 1 and any(MISTRUSTED.match(writer) for writer in writers):
        raise CannotConcatenate("the files are of different writers, some of them too old")


def _write_row_groups(parts: Sequence[_Part], out: BinaryIO) -> list[Struct]:
    """Write everything but the footer; returns the RowGroups for the footer."""
    at = out.write(_MAGIC)
    moved: list[Struct] = []
    indexes: dict[int, list[tuple[Struct, bytes]]] = {_COLUMN_INDEX: [], _OFFSET_INDEX: []}
    for part in parts:
        shift = at - len(_MAGIC)
        with open(part.path, "rb") as file, _naming(part.path):
            _copy(file, out, len(_MAGIC), part.body_end)
            for group in part.groups:
                for chunk in group[1][1][1]:
                    for field, found in indexes.items():
                        if place := _index(chunk, field):
                            data = _read(file, *place)
                            data = _moved_index(data, shift) if field == _OFFSET_INDEX else data
                            found.append((chunk, data))
                    _move(chunk, shift)
                if 5 in group:
                    group[5] = I64, min(_start(chunk[3][1]) for chunk in group[1][1][1])
                if 7 in group:
                    group[7] = I16, len(moved)
                moved.append(group)
        at += part.body_end - len(_MAGIC)
    # Indexes are together at the end, as readers expect: parquet-rs reads from the first to the last one.
    for field, found in indexes.items():
        for chunk, data in found:
            chunk[field], chunk[field + 1] = (chunk[field][0], at), (chunk[field + 1][0], len(data))
            at += out.write(data)
    return moved


def _move(chunk: Struct, shift: int) -> None:
    """Change the offsets in a ColumnChunk."""
    column = chunk[3][1]
    # This field is the place of a copy of the metadata, which would have old offsets: 0 means no copy.
    chunk[2] = I64, 0
    for field in _OFFSETS:
        if field in column and column[field][1]:
            column[field] = I64, column[field][1] + shift


def _moved_index(data: bytes, shift: int) -> bytes:
    """Return an OffsetIndex for moved pages: PageLocation.offset counts from the file's start."""
    index, _ = decode(data)
    for location in _known("OffsetIndex", index)[1][1][1]:
        _known("PageLocation", location)
        location[1] = I64, location[1][1] + shift
    return encode(index)


def _copy(file: BinaryIO, out: BinaryIO, start: int, stop: int) -> None:
    out.flush()
    copy = getattr(os, "copy_file_range", None)
    # copy_file_range may not work between these file systems; other errors are raised below.
    with contextlib.suppress(OSError):
        while copy and start < stop and (copied := copy(file.fileno(), out.fileno(), stop - start, start)):
            start += copied
    while start < stop:
        start += out.write(_read(file, start, min(stop - start, COPY_BYTES)))


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    if min(start, size) < 0 or start + size > os.fstat(file.fileno()).st_size:
        raise OSError(f"{file.name} is shorter than expected")
    file.seek(start)
    return file.read(size)


def _merged(parts: Sequence[_Part], row_groups: list[Struct], key_values: Mapping[str, str]) -> bytes:
    first = parts[0].footer
    pairs = [{1: (BINARY, key.encode()), 2: (BINARY, value.encode())} for key, value in key_values.items()]
    merged: Struct = {
        1: first[1],
        2: first[2],
        3: (I64, sum(group[3][1] for group in row_groups)),
        4: (LIST, (STRUCT, row_groups)),
    }
    if pairs:
        merged[5] = LIST, (STRUCT, pairs)
    if 6 in first:
        merged[6] = first[6]
    # Column orders say how to read statistics; without them, readers don't use the statistics.
    if 7 in first and all(part.footer.get(7) == first[7] for part in parts):
        merged[7] = first[7]
    with _naming(parts[0].path):
        return encode(merged)
