"""A folder of Parquet files, as Spark reads it and CONVERT TO DELTA takes it: files, partitions, columns.

Where the two would differ, or CONVERT would fail half-way, the folder is refused in a sentence.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError
from compaction_kit.execute.jobs import WHOLE_FILES, session_confs
from compaction_kit.interop.parquet_read import read_parquet
from compaction_kit.interop.partition_folders import Value, values_of
from compaction_kit.interop.visibility import Found, walk
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.query import SPARK_ERRORS, reason_of
from compaction_kit.session import quiet_errors
from compaction_kit.text import format_count

_SINK_LOG = "_spark_metadata"
# What DeltaErrors.invalidColumnNames forbids in a table without column mapping.
_INVALID = frozenset(" ,;{}()\n\t=")


def refuse_logs(folder: Path) -> None:
    """Refuse a folder of which a log says already what is in it.

    Raises:
        InvalidArgumentError: It is a Delta table.
        UnsupportedTableError: It is a stream's output.
    """
    if any(one.is_file() for one in (folder / LOG_FOLDER).rglob("*")):
        raise InvalidArgumentError(f"{folder} is a Delta table already: open it with open_table.")
    if (folder / _SINK_LOG).exists():
        raise UnsupportedTableError(
            f"{folder} is the output of a stream, and its {_SINK_LOG} says which files count: stop the "
            "stream, and copy the rows that Spark reads there to a new table."
        )


def visible_files(folder: Path) -> list[Found]:
    """The files that Spark reads and CONVERT takes."""
    found = walk(folder)
    for file in found:
        if file.spark_reads != file.convert_takes:
            which = (
                "CONVERT takes it and Spark passes over it"
                if file.convert_takes
                else "Spark reads it and CONVERT passes over it"
            )
            raise UnsupportedTableError(
                f"{file.path} would change what the table holds, as {which}: rename it."
            )
    return [file for file in found if file.spark_reads]


def listing(found: list[Found]) -> pa.Table:
    """The path, size_bytes and modification_time (ns since 1970) of files, a row each."""
    return pa.table(
        {
            "path": pa.array([file.path for file in found], pa.string()),
            "size_bytes": pa.array([file.size_bytes for file in found], pa.int64()),
            "modification_time": pa.array([file.modification_time for file in found], pa.int64()),
        }
    )


def partition_values(found: list[Found]) -> list[dict[str, Value]]:
    """The partition values of each file, by the folder that it is in.

    Raises:
        UnsupportedTableError: A folder tells none, or other columns than another does.
    """
    known: dict[str, dict[str, Value] | None] = {}
    first = found[0].path.rpartition("/")[0]
    for file in found:
        folder = file.path.rpartition("/")[0]
        values = known.setdefault(folder, values_of(folder))
        if values is None:
            raise UnsupportedTableError(
                f"The folder {folder} isn't named column=value, and what is in it CONVERT would take and "
                "Spark doesn't read: move it away, or begin its name with _."
            )
        if tuple(values) != tuple(known[first] or ()):
            raise UnsupportedTableError(
                f'The folders "{first}" and "{folder}" are of different partition columns: move the files of '
                "one of them elsewhere."
            )
    return [known[file.path.rpartition("/")[0]] or {} for file in found]


def read_footers(folder: Path, found: list[Found]) -> list[pq.FileMetaData]:
    """The footer of each file.

    Raises:
        UnsupportedTableError: A file is no Parquet.
    """

    def read(file: Found) -> pq.FileMetaData | None:
        with contextlib.suppress(OSError, pa.ArrowException):
            return pq.read_metadata(folder / file.path)
        return None

    with ThreadPoolExecutor() as pool:
        footers = list(pool.map(read, found))
    strange = [file.path for file, footer in zip(found, footers, strict=True) if footer is None]
    if strange:
        raise UnsupportedTableError(
            f"{format_count(len(strange), 'file')} in {folder} can't be read as Parquet, such as "
            f"{strange[0]}: move it away, or begin its name with _."
        )
    return footers


def given_schema(partition_by: str | StructType, columns: tuple[str, ...]) -> StructType:
    """The partition columns as the caller says, if they are what the folders say.

    Raises:
        InvalidArgumentError: They aren't, or can't be read.
    """
    try:
        with quiet_errors():
            given = _parse(partition_by) if isinstance(partition_by, str) else partition_by
    except SPARK_ERRORS as error:
        raise InvalidArgumentError(
            f'partition_by="{partition_by}" can\'t be read: {reason_of(error)}; write it as '
            '"origin STRING, day DATE".'
        ) from error
    if tuple(given.names) != columns:
        raise InvalidArgumentError(
            f"partition_by names {', '.join(given.names) or 'no column'}, and the folders are named by "
            f"{', '.join(columns) or 'none'}: give these, in this order, with their types."
        )
    return given


def merged_schema(
    spark: SparkSession, folder: Path, found: list[Found], footers: list[pq.FileMetaData]
) -> StructType:
    """The columns of all files together, and those that the folders tell, as Spark infers them.

    Raises:
        UnsupportedTableError: They don't go together, or Delta doesn't take a name.
    """
    try:
        with quiet_errors(), session_confs(spark, WHOLE_FILES):
            schema = read_parquet(spark, folder, options={"mergeSchema": "true"}).schema
    except SPARK_ERRORS as error:
        reason = _clash(found, footers) or reason_of(error)
        raise UnsupportedTableError(
            f"{folder} can't be converted: {reason}; rewrite the files that differ."
        ) from error
    bad = next((name for name in schema.names if _INVALID.intersection(name)), None)
    if bad is not None:
        raise UnsupportedTableError(
            f'The column "{bad}" has a character in its name that Delta takes only with column mapping, '
            "which CONVERT doesn't do: copy the rows to a table with delta.columnMapping.mode=name."
        )
    return schema


def _parse(columns: str) -> StructType:
    parsed = StructType.fromDDL(columns)
    # One type alone is parsed too.
    return parsed if isinstance(parsed, StructType) else StructType()


def _clash(found: list[Found], footers: list[pq.FileMetaData]) -> str | None:
    """Two files that don't agree in the type of a column, in words."""
    seen: dict[str, tuple[pa.DataType, str]] = {}
    for file, footer in zip(found, footers, strict=True):
        for field in footer.schema.to_arrow_schema():
            kind, path = seen.setdefault(field.name, (field.type, file.path))
            if kind != field.type:
                return f"{field.name} is {kind} in {path} and {field.type} in {file.path}"
    return None


def schema_text(footer: pq.FileMetaData) -> str:
    """A file's columns as text, equal for equal columns."""
    # Its first line has its place in memory.
    return str(footer.schema).split("\n", 1)[1]
