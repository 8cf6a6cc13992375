"""Parquet files put one behind another without decoding them: pages are copied, footers merged.

What is written is "PAR1", the parts' pages (with their bloom filters) in order, the column indexes
of all, their offset indexes, one footer, its length and "PAR1". A part's pages move together, so
that one number is added to all their offsets; footers and offset indexes are otherwise carried
over byte by byte.
"""

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import BinaryIO

from compaction_kit.arrow.worker.footer import (
    INDEX_LENGTH,
    INDEX_OFFSET,
    MAGIC,
    ORDINAL,
    SHIFTED,
    Footer,
    NotStitchable,
    RowGroup,
    check_known,
    read_exactly,
)
from compaction_kit.arrow.worker.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    Reader,
    encode_binary,
    encode_integer,
    encode_struct,
    encode_structs,
    read_list,
    read_located,
    read_struct,
)

COPY_BYTES = 1 << 20
# parquet-java and Arrow read no footer of more than 100 MB; an ordinal is an i16.
MAX_FOOTER_BYTES = 64 << 20
MAX_ROW_GROUPS = (1 << 15) - 1
# Values of created_by whose statistics or pages readers don't trust (Arrow's ApplicationVersion,
# parquet-java's CorruptStatistics).
_MISTRUSTED = re.compile(rb"parquet-mr(?! version (1\.[1-9]\d|[2-9]|\d\d))|parquet-cpp(?!-)|$")
_INDEX_READERS: dict[int, Reader] = {
    1: partial(read_list, lambda data, pos, kind: read_struct(data, pos, {1: read_located}))
}


def stitch(parts: Sequence[Footer], output: str, key_values: Mapping[str, str]) -> int:
    """Write a Parquet file with the row groups of others, in their order, by copying bytes.

    Args:
        parts: The files, at least one; of different codecs if need be.
        output: The path to write to, where nothing may be yet; if writing fails, nothing is.
        key_values: The output's key-value metadata; that of the parts is left out.

    Returns:
        The number of rows.

    Raises:
        NotStitchable: The parts don't fit together.
        OSError: A part isn't what it was when its footer was read, or a file can't be read or written.
    """
    _check_parts(parts)
    with open(output, "xb") as out:
        try:
            row_groups = _write_row_groups(parts, out)
            footer = _file_metadata(parts, row_groups, key_values)
            out.write(footer + len(footer).to_bytes(4, "little") + MAGIC)
            out.flush()
        except BaseException:
            os.remove(output)
            raise
    return sum(part.num_rows for part in parts)


def _check_parts(parts: Sequence[Footer]) -> None:
    first = parts[0]
    if any(part.schema != first.schema for part in parts):
        raise NotStitchable("the files differ in their schemas")
    writers = {part.created_by for part in parts}
    if len(writers) > 1 and any(_MISTRUSTED.match(writer) for writer in writers):
        raise NotStitchable("the files are of different writers, some of them too old")
    if sum(len(part.row_groups) for part in parts) > MAX_ROW_GROUPS:
        raise NotStitchable(f"there are more than {MAX_ROW_GROUPS:,} row groups")
    if sum(part.footer_bytes for part in parts) > MAX_FOOTER_BYTES:
        raise NotStitchable("the footer would be too large")


def _write_row_groups(parts: Sequence[Footer], out: BinaryIO) -> list[bytes]:
    """Write all but the footer; returns the RowGroups for it."""
    at = out.write(MAGIC)
    groups: list[tuple[RowGroup, int, list[bytes]]] = []
    for part in parts:
        shift = at - len(MAGIC)
        with open(part.path, "rb") as file:
            if read_exactly(file, len(MAGIC)) != MAGIC:
                raise OSError(f"{part.path} isn't a Parquet file")
            _copy(file, out, len(MAGIC), part.body_end)
            groups += [(group, shift, _read_indexes(file, group, shift)) for group in part.row_groups]
            _check_unchanged(file, part)
        at += part.body_end - len(MAGIC)
    places: list[dict[int, int]] = [{} for _ in groups]
    # Next to each other and at the end, as readers expect: parquet-rs reads from the first to the last.
    for is_offset_index in (False, True):
        for (group, _, indexes), offsets in zip(groups, places, strict=True):
            for number, data in enumerate(indexes):
                if group.indexes[number].is_offset_index == is_offset_index:
                    offsets[number] = at
                    at += out.write(data)
    return [
        _placed(group, ordinal, shift, [(offsets[k], len(data)) for k, data in enumerate(indexes)])
        for ordinal, ((group, shift, indexes), offsets) in enumerate(zip(groups, places, strict=True))
    ]


def _placed(group: RowGroup, ordinal: int, shift: int, places: list[tuple[int, int]]) -> bytes:
    written = bytearray()
    for data, kind, value in group.pieces:
        written += data
        if kind == SHIFTED:
            number = value + shift
        elif kind == INDEX_OFFSET:
            number = places[value][0]
        elif kind == INDEX_LENGTH:
            number = places[value][1]
        else:
            number = ordinal if kind == ORDINAL else 0
        written += encode_integer(number)
    return bytes(written + group.end)


def _read_indexes(file: BinaryIO, group: RowGroup, shift: int) -> list[bytes]:
    found = []
    for index in group.indexes:
        file.seek(index.offset)
        data = read_exactly(file, index.length)
        found.append(_shifted_index(file, data, shift) if index.is_offset_index else data)
    return found


def _shifted_index(file: BinaryIO, data: bytes, shift: int) -> bytes:
    """An OffsetIndex after its pages have moved: PageLocation.offset is from the file's start."""
    try:
        fields, end = read_struct(data, 0, _INDEX_READERS)
        if end != len(data):
            raise ValueError("it has another length")
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise OSError(f"{file.name} has a damaged page index: {error}") from error
    check_known("OffsetIndex", fields, 2)
    written, at = bytearray(), 0
    for page in fields[1]:
        check_known("PageLocation", page, 3)
        offset, start, stop = page[1]
        written += data[at:start] + encode_integer(offset + shift)
        at = stop
    return bytes(written + data[at:])


def _copy(file: BinaryIO, out: BinaryIO, start: int, stop: int) -> None:
    out.flush()
    copy = getattr(os, "copy_file_range", None)
    try:
        while copy and start < stop:
            copied = copy(file.fileno(), out.fileno(), stop - start, start)
            start += copied
            if not copied:
                break
    except OSError:
        # Perhaps it can't copy between these file systems; other errors are raised below.
        pass
    file.seek(start)
    while start < stop:
        start += out.write(read_exactly(file, min(stop - start, COPY_BYTES)))


def _check_unchanged(file: BinaryIO, part: Footer) -> None:
    status = os.fstat(file.fileno())
    if (status.st_size, status.st_mtime_ns) != (part.size_bytes, part.modified_ns):
        raise OSError(f"{part.path} has changed since its footer was read")


def _file_metadata(
    parts: Sequence[Footer], row_groups: Sequence[bytes], key_values: Mapping[str, str]
) -> bytes:
    first = parts[0].encoded
    pairs = [
        encode_struct({1: (BINARY, encode_binary(key)), 2: (BINARY, encode_binary(value))})
        for key, value in key_values.items()
    ]
    num_rows = sum(part.num_rows for part in parts)
    fields = {
        1: (I32, first[1]),
        2: (LIST, first[2]),
        3: (I64, encode_integer(num_rows)),
        4: (LIST, encode_structs(row_groups)),
    }
    if pairs:
        fields[5] = (LIST, encode_structs(pairs))
    if 6 in first:
        fields[6] = (BINARY, first[6])
    # The column orders say how to read statistics: without them, readers don't use those.
    if 7 in first and all(part.encoded.get(7) == first[7] for part in parts):
        fields[7] = (LIST, first[7])
    return encode_struct(fields)
