"""The columns of a table's data files, and rows fitted to the table's types.

Constants are columns of one value: partition columns, with the log's values. Delta writes them to data files,
last and in the order of `partitionColumns`, and reads them from the log (see
`refusals.has_partition_columns`). Older files, and those of other writers, lack them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

import pyarrow as pa


class Refused(Exception):
    """A file can't be rewritten faithfully; the message says why."""


class Columns:
    """The columns of a table's data files.

    Attributes:
        plain: The schema of outputs, by physical names.
        schema: The columns that are read; leaves at `in_dictionaries` stay dictionaries.
        constants: The columns after `schema` that have one value each; texts are dictionaries.
        output: The columns of `schema` and `constants`.
        leaves: The leaf columns of `output`, by their path in Parquet.
        in_dictionaries: The text columns that stay dictionaries, by their path in Parquet.
    """

    def __init__(
        self, plain: pa.Schema, constants: Collection[str] = (), in_dictionaries: Collection[str] = ()
    ):
        """Take the schema of outputs, and names of constants."""
        self.plain = plain
        self.leaves = [path for path, _ in all_leaves(null_rows(plain, 0))]
        self.in_dictionaries = frozenset(in_dictionaries)
        read = [field for field in plain if field.name not in constants]
        if in_dictionaries:
            read = [_with_dictionaries(field, field.name, self.in_dictionaries) for field in read]
        self.schema = pa.schema(read)
        self.constants = pa.schema([_in_dictionary(plain.field(name)) for name in constants])
        self.output = pa.schema([*self.schema, *self.constants])

    def leaving(self, in_dictionaries: Collection[str]) -> "Columns":
        """Return the same columns, with more text columns that stay dictionaries."""
        left = self.in_dictionaries.union(in_dictionaries)
        return Columns(self.plain, self.constants.names, left)

    def found_in(self, found: pa.Schema) -> list[str]:
        """Return the table's columns that a file has.

        Raises:
            Refused: The file has a column with a name of another case, which Spark treats as the same.
        """
        have, known = set(found.names), set(self.schema.names)
        alike = {name.lower(): name for name in known}
        for name in have - known:
            if name.lower() in alike:
                raise Refused(f"a file has the column {name} where the table has {alike[name.lower()]}")
        return [name for name in self.schema.names if name in have]


def _in_dictionary(field: pa.Field) -> pa.Field:
    """Return a constant's column: texts are dictionaries, so that they aren't repeated."""
    is_text = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    return field.with_type(pa.dictionary(pa.int8(), field.type)) if is_text else field


def null_rows(schema: pa.Schema, count: int) -> pa.Table:
    """Return rows of nulls; `empty_table` imports pandas, which takes a new worker half a second."""
    return pa.Table.from_arrays([pa.nulls(count, kind) for kind in schema.types], schema=schema)


def all_leaves(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield the leaf columns with their paths in Parquet."""
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


def has_type(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type, or a type within it, is wanted."""
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return is_wanted(kind) or any(has_type(one, is_wanted) for one in inner)


def _with_dictionaries(field: pa.Field, path: str, paths: Collection[str]) -> pa.Field:
    """Return a column whose leaves at these paths in Parquet are dictionaries."""
    kind = field.type
    if pa.types.is_struct(kind):
        fields = [_with_dictionaries(inner, f"{path}.{inner.name}", paths) for inner in kind]
        return field.with_type(pa.struct(fields))
    if pa.types.is_map(kind):
        key = _with_dictionaries(kind.key_field, f"{path}.key_value.key", paths)
        value = _with_dictionaries(kind.item_field, f"{path}.key_value.value", paths)
        return field.with_type(pa.map_(key, value))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_with_dictionaries(kind.value_field, f"{path}.list.element", paths)))
    return field.with_type(pa.dictionary(pa.int32(), kind)) if path in paths else field


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the table's columns and types; a column that an older file lacks is null.

    Raises:
        Refused: A column is of another type.
    """
    if table.schema.equals(schema):
        return table
    columns = [
        _cast(table[field.name], field.type)
        if field.name in table.column_names
        else pa.chunked_array([pa.nulls(len(table), field.type)])
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    if _plain(column.type) == _plain(wanted):
        return column.cast(wanted)
    raise Refused(f"a file has {column.type} where the table has {wanted}")


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return one type for all types that can be cast to one another without changing a value."""
    types = pa.types
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if types.is_timestamp(kind):
        # INT96 has no zone in its type, and Spark means UTC.
        return pa.timestamp(kind.unit)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    return pa.binary() if types.is_large_binary(kind) or types.is_binary_view(kind) else kind


def with_constants(rows: pa.Table, constants: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    """Append constant columns, given as arrays of length 1; `schema` is the result's schema."""
    values = [value.cast(schema.field(name).type)[0] for name, value in constants.items()]
    columns = [*rows.columns, *(pa.repeat(value, len(rows)) for value in values)]
    return pa.Table.from_arrays(columns, schema=schema)
