"""Checksums of data files: those that Hadoop has beside them, and those of Parquet's pages.

What is copied without being decoded would otherwise take damage along, and lose what shows it.

On a local disk Hadoop writes a hidden file `.<name>.crc` for each file: "crc", a zero byte, the number
of bytes that a checksum is of, and the CRC-32 of each such chunk, big-endian
(org.apache.hadoop.fs.ChecksumFileSystem). A page's CRC-32 is in its header (parquet.thrift, PageHeader).
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from functools import partial

from compaction_kit.execute.arrow.worker.thrift import read_integer, read_struct

_MAGIC, _HEADER_BYTES, _CHUNK_BYTES = b"crc\0", 8, 512
# So many chunks are read at once, and of a page's header so many bytes.
_BLOCK_CHUNKS, _PAGE_HEAD_BYTES = 1 << 13, 1 << 10
# compressed_page_size and crc.
_PAGE = {3: read_integer, 4: read_integer}


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
        with open(checksum_path(path), "rb") as sums:
            known = sums.read()
    except FileNotFoundError:
        return False
    size = int.from_bytes(known[len(_MAGIC) : _HEADER_BYTES])
    if not known.startswith(_MAGIC) or not size:
        raise _damaged(path)
    found = _sums_of(path, size) if data is None else _sums(data, size)
    if found != known[_HEADER_BYTES:]:
        raise _damaged(path)
    return True


def write_checksums(path: str) -> None:
    """Write checksums of a file as Hadoop does."""
    sums = _sums_of(path, _CHUNK_BYTES)
    with open(checksum_path(path), "xb") as out:
        out.write(_MAGIC + _CHUNK_BYTES.to_bytes(4) + sums)


def check_pages(path: str, chunks: Iterable[tuple[int, int]]) -> None:
    """Compare a Parquet file's pages with the checksums in their headers, where they have one.

    Args:
        path: The file's path.
        chunks: Where each column chunk's pages begin and end, in bytes.

    Raises:
        OSError: They differ.
    """
    with open(path, "rb") as file:
        for start, stop in chunks:
            try:
                is_sound = all(_are_sound(file.fileno(), start, stop))
            except (LookupError, TypeError, ValueError) as error:
                raise OSError(f"{path} has a damaged page header: {error}") from error
            if not is_sound:
                raise OSError(f"{path} has a page that differs from its checksum: it is damaged")


def _are_sound(file: int, at: int, stop: int) -> Iterator[bool]:
    """Whether each page agrees with its checksum, if it has one."""
    while at < stop:
        try:
            page, length = read_struct(os.pread(file, min(_PAGE_HEAD_BYTES, stop - at), at), 0, _PAGE)
        except IndexError:
            # It has large statistics.
            page, length = read_struct(os.pread(file, stop - at, at), 0, _PAGE)
        at += length
        if not 0 <= page[3] <= stop - at:
            raise ValueError("it tells of more bytes than there are")
        yield 4 not in page or zlib.crc32(os.pread(file, page[3], at)) == page[4] & 0xFFFFFFFF
        at += page[3]


def _sums_of(path: str, size: int) -> bytes:
    with open(path, "rb") as file:
        return b"".join(_sums(block, size) for block in iter(partial(file.read, size * _BLOCK_CHUNKS), b""))


def _sums(data: bytes, size: int) -> bytes:
    crc32, view = zlib.crc32, memoryview(data)
    sums = [crc32(view[at : at + size]) for at in range(0, len(data), size)]
    return struct.pack(f">{len(sums)}I", *sums)


def _damaged(path: str) -> OSError:
    name = os.path.basename(checksum_path(path))
    return OSError(f"{path} differs from its checksums in {name}, so that one of the two is damaged")
