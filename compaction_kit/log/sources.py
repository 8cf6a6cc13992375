"""The files of a log that hold file actions, read column by column, as often as columns are wanted."""

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.actions import CORE, column, json_schema, parquet_columns
from compaction_kit.log.checksums import open_checked, read_checked
from compaction_kit.log.names import LOG_FOLDER, LogFile
from compaction_kit.log.stats import count_records

# What the first reading of a commit takes along. Its stats are most of its bytes: they are
# counted there and then, and read once more if somebody asks for them.
_EAGER = (*CORE, "modification_time", "deletion_timestamp", "data_change", "deletion_vector_cardinality")
# Actions that are read as they are, row by row.
_OTHERS = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
_COMMIT_INFO = b'{"commitInfo":'
_BLOCK_BYTES = 8 << 20
_BATCH_ROWS = 1 << 16


class Source(Protocol):
    """Rows of the log, the same ones in the same order at each reading."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that the rows are in."""

    def rows(self, names: Iterable[str]) -> pa.Table:
        """The rows, as `actions.file_actions` and `actions.column` take them, with these columns."""

    def num_records(self) -> pa.Array:
        """The records in each row's file if it is an add whose stats say so, int64, else null."""

    def stats(self) -> pa.Array:
        """The stats of each row's file as JSON text if it is an add that has any, else null."""

    def other_actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The actions in the rows that are about no file, and sidecars: name and fields."""

    def actions(self) -> Iterator[dict[str, Any]]:
        """Every action of the rows, whole: an object with the action's name as its key."""

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
        text, ends = self._read()
        raw = self._parse(text, [*self._names, "stats"])
        self._num_records = count_records(column(raw, "add", "stats"))
        self._raw = _without_stats(raw)
        starts = [0, *ends[:-1]]
        self._num_lines = [text.count(b"\n", *bounds) for bounds in zip(starts, ends, strict=True)]
        if sum(self._num_lines) != len(raw):
            # Blank lines make no row.
            parts = (text[start:end] for start, end in zip(starts, ends, strict=True))
            self._num_lines = [len(_lines(part)) for part in parts]
        self._others = list(self._find_others(text))

    @property
    def size_bytes(self) -> int:
        """See `Source`."""
        return sum(file.size_bytes for file in self._files)

    def rows(self, names: Iterable[str]) -> pa.Table:
        """See `Source`."""
        wanted = frozenset(names)
        if wanted <= self._names:
            return self._raw
        return self._parse(self._read()[0], wanted)

    def num_records(self) -> pa.Array:
        """See `Source`."""
        return self._num_records

    def stats(self) -> pa.Array:
        """See `Source`."""
        return column(self.rows(["stats"]), "add", "stats")

    def other_actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """See `Source`."""
        return iter(self._others)

    def actions(self) -> Iterator[dict[str, Any]]:
        """See `Source`."""
        for file in self._files:
            yield from commit_actions(self._table, file)

    def is_there(self) -> bool:
        """See `Source`."""
        return all((self._table / LOG_FOLDER / file.name).exists() for file in self._files)

    def versions(self) -> np.ndarray:
        """The version of the commit that each row is from."""
        return np.repeat([file.version or 0 for file in self._files], self._num_lines)

    def _read(self) -> tuple[bytearray, list[int]]:
        """The text of all files, each with a line's end at its end, and where each ends."""
        text, ends = bytearray(), []
        for file in self._files:
            text += read_log_file(self._table, file)
            if not text.endswith(b"\n"):
                text += b"\n"
            ends.append(len(text))
        return text, ends

    def _parse(self, text: bytearray, names: Iterable[str]) -> pa.Table:
        schema = _schema_for(text, names)
        try:
            return _parse_json(text, schema)
        except pa.ArrowInvalid as error:
            # Only a file by itself tells which one it is.
            for file in self._files:
                try:
                    _parse_json(read_log_file(self._table, file), schema)
                except pa.ArrowInvalid as own_error:
                    raise damaged(file, own_error) from own_error
            raise damaged(self._files[0], error) from error

    def _find_others(self, text: bytearray) -> Iterator[tuple[str, dict[str, Any]]]:
        told = pc.or_(self._raw["add"].is_valid(), self._raw["remove"].is_valid())
        rows = pc.indices_nonzero(pc.invert(told)).to_numpy()
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
        if len(ends) != len(self._raw):
            lines = _lines(text)
            picked = [lines[row] for row in rows]
        else:
            starts = np.append(0, ends[:-1] + 1)
            picked = [text[starts[row] : ends[row]] for row in rows]
        for row, line in zip(rows, picked, strict=True):
            if line.startswith(_COMMIT_INFO):
                continue
            action = json.loads(line)
            if not isinstance(action, dict):
                culprit = self._files[np.searchsorted(np.cumsum(self._num_lines), row, side="right")]
                raise damaged(culprit, ValueError("a line is no JSON object"))
            for name in _OTHERS:
                if action.get(name) is not None:
                    yield name, action[name]


class ParquetSource:
    """One Parquet file of a checkpoint; columns that it lacks are left out of the rows."""

    def __init__(self, path: Path):
        self._path = path

    @property
    def size_bytes(self) -> int:
        """See `Source`."""
        return self._path.stat().st_size

    def rows(self, names: Iterable[str]) -> pa.Table:
        """See `Source`."""
        with self._open() as file:
            return file.read(columns=parquet_columns(names))

    def num_records(self) -> pa.Array:
        """See `Source`."""
        raw = self.rows(["size_bytes", "stats_num_records"])
        parsed = column(raw, "add", "stats_num_records")
        known = pc.or_(parsed.is_valid(), column(raw, "add", "size_bytes").is_null())
        if pc.all(known).as_py():
            return parsed
        with self._open() as file:
            groups = range(file.num_row_groups)
        # As text, stats may be larger than memory has room for: a batch at a time, then.
        with ThreadPoolExecutor() as pool:
            counted = [part for parts in pool.map(self._count_group, groups) for part in parts]
        return pc.coalesce(parsed, pa.concat_arrays(counted)) if counted else parsed

    def stats(self) -> pa.Array:
        """See `Source`."""
        texts = column(self.rows(["stats"]), "add", "stats")
        with self._open() as file:
            parsed = file.read(columns=["add.stats_parsed"])
        if "add" not in parsed.column_names:
            return texts
        adds = parsed["add"].combine_chunks()
        return (
            pa.array(
                [
                    json.dumps(_without_nulls(add["stats_parsed"]), default=str)
                    if text is None and add is not None and add["stats_parsed"] is not None
                    else text
                    for text, add in zip(texts.to_pylist(), adds.to_pylist(), strict=True)
                ],
                pa.string(),
            )
            if _lacks_text(texts, adds)
            else texts
        )

    def is_there(self) -> bool:
        """See `Source`."""
        return self._path.exists()

    def other_actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """See `Source`."""
        with self._open() as file:
            groups = [i for i in range(file.num_row_groups) if _may_hold_others(file.metadata.row_group(i))]
            raw = file.read_row_groups(groups, columns=list(_OTHERS))
        for name in raw.column_names:
            for action in raw[name].drop_null().to_pylist(maps_as_pydicts="strict"):
                yield name, action

    def actions(self) -> Iterator[dict[str, Any]]:
        """See `Source`."""
        with self._open() as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    yield _without_nulls(row)

    def _count_group(self, group: int) -> list[pa.Array]:
        with self._open() as file:
            batches = file.iter_batches(_BATCH_ROWS, [group], parquet_columns(["stats"]), use_threads=False)
            return [count_records(column(pa.Table.from_batches([b]), "add", "stats")) for b in batches]

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        try:
            with open_checked(self._path) as file:
                yield pq.ParquetFile(file, page_checksum_verification=True)
        except (OSError, ValueError, pa.ArrowException) as error:
            if isinstance(error, CorruptLogError):
                raise
            raise CorruptLogError(
                f"The checkpoint file {self._path.name} can't be read: {first_line(error)}."
            ) from error


def _lacks_text(texts: pa.Array, adds: pa.Array) -> bool:
    """Whether an add has its stats parsed alone."""
    return bool(pc.any(pc.and_(texts.is_null(), pc.struct_field(adds, [0]).is_valid())).as_py())


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """An action's fields as a commit writes them: what isn't there is left out."""
    return {
        name: _without_nulls(value) if isinstance(value, dict) and name != "partitionValues" else value
        for name, value in fields.items()
        if value is not None
    }


def _may_hold_others(group: Any) -> bool:
    """Whether a row group has a row with one of `_OTHERS`, as far as its statistics tell."""
    for i in range(group.num_columns):
        leaf = group.column(i)
        if leaf.path_in_schema.split(".")[0] in _OTHERS and (
            leaf.statistics is None
            or not leaf.statistics.has_null_count
            or leaf.statistics.null_count < leaf.num_values
        ):
            return True
    return False


def checkpoint_sources(table: Path, files: Sequence[LogFile]) -> list[Source]:
    """The sources of a checkpoint: its own files and, for a V2 checkpoint, its sidecars."""
    folder = table / LOG_FOLDER
    own: list[Source] = [_checkpoint_file(table, file) for file in files]
    return own + [ParquetSource(path) for path in _sidecars(folder, own)]


def sidecar_names(table: Path, files: Sequence[LogFile]) -> set[str]:
    """The sidecars of a checkpoint, by their names in the log; none of a checkpoint without."""
    folder = table / LOG_FOLDER
    paths = _sidecars(folder, [_checkpoint_file(table, file) for file in files])
    return {str(path.relative_to(folder)) for path in paths if path.is_relative_to(folder)}


def checkpoint_actions(table: Path, files: Sequence[LogFile]) -> Iterator[dict[str, Any]]:
    """Every action of a checkpoint, its sidecars' after its own, as a commit would write it."""
    for source in checkpoint_sources(table, files):
        yield from source.actions()


def _checkpoint_file(table: Path, file: LogFile) -> "JsonSource | ParquetSource":
    if file.name.endswith(".json"):
        return JsonSource(table, [file])
    return ParquetSource(table / LOG_FOLDER / file.name)


def _sidecars(folder: Path, sources: Iterable[Source]) -> list[Path]:
    actions = [action for source in sources for name, action in source.other_actions() if name == "sidecar"]
    # A path with a slash is absolute; one without is a file's name in _sidecars.
    return [folder / "_sidecars" / action["path"] for action in actions]


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


def _schema_for(text: bytearray, names: Iterable[str]) -> pa.Schema:
    """The schema to parse a text with; what it has none of would cost time to leave null."""
    has_vectors = b'"deletionVector"' in text
    schema = json_schema(sorted(name for name in names if has_vectors or "deletion_vector" not in name))
    if b'"remove"' in text:
        return schema
    return schema.set(1, pa.field("remove", pa.struct([])))


def _without_stats(raw: pa.Table) -> pa.Table:
    """Rows without the stats of adds and removes, which would keep all their bytes."""
    for i, name in enumerate(raw.column_names):
        actions = raw[name].combine_chunks()
        kept = [field for field in actions.type if field.name != "stats"]
        arrays = [actions.field(field.name) for field in kept]
        mask = actions.is_null()
        raw = raw.set_column(i, name, pa.StructArray.from_arrays(arrays, fields=kept, mask=mask))
    return raw


def _parse_json(text: bytes | bytearray, schema: pa.Schema) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(block_size=len(text) + 1, use_threads=False),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _lines(text: bytes | bytearray) -> list[bytes | bytearray]:
    return [line for line in text.split(b"\n") if line.strip()]


def read_log_file(table: Path, file: LogFile) -> bytes:
    """The bytes of a file of the log in JSON.

    Raises:
        CorruptLogError: It can't be read, or is empty.
    """
    try:
        data = read_checked(table / LOG_FOLDER / file.name)
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
