"""Parquet files are concatenated without decoding them."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compaction_kit.arrow.concat import CannotConcatenate, concatenate, copying
from compaction_kit.arrow.concat.thrift import BINARY, I64, STRUCT, decode, encode
from tests.arrow import values
from tests.chance import examples

# Without NaN, because NaN doesn't equal NaN.
KINDS = {name: kind for name, kind in values.KINDS.items() if "float" not in name and "double" not in name}
KINDS["float"] = pa.float32(), st.floats(width=32, allow_nan=False)
OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "use_dictionary": st.booleans(),
        "write_statistics": st.booleans(),
        "write_page_index": st.booleans(),
        "row_group_size": st.sampled_from([3, 20, 1_000]),
        # With 4 or less, pyarrow doesn't read back a list column's only row.
        "data_page_size": st.sampled_from([8, 64, 1 << 20]),
        "write_batch_size": st.sampled_from([2, 1_024]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "with_bloom": st.booleans(),
    }
)


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
    """Yield pyarrow's metadata of each row group with rows, with offsets only as present or absent."""
    metadata = pq.read_metadata(path)
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i).to_dict()
        for column in group["columns"]:
            for name in [name for name in column if name.endswith("_offset")]:
                column[name] = column[name] is not None
        if group["num_rows"]:
            yield group


def footer_of(data: bytes) -> dict[int, Any]:
    """Return a file's FileMetaData as plain values by field number."""
    found: dict[int, Any] = plain(decode(data[len(data) - 8 - int.from_bytes(data[-8:-4], "little") :])[0])
    return found


def change_footer(path: Path, change: Callable[..., object]) -> None:
    """Let `change` edit a file's FileMetaData, its last RowGroup, and the first ColumnChunk of that group."""
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = decode(data, start)[0]
    group = footer[4][1][1][-1]
    change(footer, group, group[1][1][1][0])
    written = encode(footer)
    path.write_bytes(data[:start] + written + len(written).to_bytes(4, "little") + b"PAR1")


def plain(struct: Any) -> Any:
    def value(kind: int, content: Any) -> Any:
        if kind == 12:
            return plain(content)
        return [value(content[0], one) for one in content[1]] if kind == 9 else content

    return {number: value(*field) for number, field in struct.items()}


def places(*paths: Path) -> list[tuple[Any, ...]]:
    """Return what is at the footer's offsets of row groups, bloom filters, column indexes and pages."""
    found = []
    for data in (path.read_bytes() for path in paths):
        for number, group in enumerate(footer_of(data)[4]):
            assert group.get(7, number) == number
            for chunk in group[1] if group[3] else []:
                bloom_filter = data[chunk[3][14] :][:40] if 14 in chunk[3] else None
                column_index = data[chunk[6] :][: chunk[7]] if 6 in chunk else None
                index = plain(decode(data, chunk[4])[0])[1] if 4 in chunk else []
                pages = [data[page[1] :][: page[2]] for page in index]
                found.append((plain(decode(data, group[5])[0]), bloom_filter, column_index, pages))
    return found


@st.composite
def parts(draw: st.DrawFn) -> list[tuple[pa.Table, dict[str, Any]]]:
    """Draw tables with the same columns, and options to write each."""
    schema, row = draw(values.some_columns(KINDS))
    many = st.tuples(st.lists(row, max_size=8), st.sampled_from([1, 1, 5])).map(lambda one: one[0] * one[1])
    table = many.map(lambda rows: pa.Table.from_pylist(rows, schema))
    return draw(st.lists(st.tuples(table, OPTIONS), min_size=1, max_size=4))


@settings(examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(written=parts(), empty=st.lists(st.integers(0, 4), max_size=2))
def test_the_rows_are_those_of_the_parts_in_their_order(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[tuple[pa.Table, dict[str, Any]]],
    empty: list[int],
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    paths = [write(folder / f"{i}", table, **options) for i, (table, options) in enumerate(written)]
    for i, place in enumerate(empty):
        # A file without row groups.
        pq.ParquetWriter(folder / f"none-{i}", written[0][0].schema, store_schema=False).close()
        paths.insert(place, folder / f"none-{i}")
    output = concatenated(paths, folder / "output", {"a": "b"})
    tables = [read(path) for path in paths]
    assert read(output).equals(pa.concat_tables(tables))
    assert list(row_groups(output)) == [group for path in paths for group in row_groups(path)]
    assert pq.read_metadata(output).metadata == {b"a": b"b"}
    assert places(output) == places(*paths)
    # An output can be concatenated again.
    again = concatenated([output, paths[0], output], folder / "again")
    assert read(again).equals(pa.concat_tables([*tables, tables[0], *tables]))
    assert places(again) == places(output, paths[0], output)


@pytest.mark.parametrize(
    "copy",
    [None, Mock(side_effect=OSError(errno.EXDEV, "not here")), Mock(return_value=0)],
    ids=["not there", "fails", "does nothing"],
)
def test_files_are_copied_where_the_kernel_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: Mock | None
) -> None:
    monkeypatch.setattr(os, "copy_file_range", copy, raising=False)
    monkeypatch.setattr(copying, "COPY_BYTES", 100)
    table = pa.table({"i": range(1_000)})
    path = write(tmp_path / "part", table)
    assert read(concatenated([path, path], tmp_path / "output")).equals(pa.concat_tables([table] * 2))


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"i": pa.array([1], pa.int32())}),
        pa.table({"j": [1]}),
        pa.table({"i": [1], "j": [1]}),
        pa.table({"i": [1]}, pa.schema([pa.field("i", pa.int64(), nullable=False)])),
        pa.table({"i": pa.array([1], pa.timestamp("us"))}),
        pa.table({"i": [1]}, pa.schema([pa.field("i", pa.int64(), metadata={"PARQUET:field_id": "7"})])),
    ],
    ids=["type", "name", "count", "nullability", "logical type", "field id"],
)
def test_other_columns_are_refused(tmp_path: Path, other: pa.Table) -> None:
    paths = [write(tmp_path / "0", pa.table({"i": [1]})), write(tmp_path / "1", other)]
    with pytest.raises(CannotConcatenate, match="differ in their schemas"):
        concatenated(paths, tmp_path / "output")
    assert not (tmp_path / "output").exists()


def test_files_of_an_old_writer_are_joined_only_with_each_other(tmp_path: Path) -> None:
    """Readers ignore some statistics depending on the writer's name, and a file has only one such name."""
    new, old = (write(tmp_path / name, pa.table({"i": [1]})) for name in ("new", "old"))
    name = footer_of(new.read_bytes())[6]
    old.write_bytes(old.read_bytes().replace(name, b"parquet-mr version 1.8.1".ljust(len(name))))
    with pytest.raises(CannotConcatenate, match="different writers"):
        concatenated([new, old], tmp_path / "output")
    assert read(concatenated([old, old], tmp_path / "output")).num_rows == 2
    old.write_bytes(old.read_bytes().replace(b"-mr version 1.8.1 ", b"-mr version 1.12.3"))
    assert read(concatenated([new, old], tmp_path / "other")).num_rows == 2


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_footer_is_an_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    path = write(folder / "part", pa.table({"i": range(9), "s": ["x"] * 9}), write_page_index=True)
    found = bytearray(path.read_bytes())
    start = footer_of(bytes(found))[4][0][1][0][6]
    for _ in range(data.draw(st.integers(1, 3))):
        found[data.draw(st.integers(start, len(found) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(found)
    try:
        concatenate([str(path)] * 2, str(folder / "output"), {})
    except (OSError, CannotConcatenate):
        assert not (folder / "output").exists()


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1\0\0\0\0PAR1", b"x" * 100, b"PAR1\xff\xff\xff\0PAR1"])
def test_what_is_no_parquet_file_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "part").write_bytes(data)
    with pytest.raises(OSError, match="part"):
        concatenate([str(tmp_path / "part")], str(tmp_path / "output"), {})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda footer, *_: footer.update({12: (BINARY, b"")}), "field 12 in its FileMetaData"),
        (lambda footer, *_: footer.update({8: (STRUCT, {})}), "field 8 in its FileMetaData"),
        (lambda *last: last[2].update({9: (BINARY, b"")}), "field 9 in its ColumnChunk"),
        (lambda *last: last[2][3][1].update({7: (I64, 1_000)}), "outside of the file"),
        (lambda *last: last[2][3][1].update({9: (I64, 3)}), "outside of the file"),
    ],
)
def test_footers_of_another_kind_or_of_more_than_is_there_are_refused(
    tmp_path: Path, change: Callable[..., object], told: str
) -> None:
    path = write(tmp_path / "part", pa.table({"i": [1]}), use_dictionary=False)
    change_footer(path, change)
    with pytest.raises((CannotConcatenate, OSError), match=told):
        concatenated([path], tmp_path / "output")


def test_column_orders_are_left_out_unless_all_parts_have_them(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, pa.table({"i": [1]})) for name in "ab"]
    assert 7 in footer_of(concatenated(paths, tmp_path / "with").read_bytes())
    change_footer(paths[1], lambda footer, *_: footer.pop(7))
    assert 7 not in footer_of(concatenated(paths, tmp_path / "without").read_bytes())
