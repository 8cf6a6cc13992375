from pathlib import Path

import pyarrow as pa
import pytest

from compaction_kit.log.paths import decode_paths, deletion_vector_file, relative_to_table

TABLE = Path("/lake/sales")


@pytest.mark.parametrize(
    ("written", "on_disk"),
    [
        ("a.parquet", "a.parquet"),
        ("p=a%20b/c.parquet", "p=a b/c.parquet"),
        # Once, and not twice: Hive escapes the folder's name, the log escapes it again.
        ("p=n%252Fm/c.parquet", "p=n%2Fm/c.parquet"),
        ("p=%C3%BC/c.parquet", "p=ü/c.parquet"),
        ("p=1+1/c.parquet", "p=1+1/c.parquet"),
    ],
)
def test_paths_are_decoded_once(written: str, on_disk: str) -> None:
    paths = pa.chunked_array([[written], ["plain.parquet", written]])
    assert decode_paths(paths).to_pylist() == [on_disk, "plain.parquet", on_disk]


def test_no_paths_decode_to_none() -> None:
    assert decode_paths(pa.chunked_array([[]], pa.string())).to_pylist() == []


@pytest.mark.parametrize(
    ("path", "relative"),
    [
        ("p=1/a.parquet", "p=1/a.parquet"),
        ("/lake/sales/p=1/a.parquet", "p=1/a.parquet"),
        ("file:/lake/sales/a.parquet", "a.parquet"),
        ("file:///lake/sales/a.parquet", "a.parquet"),
        ("/lake/sales2/a.parquet", "/lake/sales2/a.parquet"),
        ("file:///lake/other/a.parquet", "/lake/other/a.parquet"),
    ],
)
def test_absolute_paths_in_the_table_become_relative(path: str, relative: str) -> None:
    assert relative_to_table(path, TABLE) == relative


@pytest.mark.parametrize(
    ("vector_id", "file"),
    [
        # The examples of PROTOCOL.md, "Deletion Vector Descriptor Schema".
        ("uab^-aqEH.-t@S}K{vb[*k^@4", "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
        (
            "p/lake/sales/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin@4",
            "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        ),
        ("i0rJua", None),
        (None, None),
        ("u^-aqEH.-t@S}K{vb[*k^@1", "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
        ("u^-aqEH.-t@S}K{vb[*k^", "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
        ("p/elsewhere/a@b.bin@12", "/elsewhere/a@b.bin"),
    ],
)
def test_a_deletion_vectors_id_gives_its_file(vector_id: str | None, file: str | None) -> None:
    assert deletion_vector_file(vector_id, TABLE) == file
