"""How columns are written where pyarrow by itself does otherwise than Spark's writer."""

import math
import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

_SAMPLE_ROWS = 1 << 17
# Of so many rows or more, a few tell, if all are distinct, that nearly all of the others are: were
# each value there but twice, the chance to pick none of them twice would be under 1 in 1,000, if so
# many are picked by chance for each root of the number of rows.
_LEAST_ROWS, _PICKED_A_ROOT = 1 << 8, 5
# By the number of rows, a few of them: a task's files are often alike.
_MOST_KEPT = 16
_positions: dict[int, pa.Array] = {}


def dictionary_columns(table: pa.Table) -> list[str]:
    """The leaf columns, by their path in Parquet, that take fewer bytes with a dictionary.

    pyarrow writes one for every column and falls back when it has grown to 1 MiB, which then is
    lost. Spark's writer looks after the first page whether it pays (parquet-mr,
    DictionaryValuesWriter.isCompressionSatisfying).

    Args:
        table: The first rows that are written.
    """
    return [path for path, leaf in all_leaves(table.slice(0, _SAMPLE_ROWS)) if _pays(leaf)]


def nan_columns(table: pa.Table) -> set[str]:
    """The leaf columns, by their path in Parquet, that hold NaN.

    Their row groups may have no statistics: to Spark NaN is greater than any number, pyarrow leaves
    it out of the greatest value, and readers would skip the row. Spark's writer leaves the
    statistics out (parquet-mr, FloatStatistics; PARQUET-1246).
    """
    floating = [field.name for field in table.schema if _has_floats(field.type)]
    return {
        path
        for path, leaf in all_leaves(table.select(floating))
        if pa.types.is_floating(leaf.type) and pc.any(pc.is_nan(leaf)).as_py()
    }


def leaf_columns(schema: pa.Schema) -> list[str]:
    """All leaf columns, by their path in Parquet."""
    return [path for path, _ in all_leaves(schema.empty_table())]


def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))


def all_leaves(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """The leaf columns with their paths in Parquet."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        yield from _leaves(name, column.combine_chunks())


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = values.type
    if pa.types.is_struct(kind):
        for field, inner in zip(kind, values.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", inner)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", values.keys)
        yield from _leaves(f"{path}.key_value.value", values.items)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", values.flatten())
    else:
        yield path, values


def _pays(values: pa.Array) -> bool:
    if pa.types.is_dictionary(values.type):
        return True
    count = len(values) - values.null_count
    if pa.types.is_boolean(values.type) or not count:
        return False
    if len(values) >= _LEAST_ROWS and _is_distinct(values.take(_some(len(values)))):
        return False
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        width = 4 + (pc.sum(pc.binary_length(values)).as_py() or 0) / count
    else:
        width = values.type.bit_width / 8
    distinct = pc.count_distinct(values).as_py()
    return bool(distinct * width + count * distinct.bit_length() / 8 < count * width)


def _is_distinct(values: pa.Array) -> bool:
    return bool(pc.count_distinct(values).as_py() == len(values))


def _some(count: int) -> pa.Array:
    """Positions of some rows of so many, by chance: rows often come in cycles, or in order."""
    if count not in _positions:
        if len(_positions) == _MOST_KEPT:
            _positions.clear()
        chance = random.Random(count)
        _positions[count] = pa.array(chance.sample(range(count), _PICKED_A_ROOT * math.isqrt(count)))
    return _positions[count]
