"""Read the files of the log: commits and checkpoints in JSON, checkpoints in Parquet."""

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache, partial
from itertools import accumulate, groupby, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.errors import DAMAGE
from compaction_kit.log.actions import (
    CORE,
    DETAILS,
    KINDS,
    MAPS,
    PARTITION,
    column,
    count_records,
    field_of,
    flattened,
    is_kind,
)
from compaction_kit.log.lines import (
    OTHERS,
    Action,
    checked,
    commit_actions,
    json_text,
    others_in,
    parse_lines,
    read_log_file,
    reading,
)
from compaction_kit.log.listing import LOG_FOLDER, LogFile
from compaction_kit.log.paths import one_array
from compaction_kit.storage import Store
from compaction_kit.storage.store import Answer

_BATCH_ROWS = 1 << 16
# Limits of the blocks of commits in memory: their number, their size as text, and versions of each.
_MOST_BLOCKS, _BLOCK_BYTES, _MOST_VERSIONS = 128, 4 << 20, 3
_VALUES = re.compile(rb'"partitionValues": ?(\{[^{}]*\})')


class JsonSource:
    """Consecutive commits (oldest first), or a checkpoint in JSON, with one row per line.

    The lines are parsed once. Stats take most of the bytes, so only their number of records is kept; stats,
    and partition columns that the first action lacks, are parsed again when they are needed.
    """

    def __init__(self, store: Store, files: Sequence[LogFile]):
        self._store, self.files, self.names = store, files, {file.name for file in files}
        self.size_bytes = sum(file.size_bytes for file in files)
        text, file_ends = self._read()
        first, partitions = _VALUES.search(text), list[str]()
        with suppress(*DAMAGE):
            partitions = [PARTITION + name for name in json.loads(first[1])] if first else []
        self._kept = frozenset((*CORE, *DETAILS, *partitions))
        raw, (starts, ends) = self._parse(text, [*self._kept, "stats"])
        self._records = {kind: count_records(column(raw, kind, "stats")) for kind in KINDS}
        # The position in `files` of each row's file.
        self.file_of = np.searchsorted(file_ends, starts, side="right")
        has_file = pc.or_(*(is_kind(raw, kind) for kind in KINDS))
        self._others: list[tuple[int, str, Action]] = []
        for row in pc.indices_nonzero(pc.invert(has_file)).to_pylist():
            number = int(self.file_of[row])
            with reading(files[number].name):
                self._others += [(number, *other) for other in others_in(text[starts[row] : ends[row]])]
        self._raw = raw.drop_columns([f"{kind}.stats" for kind in KINDS if kind in raw.column_names])

    @property
    def others(self) -> list[tuple[str, Action]]:
        """Name and fields of the actions without a data file, as far as they are in `OTHERS`."""
        return [(name, action) for _, name, action in self._others if name in OTHERS]

    def first_of(self, name: str) -> dict[int, Action]:
        """Return the first action of a name, such as metaData or commitInfo, by position in `files`."""
        return {number: action for number, found, action in reversed(self._others) if found == name}

    def rows(self, names: Iterable[str]) -> pa.Table:
        """Return the rows with these columns; see `actions.file_actions` and `actions.column`."""
        wanted = frozenset(names)
        return self._raw if wanted <= self._kept else self._parse(self._read()[0], wanted)[0]

    def num_records(self, kind: str = "add") -> pa.Array:
        """Return the number of records in each row's file, int64; null for other kinds and without stats."""
        return self._records[kind]

    def stats(self) -> pa.Array:
        """Return the stats of each row's file as JSON text; null unless the row is an add with stats."""
        return column(self.rows(["stats"]), "add", "stats")

    def actions(self) -> Iterator[Action]:
        """Yield every action with all fields: an object with the action's name as key."""
        for file in self.files:
            yield from commit_actions(self._store, file)

    def _read(self) -> tuple[bytes, list[int]]:
        """Return the text of all files, each ended by a line feed, and the position of each end."""
        read = self._store.at_once(partial(read_log_file, self._store), self.files)
        texts = [text if text.endswith(b"\n") else text + b"\n" for text in read]
        return b"".join(texts), list(accumulate(map(len, texts)))

    def _parse(self, text: bytes, names: Iterable[str]) -> tuple[pa.Table, tuple[np.ndarray, np.ndarray]]:
        # Parsing is faster without the fields that the text lacks.
        has_vectors, kinds = b'"deletionVector"' in text, KINDS if b'"remove"' in text else KINDS[:1]
        action: dict[str, Any] = {}
        for name in sorted(names):
            field, data_type = field_of(name)
            outer, dot, inner = field.partition(".")
            if not dot:
                action[outer] = data_type
            elif has_vectors or outer != "deletionVector":
                action.setdefault(outer, {})[inner] = data_type
        fields = pa.struct({k: pa.struct(v) if isinstance(v, dict) else v for k, v in action.items()})
        schema = pa.schema(dict.fromkeys(kinds, fields))
        with reading(self.files[0].name):
            try:
                rows, bounds = parse_lines(text, schema)
            except DAMAGE:
                # Parse each file alone, to name the damaged one.
                for file in self.files:
                    with reading(file.name):
                        parse_lines(read_log_file(self._store, file), schema)
                raise
            return flattened(rows), bounds


class ParquetSource:
    """One Parquet file of a checkpoint, with the rows of a `JsonSource` and the methods that snapshots call.

    In a remote store the file is fetched once, and stays in memory as long as the snapshots that need it.
    """

    def __init__(self, store: Store, place: str, size_bytes: int):
        self._store, self._place, self.size_bytes = store, place, size_bytes
        self._name = posixpath.basename(place)
        self.names = {place.removeprefix(f"{LOG_FOLDER}/")}
        self._data: pa.Buffer | None = None
        if not store.is_local:
            with reading(self._name):
                self._data = pa.py_buffer(store.read(place))

    @contextmanager
    def _open(self, footer: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
        with reading(self._name):
            opened = self._store.open(self._place) if self._data is None else pa.BufferReader(self._data)
            with opened as file:
                # As nanoseconds, INT96 would silently overflow outside the years 1678 to 2262.
                options: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}
                yield pq.ParquetFile(file, metadata=footer, page_checksum_verification=True, **options)

    @cached_property
    def others(self) -> list[tuple[str, Action]]:
        """See `JsonSource`."""
        wanted = [f"{name}.{field}" for name, fields in OTHERS.items() for field in fields]
        with self._open() as file:
            raw = file.read(columns=wanted)
            return [
                (name, checked(name, action))
                for name in raw.column_names
                for action in raw[name].drop_null().to_pylist(maps_as_pydicts="strict")
            ]

    def rows(self, names: Iterable[str]) -> pa.Table:
        """See `JsonSource`."""
        wanted = list(names)
        with self._open() as file:
            raw = flattened(file.read(columns=_parquet_columns(wanted)))
            for kind, name in product(KINDS, wanted):
                column(raw, kind, name).validate(full=True)
            return raw

    def num_records(self) -> pa.Array:
        """See `JsonSource`."""
        raw = self.rows(["size_bytes", "stats_num_records"])
        parsed = column(raw, "add", "stats_num_records")
        if pc.all(pc.or_(parsed.is_valid(), column(raw, "add", "size_bytes").is_null())).as_py():
            return parsed
        with self._open() as file:
            footer = file.metadata

        def count(group: int) -> list[pa.Array]:
            # Stats as text may not fit in memory, so they are read in batches.
            with self._open(footer) as file:
                read = file.iter_batches(_BATCH_ROWS, [group], _parquet_columns(["stats"]), use_threads=False)
                tables = (flattened(pa.Table.from_batches([batch])) for batch in read)
                return [count_records(column(table, "add", "stats")) for table in tables]

        counted = [part for parts in in_threads(count, range(footer.num_row_groups)) for part in parts]
        return pc.coalesce(parsed, pa.concat_arrays(counted)) if counted else parsed

    def stats(self) -> pa.Array:
        """See `JsonSource`."""
        texts = column(self.rows(["stats"]), "add", "stats")
        with self._open() as file:
            parsed = file.read(columns=["add.stats_parsed"])
        if "add" not in parsed.column_names:
            return texts
        structs = pc.struct_field(one_array(parsed["add"]), [0])
        rows = pc.and_(texts.is_null(), structs.is_valid())
        found = structs.filter(rows).cast(_with_times_as_text(structs.type)).to_pylist()
        written = [json_text(_without_nulls(one)) for one in found]
        return pc.replace_with_mask(texts, rows, pa.array(written, pa.string()))

    def actions(self) -> Iterator[Action]:
        """See `JsonSource`."""
        with self._open() as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                rows = batch.to_struct_array().cast(_with_times_as_text(pa.struct(batch.schema)))
                yield from map(_without_nulls, rows.to_pylist(maps_as_pydicts="strict"))


Source = JsonSource | ParquetSource


def checkpoint_sources(store: Store, files: Sequence[LogFile]) -> list[Source]:
    """Return the sources of a checkpoint: its own files and the sidecars of a V2 checkpoint."""

    def read(file: LogFile) -> Source:
        is_json = file.name.endswith(".json")
        return JsonSource(store, [file]) if is_json else ParquetSource(store, file.place, file.size_bytes)

    own = list(store.at_once(read, files))
    # A path may be absolute, but the file is always in _sidecars (protocol, "Sidecar File Information").
    sidecars = [
        (posixpath.join(LOG_FOLDER, "_sidecars", posixpath.basename(action["path"])), action["sizeInBytes"])
        for source in own
        for name, action in source.others
        if name == "sidecar"
    ]
    return own + list(store.at_once(lambda found: ParquetSource(store, *found), sidecars))


@lru_cache(_MOST_BLOCKS)
def _blocks_from(store: Store, first: LogFile) -> Callable[..., JsonSource]:
    # The last block grows with each commit; this cache keeps only a few versions of a block.
    return lru_cache(_MOST_VERSIONS)(JsonSource)


def _block(store: Store, files: tuple[LogFile, ...]) -> JsonSource:
    return _blocks_from(store, files[0])(store, files)


def commit_sources(store: Store, files: Sequence[LogFile]) -> list[JsonSource]:
    """Read commits in blocks of about 4 MiB, which parse faster than single files; blocks stay in memory."""
    starts = accumulate((file.size_bytes for file in files), initial=0)
    blocks = groupby(zip(starts, files, strict=False), lambda pair: pair[0] // _BLOCK_BYTES)
    return in_threads(partial(_block, store), [tuple(file for _, file in block) for _, block in blocks])


def in_threads(work: Callable[..., Answer], *items: Sequence[Any]) -> list[Answer]:
    """Call `work` for each item and return the answers; threads are started only for several items."""
    with ThreadPoolExecutor() as pool:
        return [*(pool.map if len(items[0]) > 1 else map)(work, *items)]


def _without_nulls(fields: Action) -> Action:
    return {
        name: _without_nulls(value) if isinstance(value, dict) and name != "partitionValues" else value
        for name, value in fields.items()
        if value is not None
    }


def _with_times_as_text(data_type: pa.DataType) -> pa.DataType:
    # Spark has years after 9999, which Python doesn't support.
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_with_times_as_text(field.type)) for field in data_type])
    return pa.string() if pa.types.is_temporal(data_type) else data_type


def _parquet_columns(names: Iterable[str]) -> list[str]:
    """Return the dotted paths with which a Parquet reader reads these columns of adds and removes."""
    # A checkpoint may lack all other columns, and rows can't be counted without a column.
    fields = {field_of(name)[0] for name in (*names, "size_bytes")}
    # Maps are read with all their keys.
    fields = {outer if (outer := field.partition(".")[0]) in MAPS.values() else field for field in fields}
    return [f"{kind}.{field}" for kind in KINDS for field in sorted(fields)]
