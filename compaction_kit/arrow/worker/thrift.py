"""Values of Thrift's compact protocol, read from bytes and written (thrift-compact-protocol.md)."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

# The types. A boolean is its type within a struct, and a byte within a list.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
_WIDTHS = {BYTE: 1, DOUBLE: 8, UUID: 16}

# Takes bytes, where in them a value begins, and its type; gives the value, and where it ends.
Reader = Callable[[bytes, int, int], tuple[Any, int]]
Fields = dict[int, Any]


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    byte = data[pos]
    if byte < 128:
        return byte, pos + 1
    value, shift = byte & 127, 7
    while True:
        pos += 1
        byte = data[pos]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos + 1
        shift += 7


def read_integer(data: bytes, pos: int, kind: int = I64) -> tuple[int, int]:
    """An i16, i32 or i64."""
    value, pos = _varint(data, pos)
    return (value >> 1) ^ -(value & 1), pos


def read_located(data: bytes, pos: int, kind: int) -> tuple[tuple[int, int, int], int]:
    """An integer, where it begins and where it ends."""
    value, stop = read_integer(data, pos)
    return (value, pos, stop), stop


def read_binary(data: bytes, pos: int, kind: int) -> tuple[bytes, int]:
    """A binary or a text."""
    size, pos = _varint(data, pos)
    return data[pos : pos + size], pos + size


def _skipped(data: bytes, pos: int, kind: int) -> tuple[None, int]:
    return None, _skip(data, pos, kind)


def read_encoded(data: bytes, pos: int, kind: int) -> tuple[bytes, int]:
    """A value as it is in the file."""
    stop = _skip(data, pos, kind)
    return data[pos:stop], stop


def with_encoded(reader: Reader, data: bytes, pos: int, kind: int) -> tuple[tuple[Any, bytes], int]:
    """What a reader reads, and the same as it is in the file."""
    value, stop = reader(data, pos, kind)
    return (value, data[pos:stop]), stop


def read_value(data: bytes, pos: int, kind: int) -> tuple[Hashable, int]:
    """Any value, to be compared: structs by their fields' numbers, maps and doubles as they are."""
    if kind <= FALSE:
        return kind == TRUE, pos
    if I16 <= kind <= I64:
        return read_integer(data, pos)
    if kind == STRUCT:
        fields, pos = read_struct(data, pos, {}, read_value)
        return tuple(sorted(fields.items())), pos
    if kind == LIST and data[pos] & 15 > FALSE:
        items, pos = read_list(read_value, data, pos, kind)
        return tuple(items), pos
    return read_encoded(data, pos, kind)


def read_list(item: Reader, data: bytes, pos: int, kind: int) -> tuple[list[Any], int]:
    """A list's items, each read by a reader."""
    element, count, pos = _list_header(data, pos)
    items = []
    for _ in range(count):
        value, pos = item(data, pos, element)
        items.append(value)
    return items, pos


def _list_header(data: bytes, pos: int) -> tuple[int, int, int]:
    header = data[pos]
    count, pos = (header >> 4, pos + 1) if header < 0xF0 else _varint(data, pos + 1)
    return header & 15, count, pos


def read_struct(
    data: bytes, pos: int, readers: Mapping[int, Reader], otherwise: Reader = _skipped
) -> tuple[Fields, int]:
    """A struct's fields by their numbers, each read by its reader, or else by `otherwise`."""
    found: Fields = {}
    number = 0
    while header := data[pos]:
        pos += 1
        if header > 15:
            number += header >> 4
        else:
            number, pos = read_integer(data, pos)
        found[number], pos = readers.get(number, otherwise)(data, pos, header & 15)
    return found, pos + 1


def _skip(data: bytes, pos: int, kind: int) -> int:
    """Where a field's value ends."""
    if I16 <= kind <= I64:
        while data[pos] > 127:
            pos += 1
        return pos + 1
    if kind == BINARY:
        size, pos = _varint(data, pos)
        return pos + size
    if kind == STRUCT:
        while header := data[pos]:
            pos = pos + 1 if header > 15 else _skip(data, pos + 1, I16)
            pos = _skip(data, pos, header & 15)
        return pos + 1
    if kind in (LIST, SET):
        element, count, pos = _list_header(data, pos)
        return _skip_items(data, pos, count, element)
    if kind == MAP:
        count, pos = _varint(data, pos)
        return _skip_items(data, pos + 1, count, data[pos] >> 4, data[pos] & 15) if count else pos
    return pos if kind in (TRUE, FALSE) else pos + _WIDTHS[kind]


def _skip_items(data: bytes, pos: int, count: int, *kinds: int) -> int:
    for _ in range(count):
        for kind in kinds:
            pos = _skip(data, pos, kind if kind > FALSE else BYTE)
        if pos > len(data):
            raise ValueError("a list is longer than the whole")
    return pos


def _encode_varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


def encode_integer(number: int) -> bytes:
    """An i16, i32 or i64 as it is written."""
    return _encode_varint(number << 1 if number >= 0 else ~(number << 1))


def encode_binary(text: str) -> bytes:
    """A text as it is written."""
    data = text.encode()
    return _encode_varint(len(data)) + data


def encode_structs(items: Sequence[bytes]) -> bytes:
    """A list of structs that are encoded already."""
    count = len(items)
    header = bytes([count << 4 | STRUCT]) if count < 15 else bytes([0xF0 | STRUCT]) + _encode_varint(count)
    return header + b"".join(items)


def encode_struct(fields: Mapping[int, tuple[int, bytes]]) -> bytes:
    """A struct of values that are encoded already; from one field's number to the next up to 15."""
    written, last = bytearray(), 0
    for number, (kind, value) in fields.items():
        written += bytes([number - last << 4 | kind]) + value
        last = number
    return bytes(written) + b"\0"
