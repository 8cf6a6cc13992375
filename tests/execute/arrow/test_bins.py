"""One bin rewritten, without Spark."""

import datetime
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compaction_kit.execute.arrow import bins
from compaction_kit.execute.arrow.bins import Bin, Refused, Rewritten, rewrite_bin, rewrite_bins

UTC = datetime.UTC
LAST = datetime.datetime.max.replace(tzinfo=UTC)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, None, 127]),
    "short": (pa.int16(), [-(2**15), None, 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), None, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), None, 2**63 - 1]),
    "float": (pa.float32(), [-0.0, float("inf"), None]),
    "double": (pa.float64(), [-0.0, 5e-324, None]),
    "small": (pa.decimal128(9, 2), [Decimal("-1234567.89"), None, Decimal("0.01")]),
    "medium": (pa.decimal128(18, 6), [Decimal("123456789012.345678"), None, Decimal(0)]),
    "large": (pa.decimal128(38, 18), [Decimal("-12345678901234567890.123456789012345678"), None, Decimal(1)]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(1, 1, 1, tzinfo=UTC), None, datetime.datetime.max.replace(tzinfo=UTC)],
    ),
    "ntz": (pa.timestamp("us"), [datetime.datetime(1890, 1, 1, 0, 0, 0, 1), None, datetime.datetime.max]),
    "binary": (pa.binary(), [b"\x00\xff", None, b""]),
    "string": (pa.string(), ["", None, "日本"]),
    "boolean": (pa.bool_(), [True, None, False]),
    "nothing": (pa.string(), [None, None, None]),
    "array": (pa.list_(pa.field("element", pa.int32())), [[1, None], None, []]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("a", 1.0), ("b", None)], None, []]),
    "struct": (
        pa.struct([("a", pa.struct([("b", pa.list_(pa.field("element", pa.struct([("c", pa.int64())]))))]))]),
        [{"a": {"b": [{"c": 1}, None]}}, None, {"a": None}],
    ),
}


def everything() -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in VALUES.items()})


def bin_of(folder: Path, tables: list[pa.Table], schema: pa.Schema | None = None, **options: Any) -> Bin:
    """The tables as files, to become one with the schema of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(folder / f"{i}.parquet") for i in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, **options)
    wanted = (schema or tables[0].schema).serialize().to_pybytes()
    return Bin(0, paths, str(folder / f"part-{uuid.uuid4()}"), wanted, {"org.apache.spark.version": "4.0.0"})


def test_every_type_comes_out_as_it_went_in(tmp_path: Path) -> None:
    one, two = everything(), everything().slice(1)
    path, num_rows = rewrite_bin(bin_of(tmp_path, [one, two]))
    assert num_rows == 5
    found = pq.read_table(path, partitioning=None)
    assert found.schema.types == one.schema.types
    assert found.to_pylist() == pa.concat_tables([one, two]).to_pylist()
    # -0.0 equals 0.0, and is still another value.
    assert [str(value) for value in found["double"].to_pylist()[:2]] == ["-0.0", "5e-324"]


def test_the_file_is_laid_out_as_spark_writes_it(tmp_path: Path) -> None:
    path, _ = rewrite_bin(bin_of(tmp_path, [everything()]))
    file = pq.ParquetFile(path)
    kinds = {column.path.split(".")[0]: column.physical_type for column in map(file.schema.column, range(12))}
    assert (kinds["small"], kinds["medium"], kinds["large"]) == ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY")
    assert file.metadata.metadata == {b"org.apache.spark.version": b"4.0.0"}
    assert file.schema_arrow.field("timestamp").type == pa.timestamp("us", "UTC")
    assert file.schema_arrow.field("ntz").type == pa.timestamp("us")


def test_columns_are_added_reordered_and_left_out(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.int8()))])
    tables = [
        pa.table({"b": ["x"], "a": [1]}),
        pa.table({"gone": [1.0], "a": [2]}),
        pa.table({"gone": [2.0]}),
    ]
    path, _ = rewrite_bin(bin_of(tmp_path, tables, schema))
    assert pq.read_table(path).to_pylist() == [
        {"a": 1, "b": "x", "c": None},
        {"a": 2, "b": None, "c": None},
        {"a": None, "b": None, "c": None},
    ]


def test_old_timestamps_keep_their_moment(tmp_path: Path) -> None:
    """INT96 has no zone in its type; written so, nested too, and read as UTC by Spark."""
    moment = datetime.datetime(2024, 6, 1, 12, 0, 0, 123456)
    kind = pa.timestamp("us")
    table = pa.table(
        {"t": pa.array([moment], kind), "n": pa.array([{"t": moment}], pa.struct([("t", kind)]))}
    )
    zoned = pa.timestamp("us", "UTC")
    schema = pa.schema([("t", zoned), ("n", pa.struct([("t", zoned)]))])
    one = bin_of(tmp_path, [table], schema, use_deprecated_int96_timestamps=True)
    path, _ = rewrite_bin(one)
    expected = moment.replace(tzinfo=UTC)
    assert pq.read_table(path).to_pylist() == [{"t": expected, "n": {"t": expected}}]


def test_files_of_other_writers_may_use_large_and_dictionary_types(tmp_path: Path) -> None:
    words = pa.array(["x", None, "y"])
    tables = [pa.table({"w": words.cast(pa.large_string())}), pa.table({"w": words.dictionary_encode()})]
    path, _ = rewrite_bin(bin_of(tmp_path, tables, pa.schema([("w", pa.string())])))
    assert pq.read_table(path)["w"].to_pylist() == ["x", None, "y"] * 2


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_the_codec_is_that_of_the_files(tmp_path: Path, codec: str) -> None:
    one = bin_of(tmp_path, [pa.table({"a": [1]})] * 2, compression=codec)
    path, _ = rewrite_bin(one)
    found, expected = (
        pq.ParquetFile(p).metadata.row_group(0).column(0).compression for p in (path, one.inputs[0])
    )
    assert found == expected
    suffixes = {"none": "", "gzip": ".gz", "lz4": ".lz4raw", "brotli": ".br"}
    assert path.endswith(f".c000{suffixes.get(codec, '.' + codec)}.parquet")


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (pa.int32(), "has int64 where the table has int32"),
        (pa.string(), "has int64 where the table has string"),
        (pa.timestamp("us", "UTC"), "has int64 where the table has timestamp"),
    ],
    ids=str,
)
def test_another_type_is_refused(tmp_path: Path, wanted: pa.DataType, told: str) -> None:
    with pytest.raises(Refused, match=told):
        rewrite_bin(bin_of(tmp_path, [pa.table({"a": [1]})], pa.schema([("a", wanted)])))
    assert not list(tmp_path.glob("part-*"))


def test_structs_with_other_fields_are_refused(tmp_path: Path) -> None:
    old = pa.table({"n": pa.array([{"a": 1}], pa.struct([("a", pa.int64())]))})
    schema = pa.schema([("n", pa.struct([("a", pa.int64()), ("b", pa.int64())]))])
    with pytest.raises(Refused, match="where the table has struct"):
        rewrite_bin(bin_of(tmp_path, [old], schema))


def test_a_column_of_another_case_is_refused(tmp_path: Path) -> None:
    """Spark takes it for the same, and here it would come out as null."""
    schema = pa.schema([("id", pa.int64())])
    with pytest.raises(Refused, match="a file has the column ID where the table has id"):
        rewrite_bin(bin_of(tmp_path, [pa.table({"ID": [1]})], schema))


def test_a_small_file_of_many_values_is_read_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bins, "_SMALL_VALUES", 1_000)
    table = pa.table({"a": pa.repeat(7, 100_000)})
    one = bin_of(tmp_path, [table])
    held: list[int] = []

    def seen(rows: pa.Table, schema: pa.Schema) -> pa.Table:
        held.append(len(rows))
        return rows

    monkeypatch.setattr(bins, "_fitted", seen)
    path, num_rows = rewrite_bin(one)
    assert (num_rows, sum(held), max(held)) == (100_000, 100_000, 1 << 16)
    assert pq.read_table(path).equals(table)


def test_a_damaged_page_is_a_failure(tmp_path: Path) -> None:
    one = bin_of(tmp_path, [pa.table({"a": range(1_000)})], compression="none", write_page_checksum=True)
    data = bytearray(Path(one.inputs[0]).read_bytes())
    data[500] ^= 1
    Path(one.inputs[0]).write_bytes(data)
    (done,) = (Rewritten(*result) for result in rewrite_bins([tuple(one)]))
    assert "CRC" in str(done.failure)
    assert not list(tmp_path.glob("part-*"))


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("org.apache.spark.legacyDateTime", "", "org.apache.spark.legacyDateTime"),
        ("org.apache.spark.legacyINT96", "", "org.apache.spark.legacyINT96"),
        ("org.apache.spark.version", "2.4.8", "Spark 2.4.8"),
    ],
)
def test_dates_of_the_old_calendar_are_refused_and_the_next_bin_is_done(
    tmp_path: Path, key: str, value: str, told: str
) -> None:
    old = pa.table({"a": [1]}).replace_schema_metadata({key: value})
    legacy, sound = bin_of(tmp_path / "old", [old]), bin_of(tmp_path / "new", [pa.table({"a": [1]})])
    refused, done = (
        Rewritten(*one) for one in rewrite_bins([tuple(legacy), tuple(sound._replace(number=1))])
    )
    assert (refused.number, refused.path, refused.failure) == (0, "", None)
    assert f"dates of the old calendar ({told})" in str(refused.refusal)
    assert (done.number, done.num_rows, done.refusal) == (1, 1, None)
    assert Path(done.path).stat().st_size == done.size_bytes
    assert not list((tmp_path / "old").glob("part-*"))


def test_a_file_that_is_gone_is_a_failure(tmp_path: Path) -> None:
    one = bin_of(tmp_path, [pa.table({"a": [1]})] * 3)
    Path(one.inputs[1]).unlink()
    (done,) = (Rewritten(*result) for result in rewrite_bins([tuple(one)]))
    assert done.refusal is None
    assert "1.parquet" in str(done.failure)
    assert not list(tmp_path.glob("part-*"))


def test_large_files_are_read_piece_by_piece_and_groups_are_of_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bins, "_SMALL_BYTES", 2_000)
    monkeypatch.setattr(bins, "_BATCH_ROWS", 100)
    monkeypatch.setattr(bins, "GROUP_ROWS", 500)
    sizes = [1_234, 10, 10, 777]
    tables = [
        pa.table({"a": range(start, start + size)})
        for start, size in zip((0, 2_000, 3_000, 4_000), sizes, strict=True)
    ]
    one = bin_of(tmp_path, tables)
    assert [Path(path).stat().st_size > 2_000 for path in one.inputs] == [True, False, False, True]
    path, num_rows = rewrite_bin(one)
    assert num_rows == sum(sizes)
    assert pq.read_table(path).equals(pa.concat_tables(tables))
    groups = pq.ParquetFile(path).metadata
    counts = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    assert all(500 <= count < 600 for count in counts[:-1])


def test_field_ids_are_kept(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("col-1", pa.int64(), metadata={b"PARQUET:field_id": b"7"})])
    path, _ = rewrite_bin(bin_of(tmp_path, [pa.table({"col-1": [1]})], schema))
    assert pq.ParquetFile(path).schema_arrow.field("col-1").metadata == {b"PARQUET:field_id": b"7"}


def test_files_without_rows_make_one_without_rows(tmp_path: Path) -> None:
    path, num_rows = rewrite_bin(bin_of(tmp_path, [pa.table({"a": pa.array([], pa.int64())})] * 2))
    assert (num_rows, pq.read_table(path).num_rows) == (0, 0)
