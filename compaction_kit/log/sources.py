"""The files of a log that hold file actions, read column by column, as often as columns are wanted."""

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.actions import CORE, json_schema, parquet_columns
from compaction_kit.log.names import LOG_FOLDER, LogFile

# What the first reading of a commit takes along; its stats are most of its bytes and come later.
_EAGER = (*CORE, "modification_time", "deletion_timestamp", "data_change", "deletion_vector_cardinality")
# Actions that are read as they are, row by row.
_OTHERS = ("protocol", "metaData", "sidecar")
_IGNORED = ("commitInfo", "txn", "domainMetadata", "cdc", "checkpointMetadata")
_BLOCK_BYTES = 8 << 20


class Source(Protocol):
    """Rows of the log, the same ones in the same order at each reading."""

    def rows(self, names: Iterable[str]) -> pa.Table:
        """The rows, as `actions.file_actions` and `actions.column` take them, with these columns."""

    def other_actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The protocol, metaData and sidecar actions in the rows: name and fields."""

    def is_there(self) -> bool:
        """Whether the rows can still be read."""


class JsonSource:
    """Commits that stand side by side, or a checkpoint in JSON; a row a line.

    The lines are parsed once; what that didn't take along is parsed anew when it is asked for.
    """

    def __init__(self, table: Path, files: Sequence[LogFile], partitions: Iterable[str] = ()):
        """
        Args:
            table: The table's folder.
            files: The commits, oldest first.
            partitions: partition.<physical name> of the columns to take along.
        """
        self._table = table
        self._files = files
        self._names = frozenset((*_EAGER, *partitions))
        texts = self._read()
        schema = json_schema(sorted(self._names))
        for name in _OTHERS + _IGNORED:
            # Only whether the action is there.
            schema = schema.append(pa.field(name, pa.struct([])))
        self._raw = self._parse(texts, schema)
        self._others = list(self._find_others(texts))
        self._raw = self._raw.select(["add", "remove"])

    def rows(self, names: Iterable[str]) -> pa.Table:
        """See `Source`."""
        wanted = frozenset(names)
        if wanted <= self._names:
            return self._raw
        return self._parse(self._read(), json_schema(sorted(wanted)))

    def other_actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """See `Source`."""
        return iter(self._others)

    def is_there(self) -> bool:
        """See `Source`."""
        return all((self._table / LOG_FOLDER / file.name).exists() for file in self._files)

    def versions(self) -> np.ndarray:
        """The version of the commit that each row is from."""
        texts = self._read()
        counts = [text.count(b"\n") + (not text.endswith(b"\n")) for text in texts]
        if sum(counts) != len(self._raw):
            # Blank lines make no row.
            counts = [len(_lines(text)) for text in texts]
        return np.repeat([file.version or 0 for file in self._files], counts)

    def _read(self) -> list[bytes]:
        return [read_log_file(self._table, file) for file in self._files]

    def _parse(self, texts: list[bytes], schema: pa.Schema) -> pa.Table:
        text = b"\n".join(texts)
        try:
            return pj.read_json(
                pa.BufferReader(text),
                read_options=pj.ReadOptions(block_size=len(text) + 1, use_threads=False),
                parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
        except pa.ArrowInvalid as error:
            if len(texts) == 1:
                raise damaged(self._files[0], error) from error
            for file, one in zip(self._files, texts, strict=True):
                JsonSource._parse_alone(file, one, schema)
            raise damaged(self._files[0], error) from error

    @staticmethod
    def _parse_alone(file: LogFile, text: bytes, schema: pa.Schema) -> None:
        options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        try:
            pj.read_json(
                pa.BufferReader(text),
                read_options=pj.ReadOptions(block_size=len(text) + 1),
                parse_options=options,
            )
        except pa.ArrowInvalid as error:
            raise damaged(file, error) from error

    def _find_others(self, texts: list[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
        told = [pc.is_valid(self._raw[name]) for name in ("add", "remove", *_IGNORED)]
        rows = pc.indices_nonzero(pc.invert(functools.reduce(pc.or_, told))).to_pylist()
        lines = [line for text in texts for line in _lines(text)] if rows else []
        for row in rows:
            action = json.loads(lines[row])
            if not isinstance(action, dict):
                culprit = next(f for f in self._files if f.version == self.versions()[row])
                raise damaged(culprit, ValueError("a line is no JSON object"))
            for name in _OTHERS:
                if action.get(name) is not None:
                    yield name, action[name]


class ParquetSource:
    """One Parquet file of a checkpoint; columns that it lacks are left out of the rows."""

    def __init__(self, path: Path):
        self._path = path

    def rows(self, names: Iterable[str]) -> pa.Table:
        """See `Source`."""
        return self._read(parquet_columns(names))

    def is_there(self) -> bool:
        """See `Source`."""
        return self._path.exists()

    def other_actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """See `Source`."""
        raw = self._read(list(_OTHERS))
        for name in raw.column_names:
            for action in raw[name].drop_null().to_pylist():
                if "configuration" in action:
                    action["configuration"] = dict(action["configuration"] or ())
                yield name, action

    def _read(self, columns: list[str]) -> pa.Table:
        try:
            return pq.ParquetFile(self._path).read(columns=columns)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise CorruptLogError(
                f"The checkpoint file {self._path.name} can't be read: {first_line(error)}."
            ) from error


def checkpoint_sources(table: Path, files: Sequence[LogFile]) -> list[Source]:
    """The sources of a checkpoint: its own files and, for a V2 checkpoint, its sidecars."""
    folder = table / LOG_FOLDER
    own: list[Source] = [
        JsonSource(table, [file]) if file.name.endswith(".json") else ParquetSource(folder / file.name)
        for file in files
    ]
    sidecars: list[Source] = []
    for source in own:
        for name, action in source.other_actions():
            if name == "sidecar":
                path = action["path"]
                sidecars.append(
                    ParquetSource(Path(path) if path.startswith("/") else folder / "_sidecars" / path)
                )
    return own + sidecars


def commit_blocks(files: Sequence[LogFile]) -> list[list[LogFile]]:
    """The commits in blocks of some megabytes: one small file at a time would take long."""
    blocks: list[list[LogFile]] = []
    size = _BLOCK_BYTES
    for file in files:
        if size >= _BLOCK_BYTES:
            blocks.append([])
            size = 0
        blocks[-1].append(file)
        size += file.size_bytes
    return blocks


def commit_actions(table: Path, file: LogFile) -> list[dict[str, Any]]:
    """Every action of one commit, as the log writes it: an object with the action's name as its key.

    Raises:
        CorruptLogError: The file is damaged or empty.
    """
    try:
        actions = [json.loads(line) for line in _lines(read_log_file(table, file))]
    except ValueError as error:
        raise damaged(file, error) from error
    if not all(isinstance(action, dict) for action in actions):
        raise damaged(file, ValueError("a line is no JSON object"))
    return actions


def _lines(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line.strip()]


def read_log_file(table: Path, file: LogFile) -> bytes:
    """The bytes of a file of the log in JSON.

    Raises:
        CorruptLogError: It can't be read, or is empty.
    """
    try:
        data = (table / LOG_FOLDER / file.name).read_bytes()
    except OSError as error:
        raise CorruptLogError(f"The log file {file.name} can't be read: {error.strerror}.") from error
    if not data.strip():
        raise CorruptLogError(f"The log file {file.name} is empty: restore it from a backup.")
    return data


def damaged(file: LogFile, error: Exception) -> CorruptLogError:
    """The error for a file of the log that doesn't parse."""
    return CorruptLogError(
        f"The log file {file.name} is damaged ({first_line(error)}): restore it from a backup."
    )


def first_line(error: Exception) -> str:
    """The first line of an error, or its class's name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
