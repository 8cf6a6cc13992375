"""The rows of data files, in order and in bounded memory."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.execute.arrow.worker.codecs import Codec, codec_of
from compaction_kit.execute.arrow.worker.fitting import Columns, Refused

# Files of at most so many bytes and rows are read whole, so many bytes and files of them ahead.
_SMALL_BYTES = 4 << 20
_SMALL_ROWS = 1 << 16
_AHEAD_BYTES = 8 << 20
_AHEAD_FILES = 64
# Of others, rows are read in batches of about so many bytes; the first ones tell how many that are.
_BATCH_BYTES = 8 << 20
_PROBE_ROWS = 1 << 8
# Footers that say so hold dates or times in the calendar of old, and so do those of Spark before
# 3.1 (DataSourceUtils, datetimeRebaseSpec and int96RebaseSpec).
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"
_FIRST_OF_TODAY = (3, 1)

Input = tuple[str, int]


class Reader:
    """Reads files of one table; `codec` is that of the first one opened."""

    codec: Codec

    def __init__(self, columns: Columns):
        """
        Args:
            columns: Of the table's data files.
        """
        self._columns = columns
        self._wanted: list[str] = []
        self._footer: dict[bytes, bytes] | None = None

    def tables(self, inputs: Sequence[Input]) -> Iterator[pa.Table]:
        """The rows of files, given with their bytes, in order, with the table's columns that they have.

        Raises:
            Refused: A file can't be rewritten faithfully.
            OSError, ArrowException: A file can't be read.
        """
        for path, data in _loaded(list(_chunks(inputs))):
            yield from self._rows(path, data)

    def opened(self, path: str, data: bytes | None = None) -> pq.ParquetFile:
        """A file, when its dates and its columns have been looked at.

        Args:
            path: Where it is.
            data: Its bytes, if they have been read.
        """
        file = pq.ParquetFile(
            path if data is None else pa.BufferReader(data),
            coerce_int96_timestamp_unit="us",
            pre_buffer=False,
            page_checksum_verification=True,
        )
        footer = file.metadata.metadata or {}
        if footer != self._footer:
            sign = _legacy_sign(footer)
            if sign is not None:
                file.close()
                raise Refused(f"a file has dates of the old calendar ({sign})")
            if self._footer is None:
                self.codec = codec_of(file)
            self._footer = footer
        self._wanted = self._columns.found_in(file.schema_arrow)
        return file

    def _rows(self, path: str, data: bytes | None) -> Iterator[pa.Table]:
        count = 0
        with self.opened(path, data) as file:
            promised = file.metadata.num_rows
            if not self._wanted:
                # A table without columns would not keep its number of rows.
                count = promised
                yield pa.Table.from_pylist([{}] * promised, schema=self._columns.schema)
            elif data is not None and promised <= _SMALL_ROWS:
                table = file.read(columns=self._wanted, use_threads=False)
                count = len(table)
                yield table
            else:
                for batch in file.iter_batches(self._batch_rows(file), columns=self._wanted):
                    count += len(batch)
                    yield pa.Table.from_batches([batch])
        if count != promised:
            raise OSError(f"{path} has {promised} rows by its footer, and {count} were read")

    def _batch_rows(self, file: pq.ParquetFile) -> int:
        """How many rows take up the bytes of a batch, going by the first of them."""
        for probe in file.iter_batches(_PROBE_ROWS, columns=self._wanted):
            row_bytes = max(probe.nbytes // max(len(probe), 1), 1)
            return max(min(_BATCH_BYTES // row_bytes, _SMALL_ROWS), 1)
        return _SMALL_ROWS


def _chunks(inputs: Sequence[Input]) -> Iterator[list[Input]]:
    """The files in turn, small ones together."""
    chunk: list[Input] = []
    size = 0
    for path, size_bytes in inputs:
        if chunk and (size + size_bytes > _AHEAD_BYTES or len(chunk) == _AHEAD_FILES):
            yield chunk
            chunk, size = [], 0
        chunk.append((path, size_bytes))
        size += size_bytes
    if chunk:
        yield chunk


def _loaded(chunks: Sequence[list[Input]]) -> Iterator[tuple[str, bytes | None]]:
    """What `_load` gives of one chunk after another, the next ones meanwhile."""
    if len(chunks) == 1:
        # A thread takes longer to start than a few small files to be read.
        yield from _load(chunks[0])
        return
    with ThreadPoolExecutor(1) as pool:
        waiting = iter(chunks)
        loading = deque(pool.submit(_load, chunk) for chunk in islice(waiting, 2))
        while loading:
            loaded = loading.popleft().result()
            loading.extend(pool.submit(_load, chunk) for chunk in islice(waiting, 1))
            yield from loaded


def _load(chunk: Sequence[Input]) -> list[tuple[str, bytes | None]]:
    """The bytes of the small files; of others none."""
    loaded: list[tuple[str, bytes | None]] = []
    for path, size_bytes in chunk:
        if size_bytes > _SMALL_BYTES:
            loaded.append((path, None))
        else:
            with open(path, "rb", buffering=0) as file:
                loaded.append((path, file.read()))
    return loaded


def _legacy_sign(footer: dict[bytes, bytes]) -> str | None:
    marks = [key.decode() for key in _LEGACY if key in footer]
    version = footer.get(_VERSION, b"").decode()
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    is_old = bool(version) and tuple(numbers) < _FIRST_OF_TODAY
    return marks[0] if marks else f"Spark {version}" if is_old else None
