"""Which files a vacuum deletes or keeps and why, and which versions are lost."""

import os
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError
from compaction_kit.retention import GUARD, LOG_PROPERTY, PROPERTY
from tests import deltas_view, folders, handmade, stores
from tests.ageing import age, age_file
from tests.conftest import CopyOf, SetConf
from tests.handmade import add, metadata, unchanged
from tests.refusals import refused
from tests.releases import HAS_GUARD, since_delta
from tests.vacuum.conftest import Aged, content, drop_file, listed, probe, removed


def test_the_preview_is_what_vacuum_would_delete_and_what_a_run_deletes_and_costs(
    spark: SparkSession, copy_of: CopyOf, lived: Path, confs: SetConf
) -> None:
    table = copy_of(lived)
    age(table, 10)
    orphans = {"orphan.parquet", "p=1/orphan with space%20.parquet"}
    hidden = ("_hidden/old.parquet", ".also_hidden", "p=1/_temporary/old")
    for path in (*orphans, *hidden, "_change_data/cdc.parquet"):
        drop_file(table, path, 10)
    drop_file(table, "p=1/young orphan.parquet", 1)
    before = folders.listing(table)
    plan = open_table(table).plan_vacuum()
    found = {row["path"]: row["reason"] for row in plan.files.to_pylist()}
    assert set(found) == {path for path in listed(spark, table) if (table / path).is_file()}
    assert folders.listing(table) == before
    assert {path for path, reason in found.items() if reason == "orphan"} == orphans
    assert found["_change_data/cdc.parquet"] == "change data"
    assert any(path.startswith("deletion_vector_") for path in set(found) - orphans)
    assert plan.size_bytes == sum((table / path).stat().st_size for path in found)
    # The versions lost are those that Delta can't read afterwards.
    confs(GUARD, "false")
    plan, there = open_table(table, spark).plan_vacuum(keep_versions=[2]), content(table)
    assert orphans < set(plan.files["path"].to_pylist()) < set(found)
    result = plan.run()
    assert there - content(table) == set(plan.files["path"].to_pylist()) | set(result.directories)
    assert plan.versions_lost == result.versions_lost == [1]
    readable = {version: probe(spark, table, version) for version in (0, 1, 2)}
    assert readable == {0: "yes", 1: "missing files", 2: "yes"}
    assert result.as_planned


def three_versions(aged: Aged) -> Path:
    """p/a was replaced by b 9 days ago, and b by c 8 days ago; both are older. Version 2 is from today."""
    table = aged(
        (20, [add("p/a"), add("stays")]),
        (1, [removed("p/a", 9), add("b")]),
        (0, [removed("b", 8), add("c")]),
    )
    age_file(table / "b", 19)
    return table


def rows(table: Any) -> dict[str, tuple[Any, ...]]:
    return {first: tuple(rest) for first, *rest in (row.values() for row in table.to_pylist())}


def test_each_file_has_its_reason_and_what_stays_has_another(aged: Aged) -> None:
    table = three_versions(aged)
    # Tombstones of a file that no version has, and without a time, for which the commit's time is shown.
    handmade.write_commit(table, 3, [removed("unknown", 9), handmade.remove("stays", None)])
    for path in ("orphan", "unknown"):
        drop_file(table, path, 30)
    plan = open_table(table).plan_vacuum()
    now = datetime.now(UTC)
    found = {
        path: (reason, since, removed_at and (now - removed_at).days)
        for path, (_, reason, since, removed_at, _) in rows(plan.files).items()
    }
    assert found == {
        "orphan": ("orphan", None, None),
        "p/a": ("tombstone", 1, 9),
        "b": ("tombstone", 2, 8),
        "unknown": ("tombstone", None, 9),
        "stays": ("tombstone", 3, 0),
    }
    assert (now - plan.files["modification_time"][1].as_py()).days == 30
    assert rows(plan.storage) == {"live": (1, 1), "tombstoned": (4, 0), "orphaned": (1, 0)}
    table = aged((9, [add("old"), add("live")]), (5, [removed("old", 5), add("new")]), folder=table / "o")
    for path, days in (("young orphan", 1), ("a:b", 30), ("_hidden/secret", 30)):
        drop_file(table, path, days)
    assert rows(open_table(table).plan_vacuum().kept) == {
        "live": (2, 2),
        "removed within the retention": (1, 1),
        "written within the retention": (1, 1),
        "a colon in its name": (1, 1),
    }
    # A deletion vector that only a tombstone names.
    (vector,) = handmade.stored_vectors(table, [(b"", 1)])
    age_file(min(table.glob("deletion_vector_*")), 30)
    handmade.write_commit(table, 2, [handmade.remove("unknown", int(now.timestamp() * 1000), vector)])
    assert rows(open_table(table).plan_vacuum().kept)["removed within the retention"][0] == 2
    # Vectors of live files are kept, and are counted apart from the live bytes.
    handmade.write_commit(table, 3, [handmade.remove("new"), add("new", vector=vector)])
    plan = open_table(table).plan_vacuum()
    (number, size), stored = rows(plan.kept)["deletion vectors"], rows(plan.storage)
    assert (number, stored["deletion vectors"], stored["live"]) == (1, (size, size), (2, 2))


def test_live_files_that_a_plain_vacuum_deletes_are_kept_with_a_word(spark: SparkSession, aged: Aged) -> None:
    """Any character may be percent-encoded (RFC 2396), and Delta compares paths as Java encodes them."""
    names = ["a%20b", "d/é", "%C3%A9", "p%3D1/a", "./dot", "x/../up", "%62"]
    table = aged((30, [add(name) for name in names]))
    vector = {"storageType": "p", "pathOrInlineDv": f"file:{table}/v.bin", "offset": 1, "sizeInBytes": 3}
    drop_file(table, "v.bin", 30)
    handmade.write_commit(table, 1, [handmade.remove("d/é"), add("d/é", vector=vector | {"cardinality": 1})])
    for path in table.rglob("*"):
        if path.is_file() and "_delta_log" not in path.parts:
            age_file(path, 30)
    plan = open_table(table).plan_vacuum()
    at_risk = {path for path in listed(spark, table) if (table / path).is_file()}
    assert at_risk == {"é", "p=1/a", "b", "v.bin"}
    assert plan.num_files == 0
    assert rows(plan.kept)["live, but a plain VACUUM deletes it"][0] == len(at_risk)


def test_a_tombstone_goes_when_it_is_older_than_the_retention(aged: Aged) -> None:
    def gone(property_: str = "interval 1 week", **arguments: Any) -> list[str]:
        head = metadata(configuration={"delta.deletedFileRetentionDuration": property_})
        # b's tombstone has no time, which counts as 1970.
        late = [removed("a", 5), handmade.remove("b", None), add("c")]
        table = aged((10, [head, add("a"), add("b")]), (5, late))
        return open_table(table).plan_vacuum(**arguments).files["path"].to_pylist()

    assert gone() == gone("interval 144 hours") == ["b"]
    assert gone(retention="20 days") == []
    assert gone(at=datetime.now(UTC) + timedelta(days=2, hours=1)) == gone("interval 4 days") == ["a", "b"]


def test_a_longer_retention_counts_where_a_checkpoint_has_dropped_tombstones(
    spark: SparkSession, aged: Aged
) -> None:
    table = three_versions(aged)
    deltas_view.checkpoint(spark, table)
    plan = open_table(table).plan_vacuum
    assert open_table(table).log.snapshot().removes.num_rows == 0
    assert set(plan().files["path"].to_pylist()) == listed(spark, table) - {"p"} == {"p/a", "b"}
    longer = plan(retention="205 hours")
    assert longer.files["path"].to_pylist() == ["p/a"]
    assert rows(longer.kept)["removed within the retention"] == (1, 1)
    # After a cleanup of the log, the earliest version that can be read is that of the checkpoint.
    for lost, kept_for, gone in ((0, "10 days", []), (1, "205 hours", ["p/a"])):
        handmade.remove_commits(table, lost)
        longer = plan(retention=kept_for)
        assert longer.files["path"].to_pylist() == gone
    assert "205 hours before are kept, as far as the log has their removal." in longer.explain()


def test_a_file_written_as_the_retention_begins_stays(aged: Aged) -> None:
    table = aged((9, [add("live"), add("old")]))
    drop_file(table, "orphan", 1)
    written = int((table / "orphan").stat().st_mtime)
    handmade.write_commit(table, 1, [handmade.remove("old", written * 1000)])
    os.utime(table / "orphan", (written, written))
    at = datetime.fromtimestamp(written, UTC) + timedelta(days=7)
    for later, gone in ((0, []), (1, ["old", "orphan"])):
        plan = open_table(table).plan_vacuum(at=at + timedelta(milliseconds=later))
        assert plan.files["path"].to_pylist() == gone


def test_a_commit_meanwhile_breaks_no_plan(aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(three_versions(aged))
    read = table.log.commits

    def read_late() -> Any:
        handmade.write_commit(table.path, 3, [add("late")])
        return read()

    monkeypatch.setattr(table.log, "commits", read_late)
    assert table.plan_vacuum().version == 2


def test_a_folder_goes_if_it_is_empty(aged: Aged) -> None:
    first = [add(path) for path in ("p=1/live", "lost/live", "late/old", "gone/old")]
    table = aged((9, first), (9, [removed("late/old", 6), removed("gone/old", 9)]))
    for path in ("lost/live", "late/old", "gone/old"):
        (table / path).unlink()
    for path in ("empty", "outer/inner", "_hidden"):
        (table / path).mkdir(parents=True)
    for path, days in (("young/file", 1), ("secretive/.file", 30), ("old/file", 30)):
        drop_file(table, path, days)
    plan = open_table(table).plan_vacuum()
    assert plan.empty_directories == ("empty", "gone", "outer/inner")
    assert ", and 3 empty folders; files removed" in plan.explain()
    for path in plan.files["path"].to_pylist():
        (table / path).unlink()
        drop_file(table, f"{path}-2", 1)
    explained = open_table(table).plan_vacuum().explain()
    assert "would delete 3 empty folders; files" in explained
    assert "may need these files" not in explained


@pytest.mark.parametrize("cleans", ["true", "false"])
def test_a_kept_version_whose_commit_has_expired_is_named(aged: Aged, cleans: str) -> None:
    properties = {LOG_PROPERTY: "interval 10 days", "delta.enableExpiredLogCleanup": cleans}
    head = metadata(configuration=properties)
    table = aged((20, [head, add("a")]), (13, [removed("a", 9), add("b")]), (8, [removed("b", 8), add("c")]))
    for keep, words in (([0, 1], "0 to 1"), ([2], "")):
        at = datetime.now(timezone(timedelta(hours=2)))
        plan = open_table(table).plan_vacuum(keep_versions=keep, at=at)
        assert ("older than delta.log" in plan.explain()) == bool(words and cleans == "true")
        assert cleans == "false" or words in plan.warning


def test_nothing_goes_that_a_kept_version_needs(aged: Aged) -> None:
    table = open_table(three_versions(aged))
    plan = table.plan_vacuum(keep_versions=[1])
    assert (plan.files["path"].to_pylist(), plan.keep_versions) == (["p/a"], (1,))
    assert rows(plan.kept)["needed by a kept version"] == (1, 1)
    assert "version 1 are kept; a plain VACUUM would delete 1 file (1 B) of them" in plan.explain()
    unguarded = [] if HAS_GUARD else [0]
    assert plan.versions_lost == unguarded
    assert table.plan_vacuum().versions_lost == [*unguarded, 1]
    lines = table.plan_vacuum(retention="20 days", keep_versions=[1]).explain().splitlines()
    assert "All files of version 1 are kept." in lines
    longer = table.plan_vacuum(retention="205 hours")
    assert longer.files["path"].to_pylist() == ["p/a"]
    assert ("Delta since 4.1 ignores RETAIN and would keep" in longer.explain()) is HAS_GUARD
    page = table.plan_vacuum(at=datetime.now(UTC) + timedelta(days=8))._repr_html_()
    assert page.index("would be lost") < page.index("would delete") < page.index("reason to keep")


@since_delta("4.1")
def test_versions_that_the_guard_refuses_are_not_lost_but_named_and_the_latest_is_lost(aged: Aged) -> None:
    table = open_table(three_versions(aged))
    plan = table.plan_vacuum(keep_versions=[0])
    assert plan.warning == f"Delta refuses kept versions older than the retention unless {GUARD} is false: 0."
    assert plan.warning in plan.explain()
    now = table.plan_vacuum(keep_versions=[1])
    assert (now.versions_lost, now.warning) == ([], "")
    later = table.plan_vacuum(keep_versions=[1], at=datetime.now(UTC) + timedelta(days=60))
    words = (
        f"By then, Delta also refuses earlier versions that are older than 7 days, unless {GUARD} is false."
    )
    assert (words in plan.explain(), words in later.explain()) == (False, True)
    assert later.warning.startswith(plan.warning.replace(": 0.", ": 1."))
    # The latest version is older than the retention, and VACUUM commits two versions after it.
    folder = aged((9, [add("live")]), folder=table.path / "old")
    drop_file(folder, "orphan", 30)
    assert open_table(folder).versions()["readable"].to_pylist() == ["yes"]
    plan = open_table(folder).plan_vacuum()
    assert (plan.versions_lost, plan.content_survives_as) == ([0], {0: 2})
    assert plan.content_survives_by == {0: "identical files"}
    # Version 2 doesn't exist yet.
    own = "VACUUM's own commit"
    cost = "1 readable version would be lost: 0. The same content can still be read as another version: 0 as"
    assert plan.explain().startswith(f"{cost} {own} (identical files).")
    title = "VACUUM would lose the only readable version and free 1 B; its rows can still be read in another"
    assert title in str(plan.plot().get_label())


def test_no_content_survives_in_a_latest_version_that_lacks_a_file(aged: Aged) -> None:
    rewrite = [unchanged(action) for action in (removed("a", 8), removed("b", 8), add("c", records=20))]
    table = aged((3, [add("a"), add("b")]), (0.5, [{"commitInfo": {"operation": "OPTIMIZE"}}, *rewrite]))
    for name in "ab":
        age_file(table / name, 17)
    assert open_table(table).plan_vacuum().content_survives_as == {0: 1}
    (table / "c").rename(table / ".c")
    plan = open_table(table).plan_vacuum()
    assert (plan.versions_lost, plan.content_survives_as) == ([0], {})
    # The content survives in a version that isn't the latest.
    (table / ".c").rename(table / "c")
    handmade.write_commit(table, 2, [add("d")])
    plan = open_table(table).plan_vacuum()
    assert (plan.content_survives_as, plan.content_survives_by) == ({0: 1}, {0: "row counts agree"})


@since_delta("4.1")
def test_vacuum_commits_nothing_on_s3_so_that_the_latest_version_stays_the_latest(
    spark: SparkSession, on_s3: stores.Server, confs: SetConf, tmp_path: Path
) -> None:
    head = metadata(configuration={"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    handmade.write_log(tmp_path / "t", [head, add("live")])
    for name in ("live", "orphan"):
        drop_file(tmp_path / "t", name)
    table = open_table(on_s3.upload(tmp_path / "t", tmp_path.name), spark)
    plan = table.plan_vacuum()
    assert (plan.files["path"].to_pylist(), plan.versions_lost) == (["orphan"], [])
    confs("spark.databricks.delta.vacuum.logging.enabled", "true")
    assert table.plan_vacuum().versions_lost == [0]


def test_a_retention_is_a_length_of_time_in_words(aged: Aged) -> None:
    table = open_table(three_versions(aged))
    hours = {"168 hours": 168, "1 week": 168, "INTERVAL 2 weeks": 336, "interval 6 days 25 hours": 169}
    week = ("interval 604800000 milliseconds", "interval +7 days", "interval 1 week 0 microseconds")
    hours |= dict.fromkeys(week, 168)
    plans = {text: table.plan_vacuum(text) for text in hours}
    assert {text: plan.retention / timedelta(hours=1) for text, plan in plans.items()} == hours
    long = table.plan_vacuum("999999999999 days")
    assert "removed less than 1,000,000 days before are kept" in long.explain()
    for text, words in (("1 week", "7 days"), ("interval 6 days 25 hours", "169 hours")):
        assert f"began more than {words} before" in plans[text].explain()
    table = open_table(aged((1, [metadata(configuration={PROPERTY: "soon"}), add("a")])))
    refused(table.versions, InvalidArgumentError, f'{PROPERTY}="soon" is not a length of time')


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "LITE"}, "mode='LITE' is not planned here: use mode=\"FULL\", or run VACUUM … LITE"),
        ({"at": "tomorrow"}, 'at="tomorrow" is not a time'),
        *(
            ({"retention": length}, "is not a length of time")
            for length in (168, "-7 days", "8 days 3 fortnights")
        ),
        ({"retention": "0 days"}, "is shorter than the 7 days"),
        *(({"keep_versions": one}, f"keep_versions={one!r} is not a list") for one in (1, "1", [True], [-1])),
        ({"keep_versions": [99]}, "the latest is 2; leave it out"),
        ({"keep_versions": [2, 0]}, "1 needed file missing (p/a); leave it out"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(aged: Aged, arguments: dict[str, Any], words: str) -> None:
    table = three_versions(aged)
    (table / "p/a").unlink()
    refused(partial(open_table(table).plan_vacuum, **arguments), InvalidArgumentError, words)


@pytest.mark.parametrize("is_live", [True, False])
def test_a_file_that_is_named_through_a_link_is_no_orphan(aged: Aged, tmp_path: Path, is_live: bool) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "elsewhere").touch()
    named = f"file://{tmp_path}/link/table/there"
    table = aged((9, [add("live"), add(f"file://{tmp_path}/elsewhere")]), (9, [add("b")]))
    assert open_table(table).plan_vacuum().is_empty
    handmade.write_commit(table, 2, [add(named) if is_live else removed(named, 30), add("c")])
    drop_file(table, "there", 40)
    for folder in (table, tmp_path / "link/table"):
        refused(open_table(folder).plan_vacuum, UnsupportedTableError, f"{tmp_path}/link/table/there", "link")


@pytest.mark.parametrize(("formats", "expected"), [("", ["metadata/v1"]), ("iceberg", [])])
def test_iceberg_metadata_is_hidden_if_delta_writes_it(aged: Aged, formats: str, expected: list[str]) -> None:
    head = metadata(configuration={"delta.universalFormat.enabledFormats": formats})
    folder = aged((9, [head, add("live")]))
    drop_file(folder, "metadata/v1", 30)
    assert open_table(folder).plan_vacuum().files["path"].to_pylist() == expected
