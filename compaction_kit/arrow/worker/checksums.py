"""Checksums that Hadoop has beside data files: what is rewritten would otherwise take damage along.

On a local disk Hadoop writes a hidden file `.<name>.crc` for each file: "crc", a zero byte, the number
of bytes that a checksum is of, and the CRC-32 of each such chunk, big-endian
(org.apache.hadoop.fs.ChecksumFileSystem).

A call for each of Hadoop's chunks of 512 bytes takes longer than the bytes do. So a file's own CRC-32 is
compared with the one that follows from those of its chunks, and outputs are written with larger chunks:
readers go by the number that the file begins with.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from functools import reduce
from io import BufferedReader

import numpy as np

_MAGIC, _HEADER_BYTES = b"crc\0", 8
# One checksum is written for so many bytes: to read some of them, all are read.
_CHUNK_BYTES = 1 << 16
# So much of a file is read at once.
_BLOCK_BYTES = 1 << 20
# Fewer checksums are compared one by one sooner than they are joined.
_FEW = 200
_BITS, _MOST_TABLES = np.uint32(1) << np.arange(32, dtype=np.uint32), 256
# By the number of bytes that follow. No lru_cache: pickle has it by its module, which executors may lack.
_tables: dict[int, list[np.ndarray]] = {}


def checksum_path(path: str) -> str:
    """Where Hadoop has the checksums of a file."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.crc")


def check_file(path: str, data: bytes | None = None) -> bool:
    """Compare a file with Hadoop's checksums of it; whether it has any.

    Args:
        path: The file's path.
        data: Its bytes, if they have been read.

    Raises:
        OSError: They differ.
    """
    try:
        with open(checksum_path(path), "rb", buffering=0) as sums:
            known = sums.read()
    except FileNotFoundError:
        return False
    size = int.from_bytes(known[len(_MAGIC) : _HEADER_BYTES])
    count, rest = divmod(len(known) - _HEADER_BYTES, 4)
    num_bytes = os.path.getsize(path) if data is None else len(data)
    if not known.startswith(_MAGIC) or not size or rest or count != -(-num_bytes // size):
        raise _damaged(path)
    if data is not None and count < _FEW:
        is_same = _sums(data, size) == known[_HEADER_BYTES:]
    else:
        stored = np.frombuffer(known, ">u4", offset=_HEADER_BYTES).astype(np.uint32)
        found = _crc_of(path) if data is None else zlib.crc32(data)
        is_same = found == _joined(stored, size, num_bytes)
    if not is_same:
        raise _damaged(path)
    return True


def write_checksums(path: str) -> None:
    """Write checksums of a file as Hadoop does."""
    with open(path, "rb") as file:
        sums = b"".join(_sums(block, _CHUNK_BYTES) for block in _blocks(file))
    with open(checksum_path(path), "xb") as out:
        out.write(_MAGIC + _CHUNK_BYTES.to_bytes(4) + sums)


def _damaged(path: str) -> OSError:
    name = os.path.basename(checksum_path(path))
    return OSError(f"{path} differs from its checksums in {name}, so that one of the two is damaged")


def _blocks(file: BufferedReader) -> Iterator[memoryview]:
    """A file's bytes, so many at once; each block overwrites the one before."""
    block = memoryview(bytearray(_BLOCK_BYTES))
    while length := file.readinto(block):
        yield block[:length]


def _sums(data: bytes | memoryview, size: int) -> bytes:
    crc32, view = zlib.crc32, memoryview(data)
    sums = [crc32(view[at : at + size]) for at in range(0, len(data), size)]
    return struct.pack(f">{len(sums)}I", *sums)


def _crc_of(path: str) -> int:
    with open(path, "rb") as file:
        return reduce(lambda crc, block: zlib.crc32(block, crc), _blocks(file), 0)


def _joined(sums: np.ndarray, size: int, num_bytes: int) -> int:
    """The CRC-32 of a file from those of its chunks of so many bytes each; the last one may be shorter."""
    if not len(sums):
        return 0
    last = bytes((num_bytes - 1) % size + 1)
    # What is empty has the checksum 0, and in front of other bytes changes none.
    full = np.zeros(1 << (len(sums) - 2).bit_length() if len(sums) > 1 else 1, np.uint32)
    full[len(full) - len(sums) + 1 :] = sums[:-1]
    while len(full) > 1:
        full = _followed(full[::2], size) ^ full[1::2]
        size *= 2
    return zlib.crc32(last, int(full[0])) ^ zlib.crc32(last) ^ int(sums[-1])


def _followed(sums: np.ndarray, size: int) -> np.ndarray:
    """What checksums add to those of the bytes that follow, so many of them: linear in their bits."""
    tables = _tables.get(size)
    if tables is None:
        if len(_tables) >= _MOST_TABLES:
            _tables.clear()
        tables = _tables[size] = _made_tables(size)
    octets = np.ascontiguousarray(sums, "<u4").view(np.uint8).reshape(-1, 4)
    return np.bitwise_xor.reduce([table[octets[:, i]] for i, table in enumerate(tables)])


def _made_tables(size: int) -> list[np.ndarray]:
    """What `_followed` makes of each value of each of the four bytes."""
    bits = _BITS
    if size == 1:
        bits = np.array([zlib.crc32(b"\0", bit) ^ zlib.crc32(b"\0") for bit in bits.tolist()], np.uint32)
    else:
        for part in (size // 2, size - size // 2):
            bits = _followed(bits, part)
    tables = []
    for eight in bits.reshape(4, 8):
        table = np.zeros(1, np.uint32)
        for bit in eight:
            table = np.concatenate([table, table ^ bit])
        tables.append(table)
    return tables
