"""Rows in, one Parquet file out, laid out as Spark's writer does, in bounded memory."""

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.arrow.worker.columns import Columns, all_leaves, fitted, with_constants
from compaction_kit.arrow.worker.files import DISK, Storage
from compaction_kit.arrow.worker.inputs import Codec

# A row group is closed at so many bytes in memory. With what is read ahead and what is encoded, a
# task holds a few times these, whatever the size of its bin.
GROUP_BYTES = 128 << 20
# Inputs of so many bytes together, whose rows take so many, become an output that is written at once.
AT_ONCE_BYTES, AT_ONCE_ROWS = 4 << 20, 64 << 20
# Memory for a value of a column that a file lacks.
_LACKING_BYTES = 8
# Rows that are looked at to choose between dictionaries and plain values.
_SAMPLE_ROWS = 1 << 17
# Of at least so many rows, a random few tell whether nearly all values are distinct: if each value came
# twice, so many picks for each root of the number of rows would all be distinct in 1 of 1,000 cases.
_LEAST_ROWS, _PICKED_A_ROOT = 1 << 8, 5
# Random positions by the number of rows: a task's files are often alike.
_MOST_KEPT = 16
_positions: dict[int, pa.Array] = {}


class FloatsFound(Exception):
    """A later row group has NaN in columns with statistics, or zeros in columns with a dictionary.

    `with_nan` and `with_zero` are these columns, by their path in Parquet.
    """

    def __init__(self, with_nan: set[str], with_zero: set[str]):
        super().__init__(with_nan, with_zero)
        self.with_nan = with_nan
        self.with_zero = with_zero


def row_groups(tables: Iterator[pa.Table], columns: Columns, constants: list[pa.Array]) -> Iterator[pa.Table]:
    """Collect rows until they make a row group, with the output's columns and types.

    Args:
        tables: Rows with the table's columns that their file has.
        columns: Of the output.
        constants: The value of each of the output's last columns, as arrays of length 1.
    """
    ready: list[pa.Table] = []
    held: list[pa.Table] = []
    size = 0

    def group() -> pa.Table:
        rows = pa.concat_tables([*ready, fitted(pa.concat_tables(held), columns.schema)])
        return with_constants(rows, constants, columns.output)

    for table in tables:
        # Tables of one schema are fitted together, for each may have but a few rows.
        if held and not table.schema.equals(held[0].schema):
            ready.append(fitted(pa.concat_tables(held), columns.schema))
            held = []
        held.append(table)
        lacking = len(columns.output) - table.num_columns
        size += table.get_total_buffer_size() + len(table) * _LACKING_BYTES * lacking
        if size >= GROUP_BYTES:
            yield group()
            ready, held, size = [], [], 0
    if held:
        yield group()


def write_file(
    path: str,
    first: pa.Table,
    others: Iterator[pa.Table],
    columns: Columns,
    codec: Codec,
    with_nan: Collection[str],
    with_zero: Collection[str],
    input_bytes: int,
    footer: Mapping[str, str],
    storage: Storage = DISK,
) -> int:
    """Write row groups to a file, as Spark does.

    Args:
        path: Where nothing may be yet.
        first: The rows of the first row group.
        others: Those of the other ones.
        columns: Of the file.
        codec: By which it is compressed.
        with_nan: Leaf columns that get no statistics, by their path in Parquet.
        with_zero: Leaf columns that get no dictionary.
        input_bytes: The bytes of the files that the rows are from: small outputs are written at once.
        footer: The file's key-value metadata.
        storage: Where the path is.

    Returns:
        The number of rows.

    Raises:
        FloatsFound: Another of the row groups has NaN in a column that gets statistics, or a zero in one that
            gets a dictionary.
    """
    # After fewer rows than make a row group there come no others.
    is_small = input_bytes <= AT_ONCE_BYTES and first.nbytes <= AT_ONCE_ROWS
    buffer = pa.BufferOutputStream() if is_small else None
    repeated = dictionary_columns(first.select(columns.schema.names)) + columns.constants.names
    in_dictionaries = [path for path in repeated if path not in with_zero]
    num_rows = 0
    with (
        storage.sink(path) if buffer is None else contextlib.nullcontext(buffer) as sink,
        pq.ParquetWriter(
            sink,
            columns.output,
            compression=codec.name,
            compression_level=codec.level,
            use_dictionary=in_dictionaries,
            write_statistics=[name for name in columns.leaves if name not in with_nan],
            version="2.6",
            store_schema=False,
            store_decimal_as_integer=True,
            write_page_checksum=True,
        ) as writer,
    ):
        for number, group in enumerate(itertools.chain([first], others)):
            if number:
                nan = nan_columns(group).difference(with_nan)
                zero = zero_columns(group).intersection(in_dictionaries)
                if nan or zero:
                    raise FloatsFound(nan, zero)
            # By several dictionaries for one column, pyarrow would decode it.
            writer.write_table(group.unify_dictionaries(), row_group_size=len(group) or None)
            num_rows += len(group)
        writer.add_key_value_metadata(footer)
    if buffer is not None:
        with storage.create(path) as file:
            file.write(buffer.getvalue())
    return num_rows


def nan_columns(table: pa.Table) -> set[str]:
    """The leaf columns, by their path in Parquet, that hold NaN.

    Their row groups may have no statistics: to Spark NaN is greater than any number, pyarrow leaves
    it out of the greatest value, and readers would skip the row. Spark's writer leaves the
    statistics out (parquet-mr, FloatStatistics; PARQUET-1246).
    """
    return _float_columns(table, pc.is_nan)


def zero_columns(table: pa.Table) -> set[str]:
    """The leaf columns, by their path in Parquet, that hold 0.0 or -0.0.

    They may have no dictionary: to Spark both are equal, parquet-mr takes them for different values, and
    drops a row group whose dictionary has only the other one (DictionaryFilter).
    """
    return _float_columns(table, lambda leaf: pc.equal(leaf, pa.scalar(0, leaf.type)))


def _float_columns(table: pa.Table, is_wanted: Callable[[pa.Array], pa.Array]) -> set[str]:
    floating = [field.name for field in table.schema if _has_floats(field.type)]
    return {
        path
        for path, leaf in all_leaves(table.select(floating))
        if pa.types.is_floating(leaf.type) and pc.any(is_wanted(leaf)).as_py()
    }


def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))


def dictionary_columns(table: pa.Table) -> list[str]:
    """The leaf columns, by their path in Parquet, that take fewer bytes with a dictionary.

    pyarrow writes one for every column and falls back when it has grown to 1 MiB, which then is
    lost. Spark's writer decides after the first page (parquet-mr,
    DictionaryValuesWriter.isCompressionSatisfying).

    Args:
        table: The first rows that are written.
    """
    return [path for path, leaf in all_leaves(table.slice(0, _SAMPLE_ROWS)) if _is_smaller(leaf)]


def _is_smaller(values: pa.Array) -> bool:
    """Whether a dictionary makes a leaf column smaller."""
    if pa.types.is_dictionary(values.type):
        return True
    count = len(values) - values.null_count
    if pa.types.is_boolean(values.type) or not count:
        return False
    if len(values) >= _LEAST_ROWS:
        picked = values.take(_random_positions(len(values)))
        if pc.count_distinct(picked).as_py() == len(picked):
            return False
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        width = 4 + (pc.sum(pc.binary_length(values)).as_py() or 0) / count
    else:
        width = values.type.bit_width / 8
    distinct = pc.count_distinct(values).as_py()
    return bool(distinct * width + count * distinct.bit_length() / 8 < count * width)


def _random_positions(count: int) -> pa.Array:
    """Positions of a few of so many rows, at random: rows often come in cycles, or in order."""
    known = _positions.get(count)
    if known is None:
        if len(_positions) >= _MOST_KEPT:
            _positions.clear()
        chance = random.Random(count)
        known = pa.array(chance.sample(range(count), _PICKED_A_ROOT * math.isqrt(count)))
        _positions[count] = known
    return known
