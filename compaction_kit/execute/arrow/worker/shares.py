"""Shares of bins rewritten: Parquet files in, one out, in bounded memory."""

import contextlib
import gc
import itertools
import os
import resource
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.execute.arrow.worker.checksums import (
    check_file,
    check_pages,
    checksum_path,
    write_checksums,
)
from compaction_kit.execute.arrow.worker.codecs import Codec
from compaction_kit.execute.arrow.worker.constants import has_constants, with_constants
from compaction_kit.execute.arrow.worker.encoding import dictionary_columns, nan_columns
from compaction_kit.execute.arrow.worker.fitting import Columns, Refused, TextsFound, fitted
from compaction_kit.execute.arrow.worker.footer import Footer, NotStitchable, read_footer
from compaction_kit.execute.arrow.worker.reading import Reader
from compaction_kit.execute.arrow.worker.stitch import stitch

# A row group is closed at so many bytes in memory. With what is read ahead and what is encoded, a
# task holds a few times these, whatever the size of its bin.
GROUP_BYTES = 128 << 20
# Row groups of at least so many bytes are copied as they are: larger ones would gain little.
WHOLE_BYTES = 8 << 20
# Inputs of so many bytes together, whose rows take so many, become an output that is written at once.
_AT_ONCE_BYTES, _AT_ONCE_ROWS = 4 << 20, 64 << 20
# What a value takes, in memory, in a column that a file lacks.
_LACKING_BYTES = 8
_STEM = ".c000."


class Share(NamedTuple):
    """A bin, or some of its files: what a task needs to know.

    Attributes:
        number: Of the bin.
        part: Which of the bin's shares it is.
        parts: How many the bin has.
        inputs: Absolute paths, with the bytes of each.
        output: What the output's path begins with: each try of a task ends it in its own way, so
            that two of them never write to one file.
        schema: Of the output, serialized: the columns of `constants` last.
        constants: The columns, and the value of all rows, that aren't read from the inputs: what the log
            says of partition columns.
        by_id: Whether readers go by the ids of fields and not by their names.
        footer: What the output's footer says of its writer.
    """

    number: int
    part: int
    parts: int
    inputs: Sequence[tuple[str, int]]
    output: str
    schema: bytes
    constants: Mapping[str, Any]
    by_id: bool
    footer: dict[str, str]

    @property
    def size_bytes(self) -> int:
        """The bytes of its inputs."""
        return sum(size for _, size in self.inputs)


class Rewritten(NamedTuple):
    """What came of a share, or of a bin; `refusal` or `failure` says why nothing did, if so.

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
    shares: Iterable[tuple[Any, ...]], tell: Callable[[Share], None]
) -> Iterator[tuple[Any, ...]]:
    """Rewrite shares one after another.

    Args:
        shares: Of one table, in the order of `Share`'s fields.
        tell: Called with each one that is done.

    Returns:
        Plain tuples in the order of `Rewritten`'s fields.
    """
    _freeze_imports()
    columns: Columns | None = None
    for share in itertools.starmap(Share, shares):
        if not os.path.isdir(os.path.dirname(share.output)):
            # The run was cancelled, or another try of the task was the quicker.
            return
        columns = columns or _columns(share)
        yield tuple(_told(share.number, share.part, partial(_rewritten, share, columns)))
        tell(share)


def _freeze_imports() -> None:
    """Keep all that is there by now out of the collection of garbage.

    PySpark's worker goes through it after each task (pyspark/daemon.py), and all modules that were
    ever imported take it some 20 milliseconds.
    """
    if not gc.get_freeze_count():
        gc.freeze()


def _rewritten(share: Share, columns: Columns) -> tuple[str, int]:
    """Rewrite a share; its output has checksums beside it if its first input has."""
    path, num_rows = rewrite_share(share, columns)
    if share.inputs and os.path.exists(checksum_path(share.inputs[0][0])):
        write_checksums(path)
    return path, num_rows


def join_parts(bins: Iterable[tuple[int, Sequence[str], str, dict[str, str]]]) -> Iterator[tuple[Any, ...]]:
    """Make one file of the parts of each bin; the parts stay.

    Args:
        bins: Number, paths of the parts in their order, what the output's path begins with, and
            what its footer says of its writer.

    Returns:
        As `rewrite_shares` does.
    """
    for number, parts, output, footer in bins:
        yield tuple(_told(number, 0, partial(_join, parts, output, footer)))


def _join(parts: Sequence[str], output: str, footer: dict[str, str]) -> tuple[str, int]:
    path = _unique(output, parts[0].rpartition(_STEM)[2])
    num_rows = stitch([read_footer(part) for part in parts], path, footer)
    if os.path.exists(checksum_path(parts[0])):
        write_checksums(path)
    return path, num_rows


def _told(number: int, part: int, work: Callable[[], tuple[str, int]]) -> Rewritten:
    """What came of some work, which gives a path and a number of rows.

    Errors are told, not raised: else Spark would try again, and other outputs were lost.
    """
    start = time.time()
    done = Rewritten(number, part)
    try:
        path, num_rows = work()
        status = os.stat(path)
        modified = int(status.st_mtime * 1000)
        done = done._replace(
            path=path, num_rows=num_rows, size_bytes=status.st_size, modification_time=modified
        )
    except Refused as error:
        done = done._replace(refusal=_first_line(error))
    except Exception as error:
        done = done._replace(failure=_first_line(error))
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return done._replace(start=start, end=time.time(), peak_bytes=peak)


def _columns(share: Share) -> Columns:
    return Columns(pa.ipc.read_schema(pa.py_buffer(share.schema)), share.by_id, share.constants)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _unique(output: str, suffix: str) -> str:
    return f"{output}-{uuid.uuid4().hex[:8]}{_STEM}{suffix}"


def rewrite_share(share: Share, columns: Columns | None = None) -> tuple[str, int]:
    """Write a share's rows to one file, in their order, compressed as the first input is.

    Args:
        share: What to write.
        columns: Of its table, if they are known from another share.

    Returns:
        The file's path, and how many rows there are.

    Raises:
        Refused: A file can't be rewritten faithfully.
    """
    columns = columns or _columns(share)
    reader = Reader(columns)
    constants = [
        pa.array([value], columns.output.field(name).type) for name, value in share.constants.items()
    ]
    whole = _whole(share, reader, columns.plain, constants)
    if whole:
        for footer in whole:
            check_file(footer.path)
            check_pages(footer.path, (chunk for group in footer.row_groups for chunk in group.chunks))
        path = _unique(share.output, reader.codec.suffix)
        with contextlib.suppress(NotStitchable):
            return path, stitch(whole, path, share.footer)
    with_nan: set[str] = set()
    while True:
        path = ""
        try:
            groups = _groups(reader.tables(share.inputs), columns, constants)
            first = next(groups, columns.output.empty_table())
            with_nan |= nan_columns(first)
            path = _unique(share.output, reader.codec.suffix)
            with (
                _sink(path, share.size_bytes, first) as sink,
                _writer(sink, columns, reader.codec, first, with_nan) as writer,
            ):
                num_rows = _write(writer, itertools.chain([first], groups), with_nan)
                writer.add_key_value_metadata(share.footer)
            return path, num_rows
        except _NanFound as found:
            # Statistics are promised for all row groups or none: begin anew.
            _remove(path)
            with_nan |= found.columns
        except TextsFound as found:
            # So are the types of columns.
            _remove(path)
            columns = columns.leaving(found.columns)
            reader = Reader(columns)
        except BaseException:
            _remove(path)
            raise


class _NanFound(Exception):
    """Columns hold NaN that were to have statistics."""

    def __init__(self, columns: set[str]):
        super().__init__(columns)
        self.columns = columns


def _remove(path: str) -> None:
    """Delete a file, if it was begun."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


@contextlib.contextmanager
def _sink(path: str, size_bytes: int, first: pa.Table) -> Iterator[str | pa.BufferOutputStream]:
    """Where to write a file made of so many bytes, with these rows first; small ones are written at once."""
    # After fewer rows than make a row group there come no others.
    if size_bytes > _AT_ONCE_BYTES or first.nbytes > _AT_ONCE_ROWS:
        yield path
        return
    buffer = pa.BufferOutputStream()
    yield buffer
    with open(path, "xb") as file:
        file.write(buffer.getvalue())


def _writer(
    sink: str | pa.BufferOutputStream,
    columns: Columns,
    codec: Codec,
    first: pa.Table,
    with_nan: set[str],
) -> pq.ParquetWriter:
    """Writes a file as Spark does; `first` are the rows that tell where dictionaries pay."""
    return pq.ParquetWriter(
        sink,
        columns.output,
        compression=codec.name,
        compression_level=codec.level,
        use_dictionary=dictionary_columns(first.select(columns.schema.names)) + columns.constants.names,
        write_statistics=[name for name in columns.leaves if name not in with_nan],
        version="2.6",
        store_schema=False,
        store_decimal_as_integer=True,
        write_page_checksum=True,
    )


def _write(writer: pq.ParquetWriter, groups: Iterator[pa.Table], with_nan: set[str]) -> int:
    """Write row groups, and count the rows.

    Raises:
        _NanFound: A later one than the first has NaN in columns that the first had none in.
    """
    num_rows = 0
    for number, group in enumerate(groups):
        found = nan_columns(group) - with_nan if number else set()
        if found:
            raise _NanFound(found)
        # By several dictionaries for one column, pyarrow would decode it.
        writer.write_table(group.unify_dictionaries(), row_group_size=len(group) or None)
        num_rows += len(group)
    return num_rows


def _whole(share: Share, reader: Reader, schema: pa.Schema, constants: list[pa.Array]) -> list[Footer]:
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


def _groups(tables: Iterator[pa.Table], columns: Columns, constants: list[pa.Array]) -> Iterator[pa.Table]:
    """The rows in pieces as large as a row group, with the output's columns and types."""
    ready: list[pa.Table] = []
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        # Tables of one schema are fitted together, for each may have but a few rows.
        if held and not table.schema.equals(held[0].schema):
            ready.append(fitted(pa.concat_tables(held), columns.schema))
            held = []
        held.append(table)
        lacking = len(columns.output) - table.num_columns
        size += table.get_total_buffer_size() + len(table) * _LACKING_BYTES * lacking
        if size >= GROUP_BYTES:
            yield _whole_rows(ready, held, columns, constants)
            ready, held, size = [], [], 0
    if held:
        yield _whole_rows(ready, held, columns, constants)


def _whole_rows(
    ready: list[pa.Table], held: list[pa.Table], columns: Columns, constants: list[pa.Array]
) -> pa.Table:
    rows = pa.concat_tables([*ready, fitted(pa.concat_tables(held), columns.schema)])
    return with_constants(rows, constants, columns.output)
