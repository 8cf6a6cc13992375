"""Copy the files that a sink's log lists to a Delta table, and verify that no row differs."""

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
    """A Delta table with the rows of the files in the sink's log; the output was not changed.

    Attributes:
        table: The table's folder, for `open_table`.
        num_files_read: The number of files read: those that the log lists.
        num_files_added, bytes_added: The number and size of the table's files.
        fingerprint: The fingerprint of the rows, equal for output and table; None if they weren't compared.
        seconds: The duration of the run, including the proof.
    """

    table: Path
    num_files_read: int
    num_files_added: int
    bytes_added: int
    fingerprint: Fingerprint | None
    seconds: float

    @property
    def verified(self) -> bool | None:
        """True if the rows were compared and are the same; None if they weren't compared."""
        return None if self.fingerprint is None else True

    def facts(self) -> dict[str, str]:
        """Return the outcome for people: name and value."""
        return {
            "table": str(self.table),
            "files": f"{self.num_files_read:,} → {self.num_files_added:,}, {format_size(self.bytes_added)}",
            "content": "not compared" if self.fingerprint is None else f"identical: {self.fingerprint}",
            "seconds": f"{self.seconds:.1f}",
        }


@dataclass(frozen=True, repr=False)
class MovePlan(Plan):
    """The files of a sink's output that would be copied to a Delta table.

    Stop the stream first. Start it again with the same checkpoint and the table as its sink: it continues
    where it stopped.

    Attributes:
        log: The sink's log.
        to: The table's folder.
        format: The output's format: "parquet", "json" or "csv".
        schema: The output's schema, as Spark reads it.
        partition_by: The table's partition columns.
        options: The options to read the output with.
        files: One row per file in the log: path (string, relative to the output), size_bytes (int64).
        leftovers: One row per data file of the output that isn't in the log: path (string), size_bytes
            (int64). They come from failed batches or a retention. They aren't copied, but a reader that
            ignores the log reads their rows too.
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
        """The bytes of the files to copy."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def is_empty(self) -> bool:
        """False: an empty log is refused."""
        return not len(self.files)

    def run(self, verify: bool = True) -> MoveResult:
        """Write the table in one commit, and compare its rows with the output's.

        Args:
            verify: Whether to compare the rows, which reads output and table once more.

        Raises:
            StalePlanError: The stream has written a batch since the plan was made.
            InvalidArgumentError: The table's folder exists by now.
            RunFailedError: Spark or Delta failed; the output is unchanged.
            VerificationError: The table's rows differ from the output's.
        """
        _check_new(self.to)
        start, spark = time.perf_counter(), self.log.spark
        try:
            with session_confs(spark, _reading(self.log)), quiet_errors():
                rows = self._rows()
                before = fingerprint(rows) if verify else None
                rows.write.format("delta").mode("error").partitionBy(*self.partition_by).save(uri(self.to))
                table = spark.read.format("delta").load(uri(self.to))
                after = fingerprint(table) if verify else None
        except (PySparkException, Py4JJavaError) as error:
            outcome = f"the output is unchanged; delete the folder {self.to} before you try again"
            raise translate(error, str(self.to), outcome) from error
        if before != after:
            raise VerificationError(
                f"The content differs: the output has {before} {before and before.hash_sums}, the table "
                f"{after} {after and after.hash_sums}: don't use the table at {self.to}, and report this; "
                "the output is unchanged."
            )
        added = TransactionLog(self.to).snapshot().live_files["size_bytes"]
        seconds = time.perf_counter() - start
        return MoveResult(self.to, len(self.files), len(added), pc.sum(added).as_py() or 0, after, seconds)

    def explain(self) -> str:
        """Explain what would be copied and what not, one sentence per line."""
        facts, partitions = self.facts(), ", ".join(self.partition_by)
        by = f", partitioned by {partitions}" if partitions else ""
        lines = [f"A Delta table at {self.to}{by} would be made from {facts['from']}."]
        if len(self.leftovers):
            size = format_size(pc.sum(self.leftovers["size_bytes"]).as_py())
            lines.append(
                f"Left out: {facts['left out']} ({size}); readers that ignore the log read them too."
            )
        return "\n".join([*lines, "The output is not changed. Stop the stream first."])

    def facts(self) -> dict[str, str]:
        """Return the plan for people: name and value."""
        num_files = format_count(len(self.files), f"{self.format} file")
        return {
            "from": f"{num_files} of {self.output}, {format_size(self.size_bytes)}",
            "to": str(self.to),
            "partitioned by": ", ".join(self.partition_by) or "nothing",
            "schema": self.schema.simpleString(),
            "left out": f"{format_count(len(self.leftovers), 'file')} that the log doesn't list",
        }

    def _rows(self) -> DataFrame:
        """Return the rows of the planned files; refuse other files."""
        rows = _load(self.log, self.format, self.options, self.schema)
        # load() fixes the files to read, so no later batch is included.
        found = places(pa.array(rows.inputFiles(), pa.string()), self.log.output_store)
        if set(found.to_pylist()) != set(self.files["path"].to_pylist()):
            raise StalePlanError(
                f"The plan was made at batch {self.log.latest_batch}, and the log lists other files by now: "
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
    """Plan to copy the sink's output to a new Delta table; see `MovePlan`, and `sink_log` for an example.

    Args:
        log: The sink's log.
        to: The table's folder, which must not exist yet.
        partition_by: The table's partition columns. None for those of the output.
        schema: The output's schema in SQL, such as "id BIGINT, name STRING". None: Spark infers it.
        options: Options to read the output with, such as {"header": "true"} for CSV.

    Raises:
        InvalidArgumentError: An argument can't be used, or the log is a source's.
        EmptyTableError: The log lists no file.
        CorruptLogError: A listed file is missing, Spark can't read the log, or a file of the log differs
            from its checksums.
        UnsupportedTableError: The files aren't Parquet, JSON or CSV.
    """
    to, options = local_path(str(to)), dict(options or {})
    log.check_sink("plan_move()")
    _check_new(to)
    if Path(open_store(to).root).is_relative_to(log.output):
        raise InvalidArgumentError(
            f"to={to} is inside of the output that is to be copied: name another folder."
        )
    for file in log.needed:
        # Spark doesn't compare checksums, and wouldn't notice entries that were cut off.
        read_checked(log.store, file.name)
    files = _listed(log)
    file_format = _format_of(files["path"])
    # "a=1/b=2/part-0.json" is partitioned by a and b.
    folders = [name.partition("=")[0] for name in files["path"][0].as_py().split("/")[:-1] if "=" in name]
    partition_columns = [unquote(name) for name in folders]
    on_disk = list_folder(log.output_store, partition_columns)
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
        raise InvalidArgumentError(
            f"partition_by={unknown} is not a column of the output: choose from {names}."
        )
    is_listed = pc.is_in(on_disk["path"], value_set=files["path"].combine_chunks())
    leftovers = on_disk.filter(pc.invert(is_listed)).select(["path", "size_bytes"]).sort_by("path")
    return MovePlan(log, to, file_format, output_schema, chosen, options, files, leftovers)


def _load(
    log: SinkLogState, file_format: str, options: Mapping[str, str], schema: StructType | str | None
) -> DataFrame:
    reader = log.spark.read.format(file_format).options(**options)
    return (reader if schema is None else reader.schema(schema)).load(uri(log.output))


def _check_new(to: Path) -> None:
    if open_store(to).is_taken(""):
        raise InvalidArgumentError(
            f"to={to} exists already: name a folder that doesn't exist; nothing was changed."
        )


def _reading(log: SinkLogState) -> dict[str, str]:
    """Return settings with which Spark reads an output by its log, and every file that the log lists."""
    interval = log.policy.default_interval
    if not any(file.is_compaction for file in log.listed):
        # Otherwise Spark would look for compactions that don't exist.
        interval = max(interval, log.latest_batch + 2)
    return WHOLE_FILES | {_IGNORE_LOG: "false", setting(Kind.SINK, "compactInterval"): str(interval)}


def _listed(log: SinkLogState) -> pa.Table:
    """Make `MovePlan.files`."""
    entries = log.entries.filter(pc.invert(log.entries["is_dir"]))
    if not len(entries):
        raise EmptyTableError(f"The log of {log.name} lists no file, so there is nothing to copy.")
    if log.unreadable is not None and any(file.is_compaction for file in log.listed):
        raise CorruptLogError(
            f"Spark can't read the log: {log.unreadable} is missing; restore it from a backup."
        )
    paths = pa.chunked_array([places(entries["path"], log.output_store)])
    return pa.table({"path": paths, "size_bytes": entries["size_bytes"]})


def _format_of(paths: pa.ChunkedArray) -> str:
    """Return the format of the files, by their names; refuse several formats."""
    formats = pc.unique(pc.struct_field(pc.extract_regex(paths, _FORMAT), "format")).to_pylist()
    if len(formats) > 1 or formats[0] is None:
        kinds = ", ".join(filter(None, formats)) or Path(paths[0].as_py()).name
        raise UnsupportedTableError(
            f"The output's files are {kinds}: only output in one format, Parquet, JSON or CSV, can be copied."
        )
    return str(formats[0])


def _check_there(paths: pa.ChunkedArray, on_disk: pa.ChunkedArray) -> None:
    missing = paths.filter(pc.invert(pc.is_in(paths, value_set=on_disk.combine_chunks()))).to_pylist()
    if missing:
        cure = (
            "the log has absolute paths, so an output can only be read from its original folder: move it back"
            if missing[0].startswith("/")
            else "restore it from a backup"
        )
        lacking = format_count(len(missing), "file")
        raise CorruptLogError(f"The output lacks {lacking} that the log lists, such as {missing[0]}: {cure}.")
