import os
from functools import partial
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
from tests.chance import nightly
from tests.refusals import refused

TABLE = open_store("/lake/sales")
VECTOR = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
SEGMENTS = st.sampled_from(["a", "lake", "sales", "b%20c", "n%252Fm", "ü", "..a"])
BEGINNINGS = st.sampled_from(
    ["", "/", "file:/", "file:///", "file:/lake/sales/", "file://localhost/", "s3://b/", "hdfs:/"]
)
PATHS = st.builds(
    lambda begin, folders, name: begin + "/".join([*folders, name]),
    BEGINNINGS,
    st.lists(SEGMENTS, max_size=5),
    st.sampled_from(["x.parquet", "p=%3D.parquet", "y+z.parquet"]),
)


def test_a_slice_of_paths_is_looked_at_and_not_what_is_around_it() -> None:
    paths = pa.array(["/lake/sales/a", "b", "/c/d", "e%20f"])
    assert canonical_paths(paths.slice(1, 2)).to_pylist() == ["b", "file:///c/d"]
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
        found = places(known, TABLE)
        assert not any(is_unreadable(known).to_pylist())
        columns = (known.to_pylist(), found.to_pylist(), is_remote(found).to_pylist())
        for path, one, place, remote in zip(paths, *columns, strict=True):
            assert one == canonical(path)
            there = absolute(TABLE.root, one).toUri()
            assert remote == ("://" in place)
            assert remote == bool(there.getAuthority() or there.getScheme() not in (None, "file"))
            if not remote:
                assert not place.startswith(f"{TABLE.root}/")
                assert os.path.join(TABLE.root, place) == os.path.normpath(f"/{there.getPath().lstrip('/')}")

    check()


@pytest.mark.spark
def test_paths_that_delta_cannot_read_are_told(spark: SparkSession, tmp_path: Path) -> None:
    canonical = deltas_view.canonical_path(spark, handmade.write_log(tmp_path / "t", []))
    no_uris = ["a b", "a%zz", "a%2", "a%", "a:b", "p=12:30/a", "a|b", "a[b", 'a"', "p/a^b", "a\\b"]
    for path in no_uris:
        with pytest.raises(Py4JJavaError):
            canonical(path)
    assert all(is_unreadable(canonical_paths(pa.array(no_uris))).to_pylist())
    assert not any(is_unreadable(pa.array(["p=12%253A30/a", "p=12%3A30/a", "file:///a/b", "ü"])).to_pylist())


@pytest.mark.spark
@pytest.mark.parametrize("path", ["a?b", *nightly("a#b", "p/a%3Ab", "./a:b")])
def test_a_path_whose_file_spark_cannot_read_is_told(spark: SparkSession, tmp_path: Path, path: str) -> None:
    assert is_unreadable(canonical_paths(pa.array([path]))).to_pylist() == [True]
    handmade.write_data(tmp_path, unquote(path).removeprefix("./"), pa.table({"id": [1]}))
    handmade.write_log(tmp_path, [handmade.add(path)])
    with pytest.raises((PySparkException, Py4JJavaError)):
        spark.read.format("delta").load(str(tmp_path)).collect()


@pytest.mark.parametrize(
    ("vector_id", "file"),
    [
        # The examples of PROTOCOL.md, "Deletion Vector Descriptor Schema".
        ("uab^-aqEH.-t@S}K{vb[*k^@4", f"ab/{VECTOR}"),
        (f"p/lake/sales/{VECTOR}@4", VECTOR),
        ("i0rJua", None),
        (None, None),
        ("u^-aqEH.-t@S}K{vb[*k^", VECTOR),
        ("uabhX)I}ub5U/OV:/D{8[@3@7", "ab/deletion_vector_37162038-5dbf-40e7-9daf-32a7f6208214.bin"),
        ("p/elsewhere/a@b.bin@12", "/elsewhere/a@b.bin"),
        ("pfile:///elsewhere/../lake/sales/a%20b.bin", "a b.bin"),
    ],
)
def test_a_deletion_vectors_id_gives_its_file(vector_id: str | None, file: str | None) -> None:
    assert deletion_vector_file(vector_id, TABLE) == file


@pytest.mark.parametrize("vector_id", ["u", "uvb[*k^@4", "uab^-aqEH.-t@S}K{vb[*k\n", "u" + "ü" * 20])
def test_a_deletion_vectors_id_that_is_none_is_refused(vector_id: str) -> None:
    refused(partial(deletion_vector_file, vector_id, TABLE), CorruptLogError, "has no valid UUID: ")
