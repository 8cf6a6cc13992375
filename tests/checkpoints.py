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

_INT, _TEXT, _BOOL, _NAMES = pa.int64(), pa.string(), pa.bool_(), pa.list_(pa.string())
_TAGS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct({
    "storageType": _TEXT, "pathOrInlineDv": _TEXT, "offset": pa.int32(), "sizeInBytes": pa.int32(),
    "cardinality": _INT,
})  # fmt: skip
_BOUNDS = pa.struct({"id": _INT})
_PARSED = pa.struct({"numRecords": _INT, "minValues": _BOUNDS, "maxValues": _BOUNDS})
_ADD: dict[str, pa.DataType] = {
    "path": _TEXT, "partitionValues": _TAGS, "size": _INT, "modificationTime": _INT, "dataChange": _BOOL,
    "tags": _TAGS, "deletionVector": _VECTOR,
}  # fmt: skip
_OTHERS = {
    "remove": pa.struct({
        "path": _TEXT, "deletionTimestamp": _INT, "dataChange": _BOOL, "partitionValues": _TAGS, "size": _INT,
        "deletionVector": _VECTOR,
    }),
    "metaData": pa.struct({
        "id": _TEXT, "format": pa.struct({"provider": _TEXT, "options": _TAGS}), "schemaString": _TEXT,
        "partitionColumns": _NAMES, "configuration": _TAGS, "createdTime": _INT,
    }),
    "protocol": pa.struct({
        "minReaderVersion": pa.int32(), "minWriterVersion": pa.int32(), "readerFeatures": _NAMES,
        "writerFeatures": _NAMES,
    }),
    "checkpointMetadata": pa.struct({"version": _INT, "tags": _TAGS}),
    "sidecar": pa.struct({"path": _TEXT, "sizeInBytes": _INT, "modificationTime": _INT, "tags": _TAGS}),
}  # fmt: skip


def key(file: Action) -> Key:
    """Return the key of a file: its path, and its deletion vector's unique id."""
    # DeltaLog.CanonicalPathFunction, for paths without dots and double slashes.
    path = f"file://{file['path']}" if file["path"].startswith("/") else file["path"]
    vector = file.get("deletionVector")
    if vector is None:
        return path, None
    offset = f"@{vector['offset']}" if vector.get("offset") is not None else ""
    return path, vector["storageType"] + vector["pathOrInlineDv"] + offset


@dataclass
class State:
    """The state of a log at a version: of several actions on the same thing, the newest counts."""

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
    """Return the state after the last of these commits."""
    state = State()
    for commit in commits:
        state.apply(commit)
    return state


def write_classic(
    table: Path, version: int, state: State, stats: Stats = "text", parts: int | None = None
) -> list[Path]:
    """Write a checkpoint in one file, or in several parts."""
    actions = state.other_actions + state.file_actions
    names = [f".{part + 1:010d}.{parts:010d}" for part in range(parts or 0)] or [""]
    return [
        _write(handmade.commit_path(table, version, f"checkpoint{name}.parquet"), actions[part::parts], stats)
        for part, name in enumerate(names)
    ]


def write_v2(
    table: Path,
    version: int,
    state: State,
    stats: Stats = "text",
    suffix: str = "uuid.json",
    sidecars: int = 0,
) -> list[Path]:
    """Write a V2 checkpoint; without sidecars the file actions are in its own file.

    Its name ends in uuid.json, in uuid.parquet or, like the name of a classic checkpoint, in parquet.
    """
    actions: list[Action] = [{"checkpointMetadata": {"version": version}}, *state.other_actions]
    files = [
        _write(table / "_delta_log" / "_sidecars" / f"{uuid.uuid4()}.parquet", rows, stats)
        for rows in (state.file_actions[part::sidecars] for part in range(sidecars))
    ]
    for path in files:
        status = path.stat()
        sidecar = {"path": path.name, "sizeInBytes": status.st_size, "tags": {}}
        actions.append({"sidecar": sidecar | {"modificationTime": status.st_mtime_ns // 1_000_000}})
    actions += [] if sidecars else state.file_actions
    suffix = suffix.replace("uuid", str(uuid.uuid4()))
    file = handmade.commit_path(table, version, f"checkpoint.{suffix}")
    if file.suffix == ".json":
        return [handmade.write_actions(file, actions), *files]
    return [_write(file, actions, stats), *files]


def write_compacted(table: Path, first: int, last: int, commits: Sequence[Sequence[Action]]) -> Path:
    """Write the compacted log of the given commits, which have the versions `first` to `last`."""
    state, file = replay(commits), handmade.commit_path(table, first, f"{last:020d}.compacted.json")
    return handmade.write_actions(file, state.other_actions + state.file_actions)


def _write(file: Path, actions: Sequence[Action], stats: Stats) -> Path:
    texts = {"stats": pa.string()} if stats != "parsed" else {}
    parsed = {"stats_parsed": _PARSED} if stats != "text" else {}
    schema = pa.schema({"add": pa.struct(_ADD | texts | parsed)} | _OTHERS)
    rows = [{name: _row(name, fields) for name, fields in action.items()} for action in actions]
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    return file


def _row(name: str, fields: Action) -> Action:
    """Convert an action for pyarrow: maps to lists of pairs, and parsed stats beside the text."""
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
