"""Tables whose logs have every kind of path: the files that Delta reads are compacted, no others."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import CompactionKitError, UnsupportedTableError
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.paths import canonical_paths, places
from compaction_kit.storage import open_store
from tests import deltas_view, handmade
from tests.chance import nightly
from tests.folders import listing
from tests.rows import texts

# Paths of file {n}: in the partition folder {f} of table t, or in the folder o beside it; {b} holds both.
FORMS = [
    *("{f}{n}", "{b}/t/{f}{n}", "file:{b}/t/{f}{n}", "file:{b}/link/{f}{n}", "{f}%66{n}", "{f}a%2525{n}"),
    *("../o/{n}", "{b}/o/{n}", "file:{b}/o/{n}", "sub/{n}", "_hidden/{n}", "o%2F..%2F..%2Fo%2F{n}"),
]


class World:
    """A table t that is yet to be written, beside a folder o and a link to the table."""

    def __init__(self, base: Path, partitioned: bool = False):
        self.base, self.table, self.partitioned = base, base / "t", partitioned
        self.table.mkdir()
        (base / "o").mkdir()
        (base / "link").symlink_to(self.table)

    def path(self, number: int, form: str, value: str) -> str:
        names = {"b": str(self.base), "n": f"f{number}"}
        return form.format(f=f"p={value}/" if self.partitioned else "", **names)

    def add(self, number: int, form: str, value: str = "1") -> handmade.Action:
        path = self.path(number, form, value)
        place = places(canonical_paths(pa.array([path])), open_store(str(self.table)))[0].as_py()
        partition = {"p": value} if self.partitioned else None
        action = handmade.write_data(self.table, place, pa.table({"id": [number, -number]}), partition)
        action["add"]["path"] = path
        return action

    def write(self, *commits: list[handmade.Action]) -> Path:
        columns = {"id": "long"} | ({"p": "string"} if self.partitioned else {})
        begin = [handmade.protocol(), handmade.metadata(columns, list(columns)[1:])]
        return handmade.write_log(self.table, begin, *commits)

    def outside(self) -> dict[str, tuple[int, int]]:
        found = listing(self.base)
        return {path: entry for path, entry in found.items() if not path.startswith(("t", "link"))}


def check_compaction(spark: SparkSession, world: World, strategy: str) -> None:
    """Assert that Delta and the kit agree on a table, and a compaction keeps the content and stays inside."""
    table, before, outside = open_table(world.table, spark), texts(spark, world.table), world.outside()

    def real_places(paths: pa.Array) -> set[str]:
        store = table.handle.store
        return {os.path.realpath(store.place(place)) for place in places(paths, store).to_pylist()}

    files = table.files().to_arrow()
    kits = zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True)
    assert sorted(kits) == sorted(deltas_view.live_files(spark, world.table))
    live_now = real_places(files["path"])
    # `inputFiles` of a Delta table returns paths, not encoded URIs.
    uris = spark.read.format("delta").load(str(table.path)).inputFiles()
    assert live_now == {os.path.realpath(uri.removeprefix("file:").removeprefix("//")) for uri in uris}

    if any("/link/" in commit.read_text() for commit in (table.path / LOG_FOLDER).glob("*.json")):
        with pytest.raises(UnsupportedTableError, match="leads through a symbolic link into the table's own"):
            table.plan_vacuum()
    else:
        gone = table.plan_vacuum().files["path"].to_pylist()
        going = {os.path.realpath(table.path / path) for path in gone}
        assert not going & live_now
        assert all(path.startswith(f"{table.path}/") for path in going)

    assert table.plan_compaction().run(strategy=strategy).as_planned
    assert texts(spark, world.table) == before
    assert world.outside() == outside
    added = set(table.files().to_arrow()["path"].to_pylist()) - set(files["path"].to_pylist())
    new = places(pa.array(sorted(added), pa.string()), table.handle.store).to_pylist()
    assert not any(path.startswith("/") or "://" in path for path in new)
    assert all(os.path.realpath(table.path / path).startswith(f"{table.path}/") for path in new)


@pytest.mark.parametrize(
    ("strategy", "with_link"),
    [("arrow", False), *nightly(("arrow", True), ("optimize", True), ("rewrite", True))],
)
def test_paths_of_every_kind_are_read_and_compacted_as_delta_does(
    spark: SparkSession, tmp_path: Path, strategy: str, with_link: bool
) -> None:
    world = World(tmp_path, partitioned=True)
    forms = [form for form in FORMS if with_link or "/link/" not in form]
    files = [(number, form, "12"[number % 2]) for number, form in enumerate(forms)]
    # For Delta some of these paths name files that were added, and some name other files.
    removes = [handmade.remove(world.path(number, FORMS[0], value)) for number, _, value in files[::3]]
    world.write([world.add(*file) for file in files], removes)
    check_compaction(spark, world, strategy)


def test_arrow_writes_through_no_link_that_leaves_the_table(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, partitioned=True)
    (world.table / "p=1").symlink_to(tmp_path / "o")
    world.write([world.add(number, "{f}{n}") for number in range(3)])
    before = world.outside()
    assert open_table(world.table, spark).plan_compaction().run(strategy="arrow").as_planned
    assert world.outside() == before


@pytest.mark.parametrize("path", ["s3://bucket/f", "a:b"])
def test_a_file_elsewhere_is_never_taken_for_local(spark: SparkSession, tmp_path: Path, path: str) -> None:
    world = World(tmp_path)
    action = world.add(0, "{n}")
    decoy = world.table / path
    decoy.parent.mkdir(parents=True, exist_ok=True)
    decoy.write_bytes((world.table / "f0").read_bytes())
    world.write([action, handmade.add(path, action["add"]["size"])])
    before = listing(world.table)
    plan = open_table(world.table, spark).plan_compaction()
    assert plan.num_bins == 1
    with pytest.raises(CompactionKitError, match=r"^.*$"):
        plan.run(strategy="arrow")
    assert listing(world.table) == before
