"""Orders in which a partition's files are packed, and OPTIMIZE's order of files of equal size."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.files import Files

SIZE, INGEST = "size", "ingest"
_SIZE_BITS = 40
_SEED = np.uint32(42)
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_WORD = 4
# How many texts are hashed at a time; their arrays stay in the processor's cache.
_PIECE = 1 << 15


def by_size(files: Files, groups: np.ndarray, snapshot_partitions: int, is_later: np.ndarray) -> np.ndarray:
    """Order files as OPTIMIZE does: by partition, then by size, then as in Delta's snapshot.

    `groups` is the partition number of each file. Files of equal size are ordered by `is_later` (bool), then
    as spark.databricks.delta.snapshotPartitions determines. Returns positions.
    """
    sizes = files.sizes
    largest, num_groups = int(sizes.max(initial=0)), int(groups.max(initial=0)) + 1
    if largest >> _SIZE_BITS or num_groups >> (63 - _SIZE_BITS) or sizes.min(initial=0) < 0:
        order = np.lexsort((sizes, groups))
    else:
        # Sorting by one number is several times as fast as sorting by two.
        order = np.argsort(groups << _SIZE_BITS | sizes)
    same = tied_across(sizes, groups, order[:-1], order[1:])
    if same.any():
        tied = np.flatnonzero(np.r_[False, same] | np.r_[same, False])
        # Files of equal size are ordered within their run.
        run = np.cumsum(np.r_[True, ~same])[tied]
        ranks = state_order(files.paths(order[tied]).combine_chunks(), snapshot_partitions)
        order[tied] = order[tied][np.lexsort((ranks, is_later[order[tied]], run))]
    return order


def tied_across(sizes: np.ndarray, groups: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return whether pairs of files could be swapped: they have the same size and partition."""
    tied: np.ndarray = (sizes[before] == sizes[after]) & (groups[before] == groups[after])
    return tied


def column_of(order: str) -> str | None:
    """Return an order's column, None for "size" and "ingest"; columns of these names are in backticks."""
    return None if order in (SIZE, INGEST) else order.removeprefix("`").removesuffix("`")


def order_by(column: str) -> str:
    """Return the order by a column; see `column_of`."""
    return f"`{column}`" if column in (SIZE, INGEST) else column


def layout_of(order: str) -> str:
    """Name the layout that an order makes."""
    return {SIZE: "OPTIMIZE", INGEST: "by ingestion"}.get(order, f"by {order}")


def state_order(paths: pa.Array, num_partitions: int) -> np.ndarray:
    """Return the rank of each file in Delta's snapshot, int64, from its path as the log writes it.

    Delta distributes the files over Spark partitions by a hash of their path, and sorts each partition by
    path (Snapshot.scala, stateReconstruction; spark.databricks.delta.snapshotPartitions). OPTIMIZE's sort by
    size is stable.
    """
    pieces = [spark_hash(paths.slice(start, _PIECE)) for start in range(0, len(paths), _PIECE)]
    hashes = np.concatenate([np.empty(0, np.int32), *pieces])
    # Spark uses pmod, because hashes may be negative.
    partition = np.mod(hashes.astype(np.int64), num_partitions)
    by_path, ranks = np.empty((2, len(paths)), dtype=np.int64)
    by_path[pc.array_sort_indices(paths).to_numpy()] = np.arange(len(paths))
    ranks[np.lexsort((by_path, partition))] = np.arange(len(paths))
    return ranks


def spark_hash(texts: pa.Array) -> np.ndarray:
    """Compute Spark's `hash()` of texts, int32: Murmur3 with seed 42 (Murmur3_x86_32.hashUnsafeBytes)."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    starts, lengths = offsets[:-1].astype(np.int64) - offsets[0], np.diff(offsets).astype(np.int64)
    # With padding, a word can be read at every byte of a text.
    first, end = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(bytes((texts.buffers()[2] or b"")[first:end]) + bytes(_WORD), np.uint8)
    words = np.ndarray((len(data) - _WORD + 1,), "<u4", data, strides=(1,))
    hashes = np.full(len(texts), _SEED)
    whole = lengths // _WORD
    for k in range(int(whole.max(initial=0))):
        rows = np.flatnonzero(whole > k)
        hashes[rows] = _mix(hashes[rows], words[starts[rows] + k * _WORD])
    # Spark mixes in the bytes after the last whole word one by one, as signed numbers.
    for k in range(_WORD - 1):
        rows = np.flatnonzero(lengths % _WORD > k)
        tail = data.view(np.int8)[starts[rows] + whole[rows] * _WORD + k]
        hashes[rows] = _mix(hashes[rows], tail.astype(np.int32).view(np.uint32))
    hashes ^= lengths.astype(np.uint32)
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (hashes ^ (hashes >> np.uint32(16))).view(np.int32)


def _mix(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    mixed = hashes ^ (_rotated(words * _C1, 15) * _C2)
    return _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(numbers: np.ndarray, bits: int) -> np.ndarray:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))
