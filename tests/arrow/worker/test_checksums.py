"""Damage of data files is found by what checksums there are, and never goes into a new file."""

import random
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit.arrow.worker import shares
from compaction_kit.arrow.worker.checksums import check_file, checksum_path, write_checksums
from compaction_kit.arrow.worker.footer import read_footer
from tests.arrow.worker.test_shares import results_of, share_of

TABLES = [pa.table({"a": range(i, i + 20_000)}) for i in (0, 50_000)]
PLAIN = {"compression": "none", "use_dictionary": False}


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


@pytest.fixture(params=["copied", "decoded"])
def is_copied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "copied":
        monkeypatch.setattr(shares, "WHOLE_BYTES", 1_000)
    return bool(request.param == "copied")


@pytest.mark.parametrize("of_hadoop", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_a_flipped_bit_is_a_failure(tmp_path: Path, is_copied: bool, of_hadoop: bool, number: int) -> None:
    one = share_of(tmp_path, TABLES, write_page_checksum=not of_hadoop, **PLAIN)
    paths = [Path(path) for path, _ in one.inputs]
    if of_hadoop:
        for path in paths:
            write_checksums(str(path))
    flip(paths[number], 5_000)
    (done,) = results_of(one)
    assert paths[number].name in str(done.failure)
    assert not list(tmp_path.glob("*part-*"))


def test_outputs_have_checksums_where_inputs_have(tmp_path: Path, is_copied: bool) -> None:
    one = share_of(tmp_path, TABLES, **PLAIN)
    (without,) = results_of(one)
    assert not check_file(without.path)
    for path, _ in one.inputs:
        write_checksums(path)
    (done,) = results_of(one)
    assert check_file(done.path)
    assert pq.read_table(done.path).equals(pa.concat_tables(TABLES))
    flip(Path(done.path), done.size_bytes - 1)
    with pytest.raises(OSError, match=r"part-.* differs from its checksums in .*\.crc"):
        check_file(done.path)


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
    assert check_file(str(path), data if is_read else None)
    wrong = bytearray(known[8:] or b"\0\0\0\0")
    wrong[int(at * len(wrong))] ^= 16
    Path(checksum_path(str(path))).write_bytes(known[:8] + wrong)
    with pytest.raises(OSError, match="differs from its checksums"):
        check_file(str(path), data if is_read else None)


def test_damaged_checksums_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 2_000_000)
    write_checksums(str(path))
    assert check_file(str(path))
    assert check_file(str(path), path.read_bytes())
    for damaged in (
        b"",
        b"crc\0\0\0\0\0",
        b"crd\0\0\0\2\0",
        Path(checksum_path(str(path))).read_bytes()[:-4],
    ):
        Path(checksum_path(str(path))).write_bytes(damaged)
        with pytest.raises(OSError, match="differs from its checksums"):
            check_file(str(path))


def test_each_column_chunk_is_where_its_pages_are(tmp_path: Path) -> None:
    table = pa.table({"a": range(5_000), "b": [str(i % 7) for i in range(5_000)]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=1_000)
    known = pq.read_metadata(path)
    columns = [known.row_group(i).column(j) for i in range(5) for j in range(2)]
    starts = [one.dictionary_page_offset or one.data_page_offset for one in columns]
    expected = [(s, s + one.total_compressed_size) for s, one in zip(starts, columns, strict=True)]
    assert [chunk for group in read_footer(str(path)).row_groups for chunk in group.chunks] == expected
