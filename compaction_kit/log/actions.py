"""Add and remove actions as Arrow columns, from commits and checkpoints alike.

A table of file actions has one row per action:

    is_add bool, path string (see `paths.canonical_paths`), size_bytes int64, deletion_vector_id string,
    source and row int64 (the file of the log and the row in it, to read the other fields later).

The other fields of an action are details, read only when they are needed:

    modification_time int64 (adds; ms since 1970), deletion_timestamp int64 (removes; ms since 1970),
    data_change bool, deletion_vector_cardinality int64, stats string (JSON),
    stats_num_records int64 (where a checkpoint has parsed stats), and partition.<physical name>
    string (as the log writes it; "" and null both mean null, but Delta groups them separately).
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.paths import canonical_paths, one_array
from compaction_kit.log.reading import DAMAGE

PARTITION = "partition."
# The field of the action, and the type, of each column.
FIELDS: dict[str, tuple[tuple[str, ...], pa.DataType]] = {
    "path": (("path",), pa.string()),
    "size_bytes": (("size",), pa.int64()),
    "modification_time": (("modificationTime",), pa.int64()),
    "deletion_timestamp": (("deletionTimestamp",), pa.int64()),
    "data_change": (("dataChange",), pa.bool_()),
    "deletion_vector_storage": (("deletionVector", "storageType"), pa.string()),
    "deletion_vector_path": (("deletionVector", "pathOrInlineDv"), pa.string()),
    "deletion_vector_offset": (("deletionVector", "offset"), pa.int64()),
    "deletion_vector_cardinality": (("deletionVector", "cardinality"), pa.int64()),
    "stats": (("stats",), pa.string()),
    "stats_num_records": (("stats_parsed", "numRecords"), pa.int64()),
}
CORE = (
    "path",
    "size_bytes",
    "deletion_vector_storage",
    "deletion_vector_path",
    "deletion_vector_offset",
)
_TEXTS = pa.map_(pa.string(), pa.string())
_NAMES = pa.list_(pa.string())
# Rows in a run, on average, from which on slices are faster than picking row by row.
_LEAST_RUN = 100
_LEADING_COUNT = r'^\{"numRecords": ?(?P<count>\d{1,18})[,}]'
# Actions without a data file, read row by row: the fields that are used here. Required fields are not
# nullable.
OTHERS = {
    "protocol": pa.struct(
        [
            pa.field("minReaderVersion", pa.int32(), nullable=False),
            pa.field("minWriterVersion", pa.int32(), nullable=False),
            pa.field("readerFeatures", _NAMES),
            pa.field("writerFeatures", _NAMES),
        ]
    ),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "schemaString": pa.string(),
            "partitionColumns": _NAMES,
            "configuration": _TEXTS,
        }
    ),
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64()}),
    "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    "sidecar": pa.struct(
        [
            pa.field("path", pa.string(), nullable=False),
            # Delta would read a sidecar without a size as empty.
            pa.field("sizeInBytes", pa.int64(), nullable=False),
        ]
    ),
}


def place(name: str) -> tuple[tuple[str, ...], pa.DataType]:
    """Return the path of a column's field in an action, and its type."""
    if name.startswith(PARTITION):
        return ("partitionValues", name.removeprefix(PARTITION)), pa.string()
    return FIELDS[name]


def checked(name: str, action: Any) -> dict[str, Any]:
    """Return an action of one of `OTHERS` unchanged if its fields are valid.

    Raises:
        ValueError, TypeError, pa.ArrowException: A field is missing or has another type.
    """
    if not isinstance(action, dict):
        raise TypeError(f"its {name} action is not an object")
    missing = [field.name for field in OTHERS[name] if not field.nullable and action.get(field.name) is None]
    if missing:
        raise ValueError(f"its {name} action has no {missing[0]}")
    pa.array([action], OTHERS[name])
    return action


def fitting(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Convert values to a column for display, with null for values of another type."""
    try:
        return pa.array(values, data_type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        if len(values) == 1:
            return pa.nulls(1, data_type)
        half = len(values) // 2
        return pa.concat_arrays([fitting(values[:half], data_type), fitting(values[half:], data_type)])


def file_actions(raw: pa.Table, source: int) -> pa.Table:
    """Return the file actions among rows of a log, in the order of the rows.

    Args:
        raw: Columns "add" and "remove": structs with the CORE fields, null where the row is
            another action. Either may be missing.
        source: The number of the file that holds the rows.

    Raises:
        CorruptLogError: An action has no path, or an add no valid size.
    """
    tables = [_of_one_kind(raw, kind, source) for kind in ("add", "remove")]
    nonempty = [table for table in tables if len(table)]
    if len(nonempty) < 2:
        return nonempty[0] if nonempty else tables[0]
    return pa.concat_tables(nonempty).sort_by("row")


def column(raw: pa.Table, kind: str, name: str) -> pa.Array:
    """Return one column of the adds or removes: a value per row of the log, null for other rows."""
    names, data_type = place(name)
    actions = _actions(raw, kind)
    if name.startswith(PARTITION):
        values = _field(actions, names[:1])
        return (
            _lookup(values, names[1])
            if pa.types.is_map(values.type)
            else _field(values, names[1:], data_type)
        )
    return _field(actions, names, data_type)


def check_columns(raw: pa.Table, names: Iterable[str]) -> None:
    """Check that `file_actions` and `column` can read these columns from rows of a checkpoint.

    Raises:
        ValueError, TypeError, LookupError, pa.ArrowException: A column has another type, appears
            twice, or holds invalid values.
    """
    for kind in ("add", "remove"):
        actions = _actions(raw, kind)
        if not pa.types.is_null(actions.type) and not pa.types.is_struct(actions.type):
            raise TypeError(f"its column {kind} is {actions.type}")
        for name in names:
            if not name.startswith(PARTITION):
                column(raw, kind, name).validate(full=True)
        values = _field(actions, ["partitionValues"])
        if pa.types.is_map(values.type):
            values.validate(full=True)


def _actions(raw: pa.Table, kind: str) -> pa.Array:
    return one_array(raw[kind]) if kind in raw.column_names else pa.nulls(len(raw))


def _of_one_kind(raw: pa.Table, kind: str, source: int) -> pa.Table:
    actions = _actions(raw, kind)
    rows = pc.indices_nonzero(actions.is_valid()).cast(pa.int64())
    if len(rows) < len(actions):
        actions = picked(actions, rows)
    core = {name: _field(actions, *place(name)) for name in CORE}
    if core["path"].null_count:
        raise CorruptLogError(f"The log holds a {kind} action without a path: restore it from a backup.")
    if kind == "add":
        _check_sizes(core["path"], core["size_bytes"])
    return pa.table(
        {
            "is_add": pa.repeat(kind == "add", len(rows)),
            "path": canonical_paths(core["path"]),
            "size_bytes": core["size_bytes"],
            "deletion_vector_id": _vector_id(core),
            "source": pa.repeat(pa.scalar(source, pa.int64()), len(rows)),
            "row": rows,
        }
    )


def _check_sizes(paths: pa.Array, sizes: pa.Array) -> None:
    """Check the sizes of adds; only removes may lack one (protocol, "Add File and Remove File")."""
    if sizes.null_count or (pc.min(sizes).as_py() or 0) < 0:
        row = pc.indices_nonzero(pc.fill_null(pc.less(sizes, 0), True))[0].as_py()
        raise CorruptLogError(
            f"The log says that the file {paths[row]} has {sizes[row]} bytes: restore it from a backup."
        )


def picked(values: pa.Array, rows: pa.Array) -> pa.Array:
    """Take the values of ascending rows: most of a log's files hold adds in long runs, which are sliced.

    Raises:
        pa.ArrowIndexError: There is no such row.
    """
    numbers = rows.to_numpy()
    starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    if not len(numbers) or len(starts) * _LEAST_RUN > len(numbers) or numbers[-1] >= len(values):
        return values.take(rows)
    runs = np.split(numbers, starts[1:])
    slices = [values.slice(int(run[0]), len(run)) for run in runs]
    return slices[0] if len(slices) == 1 else pa.concat_arrays(slices)


def _vector_id(core: dict[str, pa.Array]) -> pa.Array:
    """Return the unique id of each deletion vector (protocol, "Derived Fields"), null without one."""
    storage = core["deletion_vector_storage"]
    if storage.null_count == len(storage):
        return storage
    body = pc.binary_join_element_wise(storage, core["deletion_vector_path"], "")
    offset = core["deletion_vector_offset"].cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise(body, offset, "@"), body)


def _field(array: pa.Array, names: Sequence[str], data_type: pa.DataType | None = None) -> pa.Array:
    """Return a nested field, cast to a type; nulls if it is missing."""
    for name in names:
        index = array.type.get_field_index(name) if pa.types.is_struct(array.type) else -1
        if index < 0:
            return pa.nulls(len(array), data_type or pa.null())
        array = pc.struct_field(array, [index])
    return array if data_type is None else array.cast(data_type)


def _lookup(maps: pa.MapArray, key: str) -> pa.Array:
    """Return the value of a key in each map, null without it; ten times as fast as pc.map_lookup."""
    hits = np.flatnonzero(pc.fill_null(pc.equal(maps.keys, key), False).to_numpy(zero_copy_only=False))
    rows = np.searchsorted(maps.offsets.to_numpy(), hits, side="right") - 1
    within = (rows >= 0) & (rows < len(maps))
    positions = np.full(len(maps), -1)
    positions[rows[within]] = hits[within]
    return maps.items.take(pa.array(positions, mask=positions < 0)).cast(pa.string())


def json_schema(names: Iterable[str]) -> pa.Schema:
    """Return the schema with which a JSON reader reads these columns of adds and removes."""
    nested: dict[str, list[tuple[str, pa.DataType]]] = {}
    flat: dict[str, pa.DataType] = {}
    for name in names:
        path, data_type = place(name)
        if len(path) == 1:
            flat[path[0]] = data_type
        else:
            nested.setdefault(path[0], []).append((path[1], data_type))
    action = pa.struct([*flat.items(), *((name, pa.struct(fields)) for name, fields in nested.items())])
    return pa.schema([("add", action), ("remove", action)])


def parquet_columns(names: Iterable[str]) -> list[str]:
    """Return the dotted paths with which a Parquet reader reads these columns of adds and removes."""
    paths = {place(name)[0] for name in names}
    inner = {path[:1] if path[0] == "partitionValues" else path for path in paths}
    return [".".join((kind, *path)) for kind in ("add", "remove") for path in sorted(inner)]


def count_records(stats: pa.Array) -> pa.Array:
    """Return numRecords of each stats text, deleted rows included (protocol, "Per-file Statistics").

    Args:
        stats: The JSON text of each file, null for none (string).

    Returns:
        An int64 array; null where there is no number, or one that no count can be.
    """
    # All known writers put it first, where it is read from all texts at once.
    counts = pc.struct_field(pc.extract_regex(stats, _LEADING_COUNT), "count").cast(pa.int64())
    rest = pc.and_(stats.is_valid(), counts.is_null())
    parsed = [_parse_count(text) for text in stats.filter(rest).to_pylist()]
    return pc.replace_with_mask(counts, rest, pa.array(parsed, pa.int64())) if parsed else counts


def _parse_count(text: str) -> int | None:
    try:
        number = json.loads(text).get("numRecords")
    except DAMAGE:
        return None
    return number if type(number) is int and 0 <= number < 2**63 else None
