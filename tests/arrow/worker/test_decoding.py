"""Files of a few kilobytes whose rows are gigabytes, rewritten in little memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compaction_kit.arrow.worker import inputs
from compaction_kit.arrow.worker.columns import Refused
from compaction_kit.arrow.worker.rewrite import rewrite
from tests.arrow.worker.test_rewrite import task_of
from tests.chance import nightly
from tests.processes import run_python

MOST = 1.2 * 2**30
# Peak memory is that of a process's whole life, so each task gets its own process.
ALONE = """
import resource, sys
import pyarrow.parquet as pq
from pathlib import Path
from compaction_kit.arrow.worker import RewriteOutput, RewriteTask, rewrite_bins
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
folder = Path(sys.argv[1])
inputs = [(str(path), path.stat().st_size) for path in sorted(folder.glob("?.parquet"))]
schema = pq.read_schema(inputs[0][0]).serialize().to_pybytes()
share = RewriteTask(0, 0, 1, inputs, str(folder / "part"), str(folder), schema, {}, True, {})
(done,) = (RewriteOutput(*one) for one in rewrite_bins([tuple(share)], lambda _: None))
assert done.failure is None and done.refusal is None, done
print(done.num_rows, done.size_bytes, done.peak_bytes, done.path)
"""


def rewritten_alone(folder: Path) -> tuple[int, int, int, str]:
    """Rewrite a folder's files; return the rows, bytes, peak memory and path of the output."""
    rows, size, peak, path = run_python("-c", ALONE, str(folder)).stdout.split()
    return int(rows), int(size), int(peak), path


def repeated(texts: pa.Array, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(count, dtype=np.int32) % len(texts)), texts)


@pytest.mark.parametrize(("length", "nested"), [(20_000, False), *nightly((50_000, True))])
def test_long_texts_that_repeat_take_little_memory(tmp_path: Path, length: int, nested: bool) -> None:
    for i in range(4):
        values: pa.Array = repeated(pa.array([str(i) * length]), 60_000)
        if nested:
            values = pa.ListArray.from_arrays(pa.array(range(60_001), pa.int32()), values)
        # pyarrow doesn't read texts in lists from the dictionaries of two row groups at once.
        options = {"store_schema": False, "row_group_size": 40_000}
        pq.write_table(pa.table({"s": values}), tmp_path / f"{i}.parquet", **options)
    rows, size, peak, path = rewritten_alone(tmp_path)
    assert (rows, peak < MOST) == (240_000, True)
    assert size < 1.1 * sum(file.stat().st_size for file in tmp_path.glob("?.parquet"))
    found = pq.ParquetFile(path, read_dictionary=["s.list.element" if nested else "s"]).read()["s"]
    texts = found.combine_chunks().flatten() if nested else found.combine_chunks()
    assert [texts[60_000 * i].as_py() for i in range(4)] == [str(i) * length for i in range(4)]
    assert texts.value_counts().field("counts").to_pylist() == [60_000] * 4


@pytest.mark.nightly
def test_the_memory_told_is_the_workers_own(tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": range(10)}), tmp_path / "0.parquet")
    held = np.ones(2**28, np.uint8)
    _, _, peak, _ = rewritten_alone(tmp_path)
    assert 2**24 < peak < held.nbytes


NESTED = {
    "s": pa.string(),
    "l": pa.list_(pa.field("element", pa.string())),
    "m": pa.map_(pa.string(), pa.binary()),
    "n": pa.struct([("t", pa.string()), ("i", pa.int64())]),
}


def test_texts_left_in_dictionaries_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "DECODED_AT_ONCE", 1_000)
    monkeypatch.setattr(inputs, "BATCH_BYTES", 1_000)
    rows = []
    for word in "abc":
        long = word * 500
        row = {"s": long, "l": [long, None, ""], "m": [("k" * 300, long.encode())], "n": {"t": long, "i": 1}}
        rows.append([row, {}, row | {"n": {"t": None, "i": 2}}] * 40)
    # A file whose texts are no longer than their dictionary, and one that lacks columns.
    rows.append([{"s": str(i), "n": {"t": "x", "i": i}} for i in range(300)])
    tables = [pa.Table.from_pylist(one, pa.schema(NESTED)) for one in rows]
    tables.append(tables[0].select(["l"]))
    # The constant column at the end isn't read from files.
    schema = tables[0].schema.append(pa.field("p", pa.string()))
    path = rewrite(task_of(tmp_path, tables, schema)._replace(constants={"p": pa.array(["x"])})).path
    expected = pa.concat_tables(tables, promote_options="default")
    expected = expected.append_column("p", pa.array(["x"] * len(expected)))
    found = pq.ParquetFile(path)
    assert found.schema_arrow.equals(schema)
    assert found.read().to_pylist() == expected.to_pylist()
    assert len(list(tmp_path.glob("part-*"))) == 1


def test_texts_of_unknown_sizes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "DECODED_AT_ONCE", 1_000)
    table = pa.table({"s": ["x" * 500] * 100})
    options = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}
    with pytest.raises(Refused, match="the texts of column s are stored without their common prefixes"):
        rewrite(task_of(tmp_path, [table], **options))
    assert not list(tmp_path.glob("part-*"))


def test_rows_of_very_different_sizes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "DECODED_AT_ONCE", 1_000)
    monkeypatch.setattr(inputs, "MOST_BATCH_BYTES", 1 << 20)
    lists = pa.array([[7] * 500_000, *[[]] * 1_000], pa.list_(pa.field("element", pa.int64())))
    with pytest.raises(Refused, match="some of a file's rows take 3 MiB in memory"):
        rewrite(task_of(tmp_path, [pa.table({"l": lists})]))
