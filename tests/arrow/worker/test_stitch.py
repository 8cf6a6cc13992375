"""Parquet files made one without decoding them."""

import datetime
import errno
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compaction_kit.arrow.worker import stitch as stitching
from compaction_kit.arrow.worker.footer import Footer, NotStitchable, read_footer
from compaction_kit.arrow.worker.stitch import stitch
from tests.arrow.worker.parquet import (
    check_places,
    read,
    row_groups,
    stitched,
    write,
    write_without_row_groups,
)

UTC = datetime.UTC
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int8(), st.integers(-128, 127)),
    "f": (pa.float64(), st.floats(allow_nan=False)),
    "b": (pa.bool_(), st.booleans()),
    "s": (pa.string(), st.text(max_size=8)),
    "bin": (pa.binary(), st.binary(max_size=100)),
    "d": (pa.decimal128(38, 2), st.integers(-(10**30), 10**30).map(Decimal)),
    "t": (
        pa.timestamp("us", "UTC"),
        st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(UTC)),
    ),
    "day": (pa.date32(), st.dates()),
    "l": (
        pa.list_(pa.field("element", pa.int32())),
        st.lists(st.none() | st.integers(0, 9), max_size=4),
    ),
    "m": (
        pa.map_(pa.string(), pa.float32()),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.just(0.5)), max_size=3),
    ),
    "n": (
        pa.struct([("x", pa.struct([("y", pa.list_(pa.field("element", pa.string())))]))]),
        st.fixed_dictionaries({"x": st.none() | st.fixed_dictionaries({"y": st.just(["a", None, "b"])})}),
    ),
}
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


@st.composite
def parts(draw: st.DrawFn) -> list[tuple[pa.Table, dict[str, Any]]]:
    """Tables of the same columns, and how to write each; a third of the rows is often null."""
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
    schema = pa.schema([(name, KINDS[name][0]) for name in names])
    row = st.tuples(*(st.none() | KINDS[name][1] | KINDS[name][1] for name in names))
    tables = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.lists(row, max_size=8)) * draw(st.sampled_from([1, 1, 5]))
        columns = [pa.array([one[i] for one in rows], KINDS[name][0]) for i, name in enumerate(names)]
        tables.append((pa.Table.from_arrays(columns, schema=schema), draw(OPTIONS)))
    return tables


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(written=parts(), places=st.lists(st.integers(0, 4), max_size=2))
def test_the_rows_are_those_of_the_parts_in_their_order(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[tuple[pa.Table, dict[str, Any]]],
    places: list[int],
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    paths = [write(folder / f"{i}", table, **options) for i, (table, options) in enumerate(written)]
    for i, place in enumerate(places):
        paths.insert(place, write_without_row_groups(folder / f"none-{i}", written[0][0].schema))
    output = stitched(paths, folder / "output", {"a": "b"})
    tables = [read(path) for path in paths]
    assert read(output).equals(pa.concat_tables(tables))
    assert list(row_groups(output)) == [group for path in paths for group in row_groups(path)]
    assert pq.read_metadata(output).metadata == {b"a": b"b"}
    check_places(paths, output)
    # What was stitched is stitched again.
    again = stitched([output, paths[0], output], folder / "again")
    assert read(again).equals(pa.concat_tables([*tables, tables[0], *tables]))
    check_places([output, paths[0], output], again)


@pytest.mark.parametrize("with_index", [False, True])
def test_a_part_alone_comes_out_byte_by_byte(tmp_path: Path, with_index: bool) -> None:
    table = pa.table({"i": range(1_000), "s": [str(i) for i in range(1_000)]})
    path = write(tmp_path / "part", table, row_group_size=300, write_page_index=with_index)
    assert stitched([path], tmp_path / "output").read_bytes() == path.read_bytes()


def _fail(*args: Any) -> int:
    raise OSError(errno.EXDEV, "not here")


@pytest.mark.parametrize("copy", [None, _fail, lambda *args: 0], ids=["not there", "fails", "does nothing"])
def test_files_are_copied_where_the_kernel_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: Callable[..., int] | None
) -> None:
    monkeypatch.setattr(os, "copy_file_range", copy, raising=False)
    monkeypatch.setattr(stitching, "COPY_BYTES", 100)
    table = pa.table({"i": range(1_000)})
    path = write(tmp_path / "part", table)
    assert read(stitched([path, path], tmp_path / "output")).equals(pa.concat_tables([table] * 2))


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
    with pytest.raises(NotStitchable, match="differ in their schemas"):
        stitched(paths, tmp_path / "output")
    assert not (tmp_path / "output").exists()


def test_old_writers_go_together_with_their_like_alone(tmp_path: Path) -> None:
    """Readers tell by the writer's name which statistics not to use, and a file has one."""
    new, old = (write(tmp_path / name, pa.table({"i": [1]})) for name in ("new", "old"))
    name = read_footer(str(new)).created_by
    old.write_bytes(old.read_bytes().replace(name, b"parquet-mr version 1.8.1".ljust(len(name))))
    with pytest.raises(NotStitchable, match="different writers"):
        stitched([new, old], tmp_path / "output")
    assert read(stitched([old, old], tmp_path / "output")).num_rows == 2
    old.write_bytes(old.read_bytes().replace(b"-mr version 1.8.1 ", b"-mr version 1.12.3"))
    assert read(stitched([new, old], tmp_path / "other")).num_rows == 2


def footer_then(tmp_path: Path, change: Callable[[bytearray], None]) -> Footer:
    """The footer of a file that is changed then; its time is put back."""
    path = write(tmp_path / "part", pa.table({"i": range(1_000)}), write_page_index=True)
    footer = read_footer(str(path))
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    os.utime(path, ns=(footer.modified_ns, footer.modified_ns))
    return footer


def _cut(data: bytearray) -> None:
    del data[500:]


def _grow(data: bytearray) -> None:
    data += b"x"


def _damage_magic(data: bytearray) -> None:
    data[0] ^= 1


@pytest.mark.parametrize(
    ("change", "told"),
    [(_cut, "shorter"), (_grow, "has changed"), (_damage_magic, "isn't a Parquet file")],
)
def test_a_part_that_changed_is_an_error(
    tmp_path: Path, change: Callable[[bytearray], None], told: str
) -> None:
    footer = footer_then(tmp_path, change)
    with pytest.raises(OSError, match=told):
        stitch([footer], str(tmp_path / "output"), {})
    assert not (tmp_path / "output").exists()


def test_a_part_written_anew_is_an_error(tmp_path: Path) -> None:
    footer = footer_then(tmp_path, lambda data: None)
    os.utime(footer.path)
    with pytest.raises(OSError, match="has changed"):
        stitch([footer], str(tmp_path / "output"), {})


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_footer_is_never_another_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    path = write(folder / "part", pa.table({"i": range(9), "s": ["x"] * 9}), write_page_index=True)
    found = bytearray(path.read_bytes())
    start = read_footer(str(path)).body_end
    for _ in range(data.draw(st.integers(1, 3))):
        found[data.draw(st.integers(start, len(found) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(found)
    try:
        stitch([read_footer(str(path))] * 2, str(folder / "output"), {})
    except (OSError, NotStitchable):
        assert not (folder / "output").exists()


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = write(tmp_path / "part", pa.table({"i": [1]}))
    (tmp_path / "output").write_text("mine")
    with pytest.raises(FileExistsError):
        stitched([path], tmp_path / "output")
    assert (tmp_path / "output").read_text() == "mine"


def test_too_many_row_groups_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "part", pa.table({"i": range(10)}), row_group_size=1)
    monkeypatch.setattr(stitching, "MAX_ROW_GROUPS", 19)
    with pytest.raises(NotStitchable, match="more than 19 row groups"):
        stitched([path, path], tmp_path / "output")
    monkeypatch.setattr(stitching, "MAX_FOOTER_BYTES", 100)
    with pytest.raises(NotStitchable, match="footer would be too large"):
        stitched([path], tmp_path / "output")


def test_orders_that_differ_are_left_out(tmp_path: Path) -> None:
    """Without them, readers don't use the statistics that were made by them."""
    paths = [write(tmp_path / str(i), pa.table({"s": ["a", "b"]})) for i in range(2)]
    footers = [read_footer(str(path)) for path in paths]
    without = {number: value for number, value in footers[1].encoded.items() if number != 7}
    stitch([footers[0], footers[1]._replace(encoded=without)], str(tmp_path / "output"), {})
    assert read(tmp_path / "output")["s"].to_pylist() == ["a", "b"] * 2
    assert 7 not in read_footer(str(tmp_path / "output")).encoded
