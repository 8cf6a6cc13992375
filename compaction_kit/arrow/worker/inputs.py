"""The rows of data files, in order and in bounded memory.

A few kilobytes may be gigabytes of rows: a dictionary holds each value once, and runs are stored as their
length. What is surely small is decoded at once. Other files are read in batches, their texts as dictionaries
where they are stored so; texts that are far larger than their dictionaries are written as they were read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.arrow.worker.columns import Columns, Refused, all_leaves, fitted, null_rows
from compaction_kit.arrow.worker.files import Input, Storage
from compaction_kit.arrow.worker.vectors import Vector, deleted_rows, live_rows, read_vectors, with_row_ids

# Files whose rows take no more are decoded at once, those of others in batches of about these bytes.
DECODED_AT_ONCE, BATCH_BYTES = 128 << 20, 8 << 20
# Rows may be of very different sizes, and are held more than once while they are written.
MOST_BATCH_BYTES, MOST_ROWS = 128 << 20, 1 << 16
# Texts stay in dictionaries if they take this many times as much without.
_FAR_LARGER = 4
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
# Texts have an offset each, decimals 128 bits however they are stored, values in lists two levels of 16 bits.
_TEXT, _OFFSET_BYTES, _DECIMAL_BYTES, _LEVEL_BYTES = "BYTE_ARRAY", 4, 16, 4
_DICTIONARIES, _SHARED_PREFIXES = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"}, "DELTA_BYTE_ARRAY"
# Footers with one of these keys have dates or times in the old calendar, and so have those of Spark before
# 3.1 (DataSourceUtils, datetimeRebaseSpec and int96RebaseSpec).
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION, _FIRST_OF_TODAY = b"org.apache.spark.version", (3, 1)


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
        constants: The columns that aren't read from the inputs, and the value of all rows in an array of
            length 1: partition columns, as the log has them.
        has_years: Whether the log's statistics show that all timestamps are of the years 1 to 9999.
        needs_version: Whether to refuse files that don't name Spark's release, because they may have dates
            that Spark refuses.
        footer: The output's key-value metadata.
        vectors: Deletion vectors, as tuples of `Vector`'s fields, by the input's place.
        row_ids: For each input of a table that tracks rows, by its place: the columns for row ids and row
            commit versions, with the id of the first row, and the version of rows that have none there.
    """

    number: int
    part: int
    parts: int
    inputs: Sequence[Input]
    output: str
    lease: str
    schema: bytes
    constants: Mapping[str, pa.Array]
    has_years: bool
    footer: dict[str, str]
    vectors: Mapping[str, Sequence[Any]] = {}
    row_ids: Mapping[str, Mapping[str, int]] = {}
    joins: bool = False
    needs_version: bool = False

    @property
    def size_bytes(self) -> int:
        """The bytes of its inputs."""
        return sum(size for _, size in self.inputs)


class Codec(NamedTuple):
    """What pyarrow calls a codec, the level that Spark uses, and the end of a file's name."""

    name: str
    level: int | None
    suffix: str


# By the names that pyarrow gives in footers.
_CODECS = {
    "UNCOMPRESSED": Codec("none", None, "parquet"),
    "SNAPPY": Codec("snappy", None, "snappy.parquet"),
    "GZIP": Codec("gzip", 6, "gz.parquet"),
    "ZSTD": Codec("zstd", 3, "zstd.parquet"),
    "LZ4": Codec("lz4", None, "lz4raw.parquet"),
}


class TextsFound(Exception):
    """The text columns `columns`, by their path in Parquet, are far larger than their dictionaries."""

    def __init__(self, columns: set[str]):
        super().__init__(columns)
        self.columns = columns


class _Leaf(NamedTuple):
    """A leaf column: its number, its path, whether it holds texts, and bytes per value beside those."""

    number: int
    path: str
    is_text: bool
    width: int


class FileReader:
    """Reads a task's files; `codec` is the first file's, or Spark's default if that has no rows."""

    codec: Codec

    def __init__(self, task: RewriteTask, columns: Columns, storage: Storage):
        """Take a task, with the columns and the storage of its table."""
        self.task, self.columns, self.storage = task, columns, storage
        self._wanted: list[str] = []
        self._leaves: list[_Leaf] = []
        # None for all of a file's columns.
        self._selected: list[str] | None = None
        self._width = 0
        self._is_flat = False
        self._schema: pq.ParquetSchema | None = None
        self._types: pa.Schema | None = None
        self._footer: dict[bytes, bytes] | None = None

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of files that aren't deleted, in order, with the table's columns that each file has.

        Raises:
            Refused: A file can't be rewritten faithfully.
            TextsFound: Texts are far larger than their dictionaries, and don't stay in them.
            OSError, ArrowException: A file can't be read.
        """
        marked, row_ids = self.task.vectors, self.task.row_ids
        vectors = {path: Vector(*marked[path]) for path, _ in self.task.inputs if path in marked}
        bitmaps = read_vectors(vectors, self.storage)
        for path, data in self.storage.loaded(self.task.inputs):
            try:
                with self.opened(path, data) as file:
                    count = 0
                    deleted = deleted_rows(bitmaps[path], vectors[path]) if path in vectors else None
                    for table in self._rows(path, data, file):
                        if path in row_ids:
                            table = with_row_ids(table, row_ids[path], count)
                        count += len(table)
                        yield table if deleted is None else live_rows(table, deleted, count - len(table))
                    if count != file.metadata.num_rows:
                        promised = file.metadata.num_rows
                        raise OSError(f"{path} has {promised} rows by its footer, and {count} were read")
                    if deleted is not None and (deleted >= count).any():
                        raise OSError(f"{path} has {count} rows, and its deletion vector deletes others")
            except pa.ArrowNotImplementedError as error:
                raise Refused(f"pyarrow can't read a file ({error})") from error
            except (OSError, pa.ArrowException) as error:
                # pyarrow doesn't say of which file.
                raise error if path in str(error) else OSError(f"{path} can't be read: {error}") from error

    def opened(self, path: str, data: bytes | None = None) -> pq.ParquetFile:
        """Open a file, of which the bytes may have been read, and check its calendar and its columns.

        Raises:
            Refused: It can't be rewritten faithfully.
        """
        file = self._open(path, data)
        # Also where another file has decided the output's: Spark may be unable to read this one.
        codec = _codec_of(file.metadata)
        if self._footer is None:
            self.codec = codec
        is_known = (file.metadata.metadata or {}) == self._footer and file.schema.equals(self._schema)
        # Schemas in Parquet are compared without the names of structs.
        if not (is_known and (self._is_flat or file.schema_arrow.equals(self._types, check_metadata=True))):
            self._learn(file)
        return file

    def _learn(self, file: pq.ParquetFile) -> None:
        """Check a file that may differ from the one before, and look up its wanted columns."""
        self._footer = file.metadata.metadata or {}
        if (sign := legacy_sign(self._footer)) is not None:
            raise Refused(f"a file has dates of the legacy hybrid calendar ({sign})")
        if self.task.needs_version and _VERSION not in self._footer:
            raise Refused("a file may have dates of the legacy hybrid calendar, which Spark refuses")
        self._types = file.schema_arrow
        names, self._wanted = self._types.names, self.columns.found_in(self._types)
        self._selected = None if self._wanted == names else self._wanted
        self._schema, self._leaves = file.schema, _leaves_of(file.schema, self._wanted)
        self._width = sum(leaf.width for leaf in self._leaves)
        leaves = list(map(file.schema.column, range(len(file.schema))))
        self._is_flat = [leaf.path for leaf in leaves] == names
        old = [leaf.path for leaf in self._leaves if leaves[leaf.number].physical_type == "INT96"]
        if old and not self.task.has_years:
            raise Refused(
                f"column {old[0]} is stored as INT96, which pyarrow reads right for the years 1 to 9999, "
                "and the log's statistics don't show that it has no others"
            )

    def _open(self, path: str, data: bytes | None, unsure: Collection[str] = ()) -> pq.ParquetFile:
        left = self.columns.in_dictionaries.union(unsure)
        is_read = data is not None
        source = (
            pa.BufferReader(data) if is_read else path if self.storage.is_local else self.storage.open(path)
        )
        metadata = pq.read_metadata(source) if left else None
        leaves = map(metadata.schema.column, range(len(metadata.schema))) if metadata else ()
        return pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=[leaf.path for leaf in leaves if leaf.path in left] or None,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
            **{"buffer_size": 0, "pre_buffer": False} if is_read else self.storage.reading,
        )

    def _rows(self, path: str, data: bytes | None, file: pq.ParquetFile) -> Iterator[pa.Table]:
        metadata = file.metadata
        if not self._wanted:
            # A table without columns would not keep its number of rows.
            for start in range(0, metadata.num_rows, MOST_ROWS):
                yield null_rows(self.columns.schema, min(MOST_ROWS, metadata.num_rows - start))
            return
        is_small, batch_rows, unsure = self._decoding(metadata)
        # No batches for a small file: that is slower.
        if is_small and data is not None and metadata.num_rows <= MOST_ROWS:
            yield file.read(columns=self._selected, use_threads=False)
            return
        unsure -= self.columns.in_dictionaries
        if not unsure:
            yield from self._batches(file, batch_rows)
            return
        with self._open(path, data, unsure) as file:
            for batch in self._batches(file, batch_rows):
                _check_texts(batch, unsure)
                yield fitted(batch, self.columns.schema)

    def _decoding(self, metadata: pq.FileMetaData) -> tuple[bool, int, set[str]]:
        """Return whether all rows are small, how many to decode at once, and the texts that may be large."""
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        # Each value takes no more than all pages, and no less than its column's width.
        rough = sum(group.num_rows * (group.total_byte_size + self._width) for group in groups)
        if self._is_flat and rough <= DECODED_AT_ONCE:
            return True, MOST_ROWS, set()
        total = bounds = most = 0
        unsure: set[str] = set()
        shared: set[str] = set()
        for group in groups:
            size = 0
            for leaf in self._leaves:
                chunk = group.column(leaf.number)
                size += chunk.num_values * leaf.width
                if leaf.is_text:
                    # All texts are in the pages, if each is written out, and else each of them is.
                    size += chunk.total_uncompressed_size
                    encodings = set(chunk.encodings)
                    if encodings & (_DICTIONARIES | {_SHARED_PREFIXES}):
                        bounds += chunk.num_values * chunk.total_uncompressed_size
                        (shared if _SHARED_PREFIXES in encodings else unsure).add(leaf.path)
            total += size
            most = max(most, size // max(group.num_rows, 1))
        batch_rows = max(min(BATCH_BYTES // max(most, 1), MOST_ROWS), 1)
        if total + bounds <= DECODED_AT_ONCE:
            return True, batch_rows, set()
        for path in shared:
            raise Refused(f"the texts of column {path} are stored without their common prefixes")
        return total <= DECODED_AT_ONCE and not unsure, batch_rows, unsure

    def _batches(self, file: pq.ParquetFile, batch_rows: int) -> Iterator[pa.Table]:
        # Each row group by itself: what is buffered is held until the last one is read, and texts in lists
        # can't come from several dictionaries.
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(batch_rows, row_groups=[group], columns=self._selected):
                if batch.nbytes > MOST_BATCH_BYTES:
                    raise Refused(f"some of a file's rows take {batch.nbytes >> 20} MiB in memory")
                yield pa.Table.from_batches([batch])


def _leaves_of(schema: pq.ParquetSchema, columns: Collection[str]) -> list[_Leaf]:
    found = []
    for number, leaf in enumerate(map(schema.column, range(len(schema)))):
        # A column's own name may have a dot.
        if leaf.path in columns or leaf.path.split(".", 1)[0] in columns:
            is_text, is_decimal = leaf.physical_type == _TEXT, leaf.logical_type.type == "DECIMAL"
            width = _DECIMAL_BYTES if is_decimal else _WIDTHS.get(leaf.physical_type, leaf.length)
            width = _OFFSET_BYTES if is_text else width
            width += _LEVEL_BYTES if leaf.max_repetition_level else 0
            found.append(_Leaf(number, leaf.path, is_text, width))
    return found


def _check_texts(rows: pa.Table, columns: Collection[str]) -> None:
    """Raise TextsFound if texts that were read as dictionaries take too much to be decoded."""
    names = {path.split(".", 1)[0] for path in columns}
    large = set()
    for path, leaf in all_leaves(rows.select([name for name in rows.column_names if name in names])):
        if path in columns and pa.types.is_dictionary(leaf.type):
            size = pc.sum(pc.binary_length(leaf.dictionary).take(leaf.indices)).as_py() or 0
            if size > min(max(_FAR_LARGER * leaf.nbytes, BATCH_BYTES), MOST_BATCH_BYTES):
                large.add(path)
    if large:
        raise TextsFound(large)


def _codec_of(metadata: pq.FileMetaData) -> Codec:
    """Return the codec of a file's first column; Spark's default, if it has none."""
    if not metadata.num_row_groups or not metadata.num_columns:
        return _CODECS["SNAPPY"]
    name = metadata.row_group(0).column(0).compression
    if name not in _CODECS:
        # pyarrow has no name for the framing that older Sparks write.
        known = "Hadoop-framed LZ4" if name == "UNKNOWN" else name
        raise Refused(f"a file is compressed with {known}, which pyarrow or Spark lacks")
    return _CODECS[name]


def legacy_sign(footer: Mapping[bytes, bytes]) -> str | None:
    """Return the sign in a footer's key-value metadata that dates may be of the old calendar, if any."""
    marks = [key.decode() for key in _LEGACY if key in footer]
    version = footer.get(_VERSION, b"").decode()
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    is_old = bool(version) and tuple(numbers) < _FIRST_OF_TODAY
    return marks[0] if marks else f"Spark {version}" if is_old else None
