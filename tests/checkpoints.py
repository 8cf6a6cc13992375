"""Checkpoints and compacted logs of handmade tables, from a replay in plain Python."""

import contextlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tests import handmade
from tests.handmade import Action

Key = tuple[str, str | None]
Stats = Literal["text", "parsed", "both"]

_TAGS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_BOUNDS = pa.struct({"id": pa.int64()})
_PARSED = pa.struct({"numRecords": pa.int64(), "minValues": _BOUNDS, "maxValues": _BOUNDS})
_ADD: dict[str, pa.DataType] = {
    "path": pa.string(),
    "partitionValues": _TAGS,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "tags": _TAGS,
    "deletionVector": _VECTOR,
}
_REMOVE = pa.struct(
    {
        "path": pa.string(),
        "deletionTimestamp": pa.int64(),
        "dataChange": pa.bool_(),
        "partitionValues": _TAGS,
        "size": pa.int64(),
        "deletionVector": _VECTOR,
    }
)
_METADATA = pa.struct(
    {
        "id": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _TAGS}),
        "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "configuration": _TAGS,
        "createdTime": pa.int64(),
    }
)
_PROTOCOL = pa.struct(
    {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": pa.list_(pa.string()),
        "writerFeatures": pa.list_(pa.string()),
    }
)
_SIDECAR = pa.struct(
    {"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64(), "tags": _TAGS}
)


def key(file: Action) -> Key:
    """What names a file: its path, and its deletion vector's unique id."""
    # DeltaLog.CanonicalPathFunction, for paths without dots and double slashes.
    path = f"file://{file['path']}" if file["path"].startswith("/") else file["path"]
    vector = file.get("deletionVector")
    if vector is None:
        return path, None
    offset = f"@{vector['offset']}" if vector.get("offset") is not None else ""
    return path, vector["storageType"] + vector["pathOrInlineDv"] + offset


@dataclass
class State:
    """What a log says up to a version; of several actions on the same thing the newest."""

    live: dict[Key, Action] = field(default_factory=dict)
    dead: dict[Key, Action] = field(default_factory=dict)
    others: dict[str, Action] = field(default_factory=dict)

    def apply(self, commit: Sequence[Action]) -> None:
        for action in commit:
            ((name, fields),) = action.items()
            if name == "add":
                self.dead.pop(key(fields), None)
                self.live[key(fields)] = fields
            elif name == "remove":
                self.live.pop(key(fields), None)
                self.dead[key(fields)] = fields
            elif name in ("protocol", "metaData"):
                self.others[name] = fields

    @property
    def file_actions(self) -> list[Action]:
        adds: list[Action] = [{"add": fields | {"dataChange": False}} for fields in self.live.values()]
        return adds + [{"remove": fields | {"dataChange": False}} for fields in self.dead.values()]

    @property
    def other_actions(self) -> list[Action]:
        return [{name: fields} for name, fields in self.others.items()]


def replay(commits: Sequence[Sequence[Action]]) -> State:
    """The state after the last of these commits."""
    state = State()
    for commit in commits:
        state.apply(commit)
    return state


def write_classic(
    table: Path, version: int, state: State, stats: Stats = "text", parts: int | None = None
) -> list[Path]:
    """A checkpoint in one file, or in some parts."""
    actions = state.other_actions + state.file_actions
    if parts is None:
        return [_write(handmade.commit_path(table, version, "checkpoint.parquet"), actions, stats)]
    return [
        _write(
            handmade.commit_path(table, version, f"checkpoint.{part + 1:010d}.{parts:010d}.parquet"),
            actions[part::parts],
            stats,
        )
        for part in range(parts)
    ]


def write_v2(
    table: Path,
    version: int,
    state: State,
    stats: Stats = "text",
    suffix: str = "uuid.json",
    sidecars: int = 0,
) -> list[Path]:
    """A V2 checkpoint; without sidecars the file actions are in its own file.

    Its name ends in uuid.json, uuid.parquet or, as a classic one's does, parquet.
    """
    actions: list[Action] = [{"checkpointMetadata": {"version": version}}, *state.other_actions]
    files = [
        _write(table / "_delta_log" / "_sidecars" / f"{uuid.uuid4()}.parquet", rows, stats)
        for rows in (state.file_actions[part::sidecars] for part in range(sidecars))
    ]
    actions += [{"sidecar": _sidecar(file)} for file in files] if sidecars else state.file_actions
    suffix = suffix.replace("uuid", str(uuid.uuid4()))
    file = handmade.commit_path(table, version, f"checkpoint.{suffix}")
    if file.suffix == ".json":
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
        return [file, *files]
    return [_write(file, actions, stats), *files]


def write_compacted(table: Path, first: int, last: int, commits: Sequence[Sequence[Action]]) -> Path:
    """The compacted log of the commits from first to last, which are given."""
    state = replay(commits)
    file = handmade.commit_path(table, first, f"{last:020d}.compacted.json")
    actions = state.other_actions + state.file_actions
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return file


def _sidecar(file: Path) -> Action:
    status = file.stat()
    return {
        "path": file.name,
        "sizeInBytes": status.st_size,
        "modificationTime": status.st_mtime_ns // 1_000_000,
        "tags": {},
    }


def _write(file: Path, actions: Sequence[Action], stats: Stats) -> Path:
    add = dict(_ADD)
    if stats != "parsed":
        add["stats"] = pa.string()
    if stats != "text":
        add["stats_parsed"] = _PARSED
    schema = pa.schema(
        {
            "add": pa.struct(add),
            "remove": _REMOVE,
            "metaData": _METADATA,
            "protocol": _PROTOCOL,
            "checkpointMetadata": pa.struct({"version": pa.int64(), "tags": _TAGS}),
            "sidecar": _SIDECAR,
        }
    )
    rows = [{name: _row(name, fields) for name, fields in action.items()} for action in actions]
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    return file


def _row(name: str, fields: Action) -> Action:
    """An action as pyarrow takes it: maps as lists of pairs, and parsed stats beside the text."""
    row: dict[str, Any] = dict(fields)
    for column in ("partitionValues", "configuration", "tags"):
        if row.get(column) is not None:
            row[column] = list(row[column].items())
    if name == "metaData":
        row["format"] = {"provider": "parquet", "options": []}
    if name == "add" and row.get("stats"):
        with contextlib.suppress(ValueError, RecursionError):
            row["stats_parsed"] = json.loads(row["stats"])
    return row
