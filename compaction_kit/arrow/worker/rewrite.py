"""Rewrite bins: Parquet files in, one out, in bounded memory."""

import atexit
import contextlib
import gc
import itertools
import resource
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from compaction_kit.arrow.concat import CannotConcatenate, concatenate
from compaction_kit.arrow.worker.columns import Columns, Refused
from compaction_kit.arrow.worker.files import Storage
from compaction_kit.arrow.worker.inputs import FileReader, TextsFound
from compaction_kit.arrow.worker.outputs import Bounds, FloatsFound, read_bounds, row_groups, write_file

# Row groups of at least these bytes are copied as they are: larger ones would gain little.
WHOLE_BYTES = 8 << 20
_STEM = ".c000."


class RewriteTask(NamedTuple):
    """A bin, or some of its files.

    Attributes:
        number: The bin's number.
        part: Which of the bin's parts it is.
        parts: How many the bin has.
        joins: Whether the inputs are the outputs of all parts.
        inputs: Places, as `files` has them, with the bytes of each.
        output: What the output's place begins with. Each try of a task ends it differently, so that two of
            them never write to one file.
        lease: The place of a file that is deleted as soon as outputs are of no use any more.
        schema: Of the output, serialized: the columns of `constants` last.
        constants: The columns that aren't read from the inputs, and the value of all rows: partition
            columns, as the log has them.
        has_years: Whether the log's statistics show that all timestamps are of the years 1 to 9999.
        needs_version: Whether to refuse files that don't name Spark's release, because they may have dates
            that Spark refuses.
        footer: The output's key-value metadata.
        vectors: Deletion vectors, as tuples of `Vector`'s fields, by the input's place.
        row_ids: For each input of a table that tracks rows, by its place: the columns for row ids and row
            commit versions, with the id of the first row, and the version of rows that have none there.
        with_bounds: Whether to return the output's bounds, because the bin has deleted rows.
    """

    number: int
    part: int
    parts: int
    inputs: Sequence[tuple[str, int]]
    output: str
    lease: str
    schema: bytes
    constants: Mapping[str, Any]
    has_years: bool
    footer: dict[str, str]
    vectors: Mapping[str, Sequence[Any]] = {}
    row_ids: Mapping[str, Mapping[str, int]] = {}
    with_bounds: bool = False
    joins: bool = False
    needs_version: bool = False

    @property
    def size_bytes(self) -> int:
        """The bytes of its inputs."""
        return sum(size for _, size in self.inputs)


class RewriteOutput(NamedTuple):
    """The output of a task or a bin; if there is none, `refusal` or `failure` says why.

    `start` and `end` are in seconds since 1970, `modification_time` in milliseconds; `peak_bytes` is
    the most memory that the worker has held in its life, and `bounds` are those of leaf columns.
    """

    number: int
    part: int
    path: str = ""
    size_bytes: int = 0
    num_rows: int = 0
    modification_time: int = 0
    start: float = 0.0
    end: float = 0.0
    peak_bytes: int = 0
    refusal: str | None = None
    failure: str | None = None
    bounds: Mapping[str, Bounds] = {}


def rewrite_bins(
    tasks: Iterable[tuple[Any, ...]], report: Callable[[RewriteTask], None], files: FileSystem | None = None
) -> Iterator[tuple[Any, ...]]:
    """Rewrite the tasks of one table, and yield their outputs in turn; none after the lease has ended.

    Tasks and outputs are tuples of the fields of `RewriteTask` and `RewriteOutput`, because the driver's
    classes may be unknown here. `report` is called with each task that is done; `files` is the file system
    of a table that isn't on a local disk.
    """
    spare_modules()
    found = list(itertools.starmap(RewriteTask, tasks))
    storage, columns = Storage(files), _columns(found[0])
    outputs: list[RewriteOutput] = []

    def work(task: RewriteTask) -> RewriteOutput | None:
        # The run was cancelled, or another try of the task was the quicker.
        if _has_ended(task, storage):
            return None
        outputs.append(_output_of(task, storage, columns))
        return outputs[-1]

    try:
        sizes = [task.size_bytes for task in found]
        with contextlib.closing(storage.each(work, found, sizes)) as results:
            for task, output in zip(found, results, strict=True):
                if output is None:
                    return
                yield tuple(output)
                report(task)
    finally:
        # On a disk they went with the run's folder. The driver finds what is written before the lease ends.
        if not storage.is_local and _has_ended(found[0], storage):
            for output in outputs:
                if output.path:
                    storage.delete(output.path)


def spare_modules() -> None:
    """Keep modules that are imported out of Python's search for garbage, once in a worker's life.

    PySpark's worker searches after each task (pyspark/daemon.py), which takes it some 20 milliseconds.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        # Else DuckDB complains of leaks when the worker ends.
        atexit.register(gc.unfreeze)


def _has_ended(task: RewriteTask, storage: Storage) -> bool:
    """Return whether nobody waits for outputs any more; not if the storage doesn't say."""
    try:
        return not storage.exists(task.lease)
    except OSError:
        return False


def _output_of(task: RewriteTask, storage: Storage, columns: Columns) -> RewriteOutput:
    """Return errors in the output: if one were raised, Spark would lose other outputs and try again."""
    start = time.time()
    done = RewriteOutput(task.number, task.part)
    try:
        path, num_rows = (_join if task.joins else rewrite)(task, storage, columns)
        storage.finish(path, task.inputs[0][0])
        size_bytes, modified = storage.status(path)
        done = done._replace(path=path, num_rows=num_rows, size_bytes=size_bytes, modification_time=modified)
        if task.with_bounds:
            with storage.open(path) as file:
                done = done._replace(bounds=read_bounds(pq.read_metadata(file)))
    except Refused as error:
        done = done._replace(refusal=first_line(error))
    except Exception as error:
        done = done._replace(failure=first_line(error))
    return done._replace(start=start, end=time.time(), peak_bytes=peak_bytes())


def peak_bytes() -> int:
    """Return the most memory that this process has held.

    On Linux, getrusage(2) includes what the program held that started this one, such as Java.
    """
    try:
        with open("/proc/self/status", "rb") as status:
            (peak,) = (line.split()[1] for line in status if line.startswith(b"VmHWM:"))
            return int(peak) << 10
    except (OSError, ValueError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def first_line(error: Exception) -> str:
    """Return the first line of an error, or the name of its class."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(" .:")


def _unique(output: str, suffix: str) -> str:
    return f"{output}-{uuid.uuid4().hex[:8]}{_STEM}{suffix}"


def _columns(task: RewriteTask) -> Columns:
    return Columns(pa.ipc.read_schema(pa.py_buffer(task.schema)), task.constants)


def _join(task: RewriteTask, storage: Storage, columns: Columns) -> tuple[str, int]:
    parts = [path for path, _ in task.inputs]
    path = _unique(task.output, parts[0].rpartition(_STEM)[2])
    # One may have the row groups of a writer that lays out columns in another way than ours.
    with contextlib.suppress(CannotConcatenate):
        return path, concatenate(parts, path, task.footer)
    return rewrite(task, storage, columns)


def rewrite(
    task: RewriteTask, storage: Storage | None = None, columns: Columns | None = None
) -> tuple[str, int]:
    """Write a task's rows to one file, in their order, compressed as the first input is.

    `storage` and `columns` are those of its table. Returns the file's place, and the number of rows.

    Raises:
        Refused: A file can't be rewritten faithfully.
    """
    storage, columns = storage or Storage(), columns or _columns(task)
    constants = [pa.array([value], columns.output.field(name).type) for name, value in task.constants.items()]
    reader = FileReader(columns, storage, task.has_years, task.vectors, task.row_ids, task.needs_version)
    paths = [path for path, _ in task.inputs]
    may_copy = storage.is_local and not task.row_ids and len(task.vectors) < len(paths)
    if may_copy and min(size for _, size in task.inputs) >= WHOLE_BYTES:
        # What can't be copied can be decoded.
        with contextlib.suppress(CannotConcatenate):
            if _are_whole(paths, reader, columns.plain):
                return _copied(task, storage, columns, reader.codec.suffix)
    floats = FloatsFound(set(), set())
    while True:
        output = ""
        try:
            groups = row_groups(reader.tables(task.inputs), columns, constants)
            first = next(groups, columns.output.empty_table())
            output = _unique(task.output, reader.codec.suffix)
            return output, write_file(
                output,
                itertools.chain([first], groups),
                columns,
                reader.codec,
                floats,
                task.size_bytes,
                task.footer,
                storage,
            )
        except FloatsFound as found:
            # Statistics and dictionaries are chosen once, for all row groups: begin again.
            storage.delete(output)
            floats.with_nan |= found.with_nan
            floats.with_zero |= found.with_zero
        except TextsFound as found:
            # So are the types of columns.
            storage.delete(output)
            columns = columns.leaving(found.columns)
            reader = FileReader(
                columns, storage, task.has_years, task.vectors, task.row_ids, task.needs_version
            )
        except BaseException:
            storage.delete(output)
            raise


def _copied(task: RewriteTask, storage: Storage, columns: Columns, suffix: str) -> tuple[str, int]:
    """Write files to one by copying row groups; those with deleted rows are rewritten before."""
    paths, own = [], []
    try:
        for path, size in task.inputs:
            if path in task.vectors:
                path, _ = rewrite(task._replace(inputs=[(path, size)]), storage, columns)
                own.append(path)
            storage.check(path)
            paths.append(path)
        output = _unique(task.output, suffix)
        return output, concatenate(paths, output, task.footer)
    finally:
        for path in own:
            storage.delete(path)


def _are_whole(paths: Sequence[str], reader: FileReader, schema: pa.Schema) -> bool:
    """Return whether all files hold large row groups of just the output's columns, of the same codecs.

    What they have in partition columns stays: readers of a Delta table take those values from the log.
    """
    codecs = set()
    for path in paths:
        with reader.opened(path) as file:
            if not file.schema_arrow.remove_metadata().equals(schema, check_metadata=True):
                return False
            metadata: pq.FileMetaData = file.metadata
            for group in map(metadata.row_group, range(metadata.num_row_groups)):
                chunks = [group.column(i) for i in range(group.num_columns)]
                if group.num_rows and sum(chunk.total_compressed_size for chunk in chunks) < WHOLE_BYTES:
                    return False
                codecs.add(frozenset(chunk.compression for chunk in chunks))
    return len(codecs) == 1
