"""Deletion vectors and their bitmaps are read with all checks, and rows are deleted by number."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from compaction_kit.arrow.job import found_vector
from compaction_kit.arrow.stats import footer_stats
from compaction_kit.arrow.worker import (
    Content,
    RewriteOutput,
    RewriteTask,
    inputs,
    read_content,
    rewrite,
    rewrite_bins,
)
from compaction_kit.arrow.worker.vectors import Vector, deleted_rows
from compaction_kit.storage import LocalStore
from tests import handmade
from tests.arrow.worker.test_rewrite import on_an_executor, results_of, task_of

TABLES = [pa.table({"a": range(i, i + 20_000)}) for i in (0, 50_000, 90_000)]


def vector_of(folder: Path, rows: list[int], kind: str = "u") -> Vector:
    bitmap = BitMap64(rows).serialize(), len(rows)
    found = handmade.inline_bitmap(*bitmap) if kind == "i" else handmade.stored_vectors(folder, [bitmap])[0]
    return Vector(*found_vector(found, LocalStore(str(folder))) or ())


def marked(folder: Path, rows: Mapping[int, list[int]], kind: str = "u", **options: object) -> RewriteTask:
    task = task_of(folder, TABLES, **options)
    vectors = {task.inputs[i][0]: tuple(vector_of(folder, deleted, kind)) for i, deleted in rows.items()}
    return task._replace(vectors=vectors)


def expected(rows: Mapping[int, list[int]]) -> list[int]:
    parts = [np.delete(table["a"].to_numpy(), rows.get(i, [])) for i, table in enumerate(TABLES)]
    return np.concatenate(parts).tolist()


@pytest.mark.parametrize("kind", ["i", "u"])
@pytest.mark.parametrize("rows", [{0: [0, 19_999], 2: [7]}, {1: list(range(20_000))}, {0: [], 1: [3_000]}])
@pytest.mark.parametrize("whole_bytes", [100, 1 << 30], ids=["copied", "decoded"])
def test_live_rows_are_written_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, rows: dict[int, list[int]], whole_bytes: int
) -> None:
    monkeypatch.setattr(rewrite, "WHOLE_BYTES", whole_bytes)
    # So that batches end within a row group, and among deleted rows.
    monkeypatch.setattr(inputs, "MOST_ROWS", 700)
    (done,) = results_of(marked(tmp_path, rows, kind, row_group_size=3_000))
    assert done.failure is None
    found = pq.read_table(done.path)["a"].to_pylist()
    assert found == expected(rows)
    bounds = footer_stats(LocalStore(str(tmp_path)), Path(done.path).name)
    assert (done.num_rows, bounds) == (len(found), {"a": (0, found[0], found[-1])})
    # The temporary outputs of decoded files are deleted.
    assert len(list(tmp_path.glob("part-*"))) == 1
    groups = pq.read_metadata(done.path).num_row_groups
    assert (groups >= 7) == (whole_bytes == 100)


def test_row_ids_go_by_the_numbers_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's row groups could be copied, but it is read in batches."""
    monkeypatch.setattr(rewrite, "WHOLE_BYTES", 100)
    monkeypatch.setattr(inputs, "MOST_ROWS", 700)
    columns = {"id": [None, -1] * 9_000, "version": pa.nulls(18_000, pa.int64())}
    task = task_of(tmp_path, [pa.table(columns)])
    (done,) = results_of(task._replace(row_ids={task.inputs[0][0]: {"id": 50, "version": 7}}))
    ids = [50 + i if i % 2 == 0 else -1 for i in range(18_000)]
    assert pq.read_table(done.path).equals(pa.table({"id": ids, "version": [7] * 18_000}))


def test_neither_vectors_nor_row_ids_load_pandas(tmp_path: Path) -> None:
    """Neither rewriting files nor comparing them loads pandas."""
    task = task_of(tmp_path, [pa.table({"id": pa.array([None, 5, 6]), "version": pa.array([1, None, 2])})])
    ((path, size),), vector = task.inputs, tuple(vector_of(tmp_path, [1]))
    task = task._replace(row_ids={path: {"id": 50, "version": 7}}, vectors={path: vector})
    chunk, schema = (0, [(0, path, size, vector, ())]), task.schema

    def work() -> tuple[object, ...]:
        (done,) = rewrite_bins([tuple(task)], lambda _: None)
        (content,) = read_content([chunk], schema, lambda _: None, None)
        return RewriteOutput(*done).num_rows, Content(*content).num_rows

    assert on_an_executor(work, tmp_path) == "(2, 2) False"
    (output,) = tmp_path.glob("part-*")
    assert pq.read_table(output).to_pydict() == {"id": [50, 6], "version": [1, 2]}


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "bitmap": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    "checksum": lambda data: data[:-1] + bytes([data[-1] ^ 128]),
    "length": lambda data: data[:4] + bytes([data[4] ^ 1]) + data[5:],
    "cut": lambda data: data[:-2],
    "empty": lambda data: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_vector_is_a_failure(tmp_path: Path, damage: str) -> None:
    task = marked(tmp_path, {0: [1, 5]})
    (file,) = tmp_path.glob("*.bin")
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    (done,) = results_of(task)
    assert file.name in str(done.failure)
    assert not list(tmp_path.glob("part-*"))


def test_a_vector_of_other_rows_than_the_log_says_is_a_failure(tmp_path: Path) -> None:
    (done,) = results_of(marked(tmp_path, {0: [1, 20_000]}))
    assert "has 20000 rows, and its deletion vector deletes others" in str(done.failure)
    vector, bitmap = vector_of(tmp_path, [1, 2]), BitMap64([1, 2]).serialize()
    with pytest.raises(OSError, match="a deletion vector deletes more or fewer rows than the log"):
        deleted_rows(bitmap, vector._replace(cardinality=3))
    for size in range(len(bitmap)):
        with pytest.raises((OSError, ValueError, IndexError)):
            deleted_rows(bitmap[:size], vector)


def test_a_vector_of_an_unknown_format_is_refused(tmp_path: Path) -> None:
    task = marked(tmp_path, {0: [1]}, "i")
    ((place, vector),) = task.vectors.items()
    (done,) = results_of(task._replace(vectors={place: tuple(Vector(*vector)._replace(inline=b"?"))}))
    assert (done.refusal, done.path) == ("a file has a deletion vector of an unknown format", "")


def test_without_pyroaring_files_with_vectors_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    (done,) = results_of(marked(tmp_path, {0: [1]}))
    assert "pyroaring" in str(done.refusal)
    (other,) = results_of(task_of(tmp_path, TABLES))
    assert other.num_rows == sum(map(len, TABLES))
