"""Shares of bins rewritten: Parquet files in, one out, in bounded memory."""

import atexit
import contextlib
import gc
import itertools
import resource
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow.fs import FileSystem

from compaction_kit.arrow.worker.checksums import check_file
from compaction_kit.arrow.worker.columns import Columns, Refused, has_constants
from compaction_kit.arrow.worker.decoding import TextsFound
from compaction_kit.arrow.worker.files import DISK, Storage, storage_of
from compaction_kit.arrow.worker.footer import Footer, NotStitchable, read_footer
from compaction_kit.arrow.worker.inputs import FileReader
from compaction_kit.arrow.worker.outputs import (
    FloatsFound,
    nan_columns,
    row_groups,
    write_file,
    zero_columns,
)
from compaction_kit.arrow.worker.pages import check_pages
from compaction_kit.arrow.worker.stitch import stitch

# Row groups of at least so many bytes are copied as they are: larger ones would gain little.
WHOLE_BYTES = 8 << 20
_STEM = ".c000."


class Share(NamedTuple):
    """A bin, or some of its files: what a task needs to know.

    Attributes:
        number: Of the bin.
        part: Which of the bin's shares it is.
        parts: How many the bin has.
        inputs: Places, as `files` has them, with the bytes of each.
        output: What the output's place begins with. Each try of a task ends it differently, so that two of
            them never write to one file.
        mark: The place of a file that is deleted as soon as outputs are of no use any more.
        schema: Of the output, serialized: the columns of `constants` last.
        constants: The columns that aren't read from the inputs, and the value of all rows: partition
            columns, as the log has them.
        by_id: Whether readers match columns by field id and not by name.
        footer: The output's key-value metadata.
    """

    number: int
    part: int
    parts: int
    inputs: Sequence[tuple[str, int]]
    output: str
    mark: str
    schema: bytes
    constants: Mapping[str, Any]
    by_id: bool
    footer: dict[str, str]

    @property
    def size_bytes(self) -> int:
        """The bytes of its inputs."""
        return sum(size for _, size in self.inputs)


class Rewritten(NamedTuple):
    """The output of a share or a bin; if there is none, `refusal` or `failure` says why.

    `start` and `end` are in seconds since 1970, `modification_time` in milliseconds; `peak_bytes` is
    the most memory that the worker has held in its life.
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


def rewrite_shares(
    shares: Iterable[tuple[Any, ...]], report: Callable[[Share], None], files: FileSystem | None = None
) -> Iterator[tuple[Any, ...]]:
    """Rewrite shares, and give their outputs in turn.

    Args:
        shares: Of one table, at least one, in the order of `Share`'s fields.
        report: Called with each one that is done.
        files: Of the table, if they aren't on a local disk.

    Returns:
        Plain tuples in the order of `Rewritten`'s fields.
    """
    spare_modules()
    found = list(itertools.starmap(Share, shares))
    storage = storage_of(files)
    columns = _columns(found[0])
    outputs: list[Rewritten] = []

    def rewritten(share: Share) -> Rewritten | None:
        # The run was cancelled, or another try of the task was the quicker.
        if _is_over(share, storage):
            return None
        work = partial(_rewritten, share, columns, storage)
        outputs.append(_output_of(share.number, share.part, work, storage))
        return outputs[-1]

    try:
        sizes = [share.size_bytes for share in found]
        with contextlib.closing(storage.each(rewritten, found, sizes)) as results:
            for share, output in zip(found, results, strict=True):
                if output is None:
                    return
                yield tuple(output)
                report(share)
    finally:
        # On a disk they went with the run's folder. What is written before the mark is deleted, the driver
        # finds.
        if not storage.is_local and _is_over(found[0], storage):
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


def _is_over(share: Share, storage: Storage) -> bool:
    """Whether nobody waits for outputs any more; not if the storage doesn't say."""
    try:
        return not storage.exists(share.mark)
    except OSError:
        return False


def join_parts(bins: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Make one file of the parts of each bin; the parts stay.

    Args:
        bins: As shares whose inputs are the parts, in the order of `Share`'s fields.

    Returns:
        As `rewrite_shares` does.
    """
    for share in itertools.starmap(Share, bins):
        yield tuple(_output_of(share.number, 0, partial(_join, share)))


def _output_of(
    number: int, part: int, work: Callable[[], tuple[str, int]], storage: Storage = DISK
) -> Rewritten:
    """The output of some work, which gives a place and a number of rows.

    Errors are returned, not raised: else Spark would try again, and other outputs were lost.
    """
    start = time.time()
    done = Rewritten(number, part)
    try:
        path, num_rows = work()
        size_bytes, modified = storage.status(path)
        done = done._replace(path=path, num_rows=num_rows, size_bytes=size_bytes, modification_time=modified)
    except Refused as error:
        done = done._replace(refusal=first_line(error))
    except Exception as error:
        done = done._replace(failure=first_line(error))
    return done._replace(start=start, end=time.time(), peak_bytes=peak_bytes())


def peak_bytes() -> int:
    """The most memory that this process has held.

    On Linux, what getrusage(2) tells includes what the program held that started this one, such as Java.
    """
    try:
        with open("/proc/self/status", "rb") as status:
            (peak,) = (line.split()[1] for line in status if line.startswith(b"VmHWM:"))
            return int(peak) << 10
    except (OSError, ValueError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def first_line(error: Exception) -> str:
    """The first line of an error, or the name of its class."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(" .:")


def _rewritten(share: Share, columns: Columns, storage: Storage) -> tuple[str, int]:
    path, num_rows = rewrite_share(share, columns, storage)
    storage.finish(path, share.inputs[0][0])
    return path, num_rows


def _join(share: Share) -> tuple[str, int]:
    parts = [path for path, _ in share.inputs]
    path = _unique(share.output, parts[0].rpartition(_STEM)[2])
    try:
        num_rows = stitch([read_footer(part) for part in parts], path, share.footer)
    except NotStitchable:
        # One has the row groups of a writer that lays out columns in another way than ours.
        path, num_rows = rewrite_share(share)
    DISK.finish(path, parts[0])
    return path, num_rows


def _unique(output: str, suffix: str) -> str:
    return f"{output}-{uuid.uuid4().hex[:8]}{_STEM}{suffix}"


def _columns(share: Share) -> Columns:
    return Columns(pa.ipc.read_schema(pa.py_buffer(share.schema)), share.by_id, share.constants)


def rewrite_share(share: Share, columns: Columns | None = None, storage: Storage = DISK) -> tuple[str, int]:
    """Write a share's rows to one file, in their order, compressed as the first input is.

    Args:
        share: What to write.
        columns: Of its table, if they are known from another share.
        storage: Where its files are.

    Returns:
        The file's place, and the number of rows.

    Raises:
        Refused: A file can't be rewritten faithfully.
    """
    columns = columns or _columns(share)
    reader = FileReader(columns, storage)
    constants = [
        pa.array([value], columns.output.field(name).type) for name, value in share.constants.items()
    ]
    # What can't be copied can be decoded.
    with contextlib.suppress(NotStitchable):
        footers = _whole(share, reader, columns.plain, constants) if storage.is_local else []
        for footer in footers:
            check_file(footer.path)
            check_pages(footer.path, (chunk for group in footer.row_groups for chunk in group.chunks))
        if footers:
            path = _unique(share.output, reader.codec.suffix)
            return path, stitch(footers, path, share.footer)
    with_nan: set[str] = set()
    with_zero: set[str] = set()
    while True:
        path = ""
        try:
            groups = row_groups(reader.tables(share.inputs), columns, constants)
            first = next(groups, columns.output.empty_table())
            with_nan |= nan_columns(first)
            with_zero |= zero_columns(first)
            path = _unique(share.output, reader.codec.suffix)
            codec, size_bytes = reader.codec, share.size_bytes
            num_rows = write_file(
                path, first, groups, columns, codec, with_nan, with_zero, size_bytes, share.footer, storage
            )
            return path, num_rows
        except FloatsFound as found:
            # Statistics and dictionaries are chosen once, for all row groups: begin again.
            storage.delete(path)
            with_nan |= found.with_nan
            with_zero |= found.with_zero
        except TextsFound as found:
            # So are the types of columns.
            storage.delete(path)
            columns = columns.leaving(found.columns)
            reader = FileReader(columns, storage)
        except BaseException:
            storage.delete(path)
            raise


def _whole(share: Share, reader: FileReader, schema: pa.Schema, constants: list[pa.Array]) -> list[Footer]:
    """The inputs' footers, if all hold large row groups of just the output's columns, laid out alike."""
    if min(size for _, size in share.inputs) < WHOLE_BYTES:
        return []
    footers = [read_footer(path) for path, _ in share.inputs]
    first = footers[0]
    for footer in footers:
        if min((group.size_bytes for group in footer.row_groups), default=0) < WHOLE_BYTES:
            return []
        if (footer.schema, footer.codecs) != (first.schema, first.codecs):
            return []
    for path, _ in share.inputs:
        with reader.opened(path) as file:
            if not file.schema_arrow.remove_metadata().equals(schema, check_metadata=True):
                return []
            if not has_constants(file.metadata, constants):
                return []
    return footers
