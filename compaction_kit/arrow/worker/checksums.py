"""Checksums that Hadoop keeps beside files on local disks (org.apache.hadoop.fs.ChecksumFileSystem).

`.<name>.crc` holds "crc", a zero byte, the number of bytes per checksum, and the CRC-32 of each such piece of
the file, big-endian. Readers go by that number, so outputs get larger pieces than Hadoop's 512 bytes.
"""

import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO

_MAGIC, _PIECE_BYTES, _BLOCK_BYTES = b"crc\0", 1 << 16, 1 << 20


def checksum_path(path: str) -> str:
    """Return where Hadoop keeps the checksums of a file."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def check_file(path: str, data: bytes | None = None) -> None:
    """Compare a file, or its bytes if they were read, with its checksums; OSError if they differ."""
    with open(checksum_path(path), "rb") as sums:
        known = sums.read()
    size = int.from_bytes(known[4:8])
    with open(path, "rb") if data is None else io.BytesIO(data) as file:
        if known[:4] != _MAGIC or not 0 < size <= _BLOCK_BYTES or b"".join(_sums(file, size)) != known[8:]:
            raise OSError(f"{path} differs from its checksums in {checksum_path(path)}: one is damaged")


def write_checksums(path: str) -> None:
    """Write checksums of a file as Hadoop does."""
    with open(path, "rb") as file, open(checksum_path(path), "xb") as sums:
        sums.write(_MAGIC + _PIECE_BYTES.to_bytes(4) + b"".join(_sums(file, _PIECE_BYTES)))


def _sums(file: BinaryIO, size: int) -> Iterator[bytes]:
    while block := file.read(_BLOCK_BYTES // size * size):
        view = memoryview(block)
        yield b"".join(zlib.crc32(view[at : at + size]).to_bytes(4) for at in range(0, len(view), size))
