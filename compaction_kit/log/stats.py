"""Read the stats of data files, which are JSON text in the log (protocol, "Per-file Statistics")."""

import json

import numpy as np
import pyarrow as pa

_PREFIX = np.frombuffer(b'{"numRecords":', dtype=np.uint8)
_MOST_DIGITS = 18


def count_records(stats: pa.Array) -> pa.Array:
    """Return numRecords of each stats text, deleted rows included; null if it is missing.

    All known writers put it first, where it is read from all texts at once; other texts are parsed as
    JSON.
    """
    counts, found = _leading_counts(stats)
    rest = np.flatnonzero(~found & stats.is_valid().to_numpy(zero_copy_only=False))
    parsed = [_parse_count(text) for text in stats.take(pa.array(rest)).to_pylist()]
    counts[rest] = [0 if count is None else count for count in parsed]
    found[rest] = [count is not None for count in parsed]
    return pa.array(counts, pa.int64(), mask=~found)


def _leading_counts(stats: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of texts that begin with numRecords, and which texts do."""
    counts = np.zeros(len(stats), dtype=np.int64)
    found = stats.is_valid().to_numpy(zero_copy_only=False).copy()
    text = stats.buffers()[2] if len(stats) else None
    if text is None:
        return counts, np.zeros(len(stats), dtype=bool)
    data = np.frombuffer(text, dtype=np.uint8)
    offsets = np.frombuffer(stats.buffers()[1], dtype=np.int32)[stats.offset : stats.offset + len(stats) + 1]
    starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    found &= ends - starts > len(_PREFIX) + 1
    rows = np.flatnonzero(found)
    for i, byte in enumerate(_PREFIX):
        rows = rows[data[starts[rows] + i] == byte]
    position = starts[rows] + len(_PREFIX)
    position += data[position] == ord(" ")
    first = position.copy()
    value = np.zeros(len(rows), dtype=np.int64)
    reading = np.ones(len(rows), dtype=bool)
    for _ in range(_MOST_DIGITS):
        digit = data[np.minimum(position, ends[rows] - 1)]
        reading &= (digit >= ord("0")) & (digit <= ord("9"))
        if not reading.any():
            break
        value = np.where(reading, value * 10 + (digit - ord("0")), value)
        position += reading
    after = data[np.minimum(position, ends[rows] - 1)]
    whole = (position > first) & ((after == ord(",")) | (after == ord("}")))
    found = np.zeros(len(stats), dtype=bool)
    found[rows[whole]] = True
    counts[rows[whole]] = value[whole]
    return counts, found


def _parse_count(text: str) -> int | None:
    try:
        number = json.loads(text).get("numRecords")
    except (ValueError, AttributeError):
        return None
    return number if isinstance(number, int) and not isinstance(number, bool) else None
