"""The content of data files as DuckDB reads it: its Parquet reader shares no code with pyarrow or Spark.

Each row is hashed over all columns, and the hashes of all rows are summed, so the order of reading doesn't
matter. DuckDB's own hash doesn't distinguish the signs of zeros, the ends of lists in lists, nulls in lists
and structs, some long texts that differ in two bytes, and some wide decimals; the hash here does.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from compaction_kit.arrow.worker.columns import Columns, fitted, has_type, null_rows
from compaction_kit.arrow.worker.files import Storage
from compaction_kit.arrow.worker.inputs import legacy_sign
from compaction_kit.arrow.worker.rewrite import first_line, spare_modules
from compaction_kit.arrow.worker.vectors import Vector, deleted_rows, int64_array, read_vectors

_SALT = 0x5EED
# No column has one of these names.
_PATH, _ROW = "path of the file, for compaction_kit", "number of the row, for compaction_kit"
_DELETED = "deleted rows"
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    # Files are small or few, and each is read once: threads that read ahead and a cache only take time.
    "async_threads": 0,
    "enable_external_file_cache": False,
    "memory_limit": "1GB",
    "temp_directory": "",
    "preserve_insertion_order": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
# DuckDB reads this many rows at once, however long their lists are, and hashing takes about 70 bytes per
# value, most of which its memory limit doesn't count.
_BATCH_ROWS, _MOST_VALUES = 2048, 8 << 20
# For longer texts, 1 in 256 pairs that differ only in the 8th and 16th byte has equal hashes in DuckDB.
_MOST_BYTES = 12
# For decimals with more digits, DuckDB XORs the hashes of two halves: 0 for 0.00, and for -0.01.
_MOST_DIGITS = 18
_TYPES = {
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}


class Content(NamedTuple):
    """The number of rows in files of one side and partition, and the sums of two hashes of each row.

    `failure` says why they are unknown; "" if they are known.
    """

    side: int = 0
    partition: int = 0
    num_rows: int = 0
    first: int = 0
    second: int = 0
    failure: str = ""


def read_content(
    chunks: Iterable[tuple[int, Sequence[tuple[Any, ...]]]],
    schema: bytes,
    report: Callable[[int], None],
    files: FileSystem | None,
    checks_types: bool = False,
) -> Iterator[tuple[Any, ...]]:
    """Read chunks of files, and yield the content of each partition in them, up to the first failure.

    A chunk is the number of a side, and files to read together, as tuples of `copied.DataFile`'s fields; a
    file with ranges is alone. Results are tuples of `Content`'s fields. `schema` has the columns to read, by
    physical names, serialized; `report` is called with the bytes of each chunk that is done; `files` is the
    file system of a table that isn't on a local disk; `checks_types` says whether files may have other types,
    which DuckDB casts and Spark refuses.
    """
    spare_modules()
    try:
        import duckdb
    except ImportError as error:
        yield tuple(Content(failure=f"executors can't import duckdb ({error})"))
        return
    columns = pa.ipc.read_schema(pa.py_buffer(schema))
    storage = Storage(files)
    try:
        with duckdb.connect(config=_SETTINGS) as connection:
            # INT96 has no time zone, and is in UTC.
            connection.execute("SET TimeZone = 'UTC'")
            for side, found in chunks:
                partitions, places, sizes, descriptors, (ranges, *_) = zip(*found, strict=True)
                with storage.on_disk(list(zip(places, sizes, strict=True))) as paths:
                    partition_of = dict(zip(paths, partitions, strict=True))
                    marked = zip(paths, descriptors, strict=True)
                    vectors = {path: Vector(*vector) for path, vector in marked if vector}
                    if vectors:
                        connection.register(_DELETED, _deleted(vectors, storage))
                    if checks_types:
                        _check_types(paths, columns)
                    query = content_query(columns, bool(vectors), ranges)
                    for content in _contents(connection, partition_of, columns, query):
                        yield tuple(content._replace(side=side))
                report(sum(sizes))
    except Exception as error:
        yield tuple(Content(failure=f"DuckDB can't read them ({type(error).__name__}: {first_line(error)})"))


def _deleted(vectors: Mapping[str, Vector], storage: Storage) -> pa.Table:
    """Return the deleted rows of files, as the file's path and the row's number."""
    bitmaps = read_vectors(vectors, storage)
    rows = [deleted_rows(bitmaps[path], vector) for path, vector in vectors.items()]
    numbers = np.repeat(np.arange(len(rows)), [len(one) for one in rows])
    texts = [path.encode() for path in vectors]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    paths = pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))
    named = pa.DictionaryArray.from_arrays(int64_array(numbers), paths)
    return pa.Table.from_arrays([named, int64_array(np.concatenate(rows))], [_PATH, _ROW])


def _contents(
    connection: Any, partition_of: dict[str, int], columns: pa.Schema, query: str
) -> Iterator[Content]:
    paths = list(partition_of)
    _check_calendar(connection, paths, columns)
    _check_lists(paths, columns)
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for path, *values in connection.execute(query, [paths]).fetchall():
        total = sums[partition_of[path]]
        total[:] = [a + int(b) for a, b in zip(total, values, strict=True)]
    for partition, (num_rows, first, second) in sums.items():
        yield Content(partition=partition, num_rows=num_rows, first=first, second=second)


def _check_calendar(connection: Any, paths: list[str], columns: pa.Schema) -> None:
    """Refuse dates and times of the hybrid calendar, which Spark converts and DuckDB doesn't."""
    if not any(has_type(kind, pa.types.is_temporal) for kind in columns.types):
        return
    query = "SELECT DISTINCT file_name, key, value FROM parquet_kv_metadata(?) WHERE key <> 'ARROW:schema'"
    footers: dict[str, dict[bytes, bytes]] = defaultdict(dict)
    for path, key, value in connection.execute(query, [paths]).fetchall():
        footers[path][key] = value
    for path, footer in footers.items():
        if (sign := legacy_sign(footer)) is not None:
            raise ValueError(f"{path} has dates of the legacy hybrid calendar, by {sign}")


def _check_types(paths: Iterable[str], columns: pa.Schema) -> None:
    """Refuse columns of another type, or with a name that differs in case."""
    known = Columns(columns)
    for path in paths:
        types = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").schema_arrow
        known.found_in(types)
        fitted(null_rows(types, 0), columns)


def _check_lists(paths: list[str], columns: pa.Schema) -> None:
    """Refuse lists and maps that take too much memory in the number of rows that DuckDB reads at once."""
    kinds = pa.types.is_list, pa.types.is_map
    if not any(has_type(column, kind) for column in columns.types for kind in kinds):
        return
    # pyarrow reads footers more than twice as fast as DuckDB.
    for metadata in map(pq.read_metadata, paths):
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            most = sum(group.column(i).num_values for i in range(group.num_columns))
            most *= min(1, _BATCH_ROWS / max(group.num_rows, 1))
            if most > _MOST_VALUES:
                raise ValueError(f"{_BATCH_ROWS:,} rows or fewer have about {most:,.0f} values in lists")


def content_query(
    columns: pa.Schema, has_deleted: bool = False, ranges: Sequence[tuple[int, int]] = ()
) -> str:
    """Return SQL with one parameter, a list of paths, for each path's number of rows and sums of two hashes.

    Columns that a file lacks are null, as for Delta's readers. With `has_deleted`, the rows in `_DELETED`
    don't count. With `ranges`, only these rows count; DuckDB doesn't read row groups without such rows.
    """
    path = _quoted(_PATH)
    values = [part for field in columns for part in _parts(_quoted(field.name), field.type)]
    wanted = ", ".join(
        f"{_text(field.name)}: {{name: {_text(field.name)}, type: {_text(type_name(field.type))}, "
        "default_value: NULL}"
        for field in columns
    )
    numbers = ", file_row_number=true" if has_deleted or ranges else ""
    source = (
        f"read_parquet(?, hive_partitioning=false, filename={_text(_PATH)}{numbers}, schema=MAP{{{wanted}}})"
    )
    if has_deleted:
        deleted = _quoted(_DELETED)
        source += f" files ANTI JOIN {deleted} ON files.{path} = {deleted}.{path} AND "
        source += f"files.file_row_number = {deleted}.{_quoted(_ROW)}"
    if ranges:
        counted = (f"file_row_number BETWEEN {first} AND {end - 1}" for first, end in ranges)
        source += f" WHERE {' OR '.join(counted)}"
    rows = f"SELECT {path}, hash({', '.join(values)}) AS row_hash FROM {source}"
    # Hashed once more, because DuckDB's hash of several values is the XOR of their hashes, and the sums of
    # such hashes are equal for some rows with swapped values.
    sums = f"sum(hash(row_hash)), sum(hash(row_hash, {_SALT}))"
    return f"SELECT {path}, count(*), {sums} FROM ({rows}) GROUP BY ALL"


def _parts(value: str, kind: pa.DataType) -> list[str]:
    """Return the SQL values to hash for a value, so that different values have different hashes."""
    if pa.types.is_floating(kind):
        return [value, f"signbit({value}) AND {value} = 0"]
    if pa.types.is_struct(kind):
        fields = [(f"struct_extract({value}, {_text(field.name)})", field.type) for field in kind]
        return [*(part for field in fields for part in _parts(*field)), f"{value} IS NULL"]
    if pa.types.is_map(kind):
        parts = [*_parts("item.key", kind.key_type), *_parts("item.value", kind.item_type)]
        entries = f"map_entries({value})"
        return [f"len({entries})", f"list_sort({_hashes(entries, parts)})"]
    if pa.types.is_list(kind):
        return [f"len({value})", _hashes(value, _parts("item", kind.value_type))]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        length = "strlen" if pa.types.is_string(kind) else "octet_length"
        return [value, f"CASE WHEN {length}({value}) > {_MOST_BYTES} THEN md5_number({value}) END"]
    if pa.types.is_decimal(kind) and kind.precision > _MOST_DIGITS:
        return [value, f"{value}::DOUBLE"]
    return [value]


def _hashes(items: str, parts: list[str]) -> str:
    # In lists of lists, an inner `item` hides the outer one.
    return f"list_transform({items}, lambda item: hash({', '.join(parts)}))"


def type_name(kind: pa.DataType) -> str:
    """Return DuckDB's name of an Arrow type."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        fields = (f"{_quoted(field.name)} {type_name(field.type)}" for field in kind)
        return f"STRUCT({', '.join(fields)})"
    if pa.types.is_map(kind):
        return f"MAP({type_name(kind.key_type)}, {type_name(kind.item_type)})"
    return f"{type_name(kind.value_type)}[]" if pa.types.is_list(kind) else _TYPES[kind]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
