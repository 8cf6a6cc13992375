"""Parquet to Delta: what CONVERT TO DELTA would make of a folder, and the same with proof."""

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from compaction_kit.errors import (
    EmptyTableError,
    RunCancelled,
    StalePlanError,
    TableNotFoundError,
    VerificationError,
)
from compaction_kit.execute.failures import translate
from compaction_kit.execute.jobs import WHOLE_FILES, WorkCancelled, run_cancellable, session_confs
from compaction_kit.interop.parquet_folder import (
    given_schema,
    listing,
    merged_schema,
    partition_values,
    read_footers,
    refuse_logs,
    schema_text,
    visible_files,
)
from compaction_kit.interop.parquet_read import read_parquet
from compaction_kit.interop.visibility import walk
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.session import get_spark, quiet_errors
from compaction_kit.sql import identifier, quoted, table_name, uri
from compaction_kit.table import Table, local_path, open_table
from compaction_kit.text import as_text, format_count, format_size, shown
from compaction_kit.verify import Fingerprint, fingerprint

_UNVERIFIED = "_delta_log_not_verified"


@dataclass(frozen=True)
class ConvertPlan:
    """What CONVERT TO DELTA would make of a folder of Parquet files; made by `plan_convert`.

    Attributes:
        path: The folder.
        files: One row a file, by path: path (relative to the folder), size_bytes, modification_time
            (ns since 1970), num_rows, schema_id (files of the same number have the same columns),
            partition.<column> (text, as the folder has it).
        schema: The table's columns, those of all files together.
        partition_columns: Those that the folders tell, in their order.
        num_hidden: Files that are left out, as their names or those of their folders begin with _ or a dot.
    """

    path: Path
    files: pa.Table
    schema: StructType
    partition_columns: tuple[str, ...]
    num_hidden: int
    spark: SparkSession = field(repr=False)

    @property
    def num_files(self) -> int:
        """How many files the table will have."""
        return self.files.num_rows

    @property
    def size_bytes(self) -> int:
        """Their bytes in total."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def num_schemas(self) -> int:
        """How many different sets of columns the files have."""
        return pc.count_distinct(self.files["schema_id"]).as_py()

    @property
    def partition_schema(self) -> StructType:
        """The partition columns and their types."""
        fields = {column.name: column for column in self.schema}
        return StructType([fields[name] for name in self.partition_columns])

    def facts(self) -> dict[str, str]:
        """The plan for people: name and value."""
        rows = pc.sum(self.files["num_rows"]).as_py()
        by = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in self.partition_schema)
        hidden = f"; {format_count(self.num_hidden, 'hidden file')} left out" if self.num_hidden else ""
        several = f", of {self.num_schemas:,} different schemas put together" if self.num_schemas > 1 else ""
        return {
            "folder": str(self.path),
            "files": f"{self.num_files:,}, {format_size(self.size_bytes)}, {rows:,} rows{hidden}",
            "columns": f"{len(self.schema):,}{several}",
            "partitioned by": by or "nothing",
            "what it does": "writes a log beside the files, which stay as they are; version 0 lists them all",
        }

    def explain(self) -> str:
        """What there is and what would be made of it, in a few lines."""
        return as_text(self.facts())

    def run(self) -> "ConvertResult":
        """Convert the folder, and compare the rows that Spark reads before and after.

        Nobody else may write into it meanwhile: Parquet has no transactions to find that out by.

        Raises:
            InvalidArgumentError: It is a Delta table by now.
            StalePlanError: The folder's files are not those of the plan any more.
            RunFailedError, ReadOnlyTableError: Delta or Spark gave up.
            RunCancelled: Ctrl-C was pressed.
            VerificationError: The rows differ. After this and those two the folder is Parquet as it was; a
                log that was written already is set aside.
        """
        refuse_logs(self.path)
        now = listing(visible_files(self.path))
        if not now.equals(self.files.select(now.column_names)):
            raise StalePlanError(
                f"The files in {self.path} have changed since the plan was made: make a new plan; nothing "
                "was changed."
            )
        start, spark = time.time(), self.spark
        names = [quoted(column.name) for column in self.schema]

        def body() -> tuple[Fingerprint, Fingerprint]:
            before = fingerprint(read_parquet(spark, self.path, self.schema).select(*names))
            spark.sql(self._statement()).collect()
            return before, fingerprint(spark.read.format("delta").load(uri(self.path)).select(*names))

        try:
            with quiet_errors(), session_confs(spark, WHOLE_FILES):
                before, after = run_cancellable(spark, body, lambda _: None, is_final=False)
        except SPARK_ERRORS as error:
            raise translate(error, self.path, self._undo()) from error
        except (WorkCancelled, KeyboardInterrupt) as error:
            raise RunCancelled(f"The conversion was cancelled: {self._undo()}.") from error
        if before != after:
            raise VerificationError(
                f"The content differs: the Parquet files have {before} {before.hash_sums}, the table has "
                f"{after} {after.hash_sums}; {self._undo()}."
            )
        return ConvertResult(open_table(self.path, spark), self, after, time.time() - start)

    def _statement(self) -> str:
        types = [
            f"{identifier(self.spark, column.name)} {column.dataType.simpleString()}"
            for column in self.partition_schema
        ]
        partitions = f" PARTITIONED BY ({', '.join(types)})" if types else ""
        return f"CONVERT TO DELTA {table_name(self.spark, self.path, 'parquet')}{partitions}"

    def _undo(self) -> str:
        """Take away what makes the folder a table; what was done, in words."""
        log = self.path / LOG_FOLDER
        if not any(path.is_file() for path in log.rglob("*")):
            # CONVERT makes its folders first.
            _remove_empty(log)
            return "the folder is as it was"
        log.rename(self.path / _UNVERIFIED)
        return f"the log was set aside as {_UNVERIFIED}, and the folder is Parquet as it was"

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return f"ConvertPlan({self.num_files:,} files, {format_size(self.size_bytes)})"


@dataclass(frozen=True)
class ConvertResult:
    """What a conversion to Delta made: the table, and the fingerprint that both have."""

    table: Table
    plan: ConvertPlan
    fingerprint: Fingerprint
    seconds: float

    def facts(self) -> dict[str, str]:
        """The outcome for people: name and value."""
        return {
            "table": f"{self.table.path}, version {self.table.version}",
            "files": f"{self.plan.num_files:,}, {format_size(self.plan.size_bytes)}, where they were",
            "content": f"identical: {self.fingerprint}",
            "seconds": f"{self.seconds:.1f}",
        }

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return f"ConvertResult(\n{as_text(self.facts())}\n)"


def plan_convert(
    path: str | Path, partition_by: str | StructType | None = None, spark: SparkSession | None = None
) -> ConvertPlan:
    """Look at a folder of Parquet files: what CONVERT TO DELTA would find there.

    CONVERT wants to be told of partitions; here the folders tell, and Spark infers the types of
    their values as it does in reading (such as 1 from "01", so that a column of codes needs to be
    said to be a STRING). Every file's footer is read, and Spark puts their schemas together.

    Args:
        path: The folder.
        partition_by: The partition columns with their types, as "origin STRING, day DATE"; None for
            what Spark infers.
        spark: The session to use; None for `get_spark()`.

    Raises:
        TableNotFoundError: There is no such folder.
        EmptyTableError: It holds no Parquet file.
        InvalidArgumentError: It is a Delta table already, or `partition_by` isn't what the folders say.
        UnsupportedTableError: CONVERT would fail, or not find the rows that Spark reads: files that are no
            Parquet, folders that are no partition's, columns that don't go together.
    """
    folder = local_path(str(path)).resolve()
    if not folder.is_dir():
        raise TableNotFoundError(f"No folder at {path}: check the spelling.")
    refuse_logs(folder)
    found = visible_files(folder)
    if not found:
        raise EmptyTableError(f"{path} holds no Parquet file, so that there is nothing to convert.")
    values = partition_values(found)
    session = spark or get_spark()
    footers = read_footers(folder, found)
    names = tuple(values[0])
    schema = merged_schema(session, folder, found, footers)
    if partition_by is not None:
        given = given_schema(partition_by, names)
        typed = {column.name: column for column in given}
        schema = StructType([typed.get(column.name, column) for column in schema])
    numbers: dict[str, int] = {}
    columns_of = {
        "num_rows": pa.array([footer.num_rows for footer in footers]),
        "schema_id": pa.array([numbers.setdefault(schema_text(footer), len(numbers)) for footer in footers]),
    }
    columns_of |= {
        f"partition.{name}": pa.array([one[name] for one in values], pa.string()) for name in names
    }
    files = listing(found)
    for name, column in columns_of.items():
        files = files.append_column(name, column)
    # Hadoop's own checksums are nobody's data.
    num_hidden = sum(not file.spark_reads and not file.path.endswith(".crc") for file in walk(folder))
    return ConvertPlan(folder, files, schema, names, num_hidden, session)


def _remove_empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir()
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()
