"""Pages of column chunks, as they are stored (parquet.thrift, PageHeader)."""

from collections.abc import Callable, Iterator, Mapping

from compaction_kit.execute.arrow.worker.thrift import Fields, Reader, read_struct

_HEAD_BYTES = 1 << 10
_SIZE = 3

# Takes a number of bytes and where in a file they begin; gives them.
ReadAt = Callable[[int, int], bytes]


def read_pages(
    read: ReadAt, start: int, stop: int, readers: Mapping[int, Reader]
) -> Iterator[tuple[Fields, int]]:
    """Read the headers of a column chunk's pages.

    Args:
        read: Of the file.
        start: Where the chunk begins, in bytes.
        stop: Where it ends.
        readers: Of the headers' fields; compressed_page_size has to be one.

    Returns:
        Each page's header, and where the bytes after it begin.

    Raises:
        LookupError, TypeError, ValueError: A header is damaged.
    """
    at = start
    while at < stop:
        try:
            header, length = read_struct(read(min(_HEAD_BYTES, stop - at), at), 0, readers)
        except IndexError:
            # It has large statistics.
            header, length = read_struct(read(stop - at, at), 0, readers)
        at += length
        if not 0 <= header[_SIZE] <= stop - at:
            raise ValueError("it tells of more bytes than there are")
        yield header, at
        at += header[_SIZE]
