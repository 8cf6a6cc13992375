"""The order in which a snapshot of Delta's hands out its files: it decides between files of one size.

Delta spreads the files over Spark partitions by a hash of their path, and sorts each by path
(Snapshot.scala, stateReconstruction). OPTIMIZE's sort by size keeps that order among equals.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Snapshot.scala: without spark.databricks.delta.snapshotPartitions.
DEFAULT_PARTITIONS = 50
_SEED = np.uint32(42)
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_WORD = 4
# Texts at a time, so that their numbers stay in the processor's cache.
_PIECE = 1 << 15


def state_order(paths: pa.Array, num_partitions: int = DEFAULT_PARTITIONS) -> np.ndarray:
    """The place of each file in the snapshot's order.

    Args:
        paths: As the log writes them.
        num_partitions: spark.databricks.delta.snapshotPartitions.

    Returns:
        int64, a permutation of 0 to the number of files less one.
    """
    pieces = [spark_hash(paths.slice(start, _PIECE)) for start in range(0, len(paths), _PIECE)]
    hashes = np.concatenate([np.empty(0, np.int32), *pieces])
    # pmod, not the remainder: hashes are signed.
    partition = np.mod(hashes.astype(np.int64), num_partitions)
    by_path = np.empty(len(paths), dtype=np.int64)
    by_path[pc.array_sort_indices(paths).to_numpy()] = np.arange(len(paths))
    places = np.empty(len(paths), dtype=np.int64)
    places[np.lexsort((by_path, partition))] = np.arange(len(paths))
    return places


def spark_hash(texts: pa.Array) -> np.ndarray:
    """Spark's `hash()` of each text, int32: Murmur3 with seed 42 (Murmur3_x86_32.hashUnsafeBytes)."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    starts, lengths = offsets[:-1].astype(np.int64) - offsets[0], np.diff(offsets).astype(np.int64)
    # Padded, so that a word may be read wherever a text has a byte.
    first, end = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(bytes((texts.buffers()[2] or b"")[first:end]) + bytes(_WORD), np.uint8)
    words = np.ndarray((len(data) - _WORD + 1,), "<u4", data, strides=(1,))
    hashes = np.full(len(texts), _SEED)
    whole = lengths // _WORD
    for k in range(int(whole.max(initial=0))):
        rows = np.flatnonzero(whole > k)
        hashes[rows] = _mix(hashes[rows], words[starts[rows] + k * _WORD])
    # Of the bytes that fill no word, Spark mixes in each by itself, as a signed number.
    for k in range(_WORD - 1):
        rows = np.flatnonzero(lengths % _WORD > k)
        tail = data.view(np.int8)[starts[rows] + whole[rows] * _WORD + k]
        hashes[rows] = _mix(hashes[rows], tail.astype(np.int32).view(np.uint32))
    return _finish(hashes ^ lengths.astype(np.uint32)).view(np.int32)


def _mix(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    mixed = hashes ^ (_rotated(words * _C1, 15) * _C2)
    return _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(numbers: np.ndarray, bits: int) -> np.ndarray:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))


def _finish(hashes: np.ndarray) -> np.ndarray:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    mixed: np.ndarray = hashes ^ (hashes >> np.uint32(16))
    return mixed
