"""What goes by the numbers of a file's rows: deletion vectors and row ids.

Protocol, "Deletion Vector Format" and "Row Tracking"; RoaringFormatSpec, "Standard 32-bit Roaring Bitmap" and
"Extension for 64-bit implementations". The proof reads bitmaps with pyroaring instead.
"""

import struct
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.arrow.worker.columns import Refused
from compaction_kit.arrow.worker.files import Storage

_MAGIC = (1681511377).to_bytes(4, "little")
# Before a bitmap in a file is its length, after it its CRC-32, both big-endian.
_LENGTH = _CHECKSUM = 4
_WITH_RUNS, _NO_RUNS = 12347, 12346
# Containers of more values are bitsets of these bytes; fewer containers with runs have no offsets.
_MOST_IN_ARRAY, _BITSET_BYTES, _LEAST_WITH_OFFSETS = 4096, 8192, 4


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
    """Return the numbers of the rows that a vector deletes, int64, ascending; OSError if it is damaged."""
    try:
        numbers = numbers_in(bitmap)
    except (ValueError, struct.error) as error:
        raise OSError(f"a deletion vector is damaged: {error}") from error
    if len(numbers) != vector.cardinality:
        raise OSError("a deletion vector deletes more or fewer rows than the log says")
    return numbers


def live_rows(rows: pa.Table, deleted: np.ndarray, start: int) -> pa.Table:
    """Return the rows of a file that aren't deleted; `start` is the number of the first."""
    first, end = np.searchsorted(deleted, [start, start + len(rows)])
    if first == end:
        return rows
    is_live = np.ones(len(rows), bool)
    is_live[deleted[first:end] - start] = False
    return rows.filter(pa.array(is_live))


def with_row_ids(rows: pa.Table, defaults: Mapping[str, int], start: int) -> pa.Table:
    """Return rows of a file with all their row ids and row commit versions; `start` is the first's number."""
    (ids, base), (versions, version) = defaults.items()
    first = base + start
    known = {ids: pa.array(np.arange(first, first + len(rows))), versions: pa.repeat(version, len(rows))}
    for name, values in known.items():
        if name in rows.column_names:
            number = rows.column_names.index(name)
            rows = rows.set_column(number, name, pc.coalesce(rows[name], values))
        else:
            rows = rows.append_column(name, values)
    return rows


def numbers_in(data: bytes) -> np.ndarray:
    """Return the numbers in a portable 64-bit bitmap, int64, ascending."""
    (count,), at = struct.unpack_from("<q", data), 8
    found = [np.zeros(0, np.int64)]
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        low, at = _numbers_of_32_bits(data, at + 4)
        found += [part + (high << 32) for part in low]
    return np.concatenate(found)


def _numbers_of_32_bits(data: bytes, at: int) -> tuple[list[np.ndarray], int]:
    """Return the numbers in each container of a 32-bit bitmap, and where it ends."""
    (cookie,), at = struct.unpack_from("<I", data, at), at + 4
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, (count + 7) // 8, at)
        has_runs, at = np.unpackbits(flags, bitorder="little")[:count], at + len(flags)
    elif cookie == _NO_RUNS:
        (count,), at = struct.unpack_from("<I", data, at), at + 4
        has_runs = np.zeros(count, np.uint8)
    else:
        raise ValueError(f"a bitmap begins with {cookie}")
    heads, at = np.frombuffer(data, "<u2", 2 * count, at).astype(np.int64).reshape(-1, 2), at + 4 * count
    if cookie == _NO_RUNS or count >= _LEAST_WITH_OFFSETS:
        at += 4 * count
    found = []
    for (key, last), is_run in zip(heads.tolist(), has_runs.tolist(), strict=True):
        if is_run:
            (size,) = struct.unpack_from("<H", data, at)
            runs = np.frombuffer(data, "<u2", 2 * size, at + 2).astype(np.int64).reshape(-1, 2)
            ends = np.cumsum(runs[:, 1] + 1)
            # How far each run is ahead of its position among the numbers.
            low = np.repeat(runs[:, 0] + runs[:, 1] + 1 - ends, runs[:, 1] + 1)
            low, at = low + np.arange(len(low)), at + 2 + 4 * size
        elif last >= _MOST_IN_ARRAY:
            bits = np.frombuffer(data, np.uint8, _BITSET_BYTES, at)
            low, at = np.flatnonzero(np.unpackbits(bits, bitorder="little")), at + _BITSET_BYTES
        else:
            low, at = np.frombuffer(data, "<u2", last + 1, at).astype(np.int64), at + 2 * (last + 1)
        found.append(low + (key << 16))
    return found, at
