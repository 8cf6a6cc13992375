"""Read commits and checkpoints in JSON column by column."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.log.actions import CORE, OTHERS, checked, column, count_records, json_schema
from compaction_kit.log.listing import LogFile
from compaction_kit.log.paths import one_array
from compaction_kit.log.reading import DAMAGE, commit_actions, damaged, parse_lines, read_log_file, reading
from compaction_kit.storage import Store

# Columns kept from the first reading of a commit. Stats are most of its bytes: their records are counted
# at once, and the stats are read again when they are needed.
_EAGER = (*CORE, "modification_time", "deletion_timestamp", "data_change", "deletion_vector_cardinality")
_COMMIT_INFO = "commitInfo"
_BLOCK_BYTES = 4 << 20


class JsonSource:
    """Consecutive commits, or a checkpoint in JSON, with one row per line.

    The lines are parsed once; columns that were not kept are parsed again when they are needed.
    """

    def __init__(self, store: Store, files: Sequence[LogFile], partitions: Iterable[str] = ()):
        """
        Args:
            store: The table's files.
            files: The commits, oldest first.
            partitions: Partition columns to keep, as partition.<physical name>.
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
        """Return the number of records in each row's file, int64; null unless it is a remove with stats."""
        return self._num_removed

    def stats(self) -> pa.Array:
        """See `Source`."""
        return column(self.rows(["stats"]), "add", "stats")

    def other_actions(self, names: Collection[str] = OTHERS) -> Iterator[tuple[str, dict[str, Any]]]:
        """See `Source`."""
        return ((name, action) for _, name, action in self._others if name in names)

    def first_actions(self, kind: str) -> dict[int, dict[str, Any]]:
        """Return the first action of a kind, such as metaData or commitInfo, by version."""
        versions = self.versions()
        rows = reversed([(row, action) for row, name, action in self._others if name == kind])
        return {int(versions[row]): action for row, action in rows}

    def actions(self) -> Iterator[dict[str, Any]]:
        """See `Source`."""
        for file in self._files:
            yield from commit_actions(self._store, file)

    def is_there(self, places: Set[str]) -> bool:
        """See `Source`."""
        return all(file.place in places for file in self._files)

    def versions(self) -> np.ndarray:
        """Return the version of each row's commit."""
        return np.repeat([file.version or 0 for file in self._files], self._num_lines)

    def commit_numbers(self) -> np.ndarray:
        """Return the number of each row's file."""
        return np.repeat(np.arange(self.num_commits), self._num_lines)

    @property
    def num_commits(self) -> int:
        """Number of files."""
        return len(self._files)

    def _read(self) -> tuple[bytes, list[int]]:
        """Return the text of all files, each ended by a line feed, and the position of each end."""
        read = self._store.at_once(partial(read_log_file, self._store), self._files)
        texts = [text if text.endswith(b"\n") else text + b"\n" for text in read]
        return b"".join(texts), list(accumulate(map(len, texts)))

    def _parse(self, text: bytes, names: Iterable[str]) -> tuple[pa.Table, tuple[np.ndarray, np.ndarray]]:
        """Return the rows, and the start and end of each row's line."""
        schema = _schema_for(text, names)
        try:
            return parse_lines(text, schema)
        except DAMAGE as error:
            # Parse each file alone, to name the damaged one.
            for file in self._files:
                with reading(file.name):
                    parse_lines(read_log_file(self._store, file), schema)
            raise damaged(self._files[0].name, error) from None

    def _find_others(
        self, text: bytes, starts: np.ndarray, ends: np.ndarray
    ) -> Iterator[tuple[int, str, dict[str, Any]]]:
        has_file = pc.or_(self._raw["add"].is_valid(), self._raw["remove"].is_valid())
        numbers = self.commit_numbers()
        for row in pc.indices_nonzero(pc.invert(has_file)).to_pylist():
            with reading(self._files[numbers[row]].name):
                found = _others_in(text[starts[row] : ends[row]])
            yield from ((row, name, action) for name, action in found)


def commit_blocks(files: Sequence[LogFile]) -> list[list[LogFile]]:
    """Group commits into blocks of about 4 MiB, which parse faster than single small files."""
    blocks: list[list[LogFile]] = []
    size = _BLOCK_BYTES
    for file in files:
        if size >= _BLOCK_BYTES:
            blocks.append([])
            size = 0
        blocks[-1].append(file)
        size += file.size_bytes
    return blocks


def _others_in(line: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Return the actions of a line without a data file; a commitInfo that is not an object is skipped."""
    actions = json.loads(line)
    found = [(name, checked(name, actions[name])) for name in OTHERS if actions.get(name) is not None]
    info = actions.get(_COMMIT_INFO)
    return [*found, (_COMMIT_INFO, info)] if isinstance(info, dict) else found


def _schema_for(text: bytes, names: Iterable[str]) -> pa.Schema:
    """Return the schema to parse a text with, without fields that it lacks: these would cost time."""
    has_vectors = b'"deletionVector"' in text
    schema = json_schema(sorted(name for name in names if has_vectors or "deletion_vector" not in name))
    if b'"remove"' in text:
        return schema
    return schema.set(1, pa.field("remove", pa.struct([])))


def _without_stats(raw: pa.Table) -> pa.Table:
    """Drop the stats of adds and removes, to free their memory."""
    for i, name in enumerate(raw.column_names):
        actions = one_array(raw[name])
        kept = [field for field in actions.type if field.name != "stats"]
        arrays = [actions.field(field.name) for field in kept]
        mask = actions.is_null()
        raw = raw.set_column(i, name, pa.StructArray.from_arrays(arrays, fields=kept, mask=mask))
    return raw
