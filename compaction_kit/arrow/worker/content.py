"""The content of data files as DuckDB reads it, a reader that shares no code with pyarrow or Spark.

Each row is hashed over all columns, and the hashes of all rows are summed, in whatever order they are read.
What DuckDB's own hash takes for the same is told apart here: the signs of zeros, the ends of lists in lists,
and nulls in lists and structs.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from compaction_kit.arrow.worker.files import Files, Storage
from compaction_kit.arrow.worker.inputs import legacy_sign
from compaction_kit.arrow.worker.rewrite import first_line, spare_modules

_SALT = 0x5EED
# No column is called so.
_PATH = "path of the file, for compaction_kit"
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "1GB",
    "temp_directory": "",
    "preserve_insertion_order": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
# DuckDB reads so many rows at once, whatever is in their lists, and takes some 70 bytes a value to hash them,
# most of which its limit of memory doesn't count.
_BATCH_ROWS, _MOST_VALUES = 2048, 8 << 20
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


class Chunk(NamedTuple):
    """Some files of one set, read together.

    Attributes:
        side: Which set it is.
        files: The group of each, its place as `files.Storage` has it, and its bytes.
    """

    side: int
    files: Sequence[tuple[int, str, int]]

    @property
    def size_bytes(self) -> int:
        """The bytes of all."""
        return sum(size for _, _, size in self.files)


class Content(NamedTuple):
    """What some files of one group of one set hold; `failure` says why it isn't known.

    Attributes:
        side, group: As in `Chunk`.
        num_rows: How many rows they have.
        first, second: The sums of two hashes of each row.
        failure: "" if it is known.
    """

    side: int = 0
    group: int = 0
    num_rows: int = 0
    first: int = 0
    second: int = 0
    failure: str = ""


def read_content(
    chunks: Iterable[tuple[Any, ...]], schema: bytes, report: Callable[[int], None], files: Files | None
) -> Iterator[tuple[Any, ...]]:
    """Read chunks of files, and give what each group of them holds; ends with the first failure.

    Args:
        chunks: In the order of `Chunk`'s fields.
        schema: The columns to read, by physical names, serialized.
        report: Called with the bytes of each chunk that is done.
        files: Of the table, if they aren't on a local disk.

    Returns:
        Plain tuples in the order of `Content`'s fields.
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
            # INT96 names no time zone, and is in this one.
            connection.execute("SET TimeZone = 'UTC'")
            for chunk in itertools.starmap(Chunk, chunks):
                inputs = [(place, size) for _, place, size in chunk.files]
                with storage.on_disk(inputs) as paths:
                    groups = [group for group, _, _ in chunk.files]
                    for found in _contents(connection, dict(zip(paths, groups, strict=True)), columns):
                        yield tuple(found._replace(side=chunk.side))
                report(chunk.size_bytes)
    except Exception as error:
        yield tuple(Content(failure=f"DuckDB can't read them ({type(error).__name__}: {first_line(error)})"))


def _contents(connection: Any, group_of: dict[str, int], columns: pa.Schema) -> Iterator[Content]:
    paths = list(group_of)
    _check_calendar(connection, paths, columns)
    _check_lists(connection, paths, columns)
    rows = connection.execute(content_query(columns), [paths]).fetchall()
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for path, *values in rows:
        sums[group_of[path]] = [a + int(b) for a, b in zip(sums[group_of[path]], values, strict=True)]
    for group, (num_rows, first, second) in sums.items():
        yield Content(group=group, num_rows=num_rows, first=first, second=second)


def _check_calendar(connection: Any, paths: list[str], columns: pa.Schema) -> None:
    """Refuse dates and times of the old calendar, which Spark converts as it reads, and DuckDB doesn't."""
    if not any(map(_has_time, columns.types)):
        return
    query = "SELECT DISTINCT file_name, key, value FROM parquet_kv_metadata(?) WHERE key <> 'ARROW:schema'"
    footers: dict[str, dict[bytes, bytes]] = defaultdict(dict)
    for path, key, value in connection.execute(query, [paths]).fetchall():
        footers[path][key] = value
    for path, footer in footers.items():
        sign = legacy_sign(footer)
        if sign is not None:
            raise ValueError(f"{path} has dates of the old calendar, by {sign}")


def _check_lists(connection: Any, paths: list[str], columns: pa.Schema) -> None:
    """Refuse lists and maps of which so many rows as DuckDB reads at once take too much memory."""
    if not any(map(_has_list, columns.types)):
        return
    batches = (
        f"SELECT sum(num_values) * least(1, {_BATCH_ROWS} / any_value(row_group_num_rows)) AS num_values "
        "FROM parquet_metadata(?) WHERE row_group_num_rows > 0 GROUP BY file_name, row_group_id"
    )
    (most,) = connection.execute(f"SELECT max(num_values) FROM ({batches})", [paths]).fetchone()
    if most is not None and most > _MOST_VALUES:
        raise ValueError(f"{_BATCH_ROWS:,} rows or fewer have about {most:,.0f} values in lists")


def _has_list(kind: pa.DataType) -> bool:
    # A map is a list too.
    is_list = pa.types.is_list(kind) or pa.types.is_map(kind)
    return is_list or any(_has_list(kind.field(i).type) for i in range(kind.num_fields))


def _has_time(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_time(kind.field(i).type) for i in range(kind.num_fields))
    return pa.types.is_temporal(kind)


def content_query(columns: pa.Schema) -> str:
    """SQL that gives the path of each file that has rows, how many, and the sums of two hashes of each.

    Args:
        columns: What to read, by physical names; null where a file lacks them, as for Delta's readers.

    Returns:
        A statement of DuckDB with one parameter, the list of paths.
    """
    path = _quoted(_PATH)
    values = [part for field in columns for part in _parts(_quoted(field.name), field.type)]
    wanted = ", ".join(
        f"{_text(field.name)}: {{name: {_text(field.name)}, type: {_text(type_name(field.type))}, "
        "default_value: NULL}"
        for field in columns
    )
    source = f"read_parquet(?, hive_partitioning=false, filename={_text(_PATH)}, schema=MAP{{{wanted}}})"
    rows = f"SELECT {path}, hash({', '.join(values)}) AS row_hash FROM {source}"
    # Hashed once more: the hash of several values is an XOR of those of each, and sums of such are the same
    # for some rows of which values were swapped.
    sums = f"sum(hash(row_hash)), sum(hash(row_hash, {_SALT}))"
    return f"SELECT {path}, count(*), {sums} FROM ({rows}) GROUP BY ALL"


def _parts(value: str, kind: pa.DataType, depth: int = 0) -> list[str]:
    """What to hash of a value, so that different values have different hashes."""
    if pa.types.is_floating(kind):
        return [value, f"signbit({value}) AND {value} = 0"]
    if pa.types.is_struct(kind):
        fields = [(f"struct_extract({value}, {_text(field.name)})", field.type) for field in kind]
        return [*(part for field in fields for part in _parts(*field, depth)), f"{value} IS NULL"]
    item = f"item{depth}"
    if pa.types.is_map(kind):
        parts = _parts(f"{item}.key", kind.key_type, depth + 1)
        parts += _parts(f"{item}.value", kind.item_type, depth + 1)
        entries = f"map_entries({value})"
        return [f"len({entries})", f"list_sort({_hashes(entries, item, parts)})"]
    if pa.types.is_list(kind):
        return [f"len({value})", _hashes(value, item, _parts(item, kind.value_type, depth + 1))]
    return [value]


def _hashes(items: str, item: str, parts: list[str]) -> str:
    return f"list_transform({items}, lambda {item}: hash({', '.join(parts)}))"


def type_name(kind: pa.DataType) -> str:
    """What DuckDB calls a type of Arrow."""
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
