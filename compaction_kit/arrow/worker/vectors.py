"""Deletion vectors: the numbers of a file's rows that are deleted (protocol, "Deletion Vector Format")."""

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from compaction_kit.arrow.worker.columns import Refused
from compaction_kit.arrow.worker.files import Storage

_MAGIC = (1681511377).to_bytes(4, "little")
# Before a bitmap in a file is its length, after it its CRC-32, both big-endian.
_LENGTH = _CHECKSUM = 4


class Vector(NamedTuple):
    """A deletion vector: its bytes if it is inline, else the place of its file, and its offset there."""

    inline: bytes
    place: str
    offset: int
    size_bytes: int
    cardinality: int


def read_bitmaps(vectors: Mapping[str, Vector], storage: Storage) -> dict[str, Any]:
    """Return deletion vectors as bitmaps of pyroaring, by the place of the data file.

    Raises:
        Refused: pyroaring isn't installed here, or a vector has another format.
        OSError: A vector can't be read, or is damaged.
    """
    try:
        from pyroaring import BitMap64
    except ImportError as error:
        raise Refused(f"a file has a deletion vector, and executors can't read it ({error})") from error
    bitmaps = {}
    for place, data in read_vectors(vectors, storage).items():
        try:
            bitmaps[place] = BitMap64.deserialize(data)
        except ValueError as error:
            raise OSError(f"the deletion vector of {place} is damaged: {error}") from error
        if len(bitmaps[place]) != vectors[place].cardinality:
            raise OSError(f"the deletion vector of {place} deletes more or fewer rows than the log says")
    return bitmaps


def read_vectors(vectors: Mapping[str, Vector], storage: Storage) -> dict[str, bytes]:
    """Return deletion vectors as portable 64-bit Roaring bitmaps, by the place of the data file.

    Raises:
        Refused: A vector has another format.
        OSError: A vector can't be read, or is damaged.
    """
    stored = {place: vector for place, vector in vectors.items() if vector.place}
    spans = [(one.place, one.offset, _LENGTH + one.size_bytes + _CHECKSUM) for one in stored.values()]
    found = {place: vector.inline for place, vector in vectors.items()}
    for (place, vector), data in zip(stored.items(), storage.spans(spans), strict=True):
        found[place] = data[_LENGTH:-_CHECKSUM]
        length, checksum = vector.size_bytes, zlib.crc32(found[place])
        if data[:_LENGTH] != length.to_bytes(_LENGTH) or data[-_CHECKSUM:] != checksum.to_bytes(_CHECKSUM):
            raise OSError(f"{vector.place} is damaged: the deletion vector at {vector.offset} is another one")
    if any(not data.startswith(_MAGIC) for data in found.values()):
        raise Refused("a file has a deletion vector of an unknown format")
    return {place: data[len(_MAGIC) :] for place, data in found.items()}


def live_rows(rows: pa.Table, deleted: np.ndarray, start: int) -> pa.Table:
    """Return the rows of a file that aren't deleted; `start` is the number of the first."""
    first, end = np.searchsorted(deleted, [start, start + len(rows)])
    if first == end:
        return rows
    is_live = np.ones(len(rows), bool)
    is_live[deleted[first:end] - start] = False
    return rows.filter(pa.array(is_live))
