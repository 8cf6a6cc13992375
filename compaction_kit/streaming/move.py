"""Copy a sink's output to a Delta table: the files that its log lists, and proof that no row differs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from compaction_kit.errors import (
    CorruptLogError,
    EmptyTableError,
    InvalidArgumentError,
    StalePlanError,
    VerificationError,
)
from compaction_kit.execute.failures import translate
from compaction_kit.execute.jobs import WHOLE_FILES, session_confs
from compaction_kit.folder import list_folder
from compaction_kit.log.reading import first_line, read_checked
from compaction_kit.session import get_spark, quiet_errors
from compaction_kit.sql import uri
from compaction_kit.streaming.names import Kind
from compaction_kit.streaming.outputs import check_there, format_of, partition_folders, relative_paths
from compaction_kit.streaming.policy import setting
from compaction_kit.text import as_text, format_count, format_size, shown
from compaction_kit.verify import Fingerprint, fingerprint

if TYPE_CHECKING:
    from compaction_kit.streaming.record import SinkLog

_IGNORE_LOG = "spark.sql.streaming.fileStreamSink.ignoreMetadata"


@dataclass(frozen=True)
class MoveResult:
    """A Delta table with the rows that the sink's log shows; nothing of the output was changed.

    Attributes:
        table: The table's folder, for `open_table`.
        num_files_read: Files of the output that were read: those that the log lists.
        num_files_added, bytes_added: The table's files.
        fingerprint: That of both, the output's rows and the table's; None if it wasn't asked for.
        seconds: The whole run, proof included.
    """

    table: Path
    num_files_read: int
    num_files_added: int
    bytes_added: int
    fingerprint: Fingerprint | None
    seconds: float

    @property
    def verified(self) -> bool | None:
        """True if the content was compared and is the same; None if it wasn't compared."""
        return None if self.fingerprint is None else True

    def facts(self) -> dict[str, str]:
        """The outcome for people: name and value."""
        return {
            "table": str(self.table),
            "files": f"{self.num_files_read:,} → {self.num_files_added:,}, {format_size(self.bytes_added)}",
            "content": "not compared" if self.fingerprint is None else f"identical: {self.fingerprint}",
            "seconds": f"{self.seconds:.1f}",
        }

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return as_text(self.facts())


@dataclass(frozen=True)
class MovePlan:
    """Which files of a sink's output a Delta table would be made of.

    The stream has to stand still; start it again with the same checkpoint and the table as its
    sink, and it goes on where it was.

    Attributes:
        log: The sink's log.
        to: The table's folder.
        format: The output's format: "parquet", "json" or "csv".
        schema: The output's schema, as Spark reads it.
        partition_by: The table's partition columns.
        files: One row a file that the log lists: path (relative to the output), size_bytes.
        leftovers: One row a data file of the output that the log doesn't list: path, size_bytes.
            Batches that failed leave them, and a retention; who reads the folder without the log
            takes their rows for good ones. They aren't copied.
    """

    log: "SinkLog"
    to: Path
    format: str
    schema: StructType
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    files: pa.Table
    leftovers: pa.Table

    @property
    def output(self) -> Path:
        """The sink's output folder."""
        return self.log.folder.parent

    @property
    def size_bytes(self) -> int:
        """Bytes of the files to be copied."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    def run(self, verify: bool = True) -> MoveResult:
        """Write the table in one commit, and compare its rows with the output's.

        Args:
            verify: Whether to compare; both are read once more for it.

        Raises:
            StalePlanError: The stream has written a batch since the plan was made.
            InvalidArgumentError: The table's folder exists by now.
            RunFailedError: Spark or Delta gave up; the output is as it was.
            VerificationError: The table's rows differ from the output's.
        """
        begun = time.perf_counter()
        _check_new(self.to)
        spark = self.log.session or get_spark()
        try:
            with session_confs(spark, WHOLE_FILES | _as_logged(self.log)), quiet_errors():
                rows = self._rows(spark)
                before = fingerprint(rows) if verify else None
                writer = rows.write.format("delta").mode("error")
                (writer.partitionBy(*self.partition_by) if self.partition_by else writer).save(uri(self.to))
                table = spark.read.format("delta").load(uri(self.to))
                after = fingerprint(table) if verify else None
        except (PySparkException, Py4JJavaError) as error:
            left = f"the output is as it was; delete what is in {self.to} before another try"
            raise translate(error, self.to, left) from error
        if before != after:
            raise VerificationError(
                f"The content differs: the output has {before} {before and before.hash_sums}, the table "
                f"{after} {after and after.hash_sums}: don't use the table at {self.to}, and report this; "
                "the output is as it was."
            )
        from compaction_kit.table import open_table

        added = open_table(self.to).files()
        seconds = time.perf_counter() - begun
        return MoveResult(self.to, len(self.files), added.num_files, added.size_bytes, after, seconds)

    def explain(self) -> str:
        """What would be copied and what not, in sentences."""
        lines = [
            f"{format_count(len(self.files), f'{self.format} file')} of {self.output} "
            f"({format_size(self.size_bytes)}) would be copied to a Delta table at {self.to}"
            + (f", partitioned by {', '.join(self.partition_by)}." if self.partition_by else ".")
        ]
        if len(self.leftovers):
            size = format_size(pc.sum(self.leftovers["size_bytes"]).as_py())
            lines.append(
                f"Left out: {format_count(len(self.leftovers), 'file')} ({size}) that the log doesn't list; "
                "a reader that doesn't go by the log sees their rows as well."
            )
        return "\n".join([*lines, "Nothing of the output is changed. Stop the stream first."])

    def facts(self) -> dict[str, str]:
        """The plan for people: name and value."""
        return {
            "from": f"{self.output}: {format_count(len(self.files), f'{self.format} file')}, "
            f"{format_size(self.size_bytes)}",
            "to": str(self.to),
            "partitioned by": ", ".join(self.partition_by) or "nothing",
            "schema": self.schema.simpleString(),
            "left out": f"{format_count(len(self.leftovers), 'file')} that the log doesn't list",
        }

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return f"MovePlan({len(self.files):,} files, {format_size(self.size_bytes)} → {self.to})"

    def _rows(self, spark: SparkSession) -> DataFrame:
        """The rows of the output, from the files of the plan and no other.

        Raises:
            StalePlanError: The log lists others by now.
        """
        reader = spark.read.format(self.format).options(**self.options).schema(self.schema)
        rows = reader.load(uri(self.output))
        # What is read is settled with load(), so that no later batch can slip in.
        found = relative_paths(pa.array(rows.inputFiles(), pa.string()), self.output)
        if set(found.to_pylist()) != set(self.files["path"].to_pylist()):
            raise StalePlanError(
                f"The plan was made at batch {self.log.latest_batch} and the log lists other files by now: "
                "stop the stream and make a new plan; nothing was changed."
            )
        return rows


def plan_move(
    log: "SinkLog",
    to: Path,
    partition_by: str | Sequence[str] | None,
    schema: str | None,
    options: Mapping[str, str],
) -> MovePlan:
    """See `SinkLog.plan_move`."""
    if log.kind == Kind.SOURCE:
        raise InvalidArgumentError(
            f"{log.name} is the log of what a stream read: name the output folder of a file sink to move it."
        )
    output = log.folder.parent
    _check_new(to)
    if to.resolve().is_relative_to(output):
        raise InvalidArgumentError(
            f"to={to} is inside of the output that is to be moved: name another folder."
        )
    for file in log.needed:
        # Spark reads it either way, and would not miss entries that were cut off.
        read_checked(log.folder / file.name)
    files = _listed(log, output)
    file_format = format_of(files["path"])
    folders = partition_folders(files["path"][0].as_py())
    on_disk = list_folder(output, folders)
    check_there(files, on_disk)
    spark = log.session or get_spark()
    found = _schema(spark, log, file_format, schema, options)
    columns = (partition_by,) if isinstance(partition_by, str) else partition_by
    chosen = tuple(folders if columns is None else columns)
    unknown = [column for column in chosen if column not in found.names]
    if unknown:
        raise InvalidArgumentError(
            f"partition_by={', '.join(unknown)} is no column of the output: choose from "
            f"{', '.join(found.names)}."
        )
    left = pc.invert(pc.is_in(on_disk["path"], value_set=files["path"].combine_chunks()))
    leftovers = on_disk.filter(left).select(["path", "size_bytes"]).sort_by("path")
    return MovePlan(log, to, file_format, found, chosen, dict(options), files, leftovers)


def _check_new(to: Path) -> None:
    if to.exists():
        raise InvalidArgumentError(
            f"to={to} exists already: name a folder that doesn't; nothing was changed."
        )


def _as_logged(log: "SinkLog") -> dict[str, str]:
    """Settings with which Spark reads an output by its log, and finds all that is in it."""
    interval = log.policy.default_interval
    if not any(file.is_compaction for file in log.listed):
        # Else it would look for compactions that nobody made.
        interval = max(interval, log.latest_batch + 2)
    return {_IGNORE_LOG: "false", setting(Kind.SINK, "compactInterval"): str(interval)}


def _listed(log: "SinkLog", output: Path) -> pa.Table:
    """The files that the log lists, a row each: path (relative to the output), size_bytes."""
    entries = log.entries.filter(pc.invert(log.entries["is_dir"]))
    if not len(entries):
        raise EmptyTableError(f"The log of {log.name} lists no file, so that there is nothing to move.")
    compacted = any(file.is_compaction for file in log.listed)
    if compacted and log.unreadable is not None:
        raise CorruptLogError(
            f"Spark can't read the log: by its compactions it looks for {log.unreadable}, which isn't there; "
            "restore it from a backup."
        )
    paths = relative_paths(entries["path"], output)
    return pa.table({"path": pa.chunked_array([paths]), "size_bytes": entries["size_bytes"]})


def _schema(
    spark: SparkSession, log: "SinkLog", file_format: str, schema: str | None, options: Mapping[str, str]
) -> StructType:
    """The schema with which Spark reads the output.

    Raises:
        InvalidArgumentError: It can't, with these options or this schema.
    """
    output = log.folder.parent
    try:
        with session_confs(spark, WHOLE_FILES | _as_logged(log)), quiet_errors():
            reader = spark.read.format(file_format).options(**options)
            return (reader if schema is None else reader.schema(schema)).load(uri(output)).schema
    except (PySparkException, Py4JJavaError) as error:
        raise InvalidArgumentError(
            f"Spark can't read the output at {output} ({first_line(error)}): check schema and options."
        ) from error
