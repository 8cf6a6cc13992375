"""Add and remove actions as Arrow columns, whichever file of the log has them.

A table of file actions has a row an action:

    is_add bool, path string (see `paths.canonical_paths`), size_bytes int64, deletion_vector_id string,
    source and row int64 (which file of the log, and where in it, to read the rest later).

What else an action says is a detail, read when it is asked for:

    modification_time int64 (adds; ms since 1970), deletion_timestamp int64 (removes; the same),
    data_change bool, deletion_vector_cardinality int64, stats string (JSON),
    stats_num_records int64 (where a checkpoint has parsed stats), and partition.<physical name>
    string (as the log writes it; "" and null both mean null, and Delta still groups them apart).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.paths import canonical_paths

PARTITION = "partition."
# Where each column is in an action.
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
# Actions that are about no file, and those that name sidecars: read as they are, row by row. The
# fields of each that are read here; what mustn't be missing is not nullable.
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
            # Delta takes a file without a size for an empty one, and loses what is in it.
            pa.field("sizeInBytes", pa.int64(), nullable=False),
        ]
    ),
}


def place(name: str) -> tuple[tuple[str, ...], pa.DataType]:
    """Where a column is in an action, and its type."""
    if name.startswith(PARTITION):
        return ("partitionValues", name.removeprefix(PARTITION)), pa.string()
    return FIELDS[name]


def checked(name: str, action: Any) -> dict[str, Any]:
    """An action of one of `OTHERS`, as it is.

    Raises:
        ValueError, TypeError, pa.ArrowException: A field is missing, or is of another type.
    """
    if not isinstance(action, dict):
        raise TypeError(f"its {name} action is no object")
    missing = [field.name for field in OTHERS[name] if not field.nullable and action.get(field.name) is None]
    if missing:
        raise ValueError(f"its {name} action has no {missing[0]}")
    pa.array([action], OTHERS[name])
    return action


def fitting(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Values as a column, for people to read; null for each that is of another type."""
    try:
        return pa.array(values, data_type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        if len(values) == 1:
            return pa.nulls(1, data_type)
        half = len(values) // 2
        return pa.concat_arrays([fitting(values[:half], data_type), fitting(values[half:], data_type)])


def file_actions(raw: pa.Table, source: int) -> pa.Table:
    """The file actions among rows of a log, in the order of the rows.

    Args:
        raw: Columns "add" and "remove": structs with the CORE fields, null where the row is
            another action. Either may be missing.
        source: The number of the file that the rows are from.

    Raises:
        CorruptLogError: An action has no path, or an add no size that a file can have.
    """
    kinds = [_of_one_kind(raw, kind, source) for kind in ("add", "remove")]
    found = [kind for kind in kinds if len(kind)]
    if len(found) < 2:
        return found[0] if found else kinds[0]
    return pa.concat_tables(found).sort_by("row")


def column(raw: pa.Table, kind: str, name: str) -> pa.Array:
    """One column of the adds or removes, a value a row of the log; null where there is none."""
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
    """Refuse rows of a checkpoint from which `file_actions` and `column` couldn't take these columns.

    Raises:
        ValueError, TypeError, LookupError, pa.ArrowException: A column is of another type, is there
            twice, or holds what isn't of its type.
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
    return raw[kind].combine_chunks() if kind in raw.column_names else pa.nulls(len(raw))


def _of_one_kind(raw: pa.Table, kind: str, source: int) -> pa.Table:
    actions = _actions(raw, kind)
    rows = pc.indices_nonzero(actions.is_valid()).cast(pa.int64())
    if len(rows) < len(actions):
        actions = _picked(actions, rows)
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
    """An add tells the file's bytes (protocol, "Add File and Remove File"); a remove may."""
    if sizes.null_count or (pc.min(sizes).as_py() or 0) < 0:
        row = pc.indices_nonzero(pc.fill_null(pc.less(sizes, 0), True))[0].as_py()
        raise CorruptLogError(
            f"The log says that the file {paths[row]} has {sizes[row]} bytes: restore it from a backup."
        )


def _picked(actions: pa.Array, rows: pa.Array) -> pa.Array:
    """Some of the actions; a checkpoint's adds mostly stand in one run, which needs no copy."""
    if len(rows) and rows[-1].as_py() - rows[0].as_py() == len(rows) - 1:
        return actions.slice(rows[0].as_py(), len(rows))
    return actions.take(rows)


def _vector_id(core: dict[str, pa.Array]) -> pa.Array:
    """The unique id of each deletion vector (protocol, "Derived Fields"), null without one."""
    storage = core["deletion_vector_storage"]
    if storage.null_count == len(storage):
        return storage
    body = pc.binary_join_element_wise(storage, core["deletion_vector_path"], "")
    offset = core["deletion_vector_offset"].cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise(body, offset, "@"), body)


def _field(array: pa.Array, names: Sequence[str], data_type: pa.DataType | None = None) -> pa.Array:
    """A nested field, cast to a type; nulls where it isn't there."""
    for name in names:
        index = array.type.get_field_index(name) if pa.types.is_struct(array.type) else -1
        if index < 0:
            return pa.nulls(len(array), data_type or pa.null())
        array = pc.struct_field(array, [index])
    return array if data_type is None else array.cast(data_type)


def _lookup(maps: pa.MapArray, key: str) -> pa.Array:
    """The value of a key in each map, null without it; pyarrow's map_lookup takes ten times as long."""
    hits = np.flatnonzero(pc.fill_null(pc.equal(maps.keys, key), False).to_numpy(zero_copy_only=False))
    rows = np.searchsorted(maps.offsets.to_numpy(), hits, side="right") - 1
    within = (rows >= 0) & (rows < len(maps))
    positions = np.full(len(maps), -1)
    positions[rows[within]] = hits[within]
    return maps.items.take(pa.array(positions, mask=positions < 0)).cast(pa.string())


def json_schema(names: Iterable[str]) -> pa.Schema:
    """The schema of raw rows that has these columns in both kinds of action, for a JSON reader."""
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
    """The dotted paths of these columns in a checkpoint, for a Parquet reader."""
    paths = {place(name)[0] for name in names}
    inner = {path[:1] if path[0] == "partitionValues" else path for path in paths}
    return [".".join((kind, *path)) for kind in ("add", "remove") for path in sorted(inner)]
