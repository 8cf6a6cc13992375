"""Rewrite bins: several Parquet files become one, in bounded memory."""

import atexit
import contextlib
import gc
import itertools
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from compaction_kit.arrow.concat import CannotConcatenate, concatenate
from compaction_kit.arrow.worker.columns import Columns, Refused
from compaction_kit.arrow.worker.files import Input, Storage
from compaction_kit.arrow.worker.inputs import FileReader, RewriteTask, TextsFound
from compaction_kit.arrow.worker.outputs import (
    STEM,
    FloatsFound,
    RewriteOutput,
    nan_columns,
    new_place,
    write_file,
)

# Row groups of at least these bytes on average are copied unchanged: making them larger would gain little.
WHOLE_BYTES = 8 << 20
# The least share of large files in a bin for which copying pays: other files are rewritten, then copied.
COPIED_SHARE = 1 / 8
_FLOATS = ("FLOAT", "DOUBLE")
# Rows of a column in a batch that is searched for NaN: 8 MiB at most, for few batches.
_ROWS_AT_ONCE = 1 << 20
_THREADS = 2
# True and one large file; or False and files that aren't large.
_Piece = tuple[bool, list[Input]]


def rewrite_bins(
    tasks: Iterable[tuple[Any, ...]], report: Callable[[RewriteTask], None], files: FileSystem | None = None
) -> Iterator[tuple[Any, ...]]:
    """Rewrite the tasks of one table, and yield their outputs in order; none after the lease has ended.

    Tasks and outputs are tuples of the fields of `RewriteTask` and `RewriteOutput`, because the driver's
    classes may be unknown here. `report` is called with each task that is done; `files` is the file system
    of a table that isn't on a local disk.
    """
    spare_modules()
    found = list(itertools.starmap(RewriteTask, tasks))
    storage, columns = Storage(files), _columns(found[0])
    outputs: list[RewriteOutput] = []

    def work(task: RewriteTask) -> RewriteOutput | None:
        # The run was cancelled, or another attempt of the task was faster.
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
        # On a disk, the run's folder is deleted. The driver finds outputs from before the end of the lease.
        if not storage.is_local and _has_ended(found[0], storage):
            for output in outputs:
                if output.path:
                    storage.delete(output.path)


def spare_modules() -> None:
    """Exclude imported modules from Python's garbage collection, once in a worker's life.

    PySpark's worker collects garbage after each task (pyspark/daemon.py), which takes about 20 ms.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        # Otherwise DuckDB reports leaks when the worker ends.
        atexit.register(gc.unfreeze)


def _has_ended(task: RewriteTask, storage: Storage) -> bool:
    """Return whether the lease has ended, so that outputs are useless; False if the storage fails."""
    try:
        return not storage.is_there(task.lease)
    except OSError:
        return False


def _output_of(task: RewriteTask, storage: Storage, columns: Columns) -> RewriteOutput:
    """Run a task; errors are returned, because a raised one would lose other outputs and repeat the task."""
    start = time.time()
    done = RewriteOutput(task.number, task.part)
    try:
        written = (_join if task.joins else rewrite)(task, storage, columns)
        storage.finish(written.path, task.inputs[0][0])
        size_bytes, modified = storage.status(written.path)
        done = written._replace(size_bytes=size_bytes, modification_time=modified)
    except Refused as error:
        done = done._replace(refusal=first_line(error))
    except Exception as error:
        done = done._replace(failure=first_line(error))
    return done._replace(start=start, end=time.time(), peak_bytes=peak_bytes())


def peak_bytes() -> int:
    """Return the most memory that this process has held.

    On Linux, getrusage(2) includes the memory of the program that started this one, such as Java.
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


def _columns(task: RewriteTask) -> Columns:
    return Columns(pa.ipc.read_schema(pa.py_buffer(task.schema)), task.constants)


def _join(task: RewriteTask, storage: Storage, columns: Columns) -> RewriteOutput:
    parts = [path for path, _ in task.inputs]
    # A part may have row groups of a writer whose column layout differs from ours.
    with contextlib.suppress(CannotConcatenate):
        path = new_place(task, parts[0].rpartition(STEM)[2])
        return RewriteOutput(task.number, task.part, path, num_rows=concatenate(parts, path, task.footer))
    return rewrite(task, storage, columns)


def rewrite(
    task: RewriteTask, storage: Storage | None = None, columns: Columns | None = None
) -> RewriteOutput:
    """Write a task's rows to one file, in their order, compressed as the first input is.

    `storage` and `columns` are those of the task's table.

    Raises:
        Refused: A file can't be rewritten faithfully.
    """
    storage, columns = storage or Storage(), columns or _columns(task)
    if storage.is_local and not task.row_ids:
        # Files that can't be copied are decoded below.
        with contextlib.suppress(CannotConcatenate):
            reader, pieces = FileReader(task, columns, storage), _pieces(task)
            if _is_worth_copying(pieces, reader, columns.plain):
                return _copied(reader, pieces)
    floats = FloatsFound(set(), set())
    while True:
        try:
            return write_file(FileReader(task, columns, storage), floats)
        # Types, statistics and dictionaries are chosen once for all row groups, so writing starts again.
        except FloatsFound as found:
            floats.add(found)
        except TextsFound as found:
            columns = columns.leaving(found.columns)


def _pieces(task: RewriteTask) -> list[_Piece]:
    """Return the inputs in their order: large files to be copied, each alone, and the files between them."""

    def is_large(one: Input) -> bool:
        place, size_bytes = one
        return size_bytes >= WHOLE_BYTES and place not in task.vectors

    runs = [(large, list(run)) for large, run in itertools.groupby(task.inputs, is_large)]
    return [(large, part) for large, run in runs for part in ([[one] for one in run] if large else [run])]


def _is_worth_copying(pieces: Sequence[_Piece], reader: FileReader, schema: pa.Schema) -> bool:
    """Return whether large files have enough of the bytes, and large row groups with the output's columns.

    Their values of partition columns are kept, because Delta's readers take these values from the log.
    """
    copied = [inputs[0] for large, inputs in pieces if large]
    if sum(size for _, size in copied) < COPIED_SHARE * reader.task.size_bytes:
        return False
    codecs, sizes = set(), []
    for path, _ in copied:
        with reader.opened(path) as file:
            if not file.schema_arrow.remove_metadata().equals(schema, check_metadata=True):
                return False
            metadata: pq.FileMetaData = file.metadata
            for group in map(metadata.row_group, range(metadata.num_row_groups)):
                chunks = [group.column(i) for i in range(group.num_columns)]
                codecs.add(frozenset(chunk.compression for chunk in chunks))
                sizes += [sum(chunk.total_compressed_size for chunk in chunks)] if group.num_rows else []
    return len(codecs) == 1 and sum(sizes) >= WHOLE_BYTES * len(sizes)


def _copied(reader: FileReader, pieces: Sequence[_Piece]) -> RewriteOutput:
    """Write files to one by copying row groups: of large files, and of the others once they are rewritten."""
    task, storage = reader.task, reader.storage
    paths, own, with_nan = [], list[str](), set[str]()
    try:
        for large, inputs in pieces:
            path = inputs[0][0]
            if large:
                storage.check(path)
            else:
                written = rewrite(task._replace(inputs=inputs), storage, reader.columns)
                path = written.path
                own.append(path)
                with_nan.update(written.with_nan)
            paths.append(path)
        # pyarrow decodes without Python's lock, and one task copies a whole bin.
        with ThreadPoolExecutor(_THREADS) as pool:
            if any(pool.map(_hides_nan, [path for path in paths if path not in own])):
                raise CannotConcatenate("readers may skip NaN by a file's statistics")
        output = new_place(task, reader.codec.suffix)
        num_rows = concatenate(paths, output, task.footer)
        return RewriteOutput(task.number, task.part, output, 0, num_rows, frozenset(with_nan))
    finally:
        for path in own:
            storage.delete(path)


def _hides_nan(place: str) -> bool:
    """Return whether a column outside of lists has NaN although it has bounds, or can't be decoded.

    If there is NaN, neither parquet-mr (FloatStatistics) nor this kit writes bounds.
    """
    file = pq.ParquetFile(place, memory_map=True)
    metadata = file.metadata
    if metadata.created_by.startswith("parquet-mr"):
        return False
    groups, floats = [metadata.row_group(i) for i in range(metadata.num_row_groups)], list[str]()
    for i, leaf in enumerate(map(file.schema.column, range(len(file.schema)))):
        if leaf.physical_type in _FLOATS and not leaf.max_repetition_level:
            bounds = [group.column(i).statistics for group in groups]
            floats += [leaf.path] if any(one is not None and one.has_min_max for one in bounds) else []
    # Columns are read one after the other, because there may be many.
    batches = (batch for path in floats for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[path]))
    try:
        return any(nan_columns(pa.Table.from_batches([batch])) for batch in batches)
    except (OSError, pa.ArrowException):
        return True
