"""DuckDB, Spark and a comparison in Python come to the same verdict about small differences."""

import datetime
import math
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
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

from compaction_kit.arrow.vectors import found_vector
from compaction_kit.arrow.worker import Content, read_content
from compaction_kit.storage import LocalStore
from compaction_kit.verify import fingerprint
from tests import handmade
from tests.chance import examples

Rows = list[tuple[Any, ...]]
UTC = datetime.UTC
DAYS = st.dates(datetime.date(1600, 1, 1), datetime.date(9999, 12, 31))
TIMES = st.datetimes(datetime.datetime(1600, 1, 1), datetime.datetime(9999, 1, 1))
# Values that hashes may take for one another come often.
SMALL = st.sampled_from([0, 1, 2])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf])
SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), SMALL | st.integers(-(2**63), 2**63 - 1)),
    "int": (pa.int32(), SMALL),
    "short": (pa.int16(), SMALL),
    "byte": (pa.int8(), SMALL),
    "double": (pa.float64(), FLOATS | st.floats()),
    "float": (pa.float32(), FLOATS | st.floats(width=32)),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.sampled_from(["", "\0", "a", "A", "ab"]) | st.text(max_size=4)),
    "binary": (pa.binary(), st.sampled_from([b"", b"\0"]) | st.binary(max_size=4)),
    "decimal": (pa.decimal128(38, 2), st.integers(-(10**30), 10**30).map(lambda n: Decimal(n) / 100)),
    "date": (pa.date32(), DAYS),
    "timestamp": (pa.timestamp("us", "UTC"), TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    "timestamp_ntz": (pa.timestamp("us"), TIMES),
}


def nested(
    kinds: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]],
) -> dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Types that hold such values: lists, maps and structs of them."""
    found: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {}
    for name, (kind, values) in kinds.items():
        value = st.none() | values
        found[f"list of {name}"] = pa.list_(pa.field("element", kind)), st.lists(value, max_size=3)
        found[f"map to {name}"] = (
            pa.map_(pa.string(), kind),
            st.dictionaries(st.sampled_from(["", "k", "l"]), value, max_size=3).map(
                lambda d: list(d.items())
            ),
        )
        found[f"struct of {name}"] = (
            pa.struct([("x", kind), ("y", kind)]),
            st.fixed_dictionaries({"x": value, "y": value}),
        )
    return found


FEW = {name: SCALARS[name] for name in ("int", "double", "string", "timestamp")}
ONCE = nested(FEW)
KINDS = (
    SCALARS | ONCE | nested({name: ONCE[name] for name in sorted(ONCE) if "int" in name or "double" in name})
)


def identity(value: Any, kind: pa.DataType) -> Any:
    """What is equal for values that are the same."""
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


def double_one_and_drop_another(rows: Rows, at: int, other: int, column: int) -> Rows:
    return [rows[at], *(row for i, row in enumerate(rows) if i != other)]


def swap_two_values(rows: Rows, at: int, other: int, column: int) -> Rows:
    found = [list(row) for row in rows]
    found[at][column], found[other][column] = found[other][column], found[at][column]
    return [tuple(row) for row in found]


def make_one_null(rows: Rows, at: int, other: int, column: int) -> Rows:
    return [(*row[:column], None, *row[column + 1 :]) if i == at else row for i, row in enumerate(rows)]


def copy_one_value(rows: Rows, at: int, other: int, column: int) -> Rows:
    return [
        (*row[:column], rows[other][column], *row[column + 1 :]) if i == at else row
        for i, row in enumerate(rows)
    ]


def reorder(rows: Rows, at: int, other: int, column: int) -> Rows:
    return rows[::-1]


CHANGES: list[Callable[[Rows, int, int, int], Rows]] = [
    double_one_and_drop_another,
    swap_two_values,
    make_one_null,
    copy_one_value,
    reorder,
]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[pa.Schema, Rows, Rows]:
    """Columns, some rows, and the same with a small change or none."""
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3, unique=True))
    schema = pa.schema([(f"the {name}", KINDS[name][0]) for name in names])
    rows = draw(st.lists(st.tuples(*(st.none() | KINDS[name][1] for name in names)), min_size=1, max_size=6))
    position = st.integers(0, len(rows) - 1)
    change = draw(st.sampled_from(CHANGES))
    return schema, rows, change(rows, draw(position), draw(position), draw(st.integers(0, len(names) - 1)))


def write(path: Path, schema: pa.Schema, rows: Rows, **options: Any) -> Path:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    pq.write_table(pa.table(columns, schema=schema), path, **options)
    return path


def by_duckdb(schema: pa.Schema, *sides: list[Path]) -> list[Content]:
    """What DuckDB reads in each set of files."""
    chunks = [
        (side, [(0, str(path), path.stat().st_size, None) for path in paths])
        for side, paths in enumerate(sides)
    ]
    found = read_content(chunks, schema.serialize().to_pybytes(), lambda _: None, None)
    return [Content(*content) for content in found]


@pytest.mark.parametrize("kind", ["inline", "stored"])
def test_deleted_rows_alone_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Also of two files that are read together, of which one has no vector."""
    schema = pa.schema([("row", pa.int64()), ("path", pa.string())])
    rows = [(i, f"text {i}") for i in range(5_000)]
    deleted = [0, 7, 2_047, 2_048, 4_999]
    bitmap = BitMap64(deleted).serialize(), len(deleted)
    found = handmade.inline_bitmap(*bitmap)
    if kind == "stored":
        (found,) = handmade.stored_vectors(tmp_path, [bitmap])
    vector = found_vector(found, LocalStore(str(tmp_path)))
    assert vector is not None
    whole = write(tmp_path / "whole.parquet", schema, rows, row_group_size=1_000)
    other = write(tmp_path / "other.parquet", schema, rows[:10])
    live = write(tmp_path / "live.parquet", schema, [row for row in rows if row[0] not in deleted])

    def read(*files: tuple[Path, object]) -> Content:
        chunk = 0, [(0, str(path), path.stat().st_size, one) for path, one in files]
        (content,) = read_content([chunk], schema.serialize().to_pybytes(), lambda _: None, None)
        return Content(*content)

    expected = read((live, None), (other, None))
    assert (expected.num_rows, expected.failure) == (5_005, "")
    assert read((whole, vector), (other, None)) == expected
    assert read((whole, None), (other, None)) != expected
    assert read((whole, None), (other, vector)) != expected
    wrong = (*vector[:-1], 4)
    assert "deletes more or fewer rows than the log says" in read((whole, wrong)).failure
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    assert "pyroaring" in read((whole, vector)).failure
    assert not read((whole, None)).failure


def is_same(schema: pa.Schema, one: list[Path], other: list[Path]) -> bool:
    before, after = (content._replace(side=0) for content in by_duckdb(schema, one, other))
    assert not before.failure
    return before == after


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
    pair: tuple[pa.Schema, Rows, Rows], int96: bool, is_plain: bool
) -> None:
    schema, rows, changed = pair
    kinds = schema.types
    expected, found = (
        Counter(tuple(map(identity, row, kinds)) for row in content) for content in (rows, changed)
    )
    with tempfile.TemporaryDirectory() as folder:
        one = write(Path(folder) / "a", schema, rows, use_deprecated_int96_timestamps=int96)
        other = write(Path(folder) / "b", schema, changed, use_dictionary=not is_plain)
        assert is_same(schema, [one], [other]) == (expected == found)


@pytest.mark.spark
@pytest.mark.long
@examples(5, divided_by=8)
@given(pairs())
def test_spark_tells_the_same_differences(spark: SparkSession, pair: tuple[pa.Schema, Rows, Rows]) -> None:
    schema, rows, changed = pair
    with tempfile.TemporaryDirectory() as folder:
        paths = [write(Path(folder) / f"{n}.parquet", schema, side) for n, side in enumerate((rows, changed))]
        one, other = (fingerprint(spark.read.parquet(str(path))) for path in paths)
        assert is_same(schema, [paths[0]], [paths[1]]) == (one == other)
