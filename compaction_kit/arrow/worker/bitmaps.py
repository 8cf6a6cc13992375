"""Roaring bitmaps read with NumPy; the proof reads them with pyroaring, which shares no code with this.

RoaringFormatSpec, "Standard 32-bit Roaring Bitmap" and "Extension for 64-bit implementations".
"""

import struct

import numpy as np

_WITH_RUNS, _NO_RUNS = 12347, 12346
# Containers of more values are bitsets of these bytes; fewer containers with runs have no offsets.
_MOST_IN_ARRAY, _BITSET_BYTES, _LEAST_WITH_OFFSETS = 4096, 8192, 4


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
