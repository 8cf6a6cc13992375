"""The protocol and metadata actions, and whether this package may read such a table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compaction_kit.errors import UnsupportedTableError

# Protocol, "Valid Feature Names in Table Features": those that change how a reader must read,
# and that are either honoured here or have no bearing on which files are live.
READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    }
)


@dataclass(frozen=True)
class Protocol:
    """The protocol action: what readers and writers must know."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str]
    writer_features: frozenset[str]

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> "Protocol":
        """From a protocol action as the log writes it."""
        return cls(
            action["minReaderVersion"],
            action["minWriterVersion"],
            frozenset(_names(action, "readerFeatures")),
            frozenset(_names(action, "writerFeatures")),
        )


@dataclass(frozen=True)
class Metadata:
    """The metaData action: schema, partition columns, table properties."""

    id: str
    schema: Mapping[str, Any]
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> "Metadata":
        """From a metaData action as the log writes it; without a schema the table has no column.

        Raises:
            ValueError, TypeError, LookupError, AttributeError: It makes no sense.
        """
        text = action.get("schemaString")
        schema: Any = {"type": "struct", "fields": []} if text is None else json.loads(text)
        if schema["type"] != "struct":
            raise ValueError("the schema is no struct")
        _check_type(schema)
        columns = _names(action, "partitionColumns")
        known = {field["name"] for field in schema["fields"]}
        unknown = [name for name in columns if name not in known]
        if unknown:
            raise ValueError(f"the schema has no partition column {unknown[0]}")
        configuration = dict(action.get("configuration") or {})
        told = {key: value for key, value in configuration.items() if value is not None}
        return cls(action.get("id") or "", schema, columns, told)

    @property
    def is_mapped(self) -> bool:
        """Whether columns have other names in data files (protocol, "Column Mapping")."""
        return self.configuration.get("delta.columnMapping.mode", "none") != "none"

    @property
    def is_mapped_by_id(self) -> bool:
        """Whether readers of data files go by the ids of fields and not by their names."""
        return self.configuration.get("delta.columnMapping.mode") == "id"

    @property
    def physical_names(self) -> dict[str, str]:
        """The name in data files and partition values of each column."""
        return {field["name"]: self.physical_name(field) for field in self.schema["fields"]}

    def physical_name(self, field: Mapping[str, Any]) -> str:
        """The name in data files of a column, or of a field within one."""
        known = (field.get("metadata") or {}) if self.is_mapped else {}
        return str(known.get("delta.columnMapping.physicalName", field["name"]))

    @property
    def column_types(self) -> dict[str, Any]:
        """The Delta type of each top-level column: a name such as "long", or an object if nested."""
        return {field["name"]: field["type"] for field in self.schema["fields"]}


def _names(action: Mapping[str, Any], field: str) -> tuple[str, ...]:
    names = tuple(action.get(field) or ())
    if None in names:
        raise ValueError(f"its {field} have a null")
    return names


def _check_type(data_type: Any) -> None:
    """Refuse what is no type of a schema (protocol, "Schema Serialization Format")."""
    if isinstance(data_type, str):
        return
    kind = data_type["type"]
    if kind == "struct":
        for field in data_type["fields"]:
            if not isinstance(field["name"], str) or not isinstance(field.get("metadata") or {}, dict):
                raise TypeError(f"the schema has a field named {field['name']!r}")
            field["name"].encode()
            _check_type(field["type"])
    elif kind == "map":
        _check_type(data_type["keyType"])
        _check_type(data_type["valueType"])
    elif kind == "array":
        _check_type(data_type["elementType"])
    elif kind != "udt":
        raise ValueError(f"the schema has the type {kind!r}")


def check_readable(protocol: Protocol) -> None:
    """Refuse what Delta's protocol says an unknowing reader must refuse.

    Raises:
        UnsupportedTableError: A reader version or feature that isn't known here.
    """
    if protocol.min_reader_version > 3:
        raise UnsupportedTableError(
            f"The table needs reader version {protocol.min_reader_version} and this package reads up to 3: "
            "use a newer one."
        )
    unknown = sorted(protocol.reader_features - READER_FEATURES)
    catalog_managed = [name for name in unknown if name.startswith(("catalogManaged", "catalogOwned"))]
    if catalog_managed:
        raise UnsupportedTableError(
            f"The table is managed by its catalog ({catalog_managed[0]}), so its log can't be read by path: "
            "use the catalog's own maintenance."
        )
    if unknown:
        raise UnsupportedTableError(
            f"The table needs the reader feature {', '.join(unknown)}, which this package does not know: "
            "use a newer one."
        )
