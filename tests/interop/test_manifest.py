"""Which version's files a manifest lists, and what its readers get; written by GENERATE or by the tests."""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import SparkSession

from compaction_kit import interop, open_table
from compaction_kit.compat import create_frame
from compaction_kit.errors import (
    CorruptLogError,
    InvalidArgumentError,
    ReadOnlyTableError,
    RunFailedError,
    UnsupportedTableError,
)
from compaction_kit.interop import ManifestCheck
from compaction_kit.sql import table_name
from tests import folders, handmade
from tests.interop import manifests
from tests.refusals import refused

ROWS = pa.table({"id": [1, 2, 3]})
ODD = ["a b", "x:y", "ü", "a%20b", "[#?]{y}", None]


def check(table: Path) -> ManifestCheck:
    return interop.check_manifest(table)


def states(found: ManifestCheck) -> dict[str, str]:
    return dict(zip(found.files["path"].to_pylist(), found.files["state"].to_pylist(), strict=True))


@pytest.fixture
def life(tmp_path: Path) -> Path:
    """A table partitioned by p: version 0 writes a and b, 1 appends to a, 2 compacts a, 3 changes b."""
    table = tmp_path / "table"
    adds = {
        path: handmade.write_data(table, path, ROWS, {"p": path[2]})
        for path in ("p=a/1", "p=b/1", "p=a/2", "p=a/12", "p=b/new")
    }
    first = [handmade.metadata({"id": "long", "p": "string"}, ["p"]), adds["p=a/1"], adds["p=b/1"]]
    gone = [handmade.remove("p=a/1"), handmade.remove("p=a/2")]
    changed = [handmade.remove("p=b/1"), adds["p=b/new"]]
    return handmade.write_log(table, first, [adds["p=a/2"]], [*gone, adds["p=a/12"]], changed)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_manifest_lists_the_files_of_the_version_it_was_generated_at(life: Path, version: int) -> None:
    manifests.write_manifest(life, version)
    found = check(life)
    assert (found.version, found.latest, found.num_gone) == (version, 3, 0)
    assert found.matches is (version == 3)
    assert f"version {version}" in found.facts()["manifest"]
    assert found.by_version["num_live"].to_pylist() == [2, 3, 2, 2]
    row = found.by_version.to_pylist()[version]
    assert row["num_live"] == row["num_listed"]
    if version == 1:
        assert found.plot().get_suptitle().startswith("The manifest ")
        expected = dict.fromkeys(("p=a/12", "p=b/new"), "live, not listed")
        expected |= dict.fromkeys(("p=a/1", "p=a/2", "p=b/1"), "listed, not live")
        assert states(found) == expected


def test_partitions_of_different_versions_may_match_one_version_or_none(life: Path) -> None:
    manifests.write_manifest(life, 3, {"p=a"})
    manifests.write_manifest(life, 0, {"p=b"})
    # The same as version 2: a was compacted by then, b changed after it.
    assert check(life).version == 2
    manifests.write_manifest(life, 0, {"p=a"})
    manifests.write_manifest(life, 3, {"p=b"})
    found = check(life)
    assert "lists the files of no version, and the table is at version 3" in found.explain()
    assert "its readers" not in found.facts()


def test_lines_that_are_too_many_too_few_or_misplaced_dont_match(life: Path) -> None:
    manifests.write_manifest(life)
    a, b = f"file:{life}/p=a/12", f"file:{life}/p=b/new"
    for lines, version, stale, missing in (
        ([a, f"file:{life}/p=a/1"], None, 1, 0),
        ([a, a], None, 1, 0),
        ([a, b], None, 1, 0),
        ([], None, 0, 1),
    ):
        manifests.write_lines(life, "p=a", lines)
        found = check(life)
        assert (found.matches, found.version) == (False, version), lines
        assert (found.count("listed, not live"), found.count("live, not listed")) == (stale, missing), lines
    # All forms of a file's URI name the same file.
    (life.parent / "link").symlink_to(life)
    for place in (f"file://{life}", life, f"file:{life.parent}/link"):
        manifests.write_lines(life, "p=a", [f"{place}/p=a/12"])
        assert check(life).matches
    # All files of a version, each listed in the other partition.
    for partition, line in (("p=a", b), ("p=b", a)):
        manifests.write_lines(life, partition, [line])
    assert (check(life).matches, check(life).version) == (False, None)
    manifests.write_manifest(life)
    manifests.write_lines(life, "p=a", [f"file:{life}/before"])
    assert (check(life).version, check(life).num_gone) == (None, 1)


def test_files_that_are_gone_make_readers_fail(life: Path) -> None:
    manifests.write_manifest(life, 1)
    (life / "p=a/1").unlink()
    found = check(life)
    assert (found.num_gone, found.matches) == (1, False)
    assert found.facts()["its readers"] == "fail, as files are missing"
    manifests.write_manifest(life)
    (life / "p=a/12").unlink()
    assert (check(life).num_gone, check(life).matches) == (1, False)
    (life / "_symlink_format_manifest/p=a/manifest").write_bytes(b"\xff")
    refused(lambda: check(life), CorruptLogError, "p=a/manifest can't be read (")


def test_rows_deleted_by_a_vector_are_listed(tmp_path: Path) -> None:
    add = handmade.write_data(tmp_path, "one", ROWS)
    vector = {"add": add["add"] | {"deletionVector": handmade.inline_vector([0])}}
    features = handmade.protocol(features=["deletionVectors"])
    handmade.write_log(tmp_path, [features, add], [vector, handmade.remove("one")])
    manifests.write_manifest(tmp_path, 0)
    found = check(tmp_path)
    assert states(found) == {"one": "listed, live with rows deleted"}
    assert (found.matches, found.version, found.kept) == (False, 0, False)
    assert "Delta refuses to generate a manifest: the table has deletion vectors" in found.explain()


def test_a_file_that_was_live_twice_and_a_table_without_files(tmp_path: Path) -> None:
    one, two = (handmade.write_data(tmp_path / "t", name, ROWS) for name in ("one", "two"))
    gone = [handmade.remove("one"), handmade.remove("two")]
    # Delta accepts such values in upper and lower case, and writes them to the log as given.
    properties = {interop.manifest.PROPERTY: "True", "delta.columnMapping.mode": "NONE"}
    kept = handmade.metadata(configuration=properties)
    handmade.write_log(tmp_path / "t", [one], [gone[0], two], [one, gone[1]], [gone[0], kept])
    manifests.write_manifest(tmp_path / "t", 0)
    found = check(tmp_path / "t")
    assert (found.version, found.kept, found.refusal) == (2, True, None)
    manifests.write_lines(tmp_path / "t", "", [])
    assert check(tmp_path / "t").matches


def test_without_a_manifest_one_sentence_says_how_to_get_one(life: Path, tmp_path: Path) -> None:
    refused(partial(check, life), InvalidArgumentError, "generate one with interop.generate_manifest(table).")
    mapped = handmade.metadata(configuration={"delta.columnMapping.mode": "name"})
    other = handmade.write_log(tmp_path / "mapped", [handmade.protocol(2, 5), mapped, handmade.add("x")])
    refused(partial(check, other), InvalidArgumentError, "refuses to generate one: the table has column mapp")
    generate = partial(interop.generate_manifest, str(other))
    refused(generate, UnsupportedTableError, "has column mapping")
    refused(partial(interop.read_manifest, life), InvalidArgumentError, f"{life} has no symlink manifest")


def test_a_folder_without_write_permission_gets_no_manifest(life: Path) -> None:
    for folder in (life, life / interop.manifest.FOLDER):
        with folders.no_permission(life, life):
            generate = partial(interop.generate_manifest, open_table(life))
            refused(generate, ReadOnlyTableError, f"{folder} can't be written to: get write permission")
        manifests.write_manifest(life, 0)
    assert check(life).version == 0


def test_when_java_ends_the_manifest_may_be_outdated(
    spark: SparkSession, life: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise Py4JNetworkError

    monkeypatch.setattr(type(spark), "sql", end)
    generate = partial(interop.generate_manifest, open_table(life, spark))
    refused(generate, RunFailedError, "Java has ended", "the manifest may be outdated")


@pytest.mark.works("local disk", "manifests")
def test_odd_and_null_partitions_are_listed_as_delta_does(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "odd [1] table"
    # From Arrow, so that no Python worker has to start.
    frame = create_frame(spark, pa.table({"id": range(len(ODD)), "p": ODD}))
    frame.coalesce(1).write.format("delta").partitionBy("p").save(str(path))
    table = open_table(path)
    interop.generate_manifest(table)
    by_delta = manifests.read(path)
    assert check(path).matches
    # Manifests that the tests write equal Delta's.
    manifests.write_manifest(path)
    assert manifests.read(path) == by_delta


def test_a_table_with_deletion_vectors_is_refused_before_delta_fails(
    spark: SparkSession, lived: Path
) -> None:
    generate = partial(interop.generate_manifest, open_table(lived))
    refused(generate, UnsupportedTableError, "run REORG TABLE … APPLY")
    with pytest.raises(UnsupportedOperationException, match="GENERATE_WITH_DELETION_VECTORS"):
        spark.sql(f"GENERATE symlink_format_manifest FOR TABLE {table_name(spark, lived)}")
