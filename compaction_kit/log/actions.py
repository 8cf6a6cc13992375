"""Read the actions of commits and checkpoints; add and remove actions as Arrow columns.

A table of file actions has one row per action, in the order of the log:

    is_add bool, path string (see `paths.canonical_paths`), size_bytes int64, deletion_vector_id string,
    source and row int64 (the number of the source and the row in it, to read the other fields later).

The other fields of an action are details, read only when they are needed:

    modification_time int64 (adds; ms since 1970), deletion_timestamp int64 (removes; ms since 1970),
    data_change bool, deletion_vector_cardinality int64, stats string (JSON),
    stats_num_records int64 (where a checkpoint has parsed stats), and partition.<physical name>
    string (as the log writes it; "" and null both mean null, but Delta groups them separately).
"""

import codecs
import json
import posixpath
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import accumulate, groupby, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from compaction_kit.errors import DAMAGE, CompactionKitError, CorruptLogError, first_line
from compaction_kit.log.listing import LOG_FOLDER, LogFile
from compaction_kit.log.paths import canonical_paths, one_array
from compaction_kit.storage import Store, checksum_place

PARTITION = "partition."
KINDS = ("add", "remove")
# The field of the action, and the type, of each column.
FIELDS = {
    "path": ("path", pa.string()),
    "size_bytes": ("size", pa.int64()),
    "modification_time": ("modificationTime", pa.int64()),
    "deletion_timestamp": ("deletionTimestamp", pa.int64()),
    "data_change": ("dataChange", pa.bool_()),
    "deletion_vector_storage": ("deletionVector.storageType", pa.string()),
    "deletion_vector_path": ("deletionVector.pathOrInlineDv", pa.string()),
    "deletion_vector_offset": ("deletionVector.offset", pa.int64()),
    "deletion_vector_cardinality": ("deletionVector.cardinality", pa.int64()),
    "stats": ("stats", pa.string()),
    "stats_num_records": ("stats_parsed.numRecords", pa.int64()),
}
_VECTOR = ("deletion_vector_storage", "deletion_vector_path", "deletion_vector_offset")
CORE = ("path", "size_bytes", *_VECTOR)
DETAILS = ("modification_time", "deletion_timestamp", "data_change", "deletion_vector_cardinality")
_NAMES, _TEXTS = pa.list_(pa.string()), pa.map_(pa.string(), pa.string())
# Actions without a data file, with the fields that are used here, and the fields that must be there. Delta
# would read a sidecar without a size as empty.
OTHERS: dict[str, dict[str, pa.DataType]] = {
    "protocol": {
        **dict.fromkeys(("minReaderVersion", "minWriterVersion"), pa.int32()),
        **dict.fromkeys(("readerFeatures", "writerFeatures"), _NAMES),
    },
    "metaData": {
        **dict.fromkeys(("id", "schemaString"), pa.string()),
        "partitionColumns": _NAMES,
        "configuration": _TEXTS,
    },
    "txn": {"appId": pa.string(), "version": pa.int64()},
    "domainMetadata": {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()},
    "sidecar": {"path": pa.string(), "sizeInBytes": pa.int64()},
}
_REQUIRED = {"protocol": ("minReaderVersion", "minWriterVersion"), "sidecar": ("path", "sizeInBytes")}
_BATCH_ROWS = 1 << 16
_BLOCK_BYTES = 4 << 20
# Rows in a run, on average, from which on slices are faster than picking row by row.
_LEAST_RUN = 100


class JsonSource:
    """Consecutive commits, or a checkpoint in JSON, with one row per line.

    The lines are parsed once. Stats are most of their bytes, so only the records in them are kept; stats, and
    partition columns that weren't asked for at first, are parsed again when they are needed.
    """

    def __init__(self, store: Store, files: Sequence[LogFile], partitions: Iterable[str] = ()):
        """Read files, oldest first; `partitions` are columns to keep, as partition.<physical name>."""
        self._store, self.files, self.names = store, files, {file.name for file in files}
        self.size_bytes = sum(file.size_bytes for file in files)
        self._kept = frozenset((*CORE, *DETAILS, *partitions))
        text, file_ends = self._read()
        raw, (starts, ends) = self._parse(text, [*self._kept, "stats"])
        self._records = {kind: count_records(column(raw, kind, "stats")) for kind in KINDS}
        # The position in `files` of each row's file.
        self.file_of = np.searchsorted(file_ends, starts, side="right")
        has_file = pc.or_(*(is_kind(raw, kind) for kind in KINDS))
        self._others: list[tuple[int, str, dict[str, Any]]] = []
        for row in pc.indices_nonzero(pc.invert(has_file)).to_pylist():
            number = int(self.file_of[row])
            with reading(files[number].name):
                self._others += [(number, *other) for other in _others_in(text[starts[row] : ends[row]])]
        self._raw = raw.drop_columns([f"{kind}.stats" for kind in KINDS if kind in raw.column_names])

    @property
    def others(self) -> list[tuple[str, dict[str, Any]]]:
        """Name and fields of the actions without a data file, as far as they are in `OTHERS`."""
        return [(name, action) for _, name, action in self._others if name in OTHERS]

    def first_of(self, name: str) -> dict[int, dict[str, Any]]:
        """Return the first action of a name, such as metaData or commitInfo, by position in `files`."""
        return {number: action for number, found, action in reversed(self._others) if found == name}

    def rows(self, names: Iterable[str]) -> pa.Table:
        """Return the rows with these columns, for `file_actions` and `column`."""
        wanted = frozenset(names)
        return self._raw if wanted <= self._kept else self._parse(self._read()[0], wanted)[0]

    def num_records(self, kind: str = "add") -> pa.Array:
        """Return the number of records in each row's file, int64; null unless it is of a kind with stats."""
        return self._records[kind]

    def stats(self) -> pa.Array:
        """Return the stats of each row's file as JSON text; null unless it is an add with stats."""
        return column(self.rows(["stats"]), "add", "stats")

    def actions(self) -> Iterator[dict[str, Any]]:
        """Yield every action with all fields: an object with the action's name as key."""
        for file in self.files:
            yield from commit_actions(self._store, file)

    def _read(self) -> tuple[bytes, list[int]]:
        """Return the text of all files, each ended by a line feed, and the position of each end."""
        read = self._store.at_once(partial(read_log_file, self._store), self.files)
        texts = [text if text.endswith(b"\n") else text + b"\n" for text in read]
        return b"".join(texts), list(accumulate(map(len, texts)))

    def _parse(self, text: bytes, names: Iterable[str]) -> tuple[pa.Table, tuple[np.ndarray, np.ndarray]]:
        # Fields that the text lacks would cost time.
        has_vectors, kinds = b'"deletionVector"' in text, KINDS if b'"remove"' in text else KINDS[:1]
        action: dict[str, Any] = {}
        for name in sorted(names):
            field, data_type = _field(name)
            outer, _, inner = field.partition(".")
            if not inner:
                action[outer] = data_type
            elif has_vectors or outer != "deletionVector":
                action.setdefault(outer, {})[inner] = data_type
        fields = pa.struct({k: pa.struct(v) if isinstance(v, dict) else v for k, v in action.items()})
        schema = pa.schema(dict.fromkeys(kinds, fields))
        try:
            rows, bounds = parse_lines(text, schema)
            return _flat(rows), bounds
        except DAMAGE as error:
            # Parse each file alone, to name the damaged one.
            for file in self.files:
                with reading(file.name):
                    parse_lines(read_log_file(self._store, file), schema)
            raise _damaged(self.files[0].name, error) from None


class ParquetSource:
    """One Parquet file of a checkpoint, with the rows and methods of a `JsonSource`.

    On a store the file is fetched once, and kept in memory as long as the snapshots that need it.
    """

    def __init__(self, store: Store, place: str, size_bytes: int):
        self._store, self._place, self.size_bytes = store, place, size_bytes
        self.names = {place.removeprefix(f"{LOG_FOLDER}/")}
        with self._errors():
            self._data = None if store.is_local else pa.py_buffer(store.read(place))

    @cached_property
    def others(self) -> list[tuple[str, dict[str, Any]]]:
        """See `JsonSource`."""
        wanted = [f"{name}.{field}" for name, fields in OTHERS.items() for field in fields]
        with self._open() as file:
            raw = file.read(columns=wanted)
            return [
                (name, _checked(name, action))
                for name in raw.column_names
                for action in raw[name].drop_null().to_pylist(maps_as_pydicts="strict")
            ]

    def rows(self, names: Iterable[str]) -> pa.Table:
        """See `JsonSource`."""
        wanted = list(names)
        with self._open() as file:
            raw = _flat(file.read(columns=_parquet_columns(wanted)))
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
                tables = (_flat(pa.Table.from_batches([batch])) for batch in read)
                return [count_records(column(table, "add", "stats")) for table in tables]

        with ThreadPoolExecutor() as pool:
            counted = [part for parts in pool.map(count, range(footer.num_row_groups)) for part in parts]
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
        written = [
            json.dumps(_without_nulls(fields), default=str) for fields in structs.filter(rows).to_pylist()
        ]
        return pc.replace_with_mask(texts, rows, pa.array(written, pa.string()))

    def actions(self) -> Iterator[dict[str, Any]]:
        """See `JsonSource`."""
        with self._open() as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                yield from map(_without_nulls, batch.to_pylist(maps_as_pydicts="strict"))

    @contextmanager
    def _open(self, footer: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
        with self._errors():
            opened = self._store.open(self._place) if self._data is None else pa.BufferReader(self._data)
            with opened as file:
                yield pq.ParquetFile(file, metadata=footer, page_checksum_verification=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except CompactionKitError:
            raise
        except (OSError, *DAMAGE) as error:
            raise CorruptLogError(
                f"The checkpoint file {posixpath.basename(self._place)} can't be read: {first_line(error)}."
            ) from None


Source = JsonSource | ParquetSource


def checkpoint_sources(store: Store, files: Sequence[LogFile]) -> list[Source]:
    """Return the sources of a checkpoint: its own files and the sidecars of a V2 checkpoint."""
    own = list(store.at_once(partial(_checkpoint_file, store), files))
    sidecars = [action for source in own for name, action in source.others if name == "sidecar"]
    # A path may be absolute, but the file is always in _sidecars (protocol, "Sidecar File Information").
    named = [
        (posixpath.join(LOG_FOLDER, "_sidecars", posixpath.basename(sidecar["path"])), sidecar["sizeInBytes"])
        for sidecar in sidecars
    ]
    return own + list(store.at_once(lambda found: ParquetSource(store, *found), named))


def _checkpoint_file(store: Store, file: LogFile) -> Source:
    is_json = file.name.endswith(".json")
    return JsonSource(store, [file]) if is_json else ParquetSource(store, file.place, file.size_bytes)


def sidecar_names(store: Store, files: Sequence[LogFile]) -> set[str]:
    """Return the names in the log of a checkpoint's sidecars, if it has any."""
    names = set[str]().union(*(source.names for source in checkpoint_sources(store, files)))
    return names - {file.name for file in files}


def commit_blocks(files: Sequence[LogFile]) -> list[tuple[LogFile, ...]]:
    """Group commits into blocks of about 4 MiB, which parse faster than single small files."""
    starts = accumulate((file.size_bytes for file in files), initial=0)
    blocks = groupby(zip(starts, files, strict=False), lambda pair: pair[0] // _BLOCK_BYTES)
    return [tuple(file for _, file in block) for _, block in blocks]


def file_actions(raw: pa.Table, source: int) -> pa.Table:
    """Return the file actions among the rows of a source that have the columns `CORE`.

    Raises:
        CorruptLogError: An action has no path, or an add no valid size.
    """
    tables = []
    for kind in KINDS:
        rows = pc.indices_nonzero(is_kind(raw, kind)).cast(pa.int64())
        path, size, *vector = (picked(column(raw, kind, name), rows) for name in CORE)
        if path.null_count:
            raise CorruptLogError(f"The log holds a {kind} action without a path: restore it from a backup.")
        # Only removes may lack a size (protocol, "Add File and Remove File").
        if kind == "add" and (size.null_count or (pc.min(size).as_py() or 0) < 0):
            row = pc.indices_nonzero(pc.fill_null(pc.less(size, 0), True))[0].as_py()
            raise CorruptLogError(
                f"The log says that the file {path[row]} has {size[row]} bytes: restore it from a backup."
            )
        columns = {
            "is_add": pa.repeat(kind == "add", len(rows)),
            "path": canonical_paths(path),
            "size_bytes": size,
            "deletion_vector_id": _vector_id(*vector),
            "source": pa.repeat(pa.scalar(source, pa.int64()), len(rows)),
            "row": rows,
        }
        tables.append(pa.table(columns))
    adds, removes = tables
    if not len(adds) or not len(removes):
        return adds if len(adds) else removes
    return pa.concat_tables(tables).sort_by("row")


def column(raw: pa.Table, kind: str, name: str) -> pa.Array:
    """Return one column of the adds or removes: a value per row of the log, null for other rows."""
    field, data_type = _field(name)
    if f"{kind}.{field}" in raw.column_names:
        return one_array(raw[f"{kind}.{field}"]).cast(data_type)
    maps = f"{kind}.partitionValues"
    if name.startswith(PARTITION) and maps in raw.column_names:
        return _lookup(one_array(raw[maps]), name.removeprefix(PARTITION))
    return pa.nulls(len(raw), data_type)


def picked(values: pa.Array, rows: pa.Array) -> pa.Array:
    """Take the values of ascending rows: most of a log's files hold adds in long runs, which are sliced."""
    numbers = rows.to_numpy()
    starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    if not len(numbers) or len(starts) * _LEAST_RUN > len(numbers) or numbers[-1] >= len(values):
        return values.take(rows)
    slices = [values.slice(int(run[0]), len(run)) for run in np.split(numbers, starts[1:])]
    return slices[0] if len(slices) == 1 else pa.concat_arrays(slices)


def count_records(stats: pa.Array) -> pa.Array:
    """Return numRecords (int64) of each stats text, deleted rows included; null if missing or not a count."""
    # All known writers put it first, where it is read from all texts at once.
    leading = pc.extract_regex(stats, r'^\{"numRecords": ?(?P<count>\d{1,18})[,}]')
    counts = pc.struct_field(leading, "count").cast(pa.int64())
    rest = pc.and_(stats.is_valid(), counts.is_null())
    parsed = [_parse_count(text) for text in stats.filter(rest).to_pylist()]
    return pc.replace_with_mask(counts, rest, pa.array(parsed, pa.int64())) if parsed else counts


def _parse_count(text: str) -> int | None:
    try:
        number = json.loads(text).get("numRecords")
    except DAMAGE:
        return None
    return number if type(number) is int and 0 <= number < 2**63 else None


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Convert errors of reading a file to a CorruptLogError with the file's name."""
    try:
        yield
    except CompactionKitError:
        raise
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise CorruptLogError(f"The log file {name} can't be read: {reason}.") from None
    except DAMAGE as error:
        raise _damaged(name, error) from None


def _damaged(name: str, error: Exception) -> CorruptLogError:
    return CorruptLogError(f"The log file {name} is damaged ({first_line(error)}): restore it from a backup.")


def read_log_file(store: Store, file: LogFile) -> bytes:
    """Read a JSON file of the log as bytes.

    Raises:
        CorruptLogError: It can't be read, is empty, or differs from its checksums, as Delta would notice too.
    """
    with reading(file.name):
        data = store.read(file.place)
        if store.has_checksums and store.is_file(checksum_place(file.place)):
            _check_sums(file.name, data, store.read(checksum_place(file.place)))
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data or data.isspace():
        raise CorruptLogError(f"The log file {file.name} is empty: restore it from a backup.")
    return data


def _check_sums(name: str, data: bytes, sums: bytes) -> None:
    """Compare a file with Hadoop's checksums: "crc", a zero byte, the chunk size, a CRC-32 for each chunk."""
    chunk, view = int.from_bytes(sums[4:8]), memoryview(data)
    if not sums.startswith(b"crc\0") or len(sums) < 8 or not chunk:
        return
    found = [zlib.crc32(view[start : start + chunk]) for start in range(0, len(data), chunk)]
    if np.array(found, ">u4").tobytes() != sums[8:]:
        raise CorruptLogError(
            f"The log file {name} differs from its checksums in .{name}.crc, so one of the two is damaged: "
            "restore it from a backup."
        )


def commit_actions(store: Store, file: LogFile) -> list[dict[str, Any]]:
    """Return every action of one commit as the log writes it: an object with the action's name as key.

    Raises:
        CorruptLogError: The file is damaged or empty.
    """
    lines = [line for line in read_log_file(store, file).split(b"\n") if line.strip()]
    with reading(file.name):
        # All lines at once, which takes half the time.
        actions = json.loads(b"[" + b",\n".join(lines) + b"]")
        if len(actions) != len(lines) or not all(isinstance(action, dict) for action in actions):
            raise ValueError("a line is not a JSON object")
    return actions


def parse_lines(
    text: bytes, schema: pa.Schema, block_bytes: int | None = None
) -> tuple[pa.Table, tuple[np.ndarray, np.ndarray]]:
    """Parse lines of JSON that aren't blank, and return the start and end of each row's line too.

    With `block_bytes`, blocks of as many bytes are parsed by several threads.

    Raises:
        ValueError, pa.ArrowException: A line is not an object, or doesn't match the schema.
    """
    # pyarrow accepts invalid UTF-8, and a text that begins with null ends the process.
    offsets = pa.array([0, len(text)], pa.int64()).buffers()[1]
    pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(text)]).validate(full=True)
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    starts = np.append(0, ends[:-1] + 1)
    has_text = np.ones(len(ends), dtype=bool)
    for row in np.flatnonzero(data[starts] != ord("{")).tolist():
        line = text[starts[row] : ends[row]].strip()
        if line and not line.startswith(b"{"):
            raise ValueError("a line is not a JSON object")
        has_text[row] = bool(line)
    rows = pj.read_json(
        pa.BufferReader(text),
        pj.ReadOptions(block_size=block_bytes or len(text) + 1, use_threads=block_bytes is not None),
        pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if len(rows) != has_text.sum():
        raise ValueError("a line holds several JSON objects")
    return rows, (starts[has_text], ends[has_text])


def _others_in(line: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Return the actions of a line without a data file; a commitInfo that is not an object is skipped."""
    actions = json.loads(line)
    found = [(name, _checked(name, actions[name])) for name in OTHERS if actions.get(name) is not None]
    info = actions.get("commitInfo")
    return [*found, ("commitInfo", info)] if isinstance(info, dict) else found


def _checked(name: str, action: Any) -> dict[str, Any]:
    """Return an action of one of `OTHERS` unchanged if its fields are valid."""
    if not isinstance(action, dict):
        raise TypeError(f"its {name} action is not an object")
    missing = [field for field in _REQUIRED.get(name, ()) if action.get(field) is None]
    if missing:
        raise ValueError(f"its {name} action has no {missing[0]}")
    pa.array([action], pa.struct(OTHERS[name]))
    return action


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an action's fields as a commit writes them, without nulls."""
    return {
        name: _without_nulls(value) if isinstance(value, dict) and name != "partitionValues" else value
        for name, value in fields.items()
        if value is not None
    }


def _field(name: str) -> tuple[str, pa.DataType]:
    """Return the dotted field of a column in an action, and its type."""
    if name.startswith(PARTITION):
        return f"partitionValues.{name.removeprefix(PARTITION)}", pa.string()
    return FIELDS[name]


def _flat(raw: pa.Table) -> pa.Table:
    """Return whether rows are adds or removes, and their fields as columns: "add.deletionVector.offset"."""
    kinds = {kind: raw[kind].is_valid() for kind in KINDS if kind in raw.column_names}
    while any(pa.types.is_struct(field.type) for field in raw.schema):
        raw = raw.flatten()
    return pa.table([*kinds.values(), *raw.columns], [*kinds, *raw.column_names])


def is_kind(raw: pa.Table, kind: str) -> pa.Array:
    """Return whether each row is an add or a remove."""
    return one_array(raw[kind]) if kind in raw.column_names else pa.repeat(False, len(raw))


def _vector_id(storage: pa.Array, path: pa.Array, offset: pa.Array) -> pa.Array:
    """Return the unique id of each deletion vector (protocol, "Derived Fields"), null without one."""
    if storage.null_count == len(storage):
        return storage
    body = pc.binary_join_element_wise(storage, path, "")
    return pc.coalesce(pc.binary_join_element_wise(body, offset.cast(pa.string()), "@"), body)


def _lookup(maps: pa.MapArray, key: str) -> pa.Array:
    """Return the value of a key in each map, null without it; ten times as fast as pc.map_lookup."""
    hits = np.flatnonzero(pc.fill_null(pc.equal(maps.keys, key), False).to_numpy(zero_copy_only=False))
    rows = np.searchsorted(maps.offsets.to_numpy(), hits, side="right") - 1
    within = (rows >= 0) & (rows < len(maps))
    positions = np.full(len(maps), -1)
    positions[rows[within]] = hits[within]
    return maps.items.take(pa.array(positions, mask=positions < 0)).cast(pa.string())


def _parquet_columns(names: Iterable[str]) -> list[str]:
    """Return the dotted paths with which a Parquet reader reads these columns of adds and removes."""
    fields = {"partitionValues" if name.startswith(PARTITION) else _field(name)[0] for name in names}
    return [f"{kind}.{field}" for kind in KINDS for field in sorted(fields)]
