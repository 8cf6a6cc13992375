"""Existing checksums detect damaged data files, and damage never gets into a new file."""

import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf

from compaction_kit.arrow.worker import rewrite
from compaction_kit.arrow.worker.files import check_file, checksum_path, write_checksums
from tests.arrow.worker.test_rewrite import results_of, task_of

TABLES = [pa.table({"a": range(i, i + 20_000)}) for i in (0, 50_000)]
PLAIN = {"compression": "none", "use_dictionary": False}


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


@pytest.fixture(params=[True, False], ids=["copied", "decoded"])
def is_copied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(rewrite, "WHOLE_BYTES", 1_000 if request.param else 1 << 30)
    return bool(request.param)


@pytest.mark.parametrize("number", [0, 1])
def test_a_flipped_bit_is_a_failure(tmp_path: Path, is_copied: bool, number: int) -> None:
    """Checksums beside the file detect it, or those of pages if the pages are decoded."""
    one = task_of(tmp_path, TABLES, write_page_checksum=not is_copied, **PLAIN)
    paths = [Path(path) for path, _ in one.inputs]
    if is_copied:
        for path in paths:
            write_checksums(str(path))
    flip(paths[number], 5_000)
    (done,) = results_of(one)
    assert paths[number].name in str(done.failure)
    assert not list(tmp_path.glob("*part-*"))


def test_outputs_have_checksums_where_inputs_have(tmp_path: Path, is_copied: bool) -> None:
    one = task_of(tmp_path, TABLES, **PLAIN)
    (without,) = results_of(one)
    assert not Path(checksum_path(without.path)).exists()
    for path, _ in one.inputs:
        write_checksums(path)
    (done,) = results_of(one)
    check_file(done.path)
    assert pq.read_table(done.path).equals(pa.concat_tables(TABLES))
    flip(Path(done.path), 5_000)
    if not is_copied:
        with pytest.raises(OSError, match="CRC checksum"):
            pq.read_table(done.path, page_checksum_verification=True)
    with pytest.raises(OSError, match=r"part-.* differs from its checksums in .*\.crc"):
        check_file(done.path)


def test_spark_checks_outputs_wherever_it_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Each checksum of an output covers more bytes than Hadoop's own."""
    rows = pa.table({"a": range(80_000), "b": np.random.default_rng(0).integers(0, 2**31, 80_000)})
    one = task_of(tmp_path, [rows])
    write_checksums(one.inputs[0][0])
    (done,) = results_of(one)
    sums = Path(checksum_path(done.path)).read_bytes()
    assert int.from_bytes(sums[4:8]) == 1 << 16 < done.size_bytes // 4

    def read(column: str) -> list[Row]:
        return spark.read.parquet(done.path).agg(sf.sum(column)).collect()

    assert read("b") == [(pc.sum(rows["b"]).as_py(),)]
    # Damage the pages of the last column, then the footer.
    for at, column in ((done.size_bytes // 2 + 10_000, "b"), (done.size_bytes - 100, "a")):
        flip(Path(done.path), at)
        with pytest.raises(Exception, match="Checksum"):
            read(column)
        flip(Path(done.path), at)


@given(
    num_bytes=st.integers(0, 70_000),
    size=st.sampled_from([1, 7, 512, 4_096, 65_536]),
    at=st.floats(0, 1, exclude_max=True),
    is_read=st.booleans(),
)
def test_checksums_of_chunks_of_any_size_tell_damage(
    tmp_path_factory: pytest.TempPathFactory, num_bytes: int, size: int, at: float, is_read: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "of-chunks"
    data = random.Random(num_bytes).randbytes(num_bytes)
    path.write_bytes(data)
    sums = [zlib.crc32(data[i : i + size]) for i in range(0, num_bytes, size)]
    known = struct.pack(f">4sI{len(sums)}I", b"crc\0", size, *sums)
    Path(checksum_path(str(path))).write_bytes(known)
    check_file(str(path), data if is_read else None)
    wrong = bytearray(known[8:] or b"\0\0\0\0")
    wrong[int(at * len(wrong))] ^= 16
    Path(checksum_path(str(path))).write_bytes(known[:8] + wrong)
    with pytest.raises(OSError, match="differs from its checksums"):
        check_file(str(path), data if is_read else None)
