"""Write Delta tables action by action, for logs that no writer produces on demand."""

import base64
import json
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Action = dict[str, Any]

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85 = bytes.maketrans(_RFC1924, _Z85)
_BITMAP_ARRAY, _BITMAP = 1681511377, 12346


def log_name(version: int, suffix: str = "json") -> str:
    return f"{version:020d}.{suffix}"


def commit_path(table: Path, version: int, suffix: str = "json") -> Path:
    return table / "_delta_log" / log_name(version, suffix)


def actions_of(table: Path, version: int, name: str) -> list[Action]:
    """Return a commit's actions of one kind, as they are in the file."""
    lines = commit_path(table, version).read_text().splitlines()
    return [action[name] for action in map(json.loads, lines) if name in action]


def protocol(reader: int = 1, writer: int = 2, features: Sequence[str] = ()) -> Action:
    action: Action = {"minReaderVersion": reader, "minWriterVersion": writer}
    if features:
        action |= {"minReaderVersion": 3, "minWriterVersion": 7}
        action |= {"readerFeatures": list(features), "writerFeatures": list(features)}
    return {"protocol": action}


def metadata(
    columns: Mapping[str, Any] | None = None,
    partition_by: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    of_columns: Mapping[str, Any] | None = None,
) -> Action:
    """A metaData action; `columns` gives each column's Delta type, `of_columns` the metadata of each."""
    return {
        "metaData": {
            "id": "00000000-0000-0000-0000-000000000001",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(struct_of(columns or {"id": "long"}, of_columns)),
            "partitionColumns": list(partition_by),
            "configuration": dict(configuration or {}),
            "createdTime": 1_700_000_000_000,
        }
    }


def struct_of(fields: Mapping[str, Any], of_each: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the type of a struct, or of all columns, with these fields; `of_each` is each one's metadata."""
    more = {"nullable": True, "metadata": of_each or {}}
    return {"type": "struct", "fields": [{"name": name, "type": fields[name]} | more for name in fields]}


def add(
    path: str,
    size: int = 1_000,
    partition: Mapping[str, str | None] | None = None,
    records: int | None = 10,
    vector: Action | None = None,
    bounds: tuple[Action, Action] | None = None,
    nulls: int | None = None,
) -> Action:
    """An add action; `bounds` are each column's minimum and maximum, `nulls` its number of nulls."""
    action: Action = {
        "path": path,
        "partitionValues": dict(partition or {}),
        "size": size,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
    }
    if records is not None:
        named = dict(zip(("minValues", "maxValues"), bounds or (), strict=False))
        if bounds is not None and nulls is not None:
            named["nullCount"] = dict.fromkeys(bounds[0], nulls)
        action["stats"] = json.dumps({"numRecords": records} | named)
    if vector is not None:
        action["deletionVector"] = vector
    return {"add": action}


def clustered_by(*columns: str) -> list[Action]:
    """The actions that make a table without partitions clustered, by columns without a mapping."""
    features = ["appendOnly", "clustering", "domainMetadata", "invariants"]
    versions = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    configuration = {"clusteringColumns": [[name] for name in columns], "domainName": "delta.clustering"}
    domain = {"domain": "delta.clustering", "configuration": json.dumps(configuration), "removed": False}
    return [{"protocol": versions}, {"domainMetadata": domain}]


def remove(path: str, deleted: int | None = 1_700_000_000_000, vector: Action | None = None) -> Action:
    action: Action = {"path": path, "dataChange": True}
    if deleted is not None:
        action["deletionTimestamp"] = deleted
    if vector is not None:
        action["deletionVector"] = vector
    return {"remove": action}


def unchanged(action: Action) -> Action:
    """Return the same file action with dataChange=false."""
    return {name: fields | {"dataChange": False} for name, fields in action.items()}


def vector(name: str, cardinality: int = 1, storage: str = "i") -> Action:
    """A descriptor of a deletion vector, without the vector itself."""
    return {"storageType": storage, "pathOrInlineDv": name, "sizeInBytes": 40, "cardinality": cardinality}


def inline_vector(rows: Sequence[int]) -> Action:
    """Return an inline deletion vector that deletes these rows: at most 4,096 rows, below 65,536."""
    bitmap = struct.pack(f"<IIHHI{len(rows)}H", _BITMAP, 1, 0, len(rows) - 1, 16, *rows)
    return inline_bitmap(struct.pack("<qi", 1, 0) + bitmap, len(rows))


def inline_bitmap(bitmap: bytes, cardinality: int) -> Action:
    """Return an inline deletion vector with a portable 64-bit Roaring bitmap."""
    data = struct.pack("<i", _BITMAP_ARRAY) + bitmap
    name = _z85(data + bytes(-len(data) % 4))
    return vector(name, cardinality) | {"sizeInBytes": len(data)}


def stored_vectors(
    table: Path, bitmaps: Sequence[tuple[bytes, int]], prefix: str = "", kind: str = "u"
) -> list[Action]:
    """Write a new file of deletion vectors: portable 64-bit Roaring bitmaps, with their cardinalities."""
    number, found, content = uuid.uuid4(), [], b"\1"
    file = table / prefix / f"deletion_vector_{number}.bin"
    name = f"{prefix}{_z85(number.bytes)}" if kind == "u" else file.as_uri()
    for bitmap, cardinality in bitmaps:
        data = struct.pack("<i", _BITMAP_ARRAY) + bitmap
        place = {"offset": len(content), "sizeInBytes": len(data)}
        found.append(vector(name, cardinality, kind) | place)
        content += len(data).to_bytes(4) + data + zlib.crc32(data).to_bytes(4)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    return found


def _z85(data: bytes) -> str:
    return base64.b85encode(data).translate(_TO_Z85).decode()


def write_commit(table: Path, version: int, actions: Sequence[Action]) -> Path:
    return write_actions(commit_path(table, version), actions)


def write_actions(file: Path, actions: Sequence[Action]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return file


def remove_commits(table: Path, *versions: int) -> None:
    """Delete commits, and Delta's and Hadoop's checksums of them."""
    for version in versions:
        commit_path(table, version).unlink()
        name, crc = log_name(version), log_name(version, "crc")
        for other in (crc, f".{name}.crc", f".{crc}.crc"):
            (table / "_delta_log" / other).unlink(missing_ok=True)


def write_log(table: Path, *commits: Sequence[Action]) -> Path:
    """Write commits 0, 1, …; the first gets a protocol and a metaData action if it lacks them."""
    for version, actions in enumerate(commits):
        named = {name for action in actions for name in action}
        missing = [protocol()] if "protocol" not in named else []
        missing += [metadata()] if "metaData" not in named else []
        write_commit(table, version, [*(missing if version == 0 else []), *actions])
    return table


def write_data(
    table: Path, path: str, rows: pa.Table, partition: Mapping[str, str | None] | None = None, **options: Any
) -> Action:
    """Write a data file without the partition columns, and return the add action for it."""
    file = table / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file, **options)
    return add(path, file.stat().st_size, partition, len(rows))


def write_sink_log(output: Path, num_batches: int) -> None:
    """Write the log of a sink that wrote one file per batch, without a compaction."""
    log = output / "_spark_metadata"
    log.mkdir(parents=True)
    for batch in range(num_batches):
        entry = {"path": f"file://{output}/{batch}.parquet", "size": 100, "isDir": False}
        entry |= {"modificationTime": 0, "blockReplication": 1, "blockSize": 1, "action": "add"}
        (log / str(batch)).write_text(f"v1\n{json.dumps(entry)}")
