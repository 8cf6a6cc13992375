"""Turn a folder of Parquet files into a Delta table with CONVERT TO DELTA, and a Delta table into Parquet.

The live files stay where they are. The rows before and after are compared.
"""

import posixpath
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from compaction_kit import errors
from compaction_kit.compat import parse_ddl
from compaction_kit.execute.failures import SPARK_FAILURES, check_writable, translate
from compaction_kit.execute.jobs import WHOLE_FILES, WorkCancelled, own_session, run_cancellable
from compaction_kit.folder import COLUMNS, WithFiles, look_through
from compaction_kit.interop.manifest import partition_folders, refusal
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.paths import places
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.records import Plan, Record
from compaction_kit.session import get_spark, quiet_errors
from compaction_kit.sql import identifier, pattern, quoted, table_name, uri
from compaction_kit.storage import LocalStore, local_store, open_store
from compaction_kit.table import Table, open_table
from compaction_kit.text import format_count, format_size
from compaction_kit.verify import Fingerprint, fingerprint

# The name in error messages for what works only on local disks.
_WHAT = "Conversion"


@dataclass(frozen=True, repr=False)
class ConvertPlan(WithFiles, Plan):
    """How CONVERT TO DELTA would convert a folder of Parquet files; made by `plan_convert`.

    `files` has one row per file: path (relative to the folder), size_bytes, modification_time (ns since
    1970). `schema` has the columns of all files, `partition_columns` those in the names of the folders.
    """

    path: Path
    files: pa.Table
    schema: StructType
    partition_columns: tuple[str, ...]

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

    def run(self) -> "ConversionResult":
        """Convert the folder, and compare the rows that Spark reads before and after.

        No other program may write to the folder during the run: Parquet has no transactions to detect it.
        After any error the files are as before; a log that was already written is renamed.

        Raises:
            InvalidArgumentError, StalePlanError: The folder has changed since the plan was made.
            RunFailedError, ReadOnlyTableError, RunCancelled: Delta or Spark failed, or Ctrl-C was pressed.
            VerificationError: The rows differ.
        """
        start, spark, store = time.monotonic(), get_spark(), local_store(self.path, _WHAT)
        if not _list_files(store).equals(self.files):
            changed = "have changed since the plan was made: make a new plan; nothing was changed"
            raise errors.StalePlanError(f"The files in {self.path} {changed}.")
        check_writable(store, "")
        statement, names = f"CONVERT TO DELTA {table_name(spark, self.path, 'parquet')}", self.schema.names
        if self.partition_columns:
            by = [f"{identifier(spark, c.name)} {c.dataType.simpleString()}" for c in self.partition_schema]
            # Where Delta expects a type, its parser reads TIMESTAMP as a keyword unless it is quoted.
            by = [re.sub(" timestamp$", " `timestamp`", column) for column in by]
            statement += f" PARTITIONED BY ({', '.join(by)})"

        def convert(spark: SparkSession) -> tuple[Fingerprint, Fingerprint]:
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
            name = next(name for name in aside if not store.status(name))
            store.move(LOG_FOLDER, name)
            return f"the log was renamed to {name}, and the folder is Parquet as it was"

        proof = _compare(spark, self.path, convert, undo)
        return ConversionResult(self, open_table(self.path, spark), proof, time.monotonic() - start)


def plan_convert(path: str | Path, partition_by: str | None = None) -> ConvertPlan:
    """Plan CONVERT TO DELTA for a folder of Parquet files.

    Args:
        path: The folder.
        partition_by: The partition columns with their types, such as "origin STRING, day DATE". None for
            the columns in the folders' names with the types that Spark infers: "01" becomes 1.

    Raises:
        TableNotFoundError: The folder doesn't exist.
        EmptyTableError: The folder holds no Parquet file.
        InvalidArgumentError: The folder is a Delta table already, or `partition_by` names other columns or
            types that don't fit.
        UnsupportedTableError: Spark can't read the folder: files aren't Parquet, folders have different
            partition columns, or the types of a column can't be merged; or Delta doesn't take a column.

    Examples:
        >>> plan = ck.interop.plan_convert("data/flights/origin=JFK")
        >>> plan.num_files, plan.partition_columns
        (365, ())
    """
    store = local_store(path, _WHAT)
    if not store.is_folder():
        raise errors.TableNotFoundError(f"No folder at {path}: check the spelling.")
    if not (files := _list_files(store)).num_rows:
        raise errors.EmptyTableError(f"{path} holds no Parquet file, so there is nothing to convert.")
    spark, folder = get_spark(), Path(store.root)
    try:
        with quiet_errors(), own_session(spark, WHOLE_FILES) as own:
            schema = own.read.option("mergeSchema", "true").parquet(pattern(uri(folder))).schema
    except SPARK_ERRORS as error:
        why = f"Spark can't read {path} as Parquet: {errors.reason_of(error)}; rewrite the files."
        raise errors.UnsupportedTableError(why) from None
    # Each %XX is one character, never a byte of UTF-8 (ExternalCatalogUtils.unescapePathName).
    parts = (part.partition("=")[0] for part in files["path"][0].as_py().split("/")[:-1])
    by = tuple(name for name in (unquote(part, "latin-1") for part in parts) if name in schema.names)
    if partition_by is not None:
        partitions = _parsed(partition_by, by)
        try:
            with quiet_errors():
                # Spark casts the folders' names when it lists them.
                spark.read.schema(partitions).parquet(pattern(uri(folder)))
        except SPARK_ERRORS as error:
            why = f'partition_by="{partition_by}" doesn\'t fit the folders: {errors.reason_of(error)}'
            raise errors.InvalidArgumentError(f"{why}; give another type, such as STRING.") from None
        given = {column.name: column for column in partitions}
        schema = StructType([given.get(column.name, column) for column in schema])
    for column in schema:
        why, kind = "", column.dataType.typeName()
        if re.search(r"[ ,;{}()\n\t=]", column.name):
            why = f"Delta takes no column named {errors.show_value(column.name)}: rename it in the files"
        elif column.name in by and kind in ("timestamp_ntz", "void"):
            other = f"give {column.name} another type, such as STRING, by partition_by"
            why = f"CONVERT TO DELTA takes no partition column of {kind.upper()}: {other}"
        if why:
            raise errors.UnsupportedTableError(f"{path} can't be converted: {why}.")
    return ConvertPlan(folder, files, schema, by)


def _has_log(store: LocalStore) -> bool:
    return any(entry.is_file for _, entries in store.walk(LOG_FOLDER) for entry in entries)


def _list_files(store: LocalStore) -> pa.Table:
    if _has_log(store):
        raise errors.InvalidArgumentError(f"{store.root} is a Delta table already: open it with open_table.")
    rows = [
        (path, entry.size_bytes, entry.modified_ns)
        for folder, entries in store.walk()
        for entry in entries
        if entry.is_file and _spark_reads(path := posixpath.join(folder, entry.name))
    ]
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in sorted(rows)], COLUMNS)


def _parsed(partition_by: str, columns: tuple[str, ...]) -> StructType:
    try:
        with quiet_errors():
            schema = parse_ddl(str(partition_by))
    except SPARK_ERRORS as error:
        why = f'partition_by="{partition_by}" can\'t be read: {errors.reason_of(error)}'
        raise errors.InvalidArgumentError(f'{why}; write it as "code STRING, day DATE".') from None
    # Text such as "INT" is parsed to a type without columns.
    schema = schema if isinstance(schema, StructType) else StructType()
    if tuple(schema.names) != columns:
        why = "the folder is not partitioned: leave partition_by out"
        if columns:
            named = ", ".join(columns)
            why = f"the folders are named by {named}: give these, in this order, with their types"
        given = ", ".join(schema.names) or "no column"
        raise errors.InvalidArgumentError(f"partition_by names {given}, but {why}.")
    return schema


@dataclass(frozen=True, repr=False)
class ParquetPlan(Plan):
    """How a Delta table would become plain Parquet; made by `plan_to_parquet`.

    `files` are the live files, which stay: path (relative to the table, decoded), size_bytes. `moved` are
    the other files that aren't hidden; they and the log are moved to the folder `set_aside` beside the table.
    """

    table: Table
    version: int
    files: pa.Table
    moved: pa.Table
    set_aside: Path
    schema: StructType
    is_row_tracked: bool = False

    def facts(self) -> dict[str, str]:
        """Return what stays, what is moved and where: name and value."""
        kept, moved = (format_size(pc.sum(t["size_bytes"]).as_py() or 0) for t in (self.files, self.moved))
        lost = "the row IDs and commit versions of row tracking"
        facts = {
            "table": f"{self.table.path}, version {self.version}",
            "stays": f"{format_count(self.files.num_rows, 'live file')}, {kept}, as plain Parquet",
            "moved": f"the log and {format_count(self.moved.num_rows, 'removed file')}, {moved}",
            "to": f"{self.set_aside}; moving its content back makes the folder the same Delta table again",
        }
        return facts | ({"only in the log": lost} if self.is_row_tracked else {})

    def run(self) -> "ConversionResult":
        """Compare the rows that Spark reads with and without the log, then move log and removed files.

        The log is moved last, so that the folder always holds either the table's latest version or its
        Parquet files; after a run that was killed, plan again. No other program may write during the run.

        Raises:
            StalePlanError: The table or its folder has changed since the plan was made, or during the run.
            RunFailedError, ReadOnlyTableError, RunCancelled: Spark or the disk failed, or Ctrl-C was pressed.
            VerificationError: The rows differ; nothing was moved.
        """
        table, store, start = self.table, local_store(self.table.handle.store, _WHAT), time.monotonic()
        stale = f"{table.path} has changed since the plan was made at version {self.version}: plan again."

        def check() -> None:
            if table.version != self.version or not _dead_files(table).equals(self.moved):
                raise errors.StalePlanError(stale)

        def read_both(spark: SparkSession) -> tuple[Fingerprint, Fingerprint]:
            by_log = spark.read.format("delta").load(store.uri())
            reader = spark.read.schema(self.schema).option("basePath", store.uri())
            plain = reader.parquet(*(pattern(store.uri(path)) for path in self.files["path"].to_pylist()))
            return fingerprint(by_log), fingerprint(plain.select(*map(quoted, self.schema.names)))

        check()
        folders = map(posixpath.dirname, self.moved["path"].to_pylist())
        # Moving a folder to another parent writes to the folder itself.
        check_writable(store, *dict.fromkeys(["", *folders, LOG_FOLDER]))
        proof = _compare(table.spark, table.path, read_both, lambda: "nothing was moved")
        check()
        try:
            for path in self.moved["path"].to_pylist():
                store.move(path, f"{self.set_aside}/{path}")
            store.move(LOG_FOLDER, f"{self.set_aside}/{LOG_FOLDER}")
            if open_table(self.set_aside).version != self.version:
                store.move(f"{self.set_aside}/{LOG_FOLDER}", LOG_FOLDER)
                raise errors.StalePlanError(f"{stale} Files that were moved are in {self.set_aside}.")
        except OSError as error:
            raise translate(error, str(table.path), f"what was moved is in {self.set_aside}") from None
        return ConversionResult(self, table, proof, time.monotonic() - start, self.set_aside)


def plan_to_parquet(table: Table | str | Path) -> ParquetPlan:
    """Plan to turn a Delta table into plain Parquet: its live files, in their partition folders.

    Raises:
        EmptyTableError: The table has no live file.
        UnsupportedTableError: The table is in a catalog, or its files alone don't give its rows, as with
            deletion vectors, column mapping, or files outside of their partitions' folders.
        InvalidArgumentError: The folder beside the table has a log already.

    Examples:
        >>> plan = ck.interop.plan_to_parquet(ck.open_table("data/flights"))
        >>> plan.files.num_rows, plan.moved.num_rows, plan.set_aside.name
        (1095, 0, '_flights.delta-365')
    """
    table = open_table(table)
    store, snapshot = local_store(table.handle.store, _WHAT), table.log.snapshot()
    paths = places(snapshot.live["path"], store)
    if not len(paths):
        raise errors.EmptyTableError(f"{table.name} has no live file: there is nothing to read as Parquet.")
    reason = refusal(snapshot)
    if open_store(table.name) != store:
        reason = "it is registered in a catalog; drop it there, and open it by its path"
    folders = partition_folders(table.files())
    for path, folder in zip(paths.to_pylist(), folders, strict=True):
        if reason is None and (path.rpartition("/")[0] != folder or not _spark_reads(path)):
            reason = f"Spark wouldn't read {path} as a file of the folder {folder!r}; rewrite the table"
    if reason is not None:
        raise errors.UnsupportedTableError(f"{table.name} can't become plain Parquet: {reason}.")
    aside = table.path.parent / f"_{table.path.name}.delta-{table.version}"
    if local_store(aside, _WHAT).status(LOG_FOLDER):
        raise errors.InvalidArgumentError(f"{aside} has a log already: move it elsewhere.")
    files = pa.table({"path": paths, "size_bytes": table.files().sizes}).sort_by("path")
    schema = StructType.fromJson(dict(snapshot.metadata.schema))
    is_tracked = snapshot.metadata.tracks_rows
    return ParquetPlan(table, snapshot.version, files, _dead_files(table), aside, schema, is_tracked)


def _dead_files(table: Table) -> pa.Table:
    found = look_through(table.handle.store, table.files().partition_columns).files
    found = found.select(["path", "size_bytes"])
    live = places(table.log.snapshot().live["path"], table.handle.store)
    return found.filter(pc.invert(pc.is_in(found["path"], value_set=live))).sort_by("path")


@dataclass(frozen=True, repr=False)
class ConversionResult(Record):
    """What a conversion did: the plan that was run, the new Delta table or the one that became Parquet, the
    fingerprint of the rows before and after, and where the log and files that aren't live were moved to,
    if they were.
    """

    plan: ConvertPlan | ParquetPlan
    table: Table = field(repr=False)
    fingerprint: Fingerprint
    seconds: float
    set_aside: Path | None = None

    def facts(self) -> dict[str, str]:
        """Return the folder and the proof: name and value."""
        facts = {
            "folder": f"{self.table.path}, {format_count(self.plan.files.num_rows, 'Parquet file')}",
            "content": f"identical: {self.fingerprint}, with the table's schema",
            "seconds": f"{self.seconds:.1f}",
        }
        return facts | (
            {"log and files that aren't live": f"moved to {self.set_aside}"} if self.set_aside else {}
        )


@quiet_errors()
def _compare(
    spark: SparkSession,
    folder: Path,
    work: Callable[[SparkSession], tuple[Fingerprint, Fingerprint]],
    undo: Callable[[], str],
) -> Fingerprint:
    """Run work that returns the rows' fingerprints before and after; call `undo` before raising any error."""
    try:
        with own_session(spark, WHOLE_FILES) as own:
            before, after = run_cancellable(own, partial(work, own), lambda: None, is_final=False)
    except BaseException as error:
        outcome = undo()
        if isinstance(error, (*SPARK_FAILURES, OSError)):
            raise translate(error, str(folder), outcome) from None
        if isinstance(error, (WorkCancelled, KeyboardInterrupt)):
            raise errors.RunCancelled(f"The conversion was cancelled: {outcome}.") from None
        raise
    if before != after:
        raise errors.VerificationError(
            f"The content differs: {before} {before.hash_sums} before, {after} {after.hash_sums} after; "
            f"{undo()}."
        )
    return after


def _spark_reads(path: str) -> bool:
    """Return whether Spark reads a file of a folder (HadoopFSUtils.shouldFilterOutPathName)."""
    return not any(
        (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
        for name in path.split("/")
    )
