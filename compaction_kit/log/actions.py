"""Add and remove actions as Arrow columns, one row per action in the order of the log:

    is_add bool, path string (see `paths.canonical_paths`), size_bytes int64, deletion_vector_id string,
    source and row int64 (the number of the source and the row in it, to read the other fields later).

The other fields are details, read only when they are needed:

    modification_time int64 (adds; ms since 1970), deletion_timestamp int64 (removes; ms since 1970),
    data_change bool, deletion_vector_cardinality int64, stats string (JSON),
    stats_num_records int64 (where a checkpoint has parsed stats), and partition.<physical name>
    string (as the log writes it; "" and null both mean null, but Delta groups them separately).
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import DAMAGE, CorruptLogError
from compaction_kit.log.paths import canonical_paths, one_array

PARTITION, TAG = "partition.", "tag."
# Columns with these prefixes hold the values of one key in a map of the action.
MAPS = {PARTITION: "partitionValues", TAG: "tags"}
KINDS = ("add", "remove")
# The action's field and the type of each column.
FIELDS = {
    "path": ("path", pa.string()),
    "size_bytes": ("size", pa.int64()),
    "modification_time": ("modificationTime", pa.int64()),
    "deletion_timestamp": ("deletionTimestamp", pa.int64()),
    "data_change": ("dataChange", pa.bool_()),
    "deletion_vector_storage": ("deletionVector.storageType", pa.string()),
    "deletion_vector_path": ("deletionVector.pathOrInlineDv", pa.string()),
    "deletion_vector_offset": ("deletionVector.offset", pa.int64()),
    "deletion_vector_size": ("deletionVector.sizeInBytes", pa.int64()),
    "deletion_vector_cardinality": ("deletionVector.cardinality", pa.int64()),
    "base_row_id": ("baseRowId", pa.int64()),
    "default_row_commit_version": ("defaultRowCommitVersion", pa.int64()),
    "stats": ("stats", pa.string()),
    "clustering_provider": ("clusteringProvider", pa.string()),
    "stats_num_records": ("stats_parsed.numRecords", pa.int64()),
}
_VECTOR = ("deletion_vector_storage", "deletion_vector_path", "deletion_vector_offset")
# A deletion vector's descriptor, and the row ids and versions of rows that don't store their own.
_ROWS = ("base_row_id", "default_row_commit_version")
REMOVAL_FIELDS = (*_VECTOR, "deletion_vector_size", "deletion_vector_cardinality", *_ROWS)
CORE = ("path", "size_bytes", *_VECTOR)
DETAILS = ("modification_time", "deletion_timestamp", "data_change", "deletion_vector_cardinality")
# From this average length of a run on, slicing runs is faster than taking single rows.
_LEAST_RUN = 100


def field_of(name: str) -> tuple[str, pa.DataType]:
    """Return the field of an action that a column holds, as a dotted path, and its type."""
    prefix, dot, key = name.partition(".")
    return (f"{MAPS[prefix + dot]}.{key}", pa.string()) if dot else FIELDS[name]


def flattened(raw: pa.Table) -> pa.Table:
    """Return bool columns "add" and "remove", and nested fields as columns: "add.deletionVector.offset"."""
    kinds = {kind: raw[kind].is_valid() for kind in KINDS if kind in raw.column_names}
    while any(pa.types.is_struct(field.type) for field in raw.schema):
        raw = raw.flatten()
    return pa.table([*kinds.values(), *raw.columns], [*kinds, *raw.column_names])


def is_kind(raw: pa.Table, kind: str) -> pa.Array:
    """Return whether each row is an add or a remove."""
    return one_array(raw[kind]) if kind in raw.column_names else pa.repeat(False, len(raw))


def column(raw: pa.Table, kind: str, name: str) -> pa.Array:
    """Return one column of the adds or removes: a value per row of the log, null for other rows."""
    field, data_type = field_of(name)
    if f"{kind}.{field}" in raw.column_names:
        return one_array(raw[f"{kind}.{field}"]).cast(data_type)
    outer, _, key = field.partition(".")
    if outer in MAPS.values() and f"{kind}.{outer}" in raw.column_names:
        return _lookup(one_array(raw[f"{kind}.{outer}"]), key)
    return pa.nulls(len(raw), data_type)


def file_actions(raw: pa.Table, source: int) -> pa.Table:
    """Return the file actions among a source's rows, which must have the columns `CORE`."""
    tables = []
    for kind in KINDS:
        rows = pc.indices_nonzero(is_kind(raw, kind)).cast(pa.int64())
        path, size, *vector = (picked(column(raw, kind, name), rows) for name in CORE)
        if path.null_count:
            raise CorruptLogError(f"The log has {kind} actions without a path: restore it from a backup.")
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


def picked(values: pa.Array, rows: pa.Array) -> pa.Array:
    """Take the values at ascending rows; slices long runs of rows, as most files of a log have them."""
    numbers = rows.to_numpy()
    starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    if not len(numbers) or len(starts) * _LEAST_RUN > len(numbers) or numbers[-1] >= len(values):
        return values.take(rows)
    slices = [values.slice(int(run[0]), len(run)) for run in np.split(numbers, starts[1:])]
    return slices[0] if len(slices) == 1 else pa.concat_arrays(slices)


def count_records(stats: pa.Array) -> pa.Array:
    """Return numRecords (int64) of each stats text, deleted rows included; null if missing or not a count."""
    # All known writers put numRecords first, so one regular expression reads it from all texts at once.
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
