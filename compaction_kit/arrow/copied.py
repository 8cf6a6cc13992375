"""Compare files that were concatenated with the files that they replace, byte by byte.

Row groups whose column chunks have the same bytes, types and codecs hold the same rows. Footers are read by
pyarrow, and which files went into which is found from them: the module that copies is not trusted.
"""

import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.arrow.concat.copying import MISTRUSTED
from compaction_kit.arrow.worker import WHOLE_BYTES
from compaction_kit.arrow.worker.inputs import legacy_sign

_BLOCK_BYTES = 4 << 20
_THREADS = min(os.cpu_count() or 1, 8)
# A place in a file, and a number of bytes.
_Span = tuple[int, int]


class DataFile(NamedTuple):
    """A data file on a local disk or a store: a number for its partition, its place and its bytes."""

    partition: int
    place: str
    size_bytes: int


class _Footer(NamedTuple):
    """A file's footer: `layout` and `groups` are equal for the same schema, and for row groups alike.

    `spans` has where the column chunks of each row group are.
    """

    file: DataFile
    num_rows: int
    layout: Hashable
    groups: Sequence[Hashable]
    spans: list[list[_Span]]


class BytesComparison:
    """Finds new files that consist of the row groups of replaced files.

    Attributes:
        num_rows: How many rows were found to be the same.
        bytes_done: Bytes of replaced files compared so far.
        stopped: Set it to end the comparison.
    """

    def __init__(self) -> None:
        self.num_rows = self.bytes_done = 0
        self.stopped = threading.Event()

    def run(self, gone: Sequence[DataFile], new: Sequence[DataFile]) -> tuple[list[DataFile], list[DataFile]]:
        """Compare files; returns those of both sides that are left to be compared in another way."""
        waiting: dict[Hashable, list[_Footer]] = defaultdict(list)
        outputs = _footers(new)
        for footer in _footers(gone) if outputs else ():
            waiting[footer.layout, footer.groups[0]].append(footer)
        done: set[DataFile] = set()
        with ThreadPoolExecutor(_THREADS) as pool:
            for output in outputs:
                sources: list[_Footer] = []
                at = 0
                while at < len(output.groups):
                    alike = waiting[output.layout, output.groups[at]]
                    found = (i for i, one in enumerate(alike) if self._is_copied(pool, one, output, at))
                    if (number := next(found, None)) is None:
                        break
                    sources.append(alike.pop(number))
                    at += len(sources[-1].groups)
                else:
                    self.num_rows += output.num_rows
                    done |= {output.file, *(source.file for source in sources)}
        return [file for file in gone if file not in done], [file for file in new if file not in done]

    def _is_copied(self, pool: ThreadPoolExecutor, source: _Footer, output: _Footer, at: int) -> bool:
        """Return whether the output's row groups from one on are those of the source."""
        end = at + len(source.groups)
        if source.groups != output.groups[at:end]:
            return False
        pairs = zip(_flat(source.spans), _flat(output.spans[at:end]), strict=True)
        with open(source.file.place, "rb") as one, open(output.file.place, "rb") as other:
            files = one.fileno(), other.fileno()
            # All of them, before the files are closed.
            return all(list(pool.map(lambda spans: self._is_same(files, *spans), pairs)))

    def _is_same(self, files: tuple[int, int], one: _Span, other: _Span) -> bool:
        for at in range(0, one[1], _BLOCK_BYTES):
            size = min(_BLOCK_BYTES, one[1] - at)
            before, after = (os.pread(files[i], size, (one, other)[i][0] + at) for i in range(2))
            if self.stopped.is_set() or len(before) != size or before != after:
                return False
            self.bytes_done += size
        return True


def _flat(spans: Iterable[list[_Span]]) -> Iterator[_Span]:
    return (span for group in spans for span in group)


def _footers(files: Sequence[DataFile]) -> list[_Footer]:
    """Read the footers of files that are large enough to have been copied; others are left out."""
    found = []
    for file in files:
        if file.size_bytes < WHOLE_BYTES:
            continue
        # Another reader says what is wrong with a damaged file.
        with contextlib.suppress(OSError, pa.ArrowException, ValueError):
            metadata = pq.read_metadata(file.place)
            groups = [
                group for i in range(metadata.num_row_groups) if (group := metadata.row_group(i)).num_rows
            ]
            chunks = [[group.column(i) for i in range(group.num_columns)] for group in groups]
            is_elsewhere = any(chunk.file_path for group in chunks for chunk in group)
            if not groups or is_elsewhere or legacy_sign(metadata.metadata or {}) is not None:
                continue
            layout = file.partition, *_layout(metadata)
            counts = [group.num_rows for group in groups]
            alike = [(count, *map(_alike, one)) for count, one in zip(counts, chunks, strict=True)]
            found.append(_Footer(file, sum(counts), layout, alike, [list(map(_span, one)) for one in chunks]))
    return found


def _layout(metadata: pq.FileMetaData) -> tuple[str, ...]:
    # Without the root's name, which differs between writers.
    schema, writer = str(metadata.schema).split("\n", 2)[2], metadata.created_by
    # Readers read some writers' pages, and INT96, in another way.
    is_special = MISTRUSTED.match(writer.encode()) or "INT96" in schema
    return schema, writer if is_special else ""


def _alike(chunk: pq.ColumnChunkMetaData) -> str:
    """Return what the footer says of a chunk, but for places, as text: NaN equals NaN."""
    return repr({name: value for name, value in chunk.to_dict().items() if not name.endswith("_offset")})


def _span(chunk: pq.ColumnChunkMetaData) -> _Span:
    first = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
    return first, chunk.total_compressed_size
