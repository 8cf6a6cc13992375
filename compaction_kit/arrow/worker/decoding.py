"""How many bytes the rows of a file take when they are decoded, which the size of the file doesn't say.

A dictionary holds each value once and runs are stored as their length, so that a few kilobytes may be
gigabytes of rows. For values of fixed width the footer has how many there are, and for texts most writers
have how many bytes they take (parquet.thrift, SizeStatistics). Without that, texts are read as dictionaries,
which tell; those that are far larger than these are written as they were read.
"""

from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.arrow.worker.columns import Refused, all_leaves
from compaction_kit.arrow.worker.thrift import Reader, read_integer, read_list, read_struct

# Files whose rows take no more are decoded at once, those of others in batches of about so many bytes.
DECODED_AT_ONCE, BATCH_BYTES = 128 << 20, 8 << 20
# Rows may be of very different sizes, and are held more than once while they are written.
MOST_BATCH_BYTES = 128 << 20
MOST_ROWS = 1 << 16
# Texts are left in dictionaries if they take so many times as much without.
_FAR_LARGER = 4
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
# Texts have an offset each, decimals 128 bits however they are stored, values in lists two levels of
# 16 bits.
_TEXT, _OFFSET_BYTES, _DECIMAL_BYTES, _LEVEL_BYTES = "BYTE_ARRAY", 4, 16, 4
_DICTIONARIES = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"}
_SHARED_PREFIXES = "DELTA_BYTE_ARRAY"
# From a footer (parquet.thrift, FileMetaData): row_groups, columns, meta_data, size_statistics,
# unencoded_byte_array_data_bytes.
_SIZES: dict[int, Reader] = {1: read_integer}
_META: dict[int, Reader] = {16: lambda data, pos, kind: read_struct(data, pos, _SIZES)}
_CHUNK: dict[int, Reader] = {3: lambda data, pos, kind: read_struct(data, pos, _META)}
_GROUP: dict[int, Reader] = {1: partial(read_list, lambda data, pos, kind: read_struct(data, pos, _CHUNK))}
_FILE: dict[int, Reader] = {4: partial(read_list, lambda data, pos, kind: read_struct(data, pos, _GROUP))}


class TextsFound(Exception):
    """The text columns `columns`, by their path in Parquet, are far larger than their dictionaries."""

    def __init__(self, columns: set[str]):
        super().__init__(columns)
        self.columns = columns


class Leaf(NamedTuple):
    """A leaf column whose bytes depend on its values: its number, its path, bytes for each value."""

    number: int
    path: str
    is_text: bool
    width: int


class Layout(NamedTuple):
    """The bytes of a row: `width`, and those of some leaf columns."""

    width: int
    leaves: list[Leaf]


class Decoding(NamedTuple):
    """How to decode a file in bounded memory.

    Attributes:
        is_small: Whether all rows can be decoded at once.
        batch_rows: Otherwise, how many at once.
        unsure: Text columns, by their path in Parquet, that may be far larger than the file.
    """

    is_small: bool
    batch_rows: int
    unsure: list[str]


def layout_of(schema: pq.ParquetSchema, columns: Collection[str]) -> Layout:
    """The bytes of a row of some top-level columns, given by name."""
    width, leaves = 0, []
    for number, leaf in enumerate(map(schema.column, range(len(schema)))):
        if leaf.path.split(".", 1)[0] not in columns:
            continue
        is_text, is_repeated = leaf.physical_type == _TEXT, leaf.max_repetition_level > 0
        is_decimal = leaf.logical_type.type == "DECIMAL"
        size = _DECIMAL_BYTES if is_decimal else _WIDTHS.get(leaf.physical_type, leaf.length)
        size = _OFFSET_BYTES if is_text else size
        if is_text or is_repeated:
            size += _LEVEL_BYTES if is_repeated else 0
            leaves.append(Leaf(number, leaf.path, is_text, size))
        else:
            width += size
    return Layout(width, leaves)


def decoding_of(metadata: pq.FileMetaData, layout: Layout, read_footer: Callable[[], bytes]) -> Decoding:
    """How to decode a file.

    Args:
        metadata: Of its footer.
        layout: The bytes of a row of the columns that are wanted.
        read_footer: Gives the footer's bytes, which have sizes that `metadata` leaves out.

    Raises:
        Refused: The bytes of its rows can't be known.
    """
    total = bounds = most = 0
    texts: dict[str, list[pq.ColumnChunkMetaData]] = defaultdict(list)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        size = group.num_rows * layout.width
        for leaf in layout.leaves:
            chunk = group.column(leaf.number)
            size += chunk.num_values * leaf.width
            if leaf.is_text:
                # All texts are in the pages, if each is written out, and else each of them is.
                size += chunk.total_uncompressed_size
                bounds += chunk.num_values * chunk.total_uncompressed_size
                texts[leaf.path].append(chunk)
        total += size
        most = max(most, size // max(group.num_rows, 1))
    batch_rows = max(min(BATCH_BYTES // max(most, 1), MOST_ROWS), 1)
    if total + bounds <= DECODED_AT_ONCE:
        return Decoding(True, batch_rows, [])
    text_bytes = _text_bytes(read_footer(), [leaf.number for leaf in layout.leaves if leaf.is_text])
    if text_bytes is not None and total + text_bytes <= DECODED_AT_ONCE:
        return Decoding(True, batch_rows, [])
    encodings = {path: set().union(*(chunk.encodings for chunk in texts[path])) for path in texts}
    for path, found in encodings.items():
        if _SHARED_PREFIXES in found:
            raise Refused(f"the texts of column {path} are stored without their common prefixes")
    unsure = [path for path, found in encodings.items() if found & _DICTIONARIES]
    return Decoding(total <= DECODED_AT_ONCE, batch_rows, unsure)


def _text_bytes(footer: bytes, leaves: Collection[int]) -> int | None:
    """The bytes of the texts of some leaf columns, each written out; None if the footer hasn't them."""
    found, _ = read_struct(footer, 0, _FILE)
    chunks = [group[1][number].get(3, {}) for group in found[4] for number in leaves]
    sizes = [chunk.get(16, {}).get(1) for chunk in chunks]
    return None if None in sizes else sum(sizes)


def check_texts(rows: pa.Table, columns: Collection[str]) -> None:
    """Measure texts that were read as dictionaries.

    Args:
        rows: Some of a file's.
        columns: The text columns, by their path in Parquet.

    Raises:
        TextsFound: Some take too much to be decoded.
    """
    names = {path.split(".", 1)[0] for path in columns}
    large = set()
    for path, leaf in all_leaves(rows.select([name for name in rows.column_names if name in names])):
        if path in columns and pa.types.is_dictionary(leaf.type):
            size = pc.sum(pc.binary_length(leaf.dictionary).take(leaf.indices)).as_py() or 0
            if size > min(max(_FAR_LARGER * leaf.nbytes, BATCH_BYTES), MOST_BATCH_BYTES):
                large.add(path)
    if large:
        raise TextsFound(large)
