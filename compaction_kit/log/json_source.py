"""Commits, and checkpoints in JSON, read column by column."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.log.actions import CORE, OTHERS, checked, column, json_schema
from compaction_kit.log.listing import LogFile
from compaction_kit.log.reading import DAMAGE, commit_actions, damaged, parse_lines, read_log_file, reading
from compaction_kit.log.stats import count_records
from compaction_kit.storage import Store

# What the first reading of a commit takes along. Its stats are most of its bytes: they are
# counted there and then, and read once more if somebody asks for them.
_EAGER = (*CORE, "modification_time", "deletion_timestamp", "data_change", "deletion_vector_cardinality")
_COMMIT_INFO = "commitInfo"
_BLOCK_BYTES = 4 << 20


class JsonSource:
    """Commits that stand side by side, or a checkpoint in JSON; a row a line.

    The lines are parsed once; what that didn't take along is parsed anew when it is asked for.
    """

    def __init__(self, store: Store, files: Sequence[LogFile], partitions: Iterable[str] = ()):
        """
        Args:
            store: The table's files.
            files: The commits, oldest first.
            partitions: partition.<physical name> of the columns to take along.
        """
        self._store = store
        self._files = files
        self._names = frozenset((*_EAGER, *partitions))
        text, ends = self._read()
        raw, bounds = self._parse(text, [*self._names, "stats"])
        self._num_records = count_records(column(raw, "add", "stats"))
        self._num_removed = count_records(column(raw, "remove", "stats"))
        self._raw = _without_stats(raw)
        self._num_lines = np.diff(np.searchsorted(bounds[1], [-1, *ends]))
        self._others = list(self._find_others(text, *bounds))

    @property
    def size_bytes(self) -> int:
        """See `Source`."""
        return sum(file.size_bytes for file in self._files)

    def rows(self, names: Iterable[str]) -> pa.Table:
        """See `Source`."""
        wanted = frozenset(names)
        if wanted <= self._names:
            return self._raw
        return self._parse(self._read()[0], wanted)[0]

    def num_records(self) -> pa.Array:
        """See `Source`."""
        return self._num_records

    def num_removed_records(self) -> pa.Array:
        """The records in each row's file if it is a remove whose stats say so, int64, else null."""
        return self._num_removed

    def stats(self) -> pa.Array:
        """See `Source`."""
        return column(self.rows(["stats"]), "add", "stats")

    def other_actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """See `Source`."""
        return ((name, action) for _, name, action in self._others if name != _COMMIT_INFO)

    def told(self, kind: str) -> dict[int, dict[str, Any]]:
        """The first metaData or commitInfo action, say, of each version that has one."""
        versions = self.versions()
        rows = reversed([(row, action) for row, name, action in self._others if name == kind])
        return {int(versions[row]): action for row, action in rows}

    def actions(self) -> Iterator[dict[str, Any]]:
        """See `Source`."""
        for file in self._files:
            yield from commit_actions(self._store, file)

    def is_there(self) -> bool:
        """See `Source`."""
        return all(self._store.is_taken(file.place) for file in self._files)

    def versions(self) -> np.ndarray:
        """The version of the commit that each row is from."""
        return np.repeat([file.version or 0 for file in self._files], self._num_lines)

    def commit_numbers(self) -> np.ndarray:
        """Which of the files each row is from, by its number."""
        return np.repeat(np.arange(self.num_commits), self._num_lines)

    @property
    def num_commits(self) -> int:
        """How many files the rows are from."""
        return len(self._files)

    def _read(self) -> tuple[bytearray, list[int]]:
        """The text of all files, each with a line's end at its end, and where each ends."""
        text, ends = bytearray(), []
        for file in self._files:
            text += read_log_file(self._store, file)
            if not text.endswith(b"\n"):
                text += b"\n"
            ends.append(len(text))
        return text, ends

    def _parse(self, text: bytearray, names: Iterable[str]) -> tuple[pa.Table, tuple[np.ndarray, np.ndarray]]:
        """The rows, and where the line of each starts and ends."""
        schema = _schema_for(text, names)
        try:
            return parse_lines(text, schema)
        except DAMAGE as error:
            # Only a file by itself tells which one it is.
            for file in self._files:
                with reading(file.name):
                    parse_lines(read_log_file(self._store, file), schema)
            raise damaged(self._files[0].name, error) from error

    def _find_others(
        self, text: bytearray, starts: np.ndarray, ends: np.ndarray
    ) -> Iterator[tuple[int, str, dict[str, Any]]]:
        told = pc.or_(self._raw["add"].is_valid(), self._raw["remove"].is_valid())
        numbers = self.commit_numbers()
        for row in pc.indices_nonzero(pc.invert(told)).to_pylist():
            with reading(self._files[numbers[row]].name):
                found = _others_in(text[starts[row] : ends[row]])
            yield from ((row, name, action) for name, action in found)


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


def _others_in(line: bytearray) -> list[tuple[str, dict[str, Any]]]:
    """The actions of a line that are about no file; a commitInfo of another form tells nothing."""
    actions = json.loads(line)
    found = [(name, checked(name, actions[name])) for name in OTHERS if actions.get(name) is not None]
    info = actions.get(_COMMIT_INFO)
    return [*found, (_COMMIT_INFO, info)] if isinstance(info, dict) else found


def _schema_for(text: bytes | bytearray, names: Iterable[str]) -> pa.Schema:
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
