"""Compare copied row groups with the row groups of the replaced files, byte by byte.

Row groups whose column chunks have the same bytes, types and codecs hold the same rows. pyarrow reads the
footers, which show which files were copied to which output; the module that copies is not used. Pages, and
the footers' metadata of chunks with their statistics, are compared; page indexes and bloom filters are not.
"""

import contextlib
import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.arrow.concat.copying import MISTRUSTED
from compaction_kit.arrow.worker import WHOLE_BYTES
from compaction_kit.arrow.worker.inputs import legacy_sign

_BLOCK_BYTES = 4 << 20
_THREADS = min(os.cpu_count() or 1, 8)
# An offset in a file and a number of bytes, or a first and an end number of rows.
_Span = tuple[int, int]


class DataFile(NamedTuple):
    """A data file on a local disk or a store: a number for its partition, its place and its bytes.

    `vector` is its deletion vector, as `worker.vectors.Vector` in a plain tuple; `ranges` are the numbers of
    the rows to compare, from and to, and `size_bytes` is the size of these rows; without ranges, all rows.
    """

    partition: int
    place: str
    size_bytes: int
    vector: tuple[Any, ...] | None = None
    ranges: tuple[_Span, ...] = ()


class _Footer(NamedTuple):
    """A file's footer: `groups` are equal for equal row groups, `spans` are the places of column chunks."""

    file: DataFile
    num_rows: list[int]
    groups: list[Hashable]
    spans: list[list[_Span]]


class BytesComparison:
    """Finds the row groups of new files that were copied from replaced files.

    Attributes:
        num_rows: Number of rows that were found to be the same.
        bytes_done: Bytes of replaced files compared so far.
        stopped: Set it to end the comparison.
    """

    def __init__(self) -> None:
        self.num_rows = self.bytes_done = 0
        self.stopped = threading.Event()

    def run(self, gone: Sequence[DataFile], new: Sequence[DataFile]) -> tuple[list[DataFile], list[DataFile]]:
        """Compare files; returns the rest of both sides, which must be compared in another way."""
        waiting: dict[Hashable, list[_Footer]] = defaultdict(list)
        outputs = [(file, _footer(file)) for file in new]
        for file in gone if any(footer for _, footer in outputs) else ():
            if footer := _footer(file):
                waiting[footer.groups[0]].append(footer)
        copied = set[DataFile]()
        with ThreadPoolExecutor(_THREADS) as pool:
            found = [self._rest(pool, one, waiting, copied) if one else file for file, one in outputs]
        return [file for file in gone if file not in copied], [file for file in found if file]

    def _rest(
        self,
        pool: ThreadPoolExecutor,
        output: _Footer,
        waiting: dict[Hashable, list[_Footer]],
        copied: set[DataFile],
    ) -> DataFile | None:
        """Return the output with the rows that aren't copied; None if all are."""
        at = row = size_bytes = 0
        ranges: list[_Span] = []
        while at < len(output.groups):
            alike = waiting[output.groups[at]]
            source = next((one for one in alike if self._is_copied(pool, one, output, at)), None)
            count = len(source.groups) if source else 1
            end = row + sum(output.num_rows[at : at + count])
            if source:
                alike.remove(source)
                copied.add(source.file)
                self.num_rows += end - row
            else:
                start = ranges.pop()[0] if ranges and ranges[-1][1] == row else row
                ranges.append((start, end))
                size_bytes += sum(size for _, size in output.spans[at])
            at, row = at + count, end
        if ranges == [(0, row)]:
            return output.file
        return output.file._replace(ranges=tuple(ranges), size_bytes=size_bytes) if ranges else None

    def _is_copied(self, pool: ThreadPoolExecutor, source: _Footer, output: _Footer, at: int) -> bool:
        """Return whether the output's row groups from position `at` on are those of the source."""
        end = at + len(source.groups)
        if source.groups != output.groups[at:end]:
            return False
        with open(source.file.place, "rb") as one, open(output.file.place, "rb") as other:

            def is_same(before: _Span, after: _Span) -> bool:
                for done in range(0, before[1], _BLOCK_BYTES):
                    size = min(_BLOCK_BYTES, before[1] - done)
                    data = os.pread(one.fileno(), size, before[0] + done)
                    same = len(data) == size and data == os.pread(other.fileno(), size, after[0] + done)
                    if self.stopped.is_set() or not same:
                        return False
                    self.bytes_done += size
                return True

            chain = itertools.chain.from_iterable
            # A list, so that all comparisons are done before the files are closed.
            return all(list(pool.map(is_same, chain(source.spans), chain(output.spans[at:end]))))


def _footer(file: DataFile) -> _Footer | None:
    """Read the footer of a file that is large enough to have been copied; None for others."""
    if file.size_bytes < WHOLE_BYTES or file.vector:
        return None
    # A damaged file is left to another reader, which says what is wrong.
    with contextlib.suppress(OSError, pa.ArrowException, ValueError):
        metadata = pq.read_metadata(file.place)
        # The schema without the root's name, which differs between writers.
        schema, writer = str(metadata.schema).split("\n", 2)[2], metadata.created_by
        # Readers read some writers' pages differently.
        layout = file.partition, schema, writer if MISTRUSTED.match(writer.encode()) else ""
        groups: list[Hashable] = []
        num_rows, spans = list[int](), list[list[_Span]]()
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            chunks = [group.column(i) for i in range(group.num_columns)]
            num_rows.append(group.num_rows)
            groups.append((layout, group.num_rows, *map(_alike, chunks)))
            spans.append(list(map(_span, chunks)))
        if groups and legacy_sign(metadata.metadata or {}) is None:
            return _Footer(file, num_rows, groups, spans)
    return None


def _alike(chunk: pq.ColumnChunkMetaData) -> str:
    """Return a chunk's metadata without offsets, as text, so that NaN equals NaN."""
    return repr({name: value for name, value in chunk.to_dict().items() if not name.endswith("_offset")})


def _span(chunk: pq.ColumnChunkMetaData) -> _Span:
    first = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
    return first, chunk.total_compressed_size
