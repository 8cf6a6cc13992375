"""What a manifest is that of, and what its readers get, without Spark: manifests written as GENERATE does."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from compaction_kit import interop, open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.interop import Damage, ManifestCheck
from tests import handmade
from tests.interop import manifests

ROWS = pa.table({"id": [1, 2, 3]})


def check(table: Path) -> ManifestCheck:
    return interop.check_manifest(open_table(table))


def states(found: ManifestCheck) -> dict[str, str]:
    return dict(zip(found.files["path"].to_pylist(), found.files["state"].to_pylist(), strict=True))


@pytest.fixture
def life(tmp_path: Path) -> Path:
    """A table by p with a life: a and b written (0), a appended to (1), a compacted (2), b changed (3)."""
    table = tmp_path / "table"
    columns = {"id": "long", "p": "string"}
    a, b = {"p": "a"}, {"p": "b"}
    adds = {
        path: handmade.write_data(table, path, ROWS, {"p": path[2]})
        for path in ("p=a/1", "p=b/1", "p=a/2", "p=a/12", "p=b/new")
    }
    first = [handmade.metadata(columns, ["p"]), adds["p=a/1"], adds["p=b/1"]]
    compacted = handmade.write_data(table, "p=a/12", pa.concat_tables([ROWS, ROWS]), a)
    compacted["add"]["dataChange"] = False
    gone = [handmade.remove("p=a/1"), handmade.remove("p=a/2")]
    for action in gone:
        action["remove"]["dataChange"] = False
    smaller = handmade.write_data(table, "p=b/new", ROWS.slice(0, 2), b)
    return handmade.write_log(
        table, first, [adds["p=a/2"]], [*gone, compacted], [handmade.remove("p=b/1"), smaller]
    )


@pytest.mark.parametrize(
    ("version", "damage"),
    [(0, Damage(0, 5, 3)), (1, Damage(0, 2, 3)), (2, Damage(0, 2, 3)), (3, Damage(0, 0, 0))],
)
def test_a_manifest_is_that_of_the_version_that_it_was_made_of(
    life: Path, version: int, damage: Damage
) -> None:
    manifests.write_manifest(life, version)
    found = check(life)
    assert found.version == version
    assert found.matches is found.same_rows is (version == 3)
    assert found.damage == damage
    assert f"the files of version {version}, and the table is at version 3" in found.explain() or version == 3
    assert found.by_version["num_live"].to_pylist() == [2, 3, 2, 2]
    row = found.by_version.to_pylist()[version]
    assert row["num_live"] == row["num_listed"]
    assert "<svg role=" in found._repr_html_()
    assert found.plot().get_suptitle().startswith("The manifest ")


def test_a_version_that_was_only_compacted_since_gives_the_same_rows(life: Path) -> None:
    handmade.remove_commits(life, 3)
    manifests.write_manifest(life, 1)
    found = check(life)
    assert (found.matches, found.same_rows, found.version, found.latest) == (False, True, 1, 2)
    assert states(found) == {
        "p=a/1": "listed, not live",
        "p=a/2": "listed, not live",
        "p=a/12": "live, not listed",
        "p=b/1": "listed and live",
    }
    row = next(row for row in found.files.to_pylist() if row["path"] == "p=a/1")
    assert (row["on_disk"], row["num_rows"], row["added"], row["removed"]) == (True, 3, 0, 2)
    assert "the same rows, from files that VACUUM will delete" in found.explain()
    assert found.partitions.to_pydict() == {
        "partition": ["p=a", "p=b"],
        "num_listed": [2, 1],
        "num_live": [1, 1],
        "version": [1, 2],
        "matches": [False, True],
    }


def test_partitions_of_different_versions_are_a_mixture(life: Path) -> None:
    manifests.write_manifest(life, 3, {"p=a"})
    manifests.write_manifest(life, 0, {"p=b"})
    # That is the state of version 2: a was compacted by then, b changed after it.
    assert check(life).version == 2
    manifests.write_manifest(life, 0, {"p=a"})
    manifests.write_manifest(life, 3, {"p=b"})
    found = check(life)
    assert found.version is None
    assert found.partitions["version"].to_pylist() == [0, 3]
    assert found.damage == Damage(0, 3, 0)
    assert "different versions in its partitions (versions 0, 3), and the table is" in found.explain()


def test_a_file_beside_what_it_was_compacted_to_is_read_twice(life: Path) -> None:
    manifests.write_manifest(life)
    manifests.write_lines(life, "p=a", [f"file:{life}/p=a/1", f"file:{life}/p=a/12"])
    found = check(life)
    assert (found.version, found.partitions["version"].to_pylist()) == (None, [None, 3])
    assert found.damage == Damage(3, 0, 0)
    assert found.facts()["its readers"] == "get other rows"
    assert found.facts()["rows read twice"] == "3"
    assert "no version in 1 partition" in found.explain()


def test_a_partition_without_a_manifest_is_missed_and_one_too_many_is_outdated(life: Path) -> None:
    manifests.write_manifest(life, 3, {"p=a"})
    manifests.write_lines(life, "p=c", [f"file:{life}/p=b/new"])
    found = check(life)
    assert found.partitions["num_listed"].to_pylist() == [1, 0, 1]
    assert sorted(states(found).values()) == ["listed and live", "listed, not live"]
    assert found.count("live, not listed") == 1
    assert not found.matches


def test_a_file_listed_under_another_partition_is_not_that_partitions(life: Path) -> None:
    manifests.write_manifest(life)
    both = [f"file:{life}/p=a/12", f"file:{life}/p=b/new"]
    manifests.write_lines(life, "p=a", both)
    found = check(life)
    assert (found.matches, found.version) == (False, None)
    stale = next(row for row in found.files.to_pylist() if row["state"] == "listed, not live")
    assert (stale["path"], stale["partition"]) == ("p=b/new", "p=a")


def test_a_line_that_is_repeated_is_counted(life: Path) -> None:
    manifests.write_manifest(life)
    manifests.write_lines(life, "p=b", [f"file:{life}/p=b/new"] * 2)
    found = check(life)
    assert (found.matches, found.num_repeated) == (False, 1)
    assert found.facts()["listed twice"] == "1 file"


def test_files_that_are_gone_make_readers_fail(life: Path) -> None:
    manifests.write_manifest(life, 1)
    (life / "p=a/1").unlink()
    found = check(life)
    assert found.num_gone == 1
    assert not found.same_rows
    assert found.facts()["listed, missing on disk"] == "1 file"
    assert "fail" in found.facts()["its readers"]


def test_a_moved_table_has_a_manifest_of_the_old_place(life: Path, tmp_path: Path) -> None:
    manifests.write_manifest(life)
    moved = Path(shutil.copytree(life, tmp_path / "moved"))
    found = check(moved)
    assert len(found.elsewhere) == 2
    assert f"such as {life}/p=a/12" in found.facts()["listed in another folder"]
    shutil.rmtree(life)
    assert check(moved).num_gone == 2


def test_other_ways_to_write_a_file_uri_are_the_same_file(life: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(life)
    manifests.write_lines(life, "p=a", [f"file:{tmp_path}/link/p=a/12"])
    manifests.write_lines(life, "p=b", [f"{life}/p=b/new"])
    assert check(life).matches
    for prefix in ("file://", "", "file:"):
        manifests.write_lines(life, "p=a", [f"{prefix}{life}/p=a/12"])
        manifests.write_lines(life, "p=b", [f"{prefix}{life}/p=b/new"])
        assert check(life).matches


def test_rows_deleted_by_a_vector_come_back(tmp_path: Path) -> None:
    add = handmade.write_data(tmp_path, "one", ROWS)
    vector = {"add": add["add"] | {"deletionVector": handmade.inline_vector([0])}}
    features = handmade.protocol(features=["deletionVectors"])
    handmade.write_log(tmp_path, [features, add], [vector, handmade.remove("one")])
    manifests.write_manifest(tmp_path, 0)
    found = check(tmp_path)
    assert states(found) == {"one": "listed, live with rows deleted"}
    assert (found.matches, found.version, found.damage) == (False, 0, Damage(0, 0, 1))
    assert "Delta refuses to generate a manifest: the table has deletion vectors" in found.explain()


def test_a_file_that_was_live_twice_counts_once(tmp_path: Path) -> None:
    one, two = (handmade.write_data(tmp_path, name, ROWS) for name in ("one", "two"))
    handmade.write_log(
        tmp_path,
        [one],
        [handmade.remove("one"), two],
        [one, handmade.remove("two")],
        [handmade.remove("one")],
    )
    manifests.write_manifest(tmp_path, 0)
    found = check(tmp_path)
    assert (found.version, found.damage) == (2, Damage(0, 0, 3))
    (row,) = found.files.to_pylist()
    assert (row["added"], row["removed"]) == (0, 3)


def test_a_manifest_older_than_the_log_is_of_no_version_that_it_tells_of(life: Path) -> None:
    manifests.write_manifest(life, 0)
    manifests.write_lines(life, "p=b", [f"file:{life}/p=b/before"])
    found = check(life)
    assert found.version is None
    assert "no version in 1 partition" in found.explain()


def test_a_table_of_no_files_has_a_manifest_of_no_lines(tmp_path: Path) -> None:
    handmade.write_log(tmp_path, [])
    manifests.write_lines(tmp_path, "", [])
    assert check(tmp_path).matches


def test_without_a_manifest_one_sentence_says_how_to_get_one(life: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"generate one with interop.generate_manifest\(table\)\.$"
    ):
        check(life)
    mapped = handmade.metadata(configuration={"delta.columnMapping.mode": "name"})
    other = handmade.write_log(tmp_path / "mapped", [handmade.protocol(2, 5), mapped, handmade.add("x")])
    with pytest.raises(InvalidArgumentError, match="refuses to generate one: the table has column mapping"):
        check(other)
