"""Delta's types as Arrow has them, laid out as Spark writes them to Parquet."""

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from compaction_kit.errors import UnsupportedTableError
from compaction_kit.log.metadata import Metadata, Protocol

_SIMPLE = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_FIELD_ID = b"PARQUET:field_id"


def data_schema(metadata: Metadata, protocol: Protocol) -> pa.Schema:
    """The schema of the data files that Delta writes: physical names, field ids, partition columns last.

    Raises:
        UnsupportedTableError: A column's type isn't known here.
    """
    fields = {field["name"]: field for field in metadata.schema["fields"]}
    names = [name for name in fields if name not in metadata.partition_columns]
    if has_partition_columns(metadata, protocol):
        names += metadata.partition_columns
    return pa.schema([_field(fields[name], metadata) for name in names])


def has_partition_columns(metadata: Metadata, protocol: Protocol) -> bool:
    """Whether Delta writes partition columns to data files (TransactionalWrite.writeFiles in Delta 4.4)."""
    written = metadata.configuration.get("delta.writePartitionColumnsToParquet", "true")
    return "materializePartitionColumns" in protocol.writer_features or written.lower() == "true"


def _field(field: Mapping[str, Any], metadata: Metadata) -> pa.Field:
    known = (field.get("metadata") or {}) if metadata.is_mapped else {}
    number = known.get("delta.columnMapping.id")
    ids = {_FIELD_ID: str(number).encode()} if number is not None else None
    kind = _type(field["type"], field["name"], metadata)
    return pa.field(metadata.physical_name(field), kind, nullable=True, metadata=ids)


def _type(kind: Any, column: str, metadata: Metadata) -> pa.DataType:
    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if kind in _SIMPLE:
            return _SIMPLE[kind]
    elif kind["type"] == "struct":
        return pa.struct([_field(field, metadata) for field in kind["fields"]])
    elif kind["type"] == "array":
        return pa.list_(pa.field("element", _type(kind["elementType"], column, metadata)))
    elif kind["type"] == "map":
        value = pa.field("value", _type(kind["valueType"], column, metadata))
        return pa.map_(_type(kind["keyType"], column, metadata), value)
    name = kind if isinstance(kind, str) else kind["type"]
    raise UnsupportedTableError(f"Column {column} is of type {name}, which pyarrow can't rewrite faithfully.")
