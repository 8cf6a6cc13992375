"""The protocol and metaData actions, and the check that this package can read such a table."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compaction_kit.errors import UnsupportedTableError

# Reader features (protocol, "Valid Feature Names in Table Features") that are implemented here, or that
# don't change which files are live.
READER_FEATURES = frozenset(
    ["columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"]
    + [name + end for name in ("typeWidening", "variantType", "variantShredding") for end in ("", "-preview")]
)
# With features of these prefixes, the newest commits may be in `_delta_log/_staged_commits` or `_commits`.
_MANAGED = ("catalogManaged", "catalogOwned", "coordinatedCommits")
# The properties that name the columns for row ids and row commit versions (protocol, "Row Tracking").
ROW_COLUMNS = [f"delta.rowTracking.materializedRow{name}ColumnName" for name in ("Id", "CommitVersion")]
# Fields of a schema that no row depends on.
HIGH_WATER_MARK = "delta.identity.highWaterMark"
UNREAD = (
    *("comment", "CURRENT_DEFAULT", HIGH_WATER_MARK),
    *("nullable", "containsNull", "valueContainsNull"),
)
DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


@dataclass(frozen=True)
class Protocol:
    """The protocol action: the versions and features that readers and writers must support."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str]
    writer_features: frozenset[str]

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> "Protocol":
        """Parse a protocol action as the log writes it."""
        features = (frozenset(_names(action, field)) for field in ("readerFeatures", "writerFeatures"))
        return cls(action["minReaderVersion"], action["minWriterVersion"], *features)


@dataclass(frozen=True)
class Metadata:
    """The metaData action: schema, partition columns, table properties."""

    id: str
    schema: Mapping[str, Any]
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> "Metadata":
        """Parse a metaData action as the log writes it; raise an error of `DAMAGE` if it is damaged."""
        text = action.get("schemaString")
        schema: Any = {"type": "struct", "fields": []} if text is None else json.loads(text)
        if schema["type"] != "struct":
            raise ValueError("the schema is not a struct")
        for field in _fields(schema):
            if not isinstance(field["name"], str) or not isinstance(field.get("metadata") or {}, dict):
                raise TypeError(f"the schema has a field named {field['name']!r}")
            field["name"].encode()
        columns = _names(action, "partitionColumns")
        known = {field["name"] for field in schema["fields"]}
        if unknown := [name for name in columns if name not in known]:
            raise ValueError(f"the schema has no partition column {unknown[0]}")
        configuration = dict(action.get("configuration") or {})
        properties = {key: value for key, value in configuration.items() if value is not None}
        return cls(action.get("id") or "", schema, columns, properties)

    @property
    def is_mapped(self) -> bool:
        """Whether columns have other names in data files (protocol, "Column Mapping")."""
        return self.configuration.get("delta.columnMapping.mode", "none").lower() != "none"

    @property
    def is_mapped_by_id(self) -> bool:
        """Whether data files' columns are found by field ids, not by names."""
        return self.configuration.get("delta.columnMapping.mode", "").lower() == "id"

    @property
    def tracks_rows(self) -> bool:
        """Whether row tracking is on (protocol, "Row Tracking")."""
        return self.configuration.get("delta.enableRowTracking", "").lower() == "true"

    @property
    def physical_names(self) -> dict[str, str]:
        """The name of each column in data files and partition values."""
        return {field["name"]: self.physical_name(field) for field in self.schema["fields"]}

    def physical_name(self, field: Mapping[str, Any]) -> str:
        """Return the name that a column, or a field in a column, has in data files."""
        known = (field.get("metadata") or {}) if self.is_mapped else {}
        return str(known.get("delta.columnMapping.physicalName", field["name"]))

    @property
    def may_have_dropped_columns(self) -> bool:
        """Whether columns may have been dropped from the schema, and may still be in data files."""
        ids = {(field.get("metadata") or {}).get("delta.columnMapping.id") for field in _fields(self.schema)}
        most = self.configuration.get("delta.columnMapping.maxColumnId", "0")
        return self.is_mapped and (not most.isdecimal() or int(most) > len(ids - {None}))

    @property
    def column_types(self) -> dict[str, Any]:
        """The Delta type of each top-level column: a name such as "long", or an object if nested."""
        return {field["name"]: field["type"] for field in self.schema["fields"]}


def columns_of(schema: Any, dropped: Sequence[str] = UNREAD) -> Any:
    """Return a schema without some fields: by default those that no row depends on, such as comments."""

    def drop(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name not in dropped}

    return json.loads(json.dumps(schema), object_hook=drop)


def _names(action: Mapping[str, Any], field: str) -> tuple[str, ...]:
    names = tuple(action.get(field) or ())
    if None in names:
        raise ValueError(f"its {field} have a null")
    return names


def _fields(kind: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every field in a type, at any depth (protocol, "Schema Serialization Format")."""
    if isinstance(kind, str) or kind["type"] == "udt":
        return
    inner = {"array": ["elementType"], "map": ["keyType", "valueType"], "struct": []}.get(kind["type"])
    if inner is None:
        raise ValueError(f"the schema has the type {kind['type']!r}")
    for name in inner:
        yield from _fields(kind[name])
    for field in kind["fields"] if kind["type"] == "struct" else ():
        yield field
        yield from _fields(field["type"])


def check_readable(protocol: Protocol) -> None:
    """Raise UnsupportedTableError if a table needs a reader version or feature that is unknown here."""
    unknown = ", ".join(sorted(protocol.reader_features - READER_FEATURES))
    if protocol.min_reader_version > 3:
        raise UnsupportedTableError(
            f"The table needs reader version {protocol.min_reader_version} and this package reads up to 3: "
            "use a newer one."
        )
    check_not_managed(protocol.reader_features | protocol.writer_features)
    if unknown:
        raise UnsupportedTableError(
            f"The table needs the reader feature {unknown}, which this package does not know: "
            "use a newer one."
        )


def check_not_managed(features: Iterable[str]) -> None:
    """Raise UnsupportedTableError for a catalog-managed table, or one with a commit coordinator.

    Its log may lack the newest versions, which only the catalog or coordinator knows (protocol,
    "Catalog-managed tables"). Delta refuses such a table by its path, and OPTIMIZE by its name.
    """
    managed = sorted(name for name in features if name.startswith(_MANAGED))
    if managed:
        raise UnsupportedTableError(
            f"The table's commits are managed by its catalog or a coordinator ({managed[0]}), so its log "
            "can't be read by path: use the maintenance that the catalog offers."
        )
