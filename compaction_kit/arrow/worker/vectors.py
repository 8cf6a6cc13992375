"""Apply deletion vectors and row ids, which refer to the numbers of a file's rows.

Protocol, "Deletion Vector Format" and "Row Tracking".
"""

import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.arrow.worker.columns import Refused
from compaction_kit.arrow.worker.files import Storage

_MAGIC = (1681511377).to_bytes(4, "little")
# In a file, a bitmap follows its length and precedes its CRC-32, both big-endian.
_LENGTH = _CHECKSUM = 4


class Vector(NamedTuple):
    """A deletion vector: its bytes if it is inline, else the place of its file, and its offset there."""

    inline: bytes
    place: str
    offset: int
    size_bytes: int
    cardinality: int


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


def deleted_rows(bitmap: bytes, vector: Vector) -> np.ndarray:
    """Return the numbers of the rows that a vector deletes, int64, ascending.

    Raises:
        Refused: pyroaring isn't installed here.
        OSError: The bitmap deletes another number of rows than the log says.
        ValueError, IndexError: The bitmap is damaged.
    """
    try:
        from pyroaring import BitMap64

        numbers = np.asarray(BitMap64.deserialize(bitmap).to_array(), np.int64)
    except ImportError as error:
        raise Refused(f"executors can't import pyroaring, which reads deletion vectors ({error})") from error
    if len(numbers) != vector.cardinality:
        raise OSError("a deletion vector deletes more or fewer rows than the log says")
    return numbers


def int64_array(numbers: np.ndarray) -> pa.Array:
    """Return an Arrow array; `pa.array` imports pandas, which takes a new worker half a second."""
    values = pa.py_buffer(np.asarray(numbers, np.int64))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, values])


def live_rows(rows: pa.Table, deleted: np.ndarray, start: int) -> pa.Table:
    """Return the rows of a file that aren't deleted; `start` is the first row's number."""
    first, end = np.searchsorted(deleted, [start, start + len(rows)])
    if first == end:
        return rows
    is_live = np.ones(len(rows), bool)
    is_live[deleted[first:end] - start] = False
    bits = pa.py_buffer(np.packbits(is_live, bitorder="little"))
    return rows.filter(pa.Array.from_buffers(pa.bool_(), len(rows), [None, bits]))


def with_row_ids(rows: pa.Table, defaults: Mapping[str, int], start: int) -> pa.Table:
    """Return rows of a file with all their row ids and row commit versions; `start` is the first's number."""
    (ids, base), (versions, version) = defaults.items()
    first = base + start
    known = {
        ids: int64_array(np.arange(first, first + len(rows))),
        versions: int64_array(np.full(len(rows), version)),
    }
    for name, values in known.items():
        if name in rows.column_names:
            number = rows.column_names.index(name)
            rows = rows.set_column(number, name, pc.coalesce(rows[name], values))
        else:
            rows = rows.append_column(name, values)
    return rows
