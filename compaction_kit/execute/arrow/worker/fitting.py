"""Rows of a data file as the table has them: which columns, of which types."""

from collections.abc import Collection

import pyarrow as pa

from compaction_kit.execute.arrow.worker.encoding import leaf_columns

_FIELD_ID = b"PARQUET:field_id"


class Refused(Exception):
    """A file holds what can't be rewritten faithfully; the message says what."""


class TextsFound(Exception):
    """Text columns may take far more memory than their dictionaries.

    Attributes:
        columns: By their path in Parquet.
    """

    def __init__(self, columns: set[str]):
        super().__init__(columns)
        self.columns = columns


class Columns:
    """The columns of a table's data files; what takes a while to find out is found out once for many files.

    Attributes:
        plain: The schema of outputs, by physical names.
        schema: Of the columns that are read.
        constants: Of those that have one value each, behind the others; texts are dictionaries.
        output: Of both.
        leaves: The leaf columns of both, by their path in Parquet.
        in_dictionaries: Those of the columns read that are left in dictionaries.
    """

    def __init__(
        self,
        plain: pa.Schema,
        by_id: bool,
        constants: Collection[str] = (),
        in_dictionaries: Collection[str] = (),
    ):
        """
        Args:
            plain: The schema of outputs, by physical names.
            by_id: Whether readers go by the ids of fields and not by their names.
            constants: The names of the last columns, which aren't read and have one value each.
            in_dictionaries: Text columns that are to be left in dictionaries, by their path in Parquet.
        """
        self.plain = plain
        self.leaves = leaf_columns(plain)
        self.in_dictionaries = frozenset(in_dictionaries)
        read = [field for field in plain if field.name not in constants]
        self.schema = with_dictionaries(pa.schema(read), self.in_dictionaries)
        self.constants = pa.schema([_constant(plain.field(name)) for name in constants])
        self.output = pa.schema([*self.schema, *self.constants])
        self._by_id = by_id
        self._last: tuple[pa.Schema, list[str]] | None = None

    def leaving(self, in_dictionaries: Collection[str]) -> "Columns":
        """The same columns, more of them left in dictionaries."""
        left = self.in_dictionaries.union(in_dictionaries)
        return Columns(self.plain, self._by_id, self.constants.names, left)

    def found_in(self, found: pa.Schema) -> list[str]:
        """The table's columns that a file has: see `wanted_columns`."""
        if self._last is None or not found.equals(self._last[0], check_metadata=True):
            self._last = found, wanted_columns(found, self.schema, self._by_id)
        return self._last[1]


def _constant(field: pa.Field) -> pa.Field:
    """A column of one value, which a text isn't repeated for."""
    is_text = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    return field.with_type(pa.dictionary(pa.int8(), field.type)) if is_text else field


def wanted_columns(found: pa.Schema, schema: pa.Schema, by_id: bool) -> list[str]:
    """The table's columns that a file has.

    Args:
        found: The file's schema.
        schema: The table's, by physical names.
        by_id: Whether readers go by the ids of fields and not by their names.

    Raises:
        Refused: The file has one under a name of another case, as Spark takes for the same, or
            names and ids say different things.
    """
    have = set(found.names)
    lacking = {name.lower(): name for name in schema.names if name not in have}
    for name in found.names:
        if name.lower() in lacking:
            raise Refused(f"a file has the column {name} where the table has {lacking[name.lower()]}")
    if by_id:
        _check_ids(list(found), list(schema))
    return [name for name in schema.names if name in have]


def _check_ids(found: list[pa.Field], wanted: list[pa.Field]) -> None:
    ids = {field.name: _id(field) for field in wanted}
    names = {number: name for name, number in ids.items()}
    for field in found:
        number = _id(field)
        if (field.name in ids and number != ids[field.name]) or names.get(number, field.name) != field.name:
            raise Refused(f"a file has the id {number} for the column {field.name}, the table another")
    types = {field.name: field.type for field in wanted}
    for field in found:
        if field.name in types and field.type.num_fields == types[field.name].num_fields:
            kinds = field.type, types[field.name]
            inner = [[kind.field(i) for i in range(kind.num_fields)] for kind in kinds]
            if pa.types.is_struct(field.type):
                _check_ids(*inner)


def _id(field: pa.Field) -> str | None:
    number = (field.metadata or {}).get(_FIELD_ID)
    return None if number is None else number.decode()


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the table's columns and types; what an older file lacks is null.

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


def with_dictionaries(schema: pa.Schema, paths: Collection[str]) -> pa.Schema:
    """A schema in which some text columns are dictionaries, given by their paths in Parquet."""
    return pa.schema([_with_dictionaries(field, field.name, paths) for field in schema]) if paths else schema


def _with_dictionaries(field: pa.Field, path: str, paths: Collection[str]) -> pa.Field:
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


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    if _is_same(column.type, wanted):
        return column.cast(wanted)
    raise Refused(f"a file has {column.type} where the table has {wanted}")


def _is_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a type holds the same values under another name: a cast changes none."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_dictionary(wanted):
        wanted = wanted.value_type
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        # INT96 has no zone in its type, and Spark means UTC.
        return bool(found.unit == wanted.unit)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        names = [field.name for field in wanted]
        return names == [field.name for field in found] and all(
            _is_same(found.field(i).type, wanted.field(i).type) for i in range(len(names))
        )
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return _is_same(found.key_type, wanted.key_type) and _is_same(found.item_type, wanted.item_type)
    if (pa.types.is_list(found) or pa.types.is_large_list(found)) and pa.types.is_list(wanted):
        return _is_same(found.value_type, wanted.value_type)
    if pa.types.is_string(wanted):
        return bool(pa.types.is_large_string(found) or pa.types.is_string_view(found) or found == wanted)
    if pa.types.is_binary(wanted):
        return bool(pa.types.is_large_binary(found) or pa.types.is_binary_view(found) or found == wanted)
    return bool(found == wanted)
