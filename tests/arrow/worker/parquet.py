"""Parquet files written, made one, and looked into for where things are."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.arrow.worker.footer import _FILE_READERS, _ROW_GROUP_READERS, read_footer
from compaction_kit.arrow.worker.stitch import stitch
from compaction_kit.arrow.worker.thrift import read_integer, read_list, read_struct


def write(path: Path, table: pa.Table, with_bloom: bool = False, **options: Any) -> Path:
    if with_bloom:
        names = [name for name in table.column_names if name in ("i", "s")]
        options["bloom_filter_options"] = {name: {"ndv": 10, "fpp": 0.1} for name in names}
    pq.write_table(table, path, store_schema=False, write_page_checksum=True, **options)
    return path


def write_without_row_groups(path: Path, schema: pa.Schema) -> Path:
    pq.ParquetWriter(path, schema, store_schema=False).close()
    return path


def stitched(paths: Sequence[Path], output: Path, key_values: dict[str, str] | None = None) -> Path:
    footers = [read_footer(str(path)) for path in paths]
    num_rows = stitch(footers, str(output), key_values or {})
    assert num_rows == sum(footer.num_rows for footer in footers)
    return output


def read(path: Path) -> pa.Table:
    return pq.read_table(path, partitioning=None, page_checksum_verification=True)


def row_groups(path: Path) -> Iterator[dict[str, Any]]:
    """What pyarrow tells of each row group with rows, but for where things are."""
    metadata = pq.read_metadata(path)
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i).to_dict()
        for column in group["columns"]:
            for name in [name for name in column if name.endswith("_offset")]:
                column[name] = column[name] is not None
        if group["num_rows"]:
            yield group


def chunks(path: Path) -> Iterator[dict[str, Any]]:
    """Each column chunk's places, read by the module's own reader, with the bytes that are there."""
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    group_readers = _ROW_GROUP_READERS
    readers = _FILE_READERS | {
        4: lambda data, pos, kind: read_list(
            lambda data, pos, kind: read_struct(data, pos, group_readers), data, pos, kind
        )
    }
    for number, group in enumerate(read_struct(data[start:], 0, readers)[0][4]):
        if not group[3]:
            continue
        assert group.get(7, (number,))[0] == number
        first_pages = []
        for chunk in group[1]:
            column = chunk[3]
            pages = list(_pages(data, min(column[k][0] for k in (9, 11) if k in column), column[7]))
            first_pages.append(pages[0][0])
            yield {
                "bytes": data[pages[0][0] : sum(pages[-1])],
                "pages": pages[1:] if 11 in column else pages,
                "data_page_offset": column[9][0],
                "bloom": data[column[14][0] :][:8] if 14 in column else None,
                "locations": _locations(data, chunk),
                "column_index": data[chunk[6][0] :][: chunk[7][0]] if 6 in chunk else None,
            }
        assert group[5][0] == min(first_pages)


def _pages(data: bytes, at: int, size: int) -> Iterator[tuple[int, int]]:
    stop = at + size
    while at < stop:
        header, end = read_struct(data, at, {3: read_integer})
        yield at, end - at + header[3]
        at = end + header[3]
    assert at == stop


def _locations(data: bytes, chunk: dict[int, Any]) -> list[tuple[int, int]] | None:
    if 4 not in chunk:
        return None
    index = data[chunk[4][0] :][: chunk[5][0]]
    place: Any = {1: read_integer, 2: read_integer}
    fields, end = read_struct(
        index,
        0,
        {1: lambda d, pos, kind: read_list(lambda d, p, _: read_struct(d, p, place), d, pos, kind)},
    )
    assert end == len(index)
    return [(page[1], page[2]) for page in fields[1]]


def check_places(paths: Sequence[Path], output: Path) -> None:
    """Every offset leads to the bytes that it led to in the part."""
    found, expected = list(chunks(output)), [chunk for path in paths for chunk in chunks(path)]
    for chunk in found:
        assert chunk["data_page_offset"] == chunk["pages"][0][0]
        assert chunk["locations"] in (None, chunk["pages"])
    for name in ("bytes", "bloom", "column_index"):
        assert [chunk[name] for chunk in found] == [chunk[name] for chunk in expected]
