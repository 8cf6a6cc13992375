import os
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.paths import canonical_paths, deletion_vector_file, is_remote, is_unreadable, places
from compaction_kit.storage import open_store
from tests import deltas_view, handmade

TABLE = open_store("/lake/sales")
SEGMENTS = st.sampled_from(
    ["..", ".", "", "a", "p=1", "%2e%2e", "%2E", "b%20c", "%2Fx", "n%252Fm", "ü", "%C3%BC", "a.b", "..a"]
)
BEGINNINGS = st.sampled_from(
    ["", "/", "//", "///", "file:/", "file:///", "file:/lake/sales/", "s3://b/", "./"]
)
PATHS = st.builds(
    lambda begin, folders, name: begin + "/".join([*folders, name]),
    BEGINNINGS,
    st.lists(SEGMENTS, max_size=5),
    st.sampled_from(["x.parquet", "p=%3D.parquet", "y+z.parquet", "%41.parquet"]),
)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("p=1/a.parquet", "p=1/a.parquet"),
        ("/lake/sales/p=1/a.parquet", "p=1/a.parquet"),
        ("file:/lake/sales/a.parquet", "a.parquet"),
        ("file:///lake/sales/a.parquet", "a.parquet"),
        ("/lake/sales2/a.parquet", "/lake/sales2/a.parquet"),
        ("file:///lake/other/a.parquet", "/lake/other/a.parquet"),
        ("%2Fetc%2Fa.parquet", "/etc/a.parquet"),
        ("file:/%2Fetc/a.parquet", "/etc/a.parquet"),
        ("../sales/a.parquet", "a.parquet"),
        ("/lake/other/../sales/a.parquet", "a.parquet"),
        ("p=12%253A30/a.parquet", "p=12%3A30/a.parquet"),
        ("s3://bucket/a%20b.parquet", "s3://bucket/a%20b.parquet"),
        ("hdfs:/a.parquet", "hdfs:///a.parquet"),
        ("file://localhost/lake/sales/a.parquet", "file://localhost/lake/sales/a.parquet"),
        ("//host/a.parquet", "file://host/a.parquet"),
    ],
)
def test_a_path_is_decoded_normalised_and_placed_once(path: str, place: str) -> None:
    found = places(canonical_paths(pa.array([path, "plain.parquet"])), TABLE)
    assert found.to_pylist() == [place, "plain.parquet"]
    assert is_remote(found).to_pylist() == ["://" in place, False]


def test_a_slice_of_paths_is_looked_at_and_not_what_is_around_it() -> None:
    paths = pa.array(["/lake/sales/a", "b", "c/../d", "e%20f"])
    assert canonical_paths(paths.slice(1, 2)).to_pylist() == ["b", "d"]
    assert places(paths.slice(3, 1), TABLE).to_pylist() == ["e f"]
    assert places(paths.slice(1, 1), TABLE).to_pylist() == ["b"]


@pytest.mark.spark
def test_delta_knows_the_same_paths_and_places(spark: SparkSession, tmp_path: Path) -> None:
    table = handmade.write_log(tmp_path / "t", [])
    canonical = deltas_view.canonical_path(spark, table)
    absolute = deltas_view._jvm(spark).util.DeltaFileOperations.absolutePath

    @given(st.lists(PATHS, max_size=8))
    def check(paths: list[str]) -> None:
        known = canonical_paths(pa.array(paths, pa.string()))
        found = places(known, TABLE).to_pylist()
        assert not any(is_unreadable(known).to_pylist())
        for path, one, place in zip(paths, known.to_pylist(), found, strict=True):
            assert one == canonical(path)
            there = absolute(TABLE.root, one).toUri()
            if there.getAuthority() or there.getScheme() not in (None, "file"):
                assert "://" in place
            else:
                assert os.path.join(TABLE.root, place) == os.path.normpath(f"/{there.getPath().lstrip('/')}")

    check()


@pytest.mark.spark
def test_paths_that_delta_cannot_read_are_told(spark: SparkSession, tmp_path: Path) -> None:
    canonical = deltas_view.canonical_path(spark, handmade.write_log(tmp_path / "t", []))
    no_uris = ["a b", "a%zz", "a%2", "a%", "a:b", "p=12:30/a", "a|b", "a[b", 'a"', "p/a^b", "a\\b"]
    for path in no_uris:
        with pytest.raises(Py4JJavaError):
            canonical(path)
    no_names = ["a?b", "a#b", "p/a%3Ab", "./a:b"]
    told = is_unreadable(canonical_paths(pa.array([*no_uris, *no_names]))).to_pylist()
    assert all(told)
    assert not any(is_unreadable(pa.array(["p=12%253A30/a", "p=12%3A30/a", "file:///a/b", "ü"])).to_pylist())
    for number, path in enumerate(no_names):
        table = tmp_path / f"table {number}"
        handmade.write_data(table, unquote(path).removeprefix("./"), pa.table({"id": [1]}))
        handmade.write_log(table, [handmade.add(path)])
        with pytest.raises((PySparkException, Py4JJavaError)):
            spark.read.format("delta").load(str(table)).collect()


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
        ("uhX)I}ub5U/OV:/D{8[@3", "deletion_vector_37162038-5dbf-40e7-9daf-32a7f6208214.bin"),
        ("uabhX)I}ub5U/OV:/D{8[@3@7", "ab/deletion_vector_37162038-5dbf-40e7-9daf-32a7f6208214.bin"),
        ("p/elsewhere/a@b.bin@12", "/elsewhere/a@b.bin"),
        ("pfile:///elsewhere/../lake/sales/a%20b.bin", "a b.bin"),
    ],
)
def test_a_deletion_vectors_id_gives_its_file(vector_id: str | None, file: str | None) -> None:
    assert deletion_vector_file(vector_id, TABLE) == file


@pytest.mark.parametrize("vector_id", ["u", "uvb[*k^@4", "uab^-aqEH.-t@S}K{vb[*k\n", "u" + "ü" * 20])
def test_a_deletion_vectors_id_that_is_none_is_refused(vector_id: str) -> None:
    with pytest.raises(CorruptLogError, match=r"^The deletion vector \"u.* has no valid UUID: .*\.$"):
        deletion_vector_file(vector_id, TABLE)
