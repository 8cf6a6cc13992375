"""Footers of Parquet files, read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from compaction_kit.arrow.worker import footer as footer_module
from compaction_kit.arrow.worker.footer import NotStitchable, read_footer
from tests.arrow.worker.parquet import read, stitched, write


def test_a_footer_tells_what_is_in_a_file(tmp_path: Path) -> None:
    table = pa.table({"i": range(100)})
    path = write(tmp_path / "part", table, row_group_size=60, compression={"i": "zstd"})
    metadata = pq.read_metadata(path)
    footer = read_footer(str(path))
    assert (footer.num_rows, footer.codecs, footer.key_values) == (100, frozenset({"ZSTD"}), {})
    assert [group.num_rows for group in footer.row_groups] == [60, 40]
    assert footer.footer_bytes == metadata.serialized_size
    sizes = [metadata.row_group(i).column(0).total_compressed_size for i in (0, 1)]
    assert [group.size_bytes for group in footer.row_groups] == sizes
    assert footer.body_end == 4 + sum(sizes)
    other = read_footer(str(write(tmp_path / "other", table.rename_columns(["j"]))))
    assert len({footer.schema, other.schema}) == 2


def test_a_footer_larger_than_what_is_read_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footer_module, "TAIL_BYTES", 100)
    table = pa.table({"i": range(1_000)})
    path = write(tmp_path / "part", table, row_group_size=100)
    assert read(stitched([path, path], tmp_path / "output")).equals(pa.concat_tables([table] * 2))


class Keys(pe.KmsClient):
    """Keys that hide nothing."""

    def __init__(self, config: Any) -> None:
        pe.KmsClient.__init__(self)

    def wrap_key(self, key: bytes, name: str) -> bytes:
        return key

    def unwrap_key(self, key: bytes, name: str) -> bytes:
        return key


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_files_are_refused(tmp_path: Path, plaintext_footer: bool) -> None:
    config = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"k": ["i"]}, plaintext_footer=plaintext_footer, double_wrapping=False
    )
    table = pa.table({"i": [1], "j": [1]})
    properties = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), config)
    with pq.ParquetWriter(tmp_path / "part", table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    with pytest.raises(NotStitchable, match="encrypted"):
        read_footer(str(tmp_path / "part"))


def test_a_footer_of_other_files_columns_is_refused(tmp_path: Path) -> None:
    metadata = pq.read_metadata(write(tmp_path / "part", pa.table({"i": [1]})))
    metadata.set_file_path("part")
    metadata.write_metadata_file(tmp_path / "_metadata")
    with pytest.raises(NotStitchable, match="in other files"):
        read_footer(str(tmp_path / "_metadata"))


def test_fields_of_a_later_format_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "part", pa.table({"i": [1]}))
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    # Field 12, after 7, the column orders: a binary of no bytes.
    path.write_bytes(data[:-9] + b"\x58\0\0" + (length + 2).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(NotStitchable, match="field 12 in its FileMetaData"):
        read_footer(str(path))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1\0\0\0\0PAR1", b"x" * 100, b"PAR1\xff\xff\xff\0PAR1"])
def test_what_is_no_parquet_file_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "part").write_bytes(data)
    with pytest.raises(OSError, match="part"):
        read_footer(str(tmp_path / "part"))
