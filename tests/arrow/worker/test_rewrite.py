"""Parts of bins rewritten without Spark, except to compare the choice of dictionary columns."""

import datetime
import itertools
import math
import random
import subprocess
import sys
import uuid
from collections import defaultdict
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
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from compaction_kit.arrow import concat, worker
from compaction_kit.arrow.stats import footer_stats
from compaction_kit.arrow.worker import RewriteOutput, RewriteTask, files, inputs, outputs, rewrite_bins
from compaction_kit.arrow.worker import rewrite as rewriting
from compaction_kit.arrow.worker.columns import Columns, Refused
from compaction_kit.arrow.worker.files import write_checksums
from compaction_kit.arrow.worker.outputs import dictionary_columns
from compaction_kit.arrow.worker.rewrite import rewrite
from compaction_kit.storage import LocalStore
from tests.arrow.values import SCALARS, some_columns

UTC = datetime.UTC


def task_of(
    folder: Path, tables: list[pa.Table], schema: pa.Schema | None = None, **options: Any
) -> RewriteTask:
    """Write tables to files; return the task to join them, with the schema of the first by default."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(folder / f"{i}.parquet") for i in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, **options)
    wanted = (schema or tables[0].schema).serialize().to_pybytes()
    inputs = [(path, Path(path).stat().st_size) for path in paths]
    footer = {"org.apache.spark.version": "4.0.0"}
    output = str(folder / f"part-{uuid.uuid4()}")
    return RewriteTask(0, 0, 1, inputs, output, str(folder), wanted, {}, True, footer)


def results_of(*of: RewriteTask) -> list[RewriteOutput]:
    return [RewriteOutput(*one) for one in rewrite_bins(map(tuple, of), lambda _: None)]


def on_an_executor(work: Callable[[], object], folder: Path) -> str:
    """Return a function's result in a process without this package, and whether it loaded pandas."""
    for package in (worker, concat):
        cloudpickle.register_pickle_by_value(package)  # type: ignore[no-untyped-call]
    (folder / "task").write_bytes(cloudpickle.dumps(work))  # type: ignore[no-untyped-call]
    program = (
        "import pickle, sys; sys.modules['compaction_kit'] = sys.modules['tests'] = None;"
        "import pyspark.cloudpickle; print(pickle.load(open(sys.argv[1], 'rb'))(), 'pandas' in sys.modules)"
    )
    return subprocess.check_output([sys.executable, "-c", program, folder / "task"], text=True).strip()


def with_values(share: RewriteTask, schema: pa.Schema, values: dict[str, Any]) -> RewriteTask:
    """Return the same task with constant columns after its own."""
    constants = {name: pa.array([value], schema.field(name).type) for name, value in values.items()}
    return share._replace(schema=schema.serialize().to_pybytes(), constants=constants)


def chunks_of(path: str) -> list[list[pq.ColumnChunkMetaData]]:
    """The columns of each row group."""
    groups = pq.read_metadata(path)
    return [
        [group.column(i) for i in range(group.num_columns)]
        for group in map(groups.row_group, range(groups.num_row_groups))
    ]


@given(st.data())
def test_values_of_every_type_come_out_as_they_went_in(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    schema, row = data.draw(some_columns())
    tables = [pa.Table.from_pylist(data.draw(st.lists(row, max_size=4)), schema) for _ in range(2)]
    path = rewrite(task_of(tmp_path_factory.mktemp("types"), tables)).path
    found = pq.read_table(path, partitioning=None)
    assert found.schema.types == schema.types
    # As text, because -0.0 equals 0.0, and NaN doesn't equal NaN.
    assert str(found.to_pylist()) == str(pa.concat_tables(tables).to_pylist())


def test_decimals_and_the_footer_are_laid_out_as_spark_writes_them(tmp_path: Path) -> None:
    schema = pa.schema([(str(digits), pa.decimal128(digits, 2)) for digits in (9, 18, 38)])
    path = rewrite(task_of(tmp_path, [schema.empty_table()])).path
    file = pq.ParquetFile(path)
    kinds = [column.physical_type for column in map(file.schema.column, range(3))]
    assert kinds == ["INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"]
    assert file.metadata.metadata == {b"org.apache.spark.version": b"4.0.0"}


@pytest.mark.parametrize("nested", [False, True])
def test_int96_keeps_its_moment_where_the_log_shows_the_years(tmp_path: Path, nested: bool) -> None:
    """The type has no time zone, and Spark reads it as UTC."""
    day = datetime.datetime(2024, 6, 1, 12, 0, 0, 123456)
    kept = [datetime.datetime.min, day, datetime.datetime.max, None]
    values: pa.Array = pa.array(kept, pa.timestamp("us"))
    zoned: pa.DataType = pa.timestamp("us", "UTC")
    if nested:
        values, zoned = pa.StructArray.from_arrays([values], ["t"]), pa.struct([("t", zoned)])
    schema = pa.schema([("c", zoned)])
    one = task_of(tmp_path, [pa.table({"c": values})], schema, use_deprecated_int96_timestamps=True)
    found = pq.read_table(rewrite(one).path)["c"].combine_chunks()
    expected = [moment and moment.replace(tzinfo=UTC) for moment in kept]
    assert (found.field("t") if nested else found).to_pylist() == expected
    with pytest.raises(Refused, match=f"column {'c.t' if nested else 'c'} is stored as INT96"):
        rewrite(one._replace(has_years=False))
    plain = task_of(tmp_path / "plain", [pa.table({"c": found})], schema)
    assert rewrite(plain._replace(has_years=False)).num_rows == len(kept)


def test_files_of_other_writers_may_use_large_and_dictionary_types(tmp_path: Path) -> None:
    words = pa.array(["x", None, "y"])
    tables = [pa.table({"w": words.cast(pa.large_string())}), pa.table({"w": words.dictionary_encode()})]
    path = rewrite(task_of(tmp_path, tables, pa.schema([("w", pa.string())]))).path
    assert pq.read_table(path)["w"].to_pylist() == ["x", None, "y"] * 2


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4"])
def test_the_codec_is_that_of_the_files(tmp_path: Path, codec: str) -> None:
    one = task_of(tmp_path, [ONE] * 2, compression=codec)
    pq.write_table(ONE, one.inputs[1][0], compression="zstd" if codec == "snappy" else "snappy")
    path = rewrite(one).path
    ((found,),), ((expected,),) = map(chunks_of, (path, one.inputs[0][0]))
    assert found.compression == expected.compression
    suffixes = {"none": "", "gzip": ".gz", "lz4": ".lz4raw"}
    assert path.endswith(f".c000{suffixes.get(codec, '.' + codec)}.parquet")


ONE = pa.table({"a": [1]})
with_key = ONE.replace_schema_metadata
# Texts in lists that a writer held in dictionaries, as the footer says.
IN_DICTIONARIES = pa.array([["x"], ["y"]], pa.list_(pa.dictionary(pa.int32(), pa.string())))
REFUSED = {
    "has int32 where the table has int64": ONE.cast(pa.schema([("a", pa.int32())])),
    "has string where the table has int64": pa.table({"a": ["x"]}),
    "has timestamp[us] where the table has int64": ONE.cast(pa.schema([("a", pa.timestamp("us"))])),
    # Spark reads A as the column a or can't read the file; here its values would become null.
    "a file has the column A where the table has a": pa.table({"A": [1]}),
    "hybrid calendar (org.apache.spark.legacyDateTime)": with_key({"org.apache.spark.legacyDateTime": ""}),
    "hybrid calendar (org.apache.spark.legacyINT96)": with_key({"org.apache.spark.legacyINT96": ""}),
    "hybrid calendar (Spark 3.0.3)": with_key({"org.apache.spark.version": "3.0.3"}),
    "a file is compressed with BROTLI, which pyarrow or Spark lacks": ONE,
    "pyarrow can't read a file (Nested data conversions not": pa.table({"a": IN_DICTIONARIES}),
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_is_refused_leaves_nothing_and_the_next_bin_is_done(tmp_path: Path, told: str) -> None:
    options: dict[str, Any] = {"compression": "brotli"} if "BROTLI" in told else {"row_group_size": 1}
    odd = task_of(tmp_path / "odd", [ONE, REFUSED[told]], ONE.schema, **options)
    newer = with_key({"org.apache.spark.version": "3.1.0"})
    refused, done = results_of(odd, task_of(tmp_path / "next", [newer])._replace(number=1))
    assert (refused.number, refused.path, refused.failure) == (0, "", None)
    assert told in str(refused.refusal)
    assert (done.number, done.num_rows, done.refusal) == (1, 1, None)
    assert Path(done.path).stat().st_size == done.size_bytes
    assert not list((tmp_path / "odd").glob("part-*"))


def test_batches_are_limited_by_bytes_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BATCH_BYTES", 1 << 20)
    schema = pa.schema([("a", pa.list_(pa.field("element", pa.int64())))])
    # Runs of one number take a few bytes in the file, and 10 KiB per row in memory.
    values, offsets = pa.repeat(7, 1_280 * 5_000), pa.array(range(0, 1_280 * 5_001, 1_280), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, values).cast(schema.types[0])
    task = task_of(tmp_path, [pa.table([lists], schema)])
    task = task._replace(inputs=[(task.inputs[0][0], 5 << 20)])
    batches = list(inputs.FileReader(task, Columns(schema), files.Storage()).tables())
    assert sum(map(len, batches)) == 5_000
    assert max(batch.nbytes for batch in batches) <= 1.1 * (1 << 20)


def test_columns_without_sure_statistics_have_no_bounds(tmp_path: Path) -> None:
    """A column a.b and the field b of a struct a have the same path."""
    columns = {"nan": [float("nan"), None], "f": [1.0, None], "a.b": [1, 2], "a": [{"b": 5}, {"b": None}]}
    (done,) = results_of(task_of(tmp_path, [pa.table(columns)]))
    assert footer_stats(LocalStore(str(tmp_path)), Path(done.path).name) == {"f": (1, 1.0, 1.0)}


def test_decimals_have_bounds_however_they_are_stored(tmp_path: Path) -> None:
    """pyarrow before 23 reads no bounds of decimals that are stored as integers."""
    values = [Decimal("1.25"), Decimal("7.00")]
    columns = {str(digits): pa.array(values, pa.decimal128(digits, 2)) for digits in (9, 18, 38)}
    (done,) = results_of(task_of(tmp_path, [pa.table(columns)]))
    bounds = footer_stats(LocalStore(str(tmp_path)), Path(done.path).name)
    assert bounds == dict.fromkeys(columns, (0, *values))


def test_large_files_are_read_in_pieces_to_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SMALL_BYTES", 2_000)
    monkeypatch.setattr(inputs, "MOST_ROWS", 100)
    monkeypatch.setattr(outputs, "GROUP_BYTES", 8 * 500)
    ends = [(0, 1_234), (2_000, 2_010), (3_000, 3_010), (4_000, 4_777)]
    tables = [pa.table({"a": range(start, end)}) for start, end in ends]
    one = task_of(tmp_path, tables)
    assert [size > 2_000 for _, size in one.inputs] == [True, False, False, True]
    done = rewrite(one)
    assert pq.read_table(done.path).equals(pa.concat_tables(tables))
    *counts, last = [column.num_values for (column,) in chunks_of(done.path)]
    assert (sum(counts) + last, all(500 <= count < 600 for count in counts)) == (done.num_rows, True)


@pytest.mark.parametrize("whole_bytes", [1, 1 << 30], ids=["row groups to copy", "decoded"])
def test_columns_are_added_reordered_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_bytes: int
) -> None:
    monkeypatch.setattr(rewriting, "WHOLE_BYTES", whole_bytes)
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.int8()))])
    columns = [{"b": ["x"], "a": [1]}, {"gone": [1.0], "a": [2]}, {"gone": [2.0]}]
    path = rewrite(task_of(tmp_path, list(map(pa.table, columns)), schema)).path
    expected = {"a": [1, 2, None], "b": ["x", None, None], "c": [None] * 3}
    assert pq.read_table(path).to_pydict() == expected


@given(st.lists(st.sampled_from([3, 2_000]), min_size=2, max_size=7), st.booleans())
def test_large_files_are_copied_and_what_is_between_them_is_decoded(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], has_small_groups: bool
) -> None:
    """Row groups have to be large only on average, because most writers end a file with a small one."""
    folder, ends = tmp_path_factory.mktemp("mixed"), np.cumsum([0, *counts])
    tables = [pa.table({"a": np.arange(*pair)}) for pair in itertools.pairwise(ends)]
    size = 200 if has_small_groups else 1_500
    one = task_of(folder, tables, row_group_size=size, use_dictionary=False, compression="none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriting, "WHOLE_BYTES", 8_000)
        path = rewrite(one).path
    assert pq.read_table(path).equals(pa.concat_tables(tables))
    runs = [(count, len(list(run))) for count, run in itertools.groupby(counts)]
    groups = [rows for count, many in runs for rows in ([1_500, 500] * many if count > 3 else [3 * many])]
    expected = [sum(counts)] if has_small_groups else groups
    assert [group[0].num_values for group in chunks_of(path)] == expected
    assert len(list(folder.glob("part-*"))) == 1


@given(st.sampled_from(sorted(SCALARS)), st.data())
def test_a_column_of_one_value_is_written_for_all_files(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    kind, values = SCALARS[name]
    value, other = data.draw(st.tuples(st.none() | values, values))
    schema = pa.schema([("a", pa.int64()), ("p", kind)])
    others = pa.array([other, None], kind)
    tables = [pa.table({"p": others, "a": [1, 2]}), pa.table({"a": [3]}), pa.table({"p": ["x"]})]
    share = task_of(tmp_path_factory.mktemp("one"), tables)
    path = rewrite(with_values(share, schema, {"p": value})).path
    expected = pa.table([pa.array([1, 2, 3, None]), pa.array([value] * 4, kind)], schema)
    found = pq.read_table(path, partitioning=None)
    assert found.schema.equals(schema)
    assert str(found.to_pylist()) == str(expected.to_pylist())


def joined(share: RewriteTask, parts: list[RewriteOutput]) -> RewriteOutput:
    inputs = [(part.path, part.size_bytes) for part in parts]
    (done,) = results_of(share._replace(inputs=inputs, joins=True))
    return done


def test_parts_of_different_layouts_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file stores decimals as integers and the other doesn't, so their schemas differ."""
    monkeypatch.setattr(rewriting, "WHOLE_BYTES", 10_000)
    schema = pa.schema([("a", pa.decimal128(9, 2)), ("p", pa.int64())])
    tables = [
        pa.table({"a": pa.array(map(Decimal, range(count)), schema.types[0]), "p": [7] * count})
        for count in (20_000, 10)
    ]
    given = [
        with_values(task_of(tmp_path / str(i), [table], schema), schema, {"p": 7})
        for i, table in enumerate(tables)
    ]
    written = results_of(*given)
    kinds = [pq.ParquetFile(one.path).schema.column(0).physical_type for one in written]
    assert kinds == ["FIXED_LEN_BYTE_ARRAY", "INT32"]
    done = joined(given[0], written)
    assert (done.num_rows, done.refusal, done.failure) == (20_010, None, None)
    assert pq.read_table(done.path).equals(pa.concat_tables(tables))


@pytest.mark.parametrize("group_bytes", [1, 1 << 20])
def test_columns_with_nan_have_no_statistics_and_those_with_zeros_no_dictionary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes: int
) -> None:
    """Readers that order NaN last would skip its row group because of pyarrow's statistics.

    Spark would find no 0.0 in a row group whose dictionary has only -0.0.
    """
    monkeypatch.setattr(outputs, "GROUP_BYTES", group_bytes)
    fields = {"d": pa.float64(), "f": pa.float32(), "l": pa.list_(pa.float64())}
    kind = pa.struct(fields | {"m": pa.map_(pa.string(), pa.float64())})

    def column(value: float) -> pa.Array:
        return pa.array([{"d": value, "f": value, "l": [value, None], "m": [("k", value)]}, None] * 9, kind)

    some = {"nan": (1.0, math.nan), "zero": (1.0, -0.0), "other": (2.0, 3.0)}
    tables = [pa.table({name: column(values[i]) for name, values in some.items()}) for i in (0, 1)]
    schema = tables[0].schema.append(pa.field("partition", pa.float64()))
    done = rewrite(with_values(task_of(tmp_path, tables), schema, {"partition": 0.0}))
    groups = chunks_of(done.path)
    assert (done.num_rows, len(groups)) == (36, 2 if group_bytes == 1 else 1)
    for columns in groups:
        floats = [one for one in columns if not one.path_in_schema.endswith(".key")]
        has_stats, has_dictionary = defaultdict(set), defaultdict(set)
        for one in floats:
            name = one.path_in_schema.partition(".")[0]
            has_stats[name].add(one.is_stats_set)
            has_dictionary[name].add(one.has_dictionary_page)
        assert has_stats == {"nan": {False}, "zero": {True}, "other": {True}, "partition": {True}}
        assert has_dictionary == {"nan": {True}, "zero": {False}, "other": {True}, "partition": {False}}
    assert len(list(tmp_path.glob("part-*"))) == 1


# More rows than the first page has, because Spark chooses by the first page.
ROWS = 25_000


def test_spark_chooses_the_same_dictionary_columns(spark: SparkSession, tmp_path: Path) -> None:
    rng, words = np.random.default_rng(1), random.Random(1)
    numbers = rng.integers(0, 2**62, ROWS)
    few = rng.integers(0, 50, ROWS)
    columns = pa.table(
        {
            "unique": numbers,
            "few": few,
            "same": np.zeros(ROWS),
            "text": [f"{number:x}" for number in numbers],
            "word": [f"a rather long word {number}" for number in few],
            "flag": few > 25,
            "none": pa.nulls(ROWS, pa.int64()),
            "half": pa.array(numbers, mask=numbers % 2 == 0),
            "list": [[words.randrange(9)] * 3 for _ in range(ROWS)],
            "map": pa.array([[("k", number)] for number in numbers], pa.map_(pa.string(), pa.int64())),
            "struct": [{"x": number, "y": {"z": word}} for number, word in zip(numbers, few, strict=True)],
        }
    )
    pq.write_table(columns, tmp_path / "in.parquet")
    spark.read.parquet(str(tmp_path / "in.parquet")).coalesce(1).write.parquet(str(tmp_path / "out"))
    (file,) = (tmp_path / "out").glob("*.parquet")
    (leaves,) = chunks_of(str(file))
    theirs = {leaf.path_in_schema for leaf in leaves if leaf.has_dictionary_page}
    # A dictionary makes no difference for a column of nulls.
    assert set(dictionary_columns(columns)) == theirs - {"none"}
    assert theirs >= {"few", "same", "word", "list.list.element", "map.key_value.key", "struct.y.z"}
    assert dictionary_columns(columns.slice(0, 0)) == []


def test_executors_need_not_have_this_package_and_load_no_pandas(tmp_path: Path) -> None:
    """Neither rewriting nor joining files loads pandas, which takes a while."""
    rows = pa.table({"i": range(9), "f": [0.5] * 9, "s": ["x"] * 9})
    one = with_values(task_of(tmp_path, [rows]), rows.schema.append(pa.field("p", pa.string())), {"p": "a"})
    write_checksums(one.inputs[0][0])

    def work() -> list[tuple[Any, ...]]:
        written = [RewriteOutput(*found) for found in rewrite_bins([tuple(one)] * 2, lambda _: None)]
        inputs = [(part.path, part.size_bytes) for part in written]
        (done,) = rewrite_bins([tuple(one._replace(inputs=inputs, joins=True))], lambda _: None)
        return [(part.num_rows, part.refusal, part.failure) for part in (*written, RewriteOutput(*done))]

    assert on_an_executor(work, tmp_path) == f"{[(num_rows, None, None) for num_rows in (9, 9, 18)]} False"
