"""Convert a folder of Parquet files, which stay where they are, to a Delta table with CONVERT TO DELTA."""

import posixpath
import re
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from compaction_kit.compat import parse_ddl
from compaction_kit.errors import (
    EmptyTableError,
    InvalidArgumentError,
    StalePlanError,
    TableNotFoundError,
    UnsupportedTableError,
    reason_of,
)
from compaction_kit.execute.jobs import WHOLE_FILES, session_confs
from compaction_kit.folder import COLUMNS, WithFiles
from compaction_kit.interop.conversion import WHAT, ConversionResult, compare, spark_reads
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.records import Plan
from compaction_kit.session import get_spark, quiet_errors
from compaction_kit.sql import identifier, pattern, quoted, table_name, uri
from compaction_kit.storage import LocalStore, local_store
from compaction_kit.table import open_table
from compaction_kit.text import format_size
from compaction_kit.verify import Fingerprint, fingerprint


@dataclass(frozen=True, repr=False)
class ConvertPlan(WithFiles, Plan):
    """What CONVERT TO DELTA would make of a folder of Parquet files; made by `plan_convert`.

    `files` has one row per file: path (relative to the folder), size_bytes, modification_time (ns since
    1970). `schema` has the columns of all files, `partition_columns` those in the names of the folders.
    """

    path: Path
    files: pa.Table
    schema: StructType
    partition_columns: tuple[str, ...]
    spark: SparkSession = field(repr=False)

    @property
    def partition_schema(self) -> StructType:
        """The partition columns and their types."""
        return StructType([self.schema[name] for name in self.partition_columns])

    def facts(self) -> dict[str, str]:
        """Return the folder and what the run would do: name and value."""
        by = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in self.partition_schema)
        return {
            "folder": str(self.path),
            "files": f"{self.num_files:,}, {format_size(self.size_bytes)}",
            "partitioned by": by or "nothing",
            "what it does": "writes a log beside the files and doesn't change them; version 0 adds them all",
        }

    def run(self) -> ConversionResult:
        """Convert the folder, and compare the rows that Spark reads before and after.

        No other program may write to the folder during the run: Parquet has no transactions to detect it.
        After any error the files are as before; a log that was already written is renamed.

        Raises:
            InvalidArgumentError, StalePlanError: The folder has changed since the plan was made.
            RunFailedError, ReadOnlyTableError, RunCancelled: Delta or Spark failed, or Ctrl-C was pressed.
            VerificationError: The rows differ.
        """
        start, spark, store = time.time(), self.spark, local_store(self.path, WHAT)
        if not _list_files(store).equals(self.files):
            raise StalePlanError(
                f"The files in {self.path} have changed since the plan was made: make a new plan; nothing "
                "was changed."
            )
        statement, names = f"CONVERT TO DELTA {table_name(spark, self.path, 'parquet')}", self.schema.names
        if self.partition_columns:
            by = [f"{identifier(spark, c.name)} {c.dataType.simpleString()}" for c in self.partition_schema]
            # Where Delta expects a type, its parser reads TIMESTAMP as a keyword unless it is quoted.
            by = [re.sub(" timestamp$", " `timestamp`", column) for column in by]
            statement += f" PARTITIONED BY ({', '.join(by)})"

        def convert() -> tuple[Fingerprint, Fingerprint]:
            plain = spark.read.schema(self.schema).parquet(pattern(uri(self.path)))
            before = fingerprint(plain.select(*map(quoted, names)))
            spark.sql(statement).collect()
            table = spark.read.format("delta").load(uri(self.path))
            return before, fingerprint(table.select(*map(quoted, names)))

        def undo() -> str:
            if not _has_log(store):
                # CONVERT creates the folder of the log first.
                store.delete_empty(LOG_FOLDER)
                return "the folder is as it was"
            aside = (f"_delta_log_not_verified_{number}" for number in count(1))
            name = next(name for name in aside if not store.is_taken(name))
            store.move(LOG_FOLDER, name)
            return f"the log was renamed to {name}, and the folder is Parquet as it was"

        proof = compare(spark, self.path, convert, undo)
        return ConversionResult(self, open_table(self.path, spark), proof, time.time() - start)


def plan_convert(
    path: str | Path, partition_by: str | StructType | None = None, spark: SparkSession | None = None
) -> ConvertPlan:
    """Plan CONVERT TO DELTA for a folder of Parquet files.

    Args:
        path: The folder.
        partition_by: The partition columns with their types, such as "origin STRING, day DATE". None for
            the columns in the folders' names with the types that Spark infers: "01" becomes 1.
        spark: The session; None for `get_spark()`.

    Raises:
        TableNotFoundError: The folder doesn't exist.
        EmptyTableError: It holds no Parquet file.
        InvalidArgumentError: It is a Delta table already, or `partition_by` names other columns.
        UnsupportedTableError: Spark can't read it: files aren't Parquet, folders have different partition
            columns, or the types of a column can't be merged.

    Examples:
        >>> plan = ck.interop.plan_convert("data/flights/origin=JFK")
        >>> plan.num_files, plan.partition_columns
        (365, ())
    """
    store = local_store(path, WHAT)
    if not store.is_folder():
        raise TableNotFoundError(f"No folder at {path}: check the spelling.")
    files = _list_files(store)
    if not files.num_rows:
        raise EmptyTableError(f"{path} holds no Parquet file, so there is nothing to convert.")
    session, folder = spark or get_spark(), Path(store.root)
    try:
        with quiet_errors(), session_confs(session, WHOLE_FILES):
            schema = session.read.option("mergeSchema", "true").parquet(pattern(uri(folder))).schema
    except SPARK_ERRORS as error:
        # The second line names the columns or the file.
        reason = " ".join(str(error).partition("JVM stacktrace")[0].split())[:500].rstrip(".")
        raise UnsupportedTableError(
            f"Spark can't read {path} as Parquet: {reason}; rewrite the files."
        ) from None
    # Each %XX is one character, never a byte of UTF-8 (ExternalCatalogUtils.unescapePathName).
    parts = (part.partition("=")[0] for part in files["path"][0].as_py().split("/")[:-1])
    by = tuple(name for name in (unquote(part, "latin-1") for part in parts) if name in schema.names)
    if partition_by is not None:
        given = {column.name: column for column in _parsed(partition_by, by)}
        schema = StructType([given.get(column.name, column) for column in schema])
    return ConvertPlan(folder, files, schema, by, session)


def _has_log(store: LocalStore) -> bool:
    return any(entry.is_file for _, entries in store.walk(LOG_FOLDER) for entry in entries)


def _list_files(store: LocalStore) -> pa.Table:
    if _has_log(store):
        raise InvalidArgumentError(f"{store.root} is a Delta table already: open it with open_table.")
    rows = [
        (path, entry.size_bytes, entry.modified_ns)
        for folder, entries in store.walk()
        for entry in entries
        if entry.is_file and spark_reads(path := posixpath.join(folder, entry.name))
    ]
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in sorted(rows)], COLUMNS)


def _parsed(partition_by: str | StructType, columns: tuple[str, ...]) -> StructType:
    try:
        with quiet_errors():
            schema = parse_ddl(partition_by) if isinstance(partition_by, str) else partition_by
    except SPARK_ERRORS as error:
        why = f'partition_by="{partition_by}" can\'t be read: {reason_of(error)}.'
        raise InvalidArgumentError(why) from None
    # Text such as "INT" is parsed to a type without columns.
    schema = schema if isinstance(schema, StructType) else StructType()
    if tuple(schema.names) != columns:
        raise InvalidArgumentError(
            f"partition_by names {', '.join(schema.names) or 'no column'}, but the folders are named by "
            f"{', '.join(columns) or 'none'}: give these, in this order, with their types."
        )
    return schema
