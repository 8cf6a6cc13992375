"""Read the rows of data files, in order and in bounded memory.

A few kilobytes may hold gigabytes of rows: a dictionary holds each value once, and runs are stored as their
length. Rows that are certainly small are decoded at once. Other files are read in batches, with stored
dictionaries of texts; texts far larger than their dictionaries are written as dictionaries too.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.arrow.worker.columns import Columns, Refused, all_leaves, fitted, null_rows
from compaction_kit.arrow.worker.files import Input, Storage
from compaction_kit.arrow.worker.vectors import Vector, deleted_rows, live_rows, read_vectors, with_row_ids

# Files are decoded at once up to this size of their rows, others in batches of about this size.
DECODED_AT_ONCE, BATCH_BYTES = 128 << 20, 8 << 20
# Rows may differ much in size, and are held more than once while they are written.
MOST_BATCH_BYTES, MOST_ROWS = 128 << 20, 1 << 16
# Texts stay in dictionaries if they would take this many times as much memory without.
_FAR_LARGER = 4
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
# In memory each text has an offset, a decimal has 128 bits, and a value in a list two levels of 16 bits.
_TEXT, _OFFSET_BYTES, _DECIMAL_BYTES, _LEVEL_BYTES = "BYTE_ARRAY", 4, 16, 4
_DICTIONARIES, _SHARED_PREFIXES = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"}, "DELTA_BYTE_ARRAY"
# Files with one of these footer keys have dates or times in the old calendar, like files of Spark before 3.1
# (DataSourceUtils, datetimeRebaseSpec and int96RebaseSpec).
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION, _FIRST_OF_TODAY = b"org.apache.spark.version", (3, 1)


class RewriteTask(NamedTuple):
    """A bin, or some of its files.

    Attributes:
        number: The bin's number.
        part: The number of the part in the bin.
        parts: The number of the bin's parts.
        joins: Whether the inputs are the outputs of all parts.
        inputs: Places, as in `files`, each with the file's size in bytes.
        output: The prefix of the output's place. Each attempt of a task adds another suffix, so two attempts
            never write to one file.
        lease: The place of a file that is deleted as soon as outputs are no longer needed.
        schema: The output's schema, serialized, with the columns of `constants` last.
        constants: The columns that aren't read from the inputs, each with its value for all rows in an array
            of length 1: partition columns, with the log's values.
        has_years: Whether the log's statistics show that all timestamps are in the years 1 to 9999.
        needs_version: Whether to refuse files that don't name Spark's release, because they may have dates
            that Spark refuses.
        footer: The output's key-value metadata.
        vectors: Deletion vectors, as tuples of `Vector`'s fields, by the input's place.
        row_ids: For each input of a table with row tracking, by its place: the columns for row ids and row
            commit versions, with the first row's default id, and the rows' default version.
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
    """pyarrow's name of a codec, the level that Spark uses, and the suffix of a file's name."""

    name: str
    level: int | None
    suffix: str


# Codecs by the names that pyarrow gives for footers.
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
    """A leaf column: its number, its path, whether it holds texts, and bytes per value besides texts."""

    number: int
    path: str
    is_text: bool
    width: int


class FileReader:
    """Reads a task's files; `codec` is that of the first file, or Spark's default if it has no rows."""

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
            TextsFound: Texts are far larger than their dictionaries, and aren't kept as dictionaries yet.
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
                # pyarrow's message doesn't name the file.
                raise error if path in str(error) else OSError(f"{path} can't be read: {error}") from error

    def opened(self, path: str, data: bytes | None = None) -> pq.ParquetFile:
        """Open a file, or `data` if its bytes were read, and check its calendar and its columns.

        Raises:
            Refused: The file can't be rewritten faithfully.
        """
        file = self._open(path, data)
        # Every file's codec is checked, because Spark may be unable to read it; the output has the first one.
        codec = _codec_of(file.metadata)
        if self._footer is None:
            self.codec = codec
        is_known = (file.metadata.metadata or {}) == self._footer and file.schema.equals(self._schema)
        # Comparing Parquet schemas ignores the names of structs.
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
        # Without batches, which are slower for a small file.
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
        """Return whether all rows are small, how many to decode at once, and which texts may be large."""
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        # An upper limit: no row takes more than all pages, plus the widths of its columns.
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
                    # Plain pages hold all texts; pages with dictionaries or prefixes hold each distinct text.
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
        # One row group at a time: buffers are held until the last row group is read, and texts in lists can't
        # come from several dictionaries.
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(batch_rows, row_groups=[group], columns=self._selected):
                if batch.nbytes > MOST_BATCH_BYTES:
                    raise Refused(f"some of a file's rows take {batch.nbytes >> 20} MiB in memory")
                yield pa.Table.from_batches([batch])


def _leaves_of(schema: pq.ParquetSchema, columns: Collection[str]) -> list[_Leaf]:
    found = []
    for number, leaf in enumerate(map(schema.column, range(len(schema)))):
        # A column's own name may contain a dot.
        if leaf.path in columns or leaf.path.split(".", 1)[0] in columns:
            is_text, is_decimal = leaf.physical_type == _TEXT, leaf.logical_type.type == "DECIMAL"
            width = _DECIMAL_BYTES if is_decimal else _WIDTHS.get(leaf.physical_type, leaf.length)
            width = _OFFSET_BYTES if is_text else width
            width += _LEVEL_BYTES if leaf.max_repetition_level else 0
            found.append(_Leaf(number, leaf.path, is_text, width))
    return found


def _check_texts(rows: pa.Table, columns: Collection[str]) -> None:
    """Raise TextsFound if texts that were read as dictionaries take too much memory to be decoded."""
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
    """Return the key or the release in a footer that shows that dates may be of the old calendar, if any."""
    marks = [key.decode() for key in _LEGACY if key in footer]
    version = footer.get(_VERSION, b"").decode()
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    is_old = bool(version) and tuple(numbers) < _FIRST_OF_TODAY
    return marks[0] if marks else f"Spark {version}" if is_old else None
