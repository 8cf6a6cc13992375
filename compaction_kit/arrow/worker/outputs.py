"""Write rows to one Parquet file with the layout of Spark's writer, in bounded memory."""

import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.arrow.worker.columns import all_leaves, fitted, has_type, null_rows, with_constants
from compaction_kit.arrow.worker.inputs import FileReader, RewriteTask

# A row group is closed at this size in memory. With data that is read ahead or encoded, a task holds a few
# times this size, however large its bin is.
GROUP_BYTES = 128 << 20
# An output is written at once if its inputs, and its rows in memory, have at most these bytes.
AT_ONCE_BYTES, AT_ONCE_ROWS = 4 << 20, 64 << 20
# Memory for a value of a column that a file lacks.
_LACKING_BYTES = 8
# The first rows decide between dictionaries and plain values; in Spark's writer, the first page does.
_SAMPLE_ROWS = 20_000
# The part of an output's name before its codec, as in Spark's names.
STEM = ".c000."
_LAYOUT = {
    "version": "2.6",
    "store_schema": False,
    "store_decimal_as_integer": True,
    "write_page_checksum": True,
}


class RewriteOutput(NamedTuple):
    """The output of a task or a bin; if there is none, `refusal` or `failure` says why.

    `start` and `end` are in seconds since 1970, `modification_time` in milliseconds; `peak_bytes` is
    the most memory that the worker has held in its life. `with_nan` are the columns that hold NaN, by their
    path in Parquet.
    """

    number: int
    part: int
    path: str = ""
    size_bytes: int = 0
    num_rows: int = 0
    with_nan: frozenset[str] = frozenset()
    modification_time: int = 0
    start: float = 0.0
    end: float = 0.0
    peak_bytes: int = 0
    refusal: str | None = None
    failure: str | None = None


class FloatsFound(Exception):
    """A later row group has NaN in columns with statistics, or zeros in columns with a dictionary.

    `with_nan` and `with_zero` are these columns, by their path in Parquet.
    """

    def __init__(self, with_nan: set[str], with_zero: set[str]):
        super().__init__(with_nan, with_zero)
        self.with_nan, self.with_zero = with_nan, with_zero

    def add(self, other: "FloatsFound") -> None:
        """Add the columns of another exception."""
        self.with_nan |= other.with_nan
        self.with_zero |= other.with_zero


def new_place(task: RewriteTask, suffix: str) -> str:
    """Return a place for a task's output that no other attempt of the task uses."""
    return f"{task.output}-{uuid.uuid4().hex[:8]}{STEM}{suffix}"


def write_file(reader: FileReader, floats: FloatsFound) -> RewriteOutput:
    """Write the rows of a task's inputs to a new file, as Spark does.

    Columns of `floats` get no statistics, or no dictionary; those of the first row group are added to it.

    Raises:
        FloatsFound: A later row group has other such columns.
        Refused, TextsFound, OSError, ArrowException: See `FileReader.tables`.
    """
    task, columns, storage = reader.task, reader.columns, reader.storage
    groups = _row_groups(reader)
    first = next(groups, null_rows(columns.output, 0))
    floats.add(FloatsFound(nan_columns(first), zero_columns(first)))
    repeated = {*dictionary_columns(first.select(columns.schema.names)), *columns.constants.names}
    # A first row group of this size holds all rows.
    at_once = task.size_bytes <= AT_ONCE_BYTES and first.nbytes <= AT_ONCE_ROWS
    place, num_rows = new_place(task, reader.codec.suffix), 0
    with (
        storage.writing(place, at_once) as sink,
        pq.ParquetWriter(
            sink,
            columns.output,
            compression=reader.codec.name,
            compression_level=reader.codec.level,
            use_dictionary=list(repeated - floats.with_zero),
            write_statistics=[name for name in columns.leaves if name not in floats.with_nan],
            **_LAYOUT,
        ) as writer,
    ):
        for group in itertools.chain([first], groups):
            if group is not first:
                nan = nan_columns(group) - floats.with_nan
                zero = (zero_columns(group) & repeated) - floats.with_zero
                if nan or zero:
                    raise FloatsFound(nan, zero)
            # pyarrow would decode a column that has several dictionaries.
            writer.write_table(group.unify_dictionaries(), row_group_size=len(group) or None)
            num_rows += len(group)
        writer.add_key_value_metadata(task.footer)
    return RewriteOutput(task.number, task.part, place, 0, num_rows, frozenset(floats.with_nan))


def _row_groups(reader: FileReader) -> Iterator[pa.Table]:
    """Collect rows of files until they make a row group, with the output's columns and types."""
    columns = reader.columns
    held: list[pa.Table] = []
    size = 0

    def group() -> pa.Table:
        try:
            rows = fitted(pa.concat_tables(held), columns.schema)
        except pa.ArrowInvalid:
            # The tables differ in their schemas.
            rows = pa.concat_tables([fitted(table, columns.schema) for table in held])
        # Writing one chunk is many times as fast as writing thousands.
        return with_constants(rows.combine_chunks(), reader.task.constants, columns.output)

    for table in reader.tables():
        held.append(table)
        lacking = len(columns.output) - table.num_columns
        size += table.get_total_buffer_size() + len(table) * _LACKING_BYTES * lacking
        if size >= GROUP_BYTES:
            yield group()
            held, size = [], 0
    if held:
        yield group()


def nan_columns(table: pa.Table) -> set[str]:
    """Return the leaf columns, by their path in Parquet, that hold NaN.

    Their row groups must not have statistics: for Spark NaN is greater than any number, but pyarrow ignores
    NaN in the maximum, so readers would skip the row. Spark's writer writes no statistics either (parquet-mr,
    FloatStatistics; PARQUET-1246).
    """
    return _float_columns(table, pc.is_nan)


def zero_columns(table: pa.Table) -> set[str]:
    """Return the leaf columns, by their path in Parquet, that hold 0.0 or -0.0.

    They must not have a dictionary: for Spark both zeros are equal, but parquet-mr treats them as different
    values, and skips a row group if its dictionary has only the other one (DictionaryFilter).
    """
    return _float_columns(table, lambda leaf: pc.invert(leaf.cast(pa.bool_())))


def _float_columns(table: pa.Table, is_wanted: Callable[[pa.Array], pa.Array]) -> set[str]:
    floating = [field.name for field in table.schema if has_type(field.type, pa.types.is_floating)]
    return {
        path
        for path, leaf in all_leaves(table.select(floating))
        if pa.types.is_floating(leaf.type) and pc.any(is_wanted(leaf)).as_py()
    }


def dictionary_columns(table: pa.Table) -> list[str]:
    """Return the leaf columns, by their path in Parquet, that take fewer bytes with a dictionary.

    pyarrow starts one for every column and falls back when it has grown to 1 MiB, which is then wasted.
    Spark's writer decides after the first page (parquet-mr, DictionaryValuesWriter.isCompressionSatisfying).
    """
    return [path for path, leaf in all_leaves(table.slice(0, _SAMPLE_ROWS)) if _is_smaller(leaf)]


def _is_smaller(values: pa.Array) -> bool:
    if pa.types.is_dictionary(values.type):
        return True
    count = len(values) - values.null_count
    if pa.types.is_boolean(values.type) or not count:
        return False
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        width = 4 + (pc.sum(pc.binary_length(values)).as_py() or 0) / count
        distinct = pc.count_distinct(values).as_py()
    else:
        width = values.type.bit_width / 8
        distinct = _count_distinct(values.drop_null())
    return bool(distinct * width + count * distinct.bit_length() / 8 < count * width)


def _count_distinct(values: pa.Array) -> int:
    whole = {32: pa.int32(), 64: pa.int64()}.get(values.type.bit_width)
    if whole is None:
        return int(pc.count_distinct(values).as_py())
    # If most values differ, sorting takes a tenth of the time.
    numbers = np.sort(np.from_dlpack(values.view(whole)))
    return 1 + int(np.count_nonzero(numbers[1:] != numbers[:-1]))
