"""DuckDB, Spark and a comparison in Python come to the same verdict about small differences."""

import math
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from compaction_kit.arrow.job import found_vector
from compaction_kit.arrow.worker import Content, read_content
from compaction_kit.storage import LocalStore
from compaction_kit.verify import fingerprint
from tests import handmade
from tests.arrow.values import Row, some_columns
from tests.chance import examples


def identity(value: Any, kind: pa.DataType) -> Any:
    """Return a key that is equal for values that count as the same."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        code = "d" if kind == pa.float64() else "f"
        return "NaN" if math.isnan(value) else struct.pack(code, value)
    if pa.types.is_struct(kind):
        return tuple(identity(value[field.name], field.type) for field in kind)
    if pa.types.is_map(kind):
        return frozenset((key, identity(item, kind.item_type)) for key, item in value)
    if pa.types.is_list(kind):
        return tuple(identity(item, kind.value_type) for item in value)
    return value


def put(rows: list[Row], at: int, column: str, value: Any) -> list[Row]:
    """The same rows with another value in one place."""
    return [*rows[:at], rows[at] | {column: value}, *rows[at + 1 :]]


def swap(rows: list[Row], at: int, other: int, column: str) -> list[Row]:
    one, two = rows[at][column], rows[other][column]
    return put(put(rows, at, column, two), other, column, one)


# Changes of rows, given the numbers of two rows and a column.
CHANGES: list[Callable[[list[Row], int, int, str], list[Row]]] = [
    # Double one row, and drop the other.
    lambda rows, at, other, _: [rows[at], *rows[:other], *rows[other + 1 :]],
    swap,
    lambda rows, at, _, column: put(rows, at, column, None),
    lambda rows, at, other, column: put(rows, at, column, rows[other][column]),
    lambda rows, *_: rows[::-1],
]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[pa.Schema, list[Row], list[Row]]:
    """Draw columns, some rows, and the same rows with a small change or none."""
    schema, row = draw(some_columns())
    rows = draw(st.lists(row, min_size=1, max_size=6))
    position, column = st.integers(0, len(rows) - 1), st.sampled_from(schema.names)
    change = draw(st.sampled_from(CHANGES))
    return schema, rows, change(rows, draw(position), draw(position), draw(column))


def write(path: Path, schema: pa.Schema, rows: list[Row], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema), path, **options)
    return path


def by_duckdb(schema: pa.Schema, *sides: list[Path]) -> list[Content]:
    """Return what DuckDB reads in each set of files; each file is a partition of its own."""
    chunks = [
        (side, [(number, str(path), path.stat().st_size, None, ()) for number, path in enumerate(paths)])
        for side, paths in enumerate(sides)
    ]
    found = read_content(chunks, schema.serialize().to_pybytes(), lambda _: None, None)
    return [Content(*content) for content in found]


def test_deleted_rows_alone_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if two files are read together and only one has a deletion vector."""
    schema = pa.schema([("row", pa.int64()), ("path", pa.string())])
    rows = [{"row": i, "path": f"text {i}"} for i in range(5_000)]
    deleted = [0, 7, 2_047, 2_048, 4_999]
    (found,) = handmade.stored_vectors(tmp_path, [(BitMap64(deleted).serialize(), len(deleted))])
    vector = found_vector(found, LocalStore(str(tmp_path)))
    assert vector is not None
    whole = write(tmp_path / "whole.parquet", schema, rows, row_group_size=1_000)
    other = write(tmp_path / "other.parquet", schema, rows[:10])
    live = write(tmp_path / "live.parquet", schema, [row for row in rows if row["row"] not in deleted])

    def read(*files: tuple[Path, object], ranges: tuple[tuple[int, int], ...] = ()) -> Content:
        chunk = 0, [(0, str(path), path.stat().st_size, one, ranges) for path, one in files]
        (content,) = read_content([chunk], schema.serialize().to_pybytes(), lambda _: None, None)
        return Content(*content)

    expected = read((live, None), (other, None))
    assert (expected.num_rows, expected.failure) == (5_005, "")
    assert read((whole, vector), (other, None)) == expected
    assert read((whole, None), (other, None)) != expected
    assert read((whole, None), (other, vector)) != expected
    part = write(tmp_path / "part.parquet", schema, rows[:1_000] + rows[2_500:2_600])
    assert read((whole, None), ranges=((0, 1_000), (2_500, 2_600))) == read((part, None))
    assert read((whole, None), ranges=((1, 1_000), (2_500, 2_601))) != read((part, None))
    wrong = (*vector[:-1], 4)
    assert "deletes more or fewer rows than the log says" in read((whole, wrong)).failure
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    assert "pyroaring" in read((whole, vector)).failure
    assert not read((whole, None)).failure


def is_same(schema: pa.Schema, one: list[Path], other: list[Path]) -> bool:
    before, after = (content._replace(side=0) for content in by_duckdb(schema, one, other))
    assert not before.failure
    return before == after


INT, INTS = pa.int32(), pa.list_(pa.int32())
TEXT, WIDE = pa.string(), pa.decimal128(38, 2)
PAIR, MAP = pa.struct([("a", INT), ("b", INT)]), pa.map_(pa.string(), INTS)
ALIKE: list[Any] = [
    (INT, 1, 2), (pa.float32(), 0.0, -0.0), (INTS, [], [None]), (INTS, [1, None], [None, 1]),
    (pa.list_(pa.struct([("d", pa.float64())])), [{"d": 0.0}], [{"d": -0.0}]),
    (pa.list_(INTS), [[1], []], [[], [1]]), (pa.list_(PAIR), [{"a": 1, "b": 1}], [{"a": 1, "b": 2}]),
    (PAIR, {"a": 1, "b": None}, {"a": None, "b": 1}), (PAIR, {"a": None, "b": None}, None),
    (MAP, [], None), (INTS, [], None), (MAP, [("x", [1]), ("y", [2])], [("x", [2]), ("y", [1])]),
    (pa.list_(MAP), [[("x", [1])], []], [[], [("x", [1])]]),
    (WIDE, Decimal("0.00"), Decimal("-0.01")), (pa.list_(TEXT), ["0" * 16], ["0000000900000005"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "one", "other"), ALIKE, ids=str)
def test_values_alike_are_told_apart_and_each_row_counts_as_a_whole(
    tmp_path: Path, kind: pa.DataType, one: Any, other: Any
) -> None:
    schema, sides = pa.schema([("x", kind), ("y", kind)]), list[list[Path]]()
    for pairs in ([(one, one), (other, other)], [(one, other), (other, one)], [(other, other), (one, one)]):
        rows = [{"x": x, "y": y} for x, y in pairs]
        sides.append([write(tmp_path / str(len(sides)), schema, rows)])
    assert [is_same(schema, sides[0], side) for side in sides] == [True, False, True]


NUMBERS = [(a, b) for a in range(-10, 10) for b in range(-10, 10)]
MANY: dict[str, tuple[pa.DataType, Callable[[int, int], Any]]] = {
    "text": (TEXT, lambda a, b: f"{a:8}{b:8}"),
    "binary": (pa.binary(), lambda a, b: b"%8d%8d%8d" % (a, b, a)),
    "decimal": (WIDE, lambda a, b: Decimal(a * 2**64 + b).scaleb(-2, Context(38))),
    "long": (pa.int64(), lambda a, b: a * 2**32 + b),
    "double": (pa.float64(), lambda a, b: a + b / 32),
}


@pytest.mark.parametrize(("kind", "make"), MANY.values(), ids=MANY)
def test_values_that_differ_little_have_hashes_of_their_own(
    tmp_path: Path, kind: pa.DataType, make: Callable[[int, int], Any]
) -> None:
    schema = pa.schema([("x", kind)])
    paths = [write(tmp_path / f"{a},{b}", schema, [{"x": make(a, b)}]) for a, b in NUMBERS]
    for hashes in zip(*((one.first, one.second) for one in by_duckdb(schema, paths)), strict=True):
        assert len({*hashes}) == len(NUMBERS)


@pytest.mark.parametrize(("num_rows", "length", "is_read"), [(24, 1_000_000, False), (24_000, 1_000, True)])
def test_long_lists_are_left_to_spark(num_rows: int, length: int, is_read: bool, tmp_path: Path) -> None:
    ends = pa.array([0, length], pa.int32())
    values = pa.ListArray.from_arrays(ends, pa.array(np.zeros(length, np.int32)))
    rows = pa.table({"x": pa.chunked_array([values] * num_rows)})
    pq.write_table(rows, tmp_path / "f")
    (found,) = by_duckdb(rows.schema, [tmp_path / "f"])
    assert (not found.failure, found.num_rows) == (is_read, num_rows if is_read else 0)
    assert is_read or "about 24,000,000 values in lists" in found.failure


@pytest.mark.long
@examples(30)
@given(pairs(), st.booleans(), st.booleans())
def test_duckdb_tells_small_differences(
    pair: tuple[pa.Schema, list[Row], list[Row]], int96: bool, is_plain: bool
) -> None:
    schema, rows, changed = pair
    kind = pa.struct(schema)
    expected, found = (Counter(identity(row, kind) for row in content) for content in (rows, changed))
    with tempfile.TemporaryDirectory() as folder:
        one = write(Path(folder) / "a", schema, rows, use_deprecated_int96_timestamps=int96)
        other = write(Path(folder) / "b", schema, changed, use_dictionary=not is_plain)
        assert is_same(schema, [one], [other]) == (expected == found)


@pytest.mark.long
@examples(3, divided_by=8)
@given(pairs())
def test_spark_tells_the_same_differences(
    spark: SparkSession, pair: tuple[pa.Schema, list[Row], list[Row]]
) -> None:
    schema, rows, changed = pair
    with tempfile.TemporaryDirectory() as folder:
        paths = [write(Path(folder) / f"{n}.parquet", schema, side) for n, side in enumerate((rows, changed))]
        one, other = (fingerprint(spark.read.parquet(str(path))) for path in paths)
        assert is_same(schema, [paths[0]], [paths[1]]) == (one == other)
