"""Parquet files written, made one, and looked into for where things are."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.arrow.concat import concatenate
from compaction_kit.arrow.concat.thrift import decode


def write(path: Path, table: pa.Table, with_bloom: bool = False, **options: Any) -> Path:
    if with_bloom:
        names = [field.name for field in table.schema if field.type in (pa.int64(), pa.string())]
        options["bloom_filter_options"] = {name: {"ndv": 10, "fpp": 0.1} for name in names}
    pq.write_table(table, path, store_schema=False, write_page_checksum=True, **options)
    return path


def concatenated(paths: Sequence[Path], output: Path, key_values: dict[str, str] | None = None) -> Path:
    num_rows = concatenate([str(path) for path in paths], str(output), key_values or {})
    assert num_rows == sum(pq.read_metadata(path).num_rows for path in paths)
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


def footer_of(data: bytes) -> dict[int, Any]:
    """A file's FileMetaData: plain values by field number."""
    found: dict[int, Any] = plain(decode(data[len(data) - 8 - int.from_bytes(data[-8:-4], "little") :])[0])
    return found


def plain(struct: Any) -> Any:
    def value(kind: int, content: Any) -> Any:
        if kind == 12:
            return plain(content)
        return [value(content[0], one) for one in content[1]] if kind == 9 else content

    return {number: value(*field) for number, field in struct.items()}


def chunks(path: Path) -> Iterator[dict[str, Any]]:
    """Each column chunk's places, with the bytes that are there."""
    data = path.read_bytes()
    for number, group in enumerate(footer_of(data)[4]):
        if not group[3]:
            continue
        assert group.get(7, number) == number
        first_pages = []
        for chunk in group[1]:
            column = chunk[3]
            pages = list(_pages(data, min(column[k] for k in (9, 11) if k in column), column[7]))
            first_pages.append(pages[0][0])
            index = data[chunk[4] :][: chunk[5]] if 4 in chunk else None
            yield {
                "bytes": data[pages[0][0] : sum(pages[-1])],
                "pages": pages[1:] if 11 in column else pages,
                "data_page_offset": column[9],
                "bloom": data[column[14] :][:8] if 14 in column else None,
                "locations": [(one[1], one[2]) for one in plain(decode(index)[0])[1]] if index else None,
                "column_index": data[chunk[6] :][: chunk[7]] if 6 in chunk else None,
            }
        assert group[5] == min(first_pages)


def _pages(data: bytes, at: int, size: int) -> Iterator[tuple[int, int]]:
    stop = at + size
    while at < stop:
        header, end = decode(data, at)
        yield at, end - at + header[3][1]
        at = end + header[3][1]
    assert at == stop


def check_places(paths: Sequence[Path], output: Path) -> None:
    """Every offset leads to the bytes that it led to in the part."""
    found, expected = list(chunks(output)), [chunk for path in paths for chunk in chunks(path)]
    for chunk in found:
        assert chunk["data_page_offset"] == chunk["pages"][0][0]
        assert chunk["locations"] in (None, chunk["pages"])
    for name in ("bytes", "bloom", "column_index"):
        assert [chunk[name] for chunk in found] == [chunk[name] for chunk in expected]
