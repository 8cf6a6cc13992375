"""Copy a sink's output to a Delta table: the files that its log lists, and proof that no row differs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from compaction_kit.errors import (
    CorruptLogError,
    EmptyTableError,
    InvalidArgumentError,
    StalePlanError,
    UnsupportedTableError,
    VerificationError,
)
from compaction_kit.execute.failures import translate
from compaction_kit.execute.jobs import WHOLE_FILES, session_confs
from compaction_kit.folder import list_folder
from compaction_kit.log import TransactionLog
from compaction_kit.log.paths import places
from compaction_kit.log.reading import first_line, read_checked
from compaction_kit.records import Plan, Result
from compaction_kit.session import quiet_errors
from compaction_kit.sinklog.policy import Kind, setting
from compaction_kit.sinklog.state import SinkLogState
from compaction_kit.sql import uri
from compaction_kit.storage import local_path, open_store
from compaction_kit.text import format_count, format_size
from compaction_kit.verify import Fingerprint, fingerprint

_IGNORE_LOG = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
_FORMAT = r"\.(?P<format>parquet|json|csv)(?:\.\w+)?$"


@dataclass(frozen=True, repr=False)
class MoveResult(Result):
    """A Delta table with the rows that the sink's log lists; nothing of the output was changed.

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


@dataclass(frozen=True, repr=False)
class MovePlan(Plan):
    """Which files of a sink's output a Delta table would be made of.

    Stop the stream first. Start it again with the same checkpoint and the table as its sink, and it continues
    where it was.

    Attributes:
        log: The sink's log.
        to: The table's folder.
        format: The output's format: "parquet", "json" or "csv".
        schema: The output's schema, as Spark reads it.
        partition_by: The table's partition columns.
        options: The options that the output is read with.
        files: One row a file that the log lists: path (string, relative to the output), size_bytes (int64).
        leftovers: One row a data file of the output that the log doesn't list: path (string), size_bytes
            (int64). Batches that failed leave them, and a retention; a reader that doesn't go by the log
            reads their rows as well. They aren't copied.
    """

    log: SinkLogState = field(repr=False)
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
        return self.log.output

    @property
    def size_bytes(self) -> int:
        """Bytes of the files to be copied."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to copy; never so, as an empty log is refused."""
        return not len(self.files)

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
        _check_new(self.to)
        begun, spark = time.perf_counter(), self.log.spark
        try:
            with session_confs(spark, _reading(self.log)), quiet_errors():
                rows = self._rows()
                before = fingerprint(rows) if verify else None
                rows.write.format("delta").mode("error").partitionBy(*self.partition_by).save(uri(self.to))
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
        added = TransactionLog(self.to).snapshot().live_files["size_bytes"]
        seconds = time.perf_counter() - begun
        return MoveResult(self.to, len(self.files), len(added), pc.sum(added).as_py() or 0, after, seconds)

    def explain(self) -> str:
        """What would be copied and what not, in sentences."""
        facts, partitions = self.facts(), ", ".join(self.partition_by)
        by = f", partitioned by {partitions}" if partitions else ""
        lines = [f"A Delta table at {self.to}{by} would be made of {facts['from']}."]
        if len(self.leftovers):
            size = format_size(pc.sum(self.leftovers["size_bytes"]).as_py())
            lines.append(f"Left out: {facts['left out']} ({size}); readers without the log read them too.")
        return "\n".join([*lines, "Nothing of the output is changed. Stop the stream first."])

    def facts(self) -> dict[str, str]:
        """The plan for people: name and value."""
        num_files = format_count(len(self.files), f"{self.format} file")
        return {
            "from": f"{num_files} of {self.output}, {format_size(self.size_bytes)}",
            "to": str(self.to),
            "partitioned by": ", ".join(self.partition_by) or "nothing",
            "schema": self.schema.simpleString(),
            "left out": f"{format_count(len(self.leftovers), 'file')} that the log doesn't list",
        }

    def _rows(self) -> DataFrame:
        """The rows of the output, from the files of the plan and no other."""
        rows = _load(self.log, self.format, self.options, self.schema)
        # load() fixes the files to be read, so that no later batch can slip in.
        found = places(pa.array(rows.inputFiles(), pa.string()), open_store(str(self.output)))
        if set(found.to_pylist()) != set(self.files["path"].to_pylist()):
            raise StalePlanError(
                f"The plan was made at batch {self.log.latest_batch} and the log lists other files by now: "
                "stop the stream and make a new plan; nothing was changed."
            )
        return rows


def plan_move(
    log: SinkLogState,
    to: str | Path,
    partition_by: str | Sequence[str] | None = None,
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
) -> MovePlan:
    """Plan to copy the sink's output to a new Delta table; see `MovePlan`.

    Args:
        log: The sink's log.
        to: The table's folder; there must be nothing yet.
        partition_by: Its partition columns. None: as the output is partitioned.
        schema: The output's schema in SQL, such as "id BIGINT, name STRING". None: as Spark infers it.
        options: Options to read the output with, such as {"header": "true"} for CSV.

    Raises:
        InvalidArgumentError: An argument can't be used, or the log is a source's.
        EmptyTableError: The log lists no file.
        CorruptLogError: A file that it lists is missing, Spark can't read the log, or one of its files
            differs from its checksums.
        UnsupportedTableError: The files aren't Parquet, JSON or CSV.
    """
    to, options = local_path(str(to)), dict(options or {})
    log.check_sink("plan_move()")
    _check_new(to)
    if Path(open_store(str(to)).root).is_relative_to(log.output):
        raise InvalidArgumentError(
            f"to={to} is inside of the output that is to be moved: name another folder."
        )
    for file in log.needed:
        # Spark reads it either way, and would not miss entries that were cut off.
        read_checked(log.store, file.name)
    files = _listed(log)
    file_format = _format_of(files["path"])
    # "a=1/b=2/part-0.json" is partitioned by a and b.
    folders = [name.partition("=")[0] for name in files["path"][0].as_py().split("/")[:-1] if "=" in name]
    partition_columns = [unquote(name) for name in folders]
    on_disk = list_folder(open_store(str(log.output)), partition_columns)
    _check_there(files["path"], on_disk["path"])
    try:
        with session_confs(log.spark, _reading(log)), quiet_errors():
            output_schema = _load(log, file_format, options, schema).schema
    except (PySparkException, Py4JJavaError) as error:
        raise InvalidArgumentError(
            f"Spark can't read the output at {log.output} ({first_line(error)}): check schema and options."
        ) from error
    columns = (partition_by,) if isinstance(partition_by, str) else partition_by
    chosen = tuple(partition_columns if columns is None else columns)
    unknown = ", ".join(column for column in chosen if column not in output_schema.names)
    if unknown:
        names = ", ".join(output_schema.names)
        raise InvalidArgumentError(f"partition_by={unknown} is no column of the output: choose from {names}.")
    is_listed = pc.is_in(on_disk["path"], value_set=files["path"].combine_chunks())
    leftovers = on_disk.filter(pc.invert(is_listed)).select(["path", "size_bytes"]).sort_by("path")
    return MovePlan(log, to, file_format, output_schema, chosen, options, files, leftovers)


def _load(
    log: SinkLogState, file_format: str, options: Mapping[str, str], schema: StructType | str | None
) -> DataFrame:
    reader = log.spark.read.format(file_format).options(**options)
    return (reader if schema is None else reader.schema(schema)).load(uri(log.output))


def _check_new(to: Path) -> None:
    if open_store(str(to)).is_taken(""):
        raise InvalidArgumentError(
            f"to={to} exists already: name a folder that doesn't; nothing was changed."
        )


def _reading(log: SinkLogState) -> dict[str, str]:
    """Settings with which Spark reads an output by its log, and every file that the log lists."""
    interval = log.policy.default_interval
    if not any(file.is_compaction for file in log.listed):
        # Else Spark would look for compactions that nobody made.
        interval = max(interval, log.latest_batch + 2)
    return WHOLE_FILES | {_IGNORE_LOG: "false", setting(Kind.SINK, "compactInterval"): str(interval)}


def _listed(log: SinkLogState) -> pa.Table:
    """The files that the log lists, a row each: path (relative to the output), size_bytes."""
    entries = log.entries.filter(pc.invert(log.entries["is_dir"]))
    if not len(entries):
        raise EmptyTableError(f"The log of {log.name} lists no file, so that there is nothing to move.")
    if log.unreadable is not None and any(file.is_compaction for file in log.listed):
        raise CorruptLogError(
            f"Spark can't read the log: by its compactions it needs {log.unreadable}, which is missing; "
            "restore it from a backup."
        )
    paths = pa.chunked_array([places(entries["path"], open_store(str(log.output)))])
    return pa.table({"path": paths, "size_bytes": entries["size_bytes"]})


def _format_of(paths: pa.ChunkedArray) -> str:
    """The one format of all files, by their names."""
    formats = pc.unique(pc.struct_field(pc.extract_regex(paths, _FORMAT), "format")).to_pylist()
    if len(formats) > 1 or formats[0] is None:
        kinds = ", ".join(filter(None, formats)) or Path(paths[0].as_py()).name
        raise UnsupportedTableError(
            f"The output's files are {kinds}, and only Parquet, JSON or CSV are moved, one of them at a time."
        )
    return str(formats[0])


def _check_there(paths: pa.ChunkedArray, on_disk: pa.ChunkedArray) -> None:
    missing = paths.filter(pc.invert(pc.is_in(paths, value_set=on_disk.combine_chunks()))).to_pylist()
    if missing:
        cure = (
            "the log has absolute paths, so that an output can't be read from another folder than it was "
            "written to: move it back"
            if missing[0].startswith("/")
            else "restore it from a backup"
        )
        lacking = format_count(len(missing), "file")
        raise CorruptLogError(f"The output lacks {lacking} that the log lists, such as {missing[0]}: {cure}.")
