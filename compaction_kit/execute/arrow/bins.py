"""One bin rewritten: Parquet files in, one out, in bounded memory. Runs on executors.

Executors need pyarrow and not this package: what is here is sent to them as it is, so that it
imports nothing of the rest.
"""

import itertools
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

# A row group is closed at either. With what is read ahead, a task holds a few times these bytes.
GROUP_BYTES = 128 << 20
GROUP_ROWS = 1_000_000
_BATCH_ROWS = 1 << 16
# Files of at most so many bytes and values are read whole and ahead.
_SMALL_BYTES = 4 << 20
_SMALL_VALUES = 1 << 20
_READ_AHEAD = 8
# What pyarrow calls each codec that footers name, and what a file's name has before "parquet".
_CODECS = {
    "UNCOMPRESSED": ("none", ""),
    "SNAPPY": ("snappy", "snappy."),
    "GZIP": ("gzip", "gz."),
    "ZSTD": ("zstd", "zstd."),
    "LZ4": ("lz4", "lz4raw."),
    "BROTLI": ("brotli", "br."),
}
# Footers that say so hold dates or times in the calendar of old, and so do those of Spark before
# 3.1 (DataSourceUtils, datetimeRebaseSpec and int96RebaseSpec).
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"
_FIRST_OF_TODAY = (3, 1)


class Bin(NamedTuple):
    """What a task needs to know: paths are absolute, the schema serialized.

    `output` is what the output's path begins with: each try of a task ends it in its own way, so
    that two of them never write to one file.
    """

    number: int
    inputs: Sequence[str]
    output: str
    schema: bytes
    footer: dict[str, str]


class Rewritten(NamedTuple):
    """What came of a bin; `refusal` or `failure` says why nothing did, if so."""

    number: int
    path: str
    size_bytes: int
    num_rows: int
    modification_time: int
    seconds: float
    refusal: str | None = None
    failure: str | None = None


class Refused(Exception):
    """The bin's files hold what can't be rewritten faithfully."""


def rewrite_bins(bins: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Rewrite bins one after another.

    Args:
        bins: In the order of `Bin`'s fields.

    Returns:
        Plain tuples in the order of `Rewritten`'s.
    """
    for one in itertools.starmap(Bin, bins):
        start = time.monotonic()
        try:
            path, num_rows = rewrite_bin(one)
        except Refused as error:
            yield _nothing(one, start, refusal=_first_line(error))
            continue
        except Exception as error:
            # Told, not raised: else Spark would try again, and the outputs of other bins were lost.
            yield _nothing(one, start, failure=_first_line(error))
            continue
        status = os.stat(path)
        modified = int(status.st_mtime * 1000)
        yield tuple(Rewritten(one.number, path, status.st_size, num_rows, modified, time.monotonic() - start))


def _nothing(one: Bin, start: float, **why: str) -> tuple[Any, ...]:
    return tuple(Rewritten(one.number, "", 0, 0, 0, time.monotonic() - start, **why))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def rewrite_bin(one: Bin) -> tuple[str, int]:
    """Write a bin's rows to one file, in their order, compressed as the first input is.

    Returns:
        The file's path, and how many rows there are.

    Raises:
        Refused: A file can't be rewritten faithfully.
    """
    schema = pa.ipc.read_schema(pa.py_buffer(one.schema))
    codec, suffix = _codec(one.inputs[0])
    path = f"{one.output}-{uuid.uuid4().hex[:8]}.c000.{suffix}parquet"
    num_rows = 0
    try:
        with pq.ParquetWriter(
            path,
            schema,
            compression=codec,
            version="2.6",
            store_schema=False,
            store_decimal_as_integer=True,
            write_page_checksum=True,
        ) as writer:
            for group in _groups(_tables(one.inputs, schema)):
                writer.write_table(group, row_group_size=len(group) or None)
                num_rows += len(group)
            writer.add_key_value_metadata(one.footer)
    except BaseException:
        if os.path.exists(path):
            os.remove(path)
        raise
    return path, num_rows


def _codec(path: str) -> tuple[str, str]:
    with pq.ParquetFile(path) as file:
        if not file.num_row_groups or not file.metadata.num_columns:
            return _CODECS["SNAPPY"]
        codec = file.metadata.row_group(0).column(0).compression
    if codec not in _CODECS:
        raise Refused(f"the file {os.path.basename(path)} is compressed with {codec}")
    return _CODECS[codec]


def _groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows in pieces as large as a row group."""
    held: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        held.append(table)
        rows += len(table)
        size += table.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.concat_tables(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)


def _tables(paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of the files in order; small files are read ahead by some threads."""
    with ThreadPoolExecutor(_READ_AHEAD) as pool:
        waiting = iter(paths)
        pending = [
            pool.submit(_read_small, path, schema) for path in itertools.islice(waiting, 2 * _READ_AHEAD)
        ]
        for path in paths:
            whole = pending.pop(0).result()
            pending += [pool.submit(_read_small, later, schema) for later in itertools.islice(waiting, 1)]
            if whole is not None:
                yield whole
            else:
                yield from _read_large(path, schema)


def _read_small(path: str, schema: pa.Schema) -> pa.Table | None:
    """A file's rows, or None if it is to be read piece by piece."""
    if os.path.getsize(path) > _SMALL_BYTES:
        return None
    with _open(path) as file:
        if file.metadata.num_rows * file.metadata.num_columns > _SMALL_VALUES:
            return None
        table = file.read(columns=_wanted(file, schema), use_threads=False)
        _check_count(path, len(table), file)
        return _fitted(table, schema)


def _read_large(path: str, schema: pa.Schema) -> Iterator[pa.Table]:
    count = 0
    with _open(path) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=_wanted(file, schema)):
            count += len(batch)
            yield _fitted(pa.Table.from_batches([batch]), schema)
        _check_count(path, count, file)


def _check_count(path: str, count: int, file: pq.ParquetFile) -> None:
    if count != file.metadata.num_rows:
        raise OSError(f"{path} has {file.metadata.num_rows} rows by its footer, and {count} were read")


def _open(path: str) -> pq.ParquetFile:
    file = pq.ParquetFile(
        path, coerce_int96_timestamp_unit="us", pre_buffer=False, page_checksum_verification=True
    )
    legacy = _legacy_sign(file.metadata.metadata or {})
    if legacy is not None:
        file.close()
        raise Refused(f"the file {os.path.basename(path)} has dates of the old calendar ({legacy})")
    return file


def _legacy_sign(footer: dict[bytes, bytes]) -> str | None:
    marks = [key.decode() for key in _LEGACY if key in footer]
    version = footer.get(_VERSION, b"").decode()
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    is_old = bool(version) and tuple(numbers) < _FIRST_OF_TODAY
    return marks[0] if marks else f"Spark {version}" if is_old else None


def _wanted(file: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    """The table's columns that the file has.

    Raises:
        Refused: It has one under a name of another case, as Spark takes for the same.
    """
    have = file.schema_arrow.names
    lacking = {name.lower(): name for name in schema.names if name not in have}
    for name in have:
        if name.lower() in lacking:
            raise Refused(f"a file has the column {name} where the table has {lacking[name.lower()]}")
    return [name for name in schema.names if name in have]


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the table's columns and types; what an older file lacks is null."""
    columns = [
        _cast(table[field.name], field.type)
        if field.name in table.column_names
        else pa.chunked_array([pa.nulls(len(table), field.type)])
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    if _is_same(column.type, wanted):
        return column.cast(wanted)
    raise Refused(f"a file has {column.type} where the table has {wanted}")


def _is_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a type holds the same values under another name: a cast changes none."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        # INT96 has no zone in its type, and Spark means UTC.
        return bool(found.unit == wanted.unit)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        names = [field.name for field in wanted]
        return names == [field.name for field in found] and all(
            _is_same(found.field(i).type, wanted.field(i).type) for i in range(len(names))
        )
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return _is_same(found.key_type, wanted.key_type) and _is_same(found.item_type, wanted.item_type)
    if (pa.types.is_list(found) or pa.types.is_large_list(found)) and pa.types.is_list(wanted):
        return _is_same(found.value_type, wanted.value_type)
    if pa.types.is_string(wanted):
        return bool(pa.types.is_large_string(found) or pa.types.is_string_view(found) or found == wanted)
    if pa.types.is_binary(wanted):
        return bool(pa.types.is_large_binary(found) or pa.types.is_binary_view(found) or found == wanted)
    return bool(found == wanted)
