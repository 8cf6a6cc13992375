import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.retention import GUARD
from compaction_kit.vacuum.cost import spent_versions
from tests import folders, handmade
from tests.ageing import age, age_file
from tests.history.random_histories import probe
from tests.releases import since_delta
from tests.vacuum.vacuums import content, drop_file, listed

CopyOf = Callable[[Path], Path]


@pytest.mark.spark
def test_the_preview_is_what_vacuum_would_delete_and_what_a_run_deletes_and_costs(
    spark: SparkSession, copy_of: CopyOf, lived: Path, confs: Callable[[str, str], None]
) -> None:
    table = copy_of(lived)
    age(table, 10)
    drop_file(table, "orphan.parquet", 10)
    drop_file(table, "p=1/orphan with space%20.parquet", 10)
    drop_file(table, "p=1/young orphan.parquet", 1)
    drop_file(table, "_hidden/old.parquet", 10)
    drop_file(table, ".also_hidden", 10)
    drop_file(table, "p=1/_temporary/old", 10)
    drop_file(table, "_change_data/cdc.parquet", 10)
    before = folders.listing(table)
    plan = open_table(table).plan_vacuum()
    found = {row["path"]: row for row in plan.files.to_pylist()}
    assert set(found) == {path for path in listed(spark, table) if (table / path).is_file()}
    assert folders.listing(table) == before
    orphans = {path for path, row in found.items() if row["reason"] == "orphan"}
    assert orphans == {"orphan.parquet", "p=1/orphan with space%20.parquet", "_change_data/cdc.parquet"}
    assert any(path.startswith("deletion_vector_") for path in set(found) - orphans)
    assert plan.size_bytes == sum((table / path).stat().st_size for path in found)
    assert plan.num_files == len(found)
    # What it costs is what Delta can't read after it.
    confs(GUARD, "false")
    plan, there = open_table(table, spark).plan_vacuum(keep_versions=[2]), content(table)
    assert orphans < set(plan.files["path"].to_pylist()) < set(found)
    result = plan.run()
    assert there - content(table) == set(plan.files["path"].to_pylist()) | set(result.directories)
    assert plan.versions_lost == result.versions_lost == [1]
    readable = {version: probe(spark, table, version) for version in (0, 1, 2)}
    assert readable == {0: "yes", 1: "missing files", 2: "yes"}
    assert result.as_planned


def old_table(folder: Path, **configuration: str) -> Path:
    """Written 10 days ago (a, b), rewritten 5 days ago (c), with all the files on disk."""
    now = int(time.time() * 1000)
    day = 86_400_000
    properties = {name.replace("__", "."): value for name, value in configuration.items()}
    handmade.write_log(
        folder,
        [handmade.metadata(configuration=properties), handmade.add("a"), handmade.add("b")],
        [handmade.remove("a", now - 5 * day), handmade.remove("b", None), handmade.add("c")],
    )
    for version, days in ((0, 10), (1, 5)):
        age_file(handmade.commit_path(folder, version), days)
    for name, days in (("a", 10), ("b", 10), ("c", 5)):
        drop_file(folder, name, days)
    return folder


def test_a_tombstone_goes_when_it_is_older_than_the_retention(tmp_path: Path) -> None:
    table = open_table(old_table(tmp_path))
    # b's tombstone has no time, which counts as 1970.
    assert table.plan_vacuum().files["path"].to_pylist() == ["b"]
    assert table.plan_vacuum(retention="20 days").num_files == 0
    later = table.plan_vacuum(at=datetime.now(UTC) + timedelta(days=2, hours=1))
    assert later.files["path"].to_pylist() == ["a", "b"]
    assert later.files["reason"].to_pylist() == ["tombstone", "tombstone"]
    assert later.size_bytes == 2


@pytest.mark.parametrize(
    ("configured", "gone"), [("interval 4 days", ["a", "b"]), ("interval 144 hours", ["b"])]
)
def test_the_tables_property_sets_the_retention(tmp_path: Path, configured: str, gone: list[str]) -> None:
    table = old_table(tmp_path, delta__deletedFileRetentionDuration=configured)
    assert open_table(table).plan_vacuum().files["path"].to_pylist() == gone


@since_delta("4.1")
def test_versions_that_are_refused_anyway_are_not_called_lost(tmp_path: Path) -> None:
    plan = open_table(old_table(tmp_path)).plan_vacuum()
    assert plan.versions_lost == []
    assert "No version that can be read now would be lost." in plan.explain()


def test_versions_whose_files_are_gone_are_not_lost_again(tmp_path: Path) -> None:
    table = old_table(tmp_path)
    age_file(handmade.commit_path(table, 0), -9)
    at = datetime.now(UTC) + timedelta(days=30)
    assert open_table(table).plan_vacuum(at=at).versions_lost == [0]
    (table / "a").unlink()
    assert open_table(table).plan_vacuum(at=at).versions_lost == []


def test_nothing_to_delete_is_said(changed: Path) -> None:
    plan = open_table(changed).plan_vacuum()
    assert (plan.num_files, plan.size_bytes, plan.versions_lost) == (0, 0, [])
    assert re.fullmatch(
        r"VACUUM on \S+ \S+[+-]\d\d:\d\d would delete nothing: .* less than 168 hours before are kept\.",
        plan.explain(),
    )


@pytest.mark.parametrize(
    ("retention", "hours"),
    [
        ("168 hours", 168),
        ("7 days", 168),
        ("1 week", 168),
        ("INTERVAL 2 weeks", 336),
        ("10080 minutes", 168),
        ("interval 6 days 25 hours", 169),
    ],
)
def test_a_retention_is_read_in_words(tmp_path: Path, retention: str, hours: float) -> None:
    plan = open_table(old_table(tmp_path)).plan_vacuum(retention=retention)
    assert plan.retention == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        ("soon", "is not a length of time"),
        ("", "is not a length of time"),
        ("-7 days", "is not a length of time"),
        ("3 fortnights", "is not a length of time"),
        ("8 days 3 fortnights", "is not a length of time"),
        ("8", "is not a length of time"),
        ("6 days", "is shorter than the 168 hours"),
        ("0 hours", "is shorter than the 168 hours"),
    ],
)
def test_a_retention_that_can_not_be_used_is_refused_in_one_sentence(
    tmp_path: Path, retention: str, words: str
) -> None:
    table = old_table(tmp_path)
    before = folders.listing(table)
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        open_table(table).plan_vacuum(retention=retention)
    assert f'"{retention}"' in str(caught.value)
    assert "\n" not in str(caught.value)
    assert folders.listing(table) == before


@pytest.mark.parametrize(
    ("lost", "survives", "words"),
    [
        ([], {}, "none of 3 readable versions"),
        ([0, 1], {}, "2 of 3 readable versions"),
        ([0, 1], {1: 2}, "2 of 3 readable versions, not the content of 1,"),
        ([0, 1], {0: 2, 1: 2}, "2 of 3 readable versions, not their content,"),
        ([1], {1: 2}, "1 of 3 readable versions, not its content,"),
    ],
)
def test_what_can_be_read_under_another_number_is_not_called_lost(
    lost: list[int], survives: dict[int, int], words: str
) -> None:
    assert spent_versions(lost, survives, 3) == words
