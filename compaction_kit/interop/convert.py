"""Plan and run CONVERT TO DELTA on a folder of Parquet files, and verify that no row changes.

A folder is refused where CONVERT would fail halfway, or find other rows than Spark reads.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from compaction_kit.compat import parse_ddl
from compaction_kit.errors import (
    EmptyTableError,
    InvalidArgumentError,
    RunCancelled,
    StalePlanError,
    TableNotFoundError,
    VerificationError,
)
from compaction_kit.execute.failures import translate
from compaction_kit.execute.jobs import WHOLE_FILES, WorkCancelled, run_cancellable, session_confs
from compaction_kit.interop.parquet_folder import (
    has_delta_log,
    list_files,
    merged_schema,
    read_all_footers,
    read_parquet,
    read_partitions,
    refuse_logs,
)
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.query import SPARK_ERRORS, reason_of
from compaction_kit.records import Plan, Result
from compaction_kit.session import get_spark, quiet_errors
from compaction_kit.sql import identifier, quoted, table_name, uri
from compaction_kit.storage import LocalStore, local_store
from compaction_kit.table import Table, open_table
from compaction_kit.text import format_count, format_size
from compaction_kit.verify import Fingerprint, fingerprint

_WHAT = "Conversion"
_UNVERIFIED = "_delta_log_not_verified"


@dataclass(frozen=True, repr=False)
class ConvertPlan(Plan):
    """What CONVERT TO DELTA would make of a folder of Parquet files; made by `plan_convert`.

    Attributes:
        path: The folder.
        files: One row per file, sorted by path: path (relative to the folder), size_bytes,
            modification_time (ns since 1970), num_rows, schema_id (equal for files with the same columns),
            partition.<column> (the value in the folder's name).
        schema: The table's columns: those of all files.
        partition_columns: The columns in the names of the folders, in their order.
        num_hidden: The number of files that are left out, as their names, or those of their folders, begin
            with an underscore or a dot.
    """

    path: Path
    files: pa.Table
    schema: StructType
    partition_columns: tuple[str, ...]
    num_hidden: int
    spark: SparkSession = field(repr=False)

    @property
    def store(self) -> LocalStore:
        """The folder's files."""
        return local_store(self.path, _WHAT)

    @property
    def is_empty(self) -> bool:
        """False: a folder without Parquet files is refused."""
        return not self.num_files

    @property
    def num_files(self) -> int:
        """The number of the table's files."""
        return self.files.num_rows

    @property
    def size_bytes(self) -> int:
        """The bytes of the table's files."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def num_schemas(self) -> int:
        """The number of different sets of columns that the files have."""
        return pc.count_distinct(self.files["schema_id"]).as_py()

    @property
    def partition_schema(self) -> StructType:
        """The partition columns and their types."""
        return StructType([self.schema[name] for name in self.partition_columns])

    def facts(self) -> dict[str, str]:
        """Return the folder and what the run would do: name and value."""
        rows = pc.sum(self.files["num_rows"]).as_py()
        by = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in self.partition_schema)
        hidden = f"; {format_count(self.num_hidden, 'hidden file')} left out" if self.num_hidden else ""
        several = f", merged from {self.num_schemas:,} different schemas" if self.num_schemas > 1 else ""
        return {
            "folder": str(self.path),
            "files": f"{self.num_files:,}, {format_size(self.size_bytes)}, {rows:,} rows{hidden}",
            "columns": f"{len(self.schema):,}{several}",
            "partitioned by": by or "nothing",
            "what it does": "writes a log beside the files and doesn't change them; version 0 adds them all",
        }

    def run(self) -> "ConvertResult":
        """Convert the folder, and compare the rows that Spark reads before and after.

        No other program may write to the folder during the run: Parquet has no transactions to detect it.
        After any error the files are as before; a log that the run has already written is set aside.

        Raises:
            InvalidArgumentError: The folder is a Delta table by now.
            StalePlanError: The folder's files have changed since the plan was made.
            RunFailedError, ReadOnlyTableError: Delta or Spark failed.
            RunCancelled: Ctrl-C was pressed.
            VerificationError: The rows differ.
        """
        refuse_logs(self.store)
        files, _ = list_files(self.store)
        if not files.equals(self.files.select(files.column_names)):
            raise StalePlanError(
                f"The files in {self.path} have changed since the plan was made: make a new plan; nothing "
                "was changed."
            )
        start, spark = time.time(), self.spark
        statement = f"CONVERT TO DELTA {table_name(spark, self.path, 'parquet')}"
        if self.partition_columns:
            columns = [
                f"{identifier(spark, column.name)} {column.dataType.simpleString()}"
                for column in self.partition_schema
            ]
            statement += f" PARTITIONED BY ({', '.join(columns)})"
        proof = run_verified(
            spark, self.path, self.schema, lambda: spark.sql(statement).collect(), self._undo
        )
        return ConvertResult(open_table(self.path, spark), self, proof, time.time() - start)

    def _undo(self) -> str:
        if not has_delta_log(self.store):
            # CONVERT creates the folder of the log first.
            self.store.delete_empty(LOG_FOLDER)
            return "the folder is as it was"
        names = (f"{_UNVERIFIED}{f'_{number}' if number else ''}" for number in count())
        name = next(name for name in names if not self.store.is_taken(name))
        self.store.move(LOG_FOLDER, name)
        return f"the log was set aside as {name}, and the folder is Parquet as it was"


@dataclass(frozen=True, repr=False)
class ConvertResult(Result):
    """The result of a conversion to Delta: the table, and the fingerprint of the rows before and after."""

    table: Table
    plan: ConvertPlan
    fingerprint: Fingerprint
    seconds: float

    def facts(self) -> dict[str, str]:
        """Return the table and the proof: name and value."""
        return {
            "table": f"{self.table.path}, version {self.table.version}",
            "files": f"{self.plan.num_files:,}, {format_size(self.plan.size_bytes)}, where they were",
            "content": f"identical: {self.fingerprint}",
            "seconds": f"{self.seconds:.1f}",
        }


def plan_convert(
    path: str | Path, partition_by: str | StructType | None = None, spark: SparkSession | None = None
) -> ConvertPlan:
    """Plan CONVERT TO DELTA for a folder of Parquet files.

    CONVERT must be given the partition columns and their types. Here the columns come from the folders'
    names, and Spark infers the types as when it reads the folder: "01" becomes 1, so give `partition_by` for
    a column of codes. The footer of every file is read, and Spark merges their schemas.

    Args:
        path: The folder.
        partition_by: The partition columns with their types, such as "origin STRING, day DATE"; None for
            those that Spark infers.
        spark: The session; None for `get_spark()`.

    Raises:
        TableNotFoundError: The folder doesn't exist.
        EmptyTableError: It holds no Parquet file.
        InvalidArgumentError: It is a Delta table already, or `partition_by` names other columns.
        UnsupportedTableError: CONVERT would fail, or not find the rows that Spark reads: files that aren't
            Parquet, folders without partition values in their names, columns whose types can't be merged.

    Examples:
        >>> plan = ck.interop.plan_convert("data/flights/origin=JFK")
        >>> plan.num_files, plan.num_schemas, plan.partition_columns
        (365, 1, ())
        >>> plan.files.schema
        path: string
        size_bytes: int64
        modification_time: int64
        num_rows: int64
        schema_id: int64
    """
    store = local_store(path, _WHAT)
    folder = Path(store.root)
    if not store.is_folder():
        raise TableNotFoundError(f"No folder at {path}: check the spelling.")
    refuse_logs(store)
    files, num_hidden = list_files(store)
    if not files.num_rows:
        raise EmptyTableError(f"{path} holds no Parquet file, so there is nothing to convert.")
    paths = files["path"].to_pylist()
    partitions = read_partitions(paths)
    footers = read_all_footers(store, paths)
    session = spark or get_spark()
    schema = merged_schema(session, folder, footers)
    if partition_by is not None:
        given = {column.name: column for column in _parsed(partition_by, tuple(partitions))}
        schema = StructType([given.get(column.name, column) for column in schema])
    # The first line of str(footer.schema) has an address in memory.
    schemas = pa.array([str(footer.schema).split("\n", 1)[1] for footer in footers.values()])
    columns = {
        "num_rows": pa.array([footer.num_rows for footer in footers.values()], pa.int64()),
        "schema_id": schemas.dictionary_encode().indices.cast(pa.int64()),
        **{f"partition.{name}": pa.array(values, pa.string()) for name, values in partitions.items()},
    }
    for name, column in columns.items():
        files = files.append_column(name, column)
    return ConvertPlan(folder, files, schema, tuple(partitions), num_hidden, session)


def run_verified(
    spark: SparkSession,
    folder: Path,
    schema: StructType,
    convert: Callable[[], object],
    undo: Callable[[], str],
) -> Fingerprint:
    """Run a conversion that can be cancelled, and undo it if it fails or the rows differ after it.

    `undo` is called before any error is raised, and returns the state of the folder as text.
    """

    def proof() -> Fingerprint:
        if has_delta_log(local_store(folder, _WHAT)):
            rows = spark.read.format("delta").load(uri(folder))
        else:
            rows = read_parquet(spark, uri(folder), schema)
        return fingerprint(rows.select(*map(quoted, schema.names)))

    def run() -> tuple[Fingerprint, Fingerprint]:
        before = proof()
        convert()
        return before, proof()

    try:
        with quiet_errors(), session_confs(spark, WHOLE_FILES):
            before, after = run_cancellable(spark, run, lambda: None, is_final=False)
    except BaseException as error:
        outcome = undo()
        if isinstance(error, (*SPARK_ERRORS, OSError)):
            raise translate(error, str(folder), outcome) from None
        if isinstance(error, (WorkCancelled, KeyboardInterrupt)):
            raise RunCancelled(f"The conversion was cancelled: {outcome}.") from None
        raise
    if before != after:
        raise VerificationError(
            f"The content differs: {before} {before.hash_sums} before, {after} {after.hash_sums} after; "
            f"{undo()}."
        )
    return after


def _parsed(partition_by: str | StructType, columns: tuple[str, ...]) -> StructType:
    """Parse the partition columns that the caller gives; refuse them if the folders have others."""
    given: object = partition_by
    try:
        if isinstance(partition_by, str):
            with quiet_errors():
                given = parse_ddl(partition_by)
    except SPARK_ERRORS as error:
        raise InvalidArgumentError(
            f'partition_by="{partition_by}" can\'t be read: {reason_of(error)}; write it as '
            '"origin STRING, day DATE".'
        ) from None
    # Text such as "INT" is parsed to a type without columns.
    schema = given if isinstance(given, StructType) else StructType()
    if tuple(schema.names) != columns:
        raise InvalidArgumentError(
            f"partition_by names {', '.join(schema.names) or 'no column'}, but the folders are named by "
            f"{', '.join(columns) or 'none'}: give these, in this order, with their types."
        )
    return schema
