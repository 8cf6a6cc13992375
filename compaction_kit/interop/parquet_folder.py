"""Folders of Parquet files: what Spark and CONVERT TO DELTA read there, and the names of partition folders.

Partition folders are named as in Hive, Spark and Delta: `origin=JFK/day=2013-01-01`.
"""

import contextlib
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError
from compaction_kit.execute.jobs import WHOLE_FILES, session_confs
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.paths import HIVE_NULL, folder_of
from compaction_kit.query import SPARK_ERRORS, reason_of
from compaction_kit.session import quiet_errors
from compaction_kit.sql import pattern, uri
from compaction_kit.storage import Store, shown_name
from compaction_kit.text import format_count

_SINK_LOG = "_spark_metadata"
# The characters that Delta refuses in a name without column mapping (DeltaErrors.invalidColumnNames).
_INVALID = frozenset(" ,;{}()\n\t=")
_FILES = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("modification_time", pa.int64())])


def has_delta_log(store: Store) -> bool:
    """Return whether a folder is a Delta table; one with an empty `_delta_log` is not."""
    return any(entry.is_file for _, entries in store.walk(LOG_FOLDER) for entry in entries)


def refuse_logs(store: Store) -> None:
    """Refuse a Delta table, and the output of a stream with a log of its files."""
    if has_delta_log(store):
        raise InvalidArgumentError(f"{store.root} is a Delta table already: open it with open_table.")
    if store.is_taken(_SINK_LOG):
        raise UnsupportedTableError(
            f"{store.root} is the output of a stream, and its {_SINK_LOG} says which files are part of it: "
            "stop the stream, and copy the rows that Spark reads there to a new table."
        )


def list_files(store: Store) -> tuple[pa.Table, int]:
    """List the files that Spark and CONVERT TO DELTA read, sorted by path, and count those that both skip.

    Refuse a folder with a file that only one of the two reads.
    """
    rows, num_hidden = [], 0
    for path, size_bytes, modification_time in sorted(_walk(store)):
        by_spark = spark_reads(path)
        if by_spark != _convert_reads(path):
            readers = ("Spark", "CONVERT") if by_spark else ("CONVERT", "Spark")
            raise UnsupportedTableError(
                f"{path} would change what the table holds: {readers[0]} reads it and {readers[1]} skips it; "
                "rename it."
            )
        if by_spark:
            rows.append({"path": path, "size_bytes": size_bytes, "modification_time": modification_time})
        # Hadoop's checksum files hold no data, and aren't counted.
        elif not path.endswith(".crc"):
            num_hidden += 1
    return pa.Table.from_pylist(rows, _FILES), num_hidden


def spark_reads(path: str) -> bool:
    """Return whether Spark reads a file at a path in a folder (HadoopFSUtils.shouldFilterOutPathName)."""
    return not any(
        (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
        for name in path.split("/")
    )


def _convert_reads(path: str) -> bool:
    """Return whether CONVERT reads a file (DeltaFileOperations.defaultHiddenFileFilter, dirNameFilter)."""
    *folders, name = path.split("/")
    hidden = [folder for folder in folders if folder.startswith(("_", ".")) and "=" not in folder]
    return not hidden and not name.startswith(("_", "."))


def _walk(store: Store, folder: str = "") -> Iterator[tuple[str, int, int]]:
    """Yield the path, size and modification time (ns since 1970) of each file that Java finds."""
    for entry in store.entries(folder):
        place = posixpath.join(folder, entry.name)
        # Java finds neither broken links nor names that aren't UTF-8.
        if entry.is_gone or shown_name(entry.name) != entry.name:
            continue
        if entry.is_folder:
            yield from _walk(store, place)
        else:
            yield place, entry.size_bytes, entry.modified_ns


def read_parquet(
    spark: SparkSession, uris: str | Iterable[str], schema: StructType | None = None, **options: str
) -> DataFrame:
    """Read a folder or files with Spark's Parquet reader; their URIs may have any characters."""
    reader = spark.read.options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.parquet(*map(pattern, [uris] if isinstance(uris, str) else uris))


def read_footers(store: Store, places: Iterable[str]) -> list[pq.FileMetaData | None]:
    """Read the footer of each Parquet file; None for a file that can't be read as Parquet."""

    def read(place: str) -> pq.FileMetaData | None:
        with contextlib.suppress(OSError, pa.ArrowException):
            return pq.read_metadata(store.open(place))
        return None

    with ThreadPoolExecutor() as pool:
        return list(pool.map(read, places))


def read_all_footers(store: Store, paths: Sequence[str]) -> dict[str, pq.FileMetaData]:
    """Read the footer of each file in a folder, by path; refuse files that aren't Parquet."""
    footers = dict(zip(paths, read_footers(store, paths), strict=True))
    unreadable = [path for path, footer in footers.items() if footer is None]
    if unreadable:
        raise UnsupportedTableError(
            f"{format_count(len(unreadable), 'file')} in {store.root} can't be read as Parquet, such as "
            f"{unreadable[0]}: move it away, or begin its name with _."
        )
    return footers


def merged_schema(spark: SparkSession, folder: Path, footers: Mapping[str, pq.FileMetaData]) -> StructType:
    """Return the columns of all files of a folder, and its partition columns, as Spark infers them.

    Refuse types that can't be merged, and column names that Delta doesn't allow.
    """
    try:
        with quiet_errors(), session_confs(spark, WHOLE_FILES):
            schema = read_parquet(spark, uri(folder), mergeSchema="true").schema
    except SPARK_ERRORS as error:
        reason = _clash(footers) or reason_of(error)
        raise UnsupportedTableError(
            f"{folder} can't be converted: {reason}; rewrite the files that differ."
        ) from None
    invalid = next((name for name in schema.names if _INVALID.intersection(name)), None)
    if invalid is not None:
        raise UnsupportedTableError(
            f'The column "{invalid}" has a character in its name that Delta allows only with column mapping, '
            "which CONVERT doesn't set: copy the rows to a table with delta.columnMapping.mode=name."
        )
    return schema


def _clash(footers: Mapping[str, pq.FileMetaData]) -> str | None:
    """Describe two files with different types of one column; None if there are none."""
    seen: dict[str, tuple[pa.DataType, str]] = {}
    for path, footer in footers.items():
        for column in footer.schema.to_arrow_schema():
            kind, first = seen.setdefault(column.name, (column.type, path))
            if kind != column.type:
                return f"{column.name} is {kind} in {first} and {column.type} in {path}"
    return None


def partition_values(folder: str) -> dict[str, str | None] | None:
    """Read the partition values from a folder's path in the table; the inverse of `paths.folder_of`.

    Returns:
        The value of each column as text, None for Hive's null; None if a part of the path isn't
        column=value.
    """
    values: dict[str, str | None] = {}
    for part in PurePosixPath(folder).parts:
        name, _, value = part.partition("=")
        if not name or not value:
            return None
        # Each %XX is one character, never a byte of UTF-8 (ExternalCatalogUtils.unescapePathName).
        values[unquote(name, "latin-1")] = None if value == HIVE_NULL else unquote(value, "latin-1")
    return values


def partition_folders(partitions: pa.Table) -> pa.Array:
    """Return the folder of each row of partition.<column>, as in Delta; "" without partition columns."""
    if not partitions.num_columns:
        return pa.array([""] * partitions.num_rows, pa.string())
    columns = [name.removeprefix("partition.") for name in partitions.column_names]
    rows = list(zip(*(column.to_pylist() for column in partitions.columns), strict=True))
    names = {values: folder_of(columns, values) for values in set(rows)}
    return pa.array([names[values] for values in rows], pa.string())


def read_partitions(paths: Sequence[str]) -> dict[str, list[str | None]]:
    """Read the values of each partition column, one per file, from the names of the files' folders.

    Refuse folders without partition values, or with different partition columns.
    """
    folders = [path.rpartition("/")[0] for path in paths]
    values_of: dict[str, dict[str, str | None]] = {}
    for folder in dict.fromkeys(folders):
        values = partition_values(folder)
        if values is None:
            raise UnsupportedTableError(
                f"The folder {folder} isn't named column=value, so that CONVERT would add the files in it "
                "but Spark doesn't read them: move it away, or begin its name with _."
            )
        values_of[folder] = values
        if tuple(values) != tuple(values_of[folders[0]]):
            raise UnsupportedTableError(
                f'The folders "{folders[0]}" and "{folder}" have different partition columns: move '
                "the files of one of them elsewhere."
            )
    return {name: [values_of[folder][name] for folder in folders] for name in values_of[folders[0]]}
