"""The rows of data files, in order and in bounded memory."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.arrow.worker.columns import Columns, Refused, fitted
from compaction_kit.arrow.worker.decoding import (
    MOST_BATCH_BYTES,
    MOST_ROWS,
    Layout,
    check_texts,
    decoding_of,
    layout_of,
)
from compaction_kit.arrow.worker.files import DISK, Input, Storage
from compaction_kit.arrow.worker.footer import footer_bytes
from compaction_kit.arrow.worker.pages import check_int96, int96_columns

# Footers with one of these keys have dates or times in the old calendar, and so have those of Spark before
# 3.1 (DataSourceUtils, datetimeRebaseSpec and int96RebaseSpec).
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"
_FIRST_OF_TODAY = (3, 1)


class Codec(NamedTuple):
    """What pyarrow calls a codec, the level that Spark has, and the end of a file's name."""

    name: str
    level: int | None
    suffix: str


_SNAPPY = Codec("snappy", None, "snappy.parquet")
# By the names that pyarrow gives in footers.
_CODECS = {
    "UNCOMPRESSED": Codec("none", None, "parquet"),
    "SNAPPY": _SNAPPY,
    "GZIP": Codec("gzip", 6, "gz.parquet"),
    "ZSTD": Codec("zstd", 3, "zstd.parquet"),
    "LZ4": Codec("lz4", None, "lz4raw.parquet"),
}
# pyarrow has no name for this one.
_NAMELESS = {"UNKNOWN": "Hadoop-framed LZ4"}


class FileReader:
    """Reads files of one table; `codec` is that of the first one, or Spark's default if it has no rows."""

    codec: Codec

    def __init__(self, columns: Columns, storage: Storage = DISK):
        """
        Args:
            columns: Of the table's data files.
            storage: Where these are.
        """
        self._columns = columns
        self._storage = storage
        self._wanted: list[str] = []
        self._layout = Layout(0, [])
        self._schema: pq.ParquetSchema | None = None
        self._int96: dict[int, pq.ColumnSchema] = {}
        self._footer: dict[bytes, bytes] | None = None

    def tables(self, inputs: Sequence[Input]) -> Iterator[pa.Table]:
        """The rows of files, in order, with the table's columns that each file has.

        Args:
            inputs: Their paths and sizes in bytes.

        Raises:
            Refused: A file can't be rewritten faithfully.
            TextsFound: Texts are far larger than their dictionaries, and aren't left in them.
            OSError, ArrowException: A file can't be read.
        """
        for path, data in self._storage.loaded(inputs):
            try:
                yield from self._rows(path, data)
            except (OSError, pa.ArrowException) as error:
                # pyarrow doesn't say of which file.
                raise error if path in str(error) else OSError(f"{path} can't be read: {error}") from error

    def opened(self, path: str, data: bytes | None = None) -> pq.ParquetFile:
        """Open a file, and check its calendar and its columns.

        Args:
            path: Where it is.
            data: Its bytes, if they have been read.

        Raises:
            Refused: It can't be rewritten faithfully.
        """
        file = self._open(path, data)
        footer = file.metadata.metadata or {}
        # Also where another file has decided the output's: Spark may be unable to read this one.
        codec = _codec_of(file.metadata)
        if footer != self._footer:
            sign = legacy_sign(footer)
            if sign is not None:
                file.close()
                raise Refused(f"a file has dates of the old calendar ({sign})")
            if self._footer is None:
                self.codec = codec
            self._footer = footer
        wanted = self._columns.found_in(file.schema_arrow)
        # Of one schema in Arrow there are several in Parquet.
        if wanted is not self._wanted or not file.schema.equals(self._schema):
            self._wanted, self._schema = wanted, file.schema
            self._layout = layout_of(file.schema, wanted)
            self._int96 = int96_columns(file.schema, wanted)
        return file

    def _rows(self, path: str, data: bytes | None) -> Iterator[pa.Table]:
        count = 0
        with self.opened(path, data) as file:
            promised = file.metadata.num_rows
            if self._wanted:
                tables = self._decoded(path, data, file)
            else:
                # A table without columns would not keep its number of rows.
                tables = _nulls(self._columns.schema, promised)
            for table in tables:
                count += len(table)
                yield table
        if count != promised:
            raise OSError(f"{path} has {promised} rows by its footer, and {count} were read")

    def _decoded(self, path: str, data: bytes | None, file: pq.ParquetFile) -> Iterator[pa.Table]:
        decoding = decoding_of(file.metadata, self._layout, partial(footer_bytes, path, data, self._storage))
        if self._int96:
            self._check_int96(path, data, file.metadata)
        unsure = set(decoding.unsure) - self._columns.in_dictionaries
        # No batches for a small file: that is slower.
        is_whole = data is not None and decoding.is_small and file.metadata.num_rows <= MOST_ROWS
        batch_rows = None if is_whole else decoding.batch_rows
        if not unsure:
            yield from self._batches(file, batch_rows, data)
            return
        with self._open(path, data, unsure) as file:
            for batch in self._batches(file, batch_rows, data):
                check_texts(batch, unsure)
                yield fitted(batch, self._columns.schema)

    def _check_int96(self, path: str, data: bytes | None, metadata: pq.FileMetaData) -> None:
        if data is not None:
            check_int96(lambda size, at: data[at : at + size], metadata, self._int96)
            return
        with self._storage.pages(path) as read:
            check_int96(read, metadata, self._int96)

    def _batches(
        self, file: pq.ParquetFile, batch_rows: int | None, data: bytes | None
    ) -> Iterator[pa.Table]:
        if batch_rows is None:
            yield file.read(columns=self._wanted, use_threads=False)
            return
        # What is buffered is held until the last of these row groups is read.
        groups = range(file.num_row_groups)
        parts = [groups] if data is not None or self._storage.is_local else [[group] for group in groups]
        for part in parts:
            for batch in file.iter_batches(batch_rows, row_groups=part, columns=self._wanted):
                if batch.nbytes > MOST_BATCH_BYTES:
                    raise Refused(f"some of a file's rows take {batch.nbytes >> 20} MiB in memory")
                yield pa.Table.from_batches([batch])

    def _open(self, path: str, data: bytes | None, unsure: Collection[str] = ()) -> pq.ParquetFile:
        left = self._columns.in_dictionaries.union(unsure)
        source = self._storage.source(path) if data is None else pa.BufferReader(data)
        reading = self._storage.reading if data is None else {"buffer_size": 0, "pre_buffer": False}
        metadata = pq.read_metadata(source) if left else None
        leaves = map(metadata.schema.column, range(len(metadata.schema))) if metadata else ()
        return pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=[leaf.path for leaf in leaves if leaf.path in left] or None,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
            **reading,
        )


def _codec_of(metadata: pq.FileMetaData) -> Codec:
    """The codec of a file's first column; Spark's default, if it has none."""
    if not metadata.num_row_groups or not metadata.num_columns:
        return _SNAPPY
    name = metadata.row_group(0).column(0).compression
    if name not in _CODECS:
        raise Refused(f"a file is compressed with {_NAMELESS.get(name, name)}, which pyarrow or Spark lacks")
    return _CODECS[name]


def legacy_sign(footer: Mapping[bytes, bytes]) -> str | None:
    """The sign of a footer's key-value metadata that dates or times may be of the old calendar, if any."""
    marks = [key.decode() for key in _LEGACY if key in footer]
    version = footer.get(_VERSION, b"").decode()
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    is_old = bool(version) and tuple(numbers) < _FIRST_OF_TODAY
    return marks[0] if marks else f"Spark {version}" if is_old else None


def _nulls(schema: pa.Schema, num_rows: int) -> Iterator[pa.Table]:
    for start in range(0, num_rows, MOST_ROWS):
        count = min(MOST_ROWS, num_rows - start)
        yield pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)
