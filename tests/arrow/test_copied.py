"""Concatenated files are proved by their bytes; any difference is left to other readers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.arrow import copied
from compaction_kit.arrow.concat import concatenate
from compaction_kit.arrow.concat.thrift import BINARY, I64
from compaction_kit.arrow.copied import BytesComparison, DataFile
from compaction_kit.arrow.duckdb import compare_quickly
from compaction_kit.execute.failures import NotCompared
from tests import handmade
from tests.arrow.concat.test_concatenate import change_footer


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied, "WHOLE_BYTES", 100)


def table(start: int, rows: int = 2_000) -> pa.Table:
    numbers = pa.array(range(start, start + rows))
    return pa.table({"i": numbers, "s": numbers.cast(pa.string()), "f": pa.array([float("nan")] * rows)})


def written(path: Path, rows: pa.Table) -> DataFile:
    pq.write_table(rows, path, row_group_size=1_500, compression="none")
    return placed(path)


def placed(path: Path) -> DataFile:
    return DataFile(0, str(path), path.stat().st_size)


def joined(output: Path, *files: DataFile) -> DataFile:
    concatenate([file.place for file in files], str(output), {"by": "us"})
    return placed(output)


def left(gone: list[DataFile], new: list[DataFile]) -> tuple[int, int, list[list[int]]]:
    """Return the rows proved, the number of replaced files left, and the row ranges left of each new file."""
    comparison = BytesComparison()
    before, after = comparison.run(gone, new)
    return comparison.num_rows, len(before), [[*sum(file.ranges, ())] for file in after]


def test_outputs_are_found_among_all_files_of_their_partition(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{i}", table(5_000 * i)) for i in range(4)]
    files.append(written(tmp_path / "same", table(0)))
    one = joined(tmp_path / "one", files[2], files[0])
    two = joined(tmp_path / "two", files[1], files[4], files[3])
    assert left(files, [one, two]) == (10_000, 0, [])
    pq.ParquetWriter(tmp_path / "none", table(0).schema).close()
    others = [files[0]._replace(place="gone"), placed(tmp_path / "none")]
    assert left([*files, *others], [one, two]) == (10_000, 2, [])
    # A replaced file can match only one row range of the outputs.
    assert left(files[:4], [one, two]) == (8_000, 0, [[2_000, 4_000]])
    assert left([file._replace(partition=1) for file in files], [one, two]) == (0, 5, [[], []])
    # A file with a deletion vector is left, because its pages still hold the deleted rows.
    assert left([files[0]._replace(vector=(b"",)), *files[1:]], [one, two]) == (8_000, 1, [[2_000, 4_000]])
    assert left(files[:2], [one, two]) == (4_000, 0, [[0, 2_000], [2_000, 6_000]])
    decoded = written(tmp_path / "decoded", pa.concat_tables([table(5_000), table(0)]))
    assert left(files, [one, decoded]) == (4_000, 3, [[]])


CHANGES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "the order of rows": lambda rows: rows.take(np.arange(4_000)[::-1]),
    "a value": lambda rows: pa.concat_tables([rows.slice(0, 2_000), table(2_001)]),
    "a row less": lambda rows: rows.slice(0, 3_999),
    "a column's name": lambda rows: rows.rename_columns(["j", "s", "f"]),
    "a column's type": lambda rows: rows.set_column(0, "i", rows["i"].cast(pa.timestamp("us"))),
    "the calendar": lambda rows: rows.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}),
}


@pytest.mark.parametrize("change", ["a bit", "a bound", *CHANGES])
@pytest.mark.parametrize("side", ["gone", "new"])
def test_files_with_other_bytes_are_left_to_other_readers(tmp_path: Path, change: str, side: str) -> None:
    rows = pa.concat_tables([table(0), table(2_000)])
    both = written(tmp_path / "both", rows)
    copy = joined(tmp_path / "copy", both)
    assert left([both], [copy]) == (4_000, 0, [])
    path = Path(both.place if side == "gone" else copy.place)
    if change in ("a bit", "a bound"):
        data = bytearray(path.read_bytes())
        # Flip a bit in the first column's pages, or in a bound in the footer.
        data[200 if change == "a bit" else data.rindex((3_999).to_bytes(8, "little"))] ^= 1
        path.write_bytes(data)
    else:
        written(path, CHANGES[change](rows))
    assert left([both], [copy]) == (0, 1, [[]])


def test_large_chunks_are_compared_to_their_last_byte(tmp_path: Path) -> None:
    rows = pa.table({"n": np.arange(600_000)})
    pq.write_table(rows, tmp_path / "both", compression="none", use_dictionary=False)
    both = placed(tmp_path / "both")
    copy = joined(tmp_path / "copy", both)
    assert left([both], [copy]) == (600_000, 0, [])
    data = bytearray(Path(copy.place).read_bytes())
    data[-9 - int.from_bytes(data[-8:-4], "little")] ^= 1
    Path(copy.place).write_bytes(data)
    assert left([both], [copy]) == (0, 1, [[]])


@pytest.mark.parametrize(
    ("sides", "change"),
    [
        ("both, copy", lambda *last: last[2][3][1].update({9: (I64, 1 << 40), 11: (I64, 1 << 40)})),
        ("copy", lambda _, group, __: group.update({3: (I64, group[3][1] + 1)})),
        ("copy", lambda footer, *_: footer.update({6: (BINARY, b"parquet-mr version 1.8.1")})),
    ],
    ids=["beyond the end", "number of rows", "writer"],
)
def test_footers_that_change_which_rows_are_read_prove_nothing(
    tmp_path: Path, sides: str, change: Callable[..., object]
) -> None:
    # Without statistics, because those of old writers aren't shown.
    pq.write_table(table(0), tmp_path / "both", write_statistics=False)
    both = placed(tmp_path / "both")
    copy = joined(tmp_path / "copy", both)
    for name in sides.split(", "):
        change_footer(tmp_path / name, change)
    assert left([both], [copy]) == (0, 1, [[]])


def test_copied_bins_are_proved_by_bytes_and_others_by_duckdb(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    adds, rng = [], np.random.default_rng(0)
    for partition, counts in {"a": [1_000, 2_000, 1_040_000, 1_040_000], "b": [1_000, 1_000]}.items():
        for i, count in enumerate(counts):
            rows = pa.table({"n": rng.integers(0, 2**62, count)})
            adds.append(handmade.write_data(tmp_path, f"p={partition}/{i}.parquet", rows, {"p": partition}))
    without = {"delta.writePartitionColumnsToParquet": "false"}
    handmade.write_log(tmp_path, [handmade.metadata({"n": "long", "p": "string"}, ["p"], without), *adds])
    before = pq.read_table(tmp_path, partitioning=None)
    result = open_table(tmp_path, spark).plan_compaction().run(strategy="arrow")
    assert result.verified is True
    assert result.fingerprint is not None
    assert (result.fingerprint.num_rows, result.fingerprint.readers) == (len(before), ("DuckDB", "bytes"))
    assert "compared as bytes" in str(result.fingerprint)
    (output,) = (tmp_path / "p=a").glob("part-*.parquet")
    footer = pq.read_metadata(output)
    assert [footer.row_group(i).num_rows for i in range(3)] == [3_000, 1_040_000, 1_040_000]
    (info,) = handmade.actions_of(tmp_path, 1, "commitInfo")
    assert info["userMetadata"].endswith("by DuckDB+bytes")
    # A flipped bit in a decoded row group (0) or in a copied one (2) means other rows.
    (new,) = (add for add in handmade.actions_of(tmp_path, 1, "add") if "p=a" in add["path"])
    gone = [add for add in adds if "p=a" in add["add"]["path"]]
    snapshot, data = open_table(tmp_path).log.snapshot(), output.read_bytes()
    for group in (0, 2):
        at = footer.row_group(group).column(0).data_page_offset + 5_000
        output.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(NotCompared, match="DuckDB"):
            compare_quickly(spark, snapshot, gone, [{"add": new}])
    output.write_bytes(data)
    assert compare_quickly(spark, snapshot, gone, [{"add": new}]).num_rows == 2_083_000
