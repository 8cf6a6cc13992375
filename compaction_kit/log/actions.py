"""Actions as Arrow: what commits and checkpoints hold, read column by column.

The file actions of a log become one table, a row an add or remove action:

    version int64, is_add bool, path string (as the log writes it), size_bytes int64,
    modification_time int64 (adds; ms since 1970), deletion_timestamp int64 (removes),
    data_change bool, deletion_vector_id string, deletion_vector_cardinality int64,
    partition.<column> string (as the log writes it; "" and null both mean null, and Delta still
    groups them apart), source and row int64 (where the action stands, to read its stats later).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.names import LOG_FOLDER, LogFile
from compaction_kit.log.segment import Segment

_FILE_ACTIONS = (b'{"add":', b'{"remove":')
_VECTOR = {
    "storageType": pa.string(),
    "pathOrInlineDv": pa.string(),
    "offset": pa.int64(),
    "cardinality": pa.int64(),
}
_ADD = {"path": pa.string(), "size": pa.int64(), "modificationTime": pa.int64(), "dataChange": pa.bool_()}
_REMOVE = {"path": pa.string(), "size": pa.int64(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}


@dataclass(frozen=True)
class CommitText:
    """The lines of one commit file."""

    file: LogFile
    lines: tuple[bytes, ...]

    @property
    def version(self) -> int:
        """The version that the commit made."""
        assert self.file.version is not None
        return self.file.version

    def other_actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each action that is no add or remove: its name ("protocol", "commitInfo", …) and its fields."""
        for line in self.lines:
            if not line.startswith(_FILE_ACTIONS):
                for name, fields in _parse_line(line, self.file).items():
                    if name not in ("add", "remove"):
                        yield name, fields


def read_commit(table: Path, file: LogFile) -> CommitText:
    """Read one commit file.

    Raises:
        CorruptLogError: It can't be read, or holds nothing.
    """
    try:
        data = (table / LOG_FOLDER / file.name).read_bytes()
    except OSError as error:
        raise CorruptLogError(f"The log file {file.name} can't be read: {error.strerror}.") from error
    lines = tuple(stripped for line in data.split(b"\n") if (stripped := line.strip()))
    if not lines:
        raise CorruptLogError(f"The log file {file.name} is empty: restore it from a backup.")
    return CommitText(file, lines)


def parse_commit(commit: CommitText) -> list[dict[str, Any]]:
    """Every action of a commit, as the log writes them."""
    return [_parse_line(line, commit.file) for line in commit.lines]


def _parse_line(line: bytes, file: LogFile) -> dict[str, Any]:
    try:
        action = json.loads(line)
    except ValueError as error:
        raise _damaged(file, error) from error
    if not isinstance(action, dict):
        raise _damaged(file, ValueError("a line is no JSON object"))
    return action


def commit_file_actions(commits: Sequence[CommitText], partitions: Mapping[str, str]) -> pa.Table:
    """The adds and removes of commits, as the module describes them.

    Args:
        commits: The commits, oldest first.
        partitions: Physical name in `partitionValues` of each partition column, by its name.
    """
    if not commits:
        return empty_file_actions(partitions)
    raw = _parse_json(commits, partitions)
    versions = np.repeat([c.version for c in commits], [len(c.lines) for c in commits])
    return _file_actions(raw, pa.array(versions, pa.int64()), partitions, source=0)


def _parse_json(commits: Sequence[CommitText], partitions: Mapping[str, str]) -> pa.Table:
    nested: dict[str, pa.DataType] = {"deletionVector": pa.struct(list(_VECTOR.items()))}
    if partitions:
        nested["partitionValues"] = pa.struct([(name, pa.string()) for name in partitions.values()])
    schema = pa.schema(
        [
            ("add", pa.struct(list((_ADD | nested).items()))),
            ("remove", pa.struct(list((_REMOVE | nested).items()))),
        ]
    )
    text = b"\n".join(line for commit in commits for line in commit.lines)
    longest = max(len(line) for commit in commits for line in commit.lines)
    try:
        return pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(block_size=max(1 << 22, 2 * longest)),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        if len(commits) == 1:
            raise _damaged(commits[0].file, error) from error
        for commit in commits:
            _parse_json([commit], partitions)
        raise


def read_checkpoint(table: Path, files: Sequence[LogFile], partitions: Mapping[str, str]) -> pa.Table:
    """The adds and removes of a checkpoint (all its parts and sidecars), as the module describes them."""
    tables = []
    for source, path in enumerate(checkpoint_paths(table, files), start=1):
        raw = _read_columns(path, ["add", "remove"])
        versions = pa.repeat(pa.scalar(files[0].version, pa.int64()), len(raw))
        tables.append(_file_actions(raw, versions, partitions, source))
    return pa.concat_tables(tables)


def read_checkpoint_other(
    table: Path, files: Sequence[LogFile]
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The protocol and metaData actions of a checkpoint; None where it has none."""
    found: dict[str, Mapping[str, Any]] = {}
    for file in files:
        raw = _read_columns(table / LOG_FOLDER / file.name, ["protocol", "metaData"])
        for name in raw.column_names:
            for action in raw[name].drop_null().to_pylist():
                action["configuration"] = dict(action.get("configuration") or ())
                found[name] = action
    return found.get("protocol"), found.get("metaData")


def checkpoint_paths(table: Path, files: Sequence[LogFile]) -> list[Path]:
    """The Parquet (or JSON) files that hold a checkpoint's file actions: its own and its sidecars."""
    folder = table / LOG_FOLDER
    paths = [folder / file.name for file in files]
    for path in list(paths):
        raw = _read_columns(path, ["sidecar"])
        for sidecar in raw["sidecar"].drop_null().to_pylist() if "sidecar" in raw.column_names else ():
            name = sidecar["path"]
            paths.append(Path(name) if name.startswith("/") else folder / "_sidecars" / name)
    return paths


def read_stats(table: Path, segment: Segment, sources: set[int]) -> dict[int, pa.Array]:
    """The stats of every row of the sources named, as JSON text.

    Args:
        table: The table's folder.
        segment: What the sources were read from.
        sources: Numbers from the column "source": 0 is the commits, 1 and on the checkpoint's files.

    Returns:
        For each source, one text or null a row. Null as well where a checkpoint keeps only
        `stats_parsed` without its count of records.
    """
    found: dict[int, pa.Array] = {}
    if 0 in sources:
        lines = [parse_commit(read_commit(table, file)) for file in segment.commits]
        texts = [(action.get("add") or {}).get("stats") for actions in lines for action in actions]
        found[0] = pa.array(texts, pa.string())
    if sources - {0}:
        for source, path in enumerate(checkpoint_paths(table, segment.checkpoint), start=1):
            if source in sources:
                found[source] = _checkpoint_stats(path)
    return found


def _checkpoint_stats(path: Path) -> pa.Array:
    raw = _read_columns(path, ["add.stats", "add.stats_parsed.numRecords"])
    if "add" not in raw.column_names:
        return pa.nulls(len(raw), pa.string())
    add = raw["add"].combine_chunks()
    stats = _field(add, "stats", pa.string())
    counts = _field(add, "stats_parsed.numRecords", pa.int64())
    parsed = pc.binary_join_element_wise('{"numRecords":', counts.cast(pa.string()), "}", "")
    return pc.coalesce(stats, parsed)


def _read_columns(path: Path, columns: list[str]) -> pa.Table:
    """The columns that exist among those named; nested ones by a dotted path."""
    try:
        if path.suffix == ".json":
            rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
            names = sorted({name.split(".")[0] for name in columns})
            return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
        return pq.ParquetFile(path).read(columns=columns)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise CorruptLogError(
            f"The checkpoint file {path.name} can't be read: {_first_line(error)}."
        ) from error


def empty_file_actions(partitions: Mapping[str, str]) -> pa.Table:
    """No actions, with the columns of some."""
    nothing = pa.table({"add": pa.nulls(0), "remove": pa.nulls(0)})
    return _file_actions(nothing, pa.array([], pa.int64()), partitions, source=0)


def _file_actions(raw: pa.Table, versions: pa.Array, partitions: Mapping[str, str], source: int) -> pa.Table:
    """Lay the add and remove structs of some rows out as the module describes."""
    return pa.concat_tables(_one_kind(raw, name, versions, partitions, source) for name in ("add", "remove"))


def _one_kind(
    raw: pa.Table, name: str, versions: pa.Array, partitions: Mapping[str, str], source: int
) -> pa.Table:
    column = raw[name].combine_chunks() if name in raw.column_names else pa.nulls(len(raw))
    rows = pc.indices_nonzero(column.is_valid())
    actions = column.take(rows)
    if len(rows) and _field(actions, "path", pa.string()).null_count:
        raise CorruptLogError(f"The log holds a {name} action without a path: restore it from a backup.")
    columns = {
        "version": versions.take(rows),
        "is_add": pa.repeat(name == "add", len(rows)),
        "path": _field(actions, "path", pa.string()),
        "size_bytes": _field(actions, "size", pa.int64()),
        "modification_time": _field(actions, "modificationTime", pa.int64()),
        "deletion_timestamp": _field(actions, "deletionTimestamp", pa.int64()),
        "data_change": _field(actions, "dataChange", pa.bool_()),
        "deletion_vector_id": _vector_id(actions),
        "deletion_vector_cardinality": _field(actions, "deletionVector.cardinality", pa.int64()),
        "source": pa.repeat(pa.scalar(source, pa.int64()), len(rows)),
        "row": rows.cast(pa.int64()),
    }
    for logical, physical in partitions.items():
        columns[f"partition.{logical}"] = _partition_values(actions, physical)
    return pa.table(columns)


def _vector_id(actions: pa.Array) -> pa.Array:
    """The unique id of each deletion vector (protocol, "Derived Fields"), null without one."""
    storage = _field(actions, "deletionVector.storageType", pa.string())
    if storage.null_count == len(storage):
        return storage
    body = pc.binary_join_element_wise(
        storage, _field(actions, "deletionVector.pathOrInlineDv", pa.string()), ""
    )
    offset = _field(actions, "deletionVector.offset", pa.int64()).cast(pa.string())
    with_offset = pc.binary_join_element_wise(body, offset, "@")
    return pc.coalesce(with_offset, body)


def _partition_values(actions: pa.Array, physical: str) -> pa.Array:
    values = _field(actions, "partitionValues", None)
    if pa.types.is_map(values.type):
        return pc.map_lookup(values, pa.scalar(physical, values.type.key_type), "first").cast(pa.string())
    if pa.types.is_struct(values.type) and values.type.get_field_index(physical) >= 0:
        return pc.struct_field(values, [values.type.get_field_index(physical)]).cast(pa.string())
    return pa.nulls(len(actions), pa.string())


def _field(array: pa.Array, path: str, kind: pa.DataType | None) -> pa.Array:
    """A nested field by its dotted path, cast to a type; nulls where it isn't there."""
    for name in path.split("."):
        index = array.type.get_field_index(name) if pa.types.is_struct(array.type) else -1
        if index < 0:
            return pa.nulls(len(array), kind or pa.null())
        array = pc.struct_field(array, [index])
    return array if kind is None else array.cast(kind)


def _damaged(file: LogFile, error: Exception) -> CorruptLogError:
    return CorruptLogError(
        f"The log file {file.name} is damaged ({_first_line(error)}): restore it from a backup."
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
