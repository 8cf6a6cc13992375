"""Thrift's compact protocol, as Parquet's footers and page indexes use it (thrift-compact-protocol.md).

A struct is a dict of (type, value) by field number, a list an (element type, values) pair, so that unchanged
values are encoded to the same bytes.
"""

from typing import Any

# A boolean is encoded as its type within a struct, and as a byte within a list.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, _, _, STRUCT = range(1, 13)
_WIDTHS = {BYTE: 1, DOUBLE: 8}

Struct = dict[int, tuple[int, Any]]


def decode(data: bytes, pos: int = 0, kind: int = STRUCT) -> tuple[Any, int]:
    """Decode a value; returns the value, and the position of its end.

    Raises:
        IndexError: The data end too early.
        ValueError: The data have a type that Parquet doesn't use.
    """
    if I16 <= kind <= I64:
        number, pos = _varint(data, pos)
        return (number >> 1) ^ -(number & 1), pos
    if kind == BINARY:
        size, pos = _varint(data, pos)
        return data[pos : pos + size], pos + size
    if kind == STRUCT:
        fields: Struct = {}
        number = 0
        while header := data[pos]:
            pos += 1
            if header > 15:
                number += header >> 4
            else:
                number, pos = decode(data, pos, I16)
            value, pos = decode(data, pos, header & 15)
            fields[number] = header & 15, value
        return fields, pos + 1
    if kind == LIST:
        header, pos = data[pos], pos + 1
        count, element = header >> 4, header & 15
        if count == 15:
            count, pos = _varint(data, pos)
        values = []
        for _ in range(count):
            value, pos = decode(data, pos, BYTE if element <= FALSE else element)
            values.append(value)
        return (element, values), pos
    if kind in (TRUE, FALSE):
        return None, pos
    if kind not in _WIDTHS or pos >= len(data):
        raise ValueError(f"it has a value of type {kind}")
    return data[pos : pos + _WIDTHS[kind]], pos + _WIDTHS[kind]


def encode(value: Any, kind: int = STRUCT) -> bytes:
    """Encode a value as `decode` returns it."""
    if I16 <= kind <= I64:
        return _encode_varint(value << 1 if value >= 0 else ~(value << 1))
    if kind == BINARY:
        return _encode_varint(len(value)) + value
    if kind == STRUCT:
        written, last = bytearray(), 0
        for number, (field, content) in value.items():
            if 0 < number - last <= 15:
                written.append(number - last << 4 | field)
            else:
                written += bytes([field]) + encode(number, I16)
            written += encode(content, field)
            last = number
        return bytes(written) + b"\0"
    if kind == LIST:
        element, values = value
        count = len(values)
        header = bytes([min(count, 15) << 4 | element]) + (_encode_varint(count) if count > 14 else b"")
        return header + b"".join(encode(one, BYTE if element <= FALSE else element) for one in values)
    return value or b""


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
        shift += 7


def _encode_varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)
