"""What goes and why, and what stays; no session is needed to look."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError
from compaction_kit.retention import GUARD
from tests import handmade
from tests.ageing import age_file
from tests.handmade import add, metadata
from tests.releases import HAS_GUARD, since_delta
from tests.vacuum.conftest import Aged, removed
from tests.vacuum.vacuums import drop_file


def rows(table: Any) -> dict[str, dict[str, Any]]:
    return {row.pop("path" if "path" in row else "reason"): row for row in table.to_pylist()}


def three_versions(aged: Aged) -> Path:
    """a was replaced by b 9 days ago, b by c 8 days ago, all written earlier; v2 is of today."""
    return aged(
        (20, [add("p/a"), add("stays")]),
        (1, [removed("p/a", 9), add("b")]),
        (0, [removed("b", 8), add("c")]),
    )


def test_each_file_says_why_it_goes_since_which_version_and_when_it_was_removed(aged: Aged) -> None:
    table = three_versions(aged)
    age_file(table / "b", 19)
    drop_file(table, "orphan", 30)
    drop_file(table, "_change_data/cdc-1", 30)
    handmade.write_commit(table, 3, [{"cdc": {"path": "_change_data/cdc-1", "size": 1, "dataChange": False}}])
    files = rows(open_table(table).plan_vacuum().files)
    assert {path: row["reason"] for path, row in files.items()} == {
        "_change_data/cdc-1": "change data",
        "b": "tombstone",
        "orphan": "orphan",
        "p/a": "tombstone",
    }
    assert [files[path]["since_version"] for path in ("p/a", "b", "orphan")] == [1, 2, None]
    assert (datetime.now(UTC) - files["p/a"]["removed_at"]).days == 9
    assert files["orphan"]["removed_at"] is None
    assert (datetime.now(UTC) - files["orphan"]["modification_time"]).days == 30


def test_a_commit_that_comes_while_it_is_planned_breaks_no_plan(
    aged: Aged, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_table(three_versions(aged))
    read = table.log.commits

    def read_late() -> Any:
        handmade.write_commit(table.path, 3, [add("late")])
        return read()

    monkeypatch.setattr(table.log, "commits", read_late)
    assert table.plan_vacuum().version == 2


def test_what_stays_is_told_with_its_reason_files_and_bytes(aged: Aged) -> None:
    table = aged((9, [add("old"), add("live")]), (5, [removed("old", 5), add("new")]))
    drop_file(table, "young orphan", 1)
    drop_file(table, "a:b", 30)
    drop_file(table, "_hidden/secret", 30)
    kept = rows(open_table(table).plan_vacuum().kept)
    assert kept.pop("hidden, such as the log")["num_files"] == 3
    assert kept == {
        "live": {"num_files": 2, "size_bytes": 2},
        "removed within the retention": {"num_files": 1, "size_bytes": 1},
        "written within the retention": {"num_files": 1, "size_bytes": 1},
        "a colon in its name": {"num_files": 1, "size_bytes": 1},
    }


def test_a_folder_goes_if_it_is_empty_and_is_listed_if_all_in_it_is_young_or_hidden(aged: Aged) -> None:
    table = aged((9, [add("p=1/live")]), (9, [add("gone/old"), removed("gone/old", 9)]))
    for path in ("empty", "outer/inner", "_hidden"):
        (table / path).mkdir(parents=True)
    drop_file(table, "young/file", 1)
    drop_file(table, "secretive/.file", 30)
    drop_file(table, "old/file", 30)
    plan = open_table(table).plan_vacuum()
    assert rows(plan.directories) == {
        "empty": {"is_empty": True},
        "outer": {"is_empty": True},
        "outer/inner": {"is_empty": True},
        "secretive": {"is_empty": False},
        "young": {"is_empty": False},
    }
    assert plan.empty_directories == ["empty", "outer", "outer/inner"]
    assert "3 empty folders would be deleted too" in plan.explain()


def test_nothing_goes_that_a_kept_version_needs(aged: Aged) -> None:
    table = three_versions(aged)
    age_file(table / "b", 19)
    plan = open_table(table).plan_vacuum(keep_versions=[1])
    assert plan.files["path"].to_pylist() == ["p/a"]
    assert plan.keep_versions == (1,)
    assert rows(plan.kept)["needed by a kept version"] == {"num_files": 1, "size_bytes": 1}
    assert "version 1 are kept; a plain VACUUM would delete 1 file (1 B)" in plan.explain()
    unguarded = [] if HAS_GUARD else [0]
    assert plan.versions_lost == unguarded
    assert open_table(table).plan_vacuum().versions_lost == [*unguarded, 1]


@since_delta("4.1")
def test_a_kept_version_that_the_guard_refuses_is_kept_and_the_setting_told(aged: Aged) -> None:
    plan = open_table(three_versions(aged)).plan_vacuum(keep_versions=[0])
    (warning,) = plan.warnings
    assert warning.startswith("Version 0 is kept, but older than the retention")
    assert GUARD in warning
    assert warning in plan.explain()


@since_delta("4.1")
def test_versions_behind_the_guard_that_lose_files_are_told_apart(aged: Aged) -> None:
    plan = open_table(three_versions(aged)).plan_vacuum()
    assert plan.versions_lost == []
    assert plan.blocked_versions_lost == [0]
    assert "1 version that Delta's guard refuses already" in plan.explain()


@since_delta("4.1")
def test_the_latest_version_is_lost_to_the_guard_if_it_is_old_and_its_content_is_not(aged: Aged) -> None:
    table = aged((9, [add("live")]))
    drop_file(table, "orphan", 30)
    plan = open_table(table).plan_vacuum()
    assert plan.versions_lost == [0]
    assert plan.content_survives_as == {0: 2}
    cost, *_ = plan.explain().splitlines()
    assert cost.endswith(
        "lost: 0. The same content can still be read as another version: 0 as 2 (identical files)."
    )
    finding = "VACUUM would cost 1 of 1 readable version, not its content, and free 1 B"
    assert str(plan.plot().get_label()).startswith(finding)


def test_content_survives_under_the_number_of_what_compacted_it(aged: Aged) -> None:
    compacted = [removed("a", 8) | {}, removed("b", 8), add("ab", records=20)]
    for action in compacted:
        next(iter(action.values()))["dataChange"] = False
    compacted.append({"commitInfo": {"operation": "OPTIMIZE"}})
    table = aged((1, [add("a"), add("b")]), (1, compacted))
    for name in "ab":
        age_file(table / name, 20)
    plan = open_table(table).plan_vacuum()
    assert plan.versions_lost == [0]
    assert plan.content_survives_as == {0: 1}
    assert plan.content_survives_by == {0: "says OPTIMIZE, row counts agree"}


def test_the_storage_is_told_by_kind_now_and_after(aged: Aged) -> None:
    table = aged((20, [add("old"), add("live")]), (9, [removed("old", 9)]))
    drop_file(table, "orphan", 30)
    storage = {
        row.pop("kind"): tuple(row.values()) for row in open_table(table).plan_vacuum().storage.to_pylist()
    }
    assert storage == {"live": (1, 1), "tombstoned": (1, 0), "orphaned": (1, 0)}


def test_a_longer_retention_than_the_tables_keeps_more_and_says_who_sees_to_it(aged: Aged) -> None:
    table = three_versions(aged)
    age_file(table / "b", 19)
    plan = open_table(table).plan_vacuum(retention="205 hours")
    assert plan.files["path"].to_pylist() == ["p/a"]
    ignored = "Delta since 4.1 ignores RETAIN and would keep removed files for 168 hours"
    assert (ignored in plan.explain()) is HAS_GUARD


def test_change_data_is_told_from_orphans(aged: Aged) -> None:
    cdc: handmade.Action = {"cdc": {"path": "_change_data/c", "size": 1, "dataChange": False}}
    table = aged((20, [add("a")]), (9, [removed("a", 9), cdc]))
    for name in ("_change_data/c", "_change_data/d"):
        drop_file(table, name, 30)
    files = open_table(table).plan_vacuum().files.select(["path", "reason"]).to_pylist()
    assert {row["path"]: row["reason"] for row in files} == {
        "_change_data/c": "change data",
        "_change_data/d": "orphan",
        "a": "tombstone",
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "LITE"}, r"mode='LITE' is not planned here: use mode=\"FULL\", or run VACUUM … LITE"),
        ({"mode": None}, "mode=None is not planned"),
        ({"at": "tomorrow"}, 'at="tomorrow" is not a time'),
        ({"retention": 168}, "retention=168 is not a length of time"),
        ({"retention": "999999999999 days"}, "is too long"),
        ({"keep_versions": 1}, "keep_versions=1 is not a list"),
        ({"keep_versions": "1"}, "keep_versions='1' is not a list"),
        ({"keep_versions": ["1"]}, "keep_versions has '1', which is not a version"),
        ({"keep_versions": [True]}, "keep_versions has True, which is not a version"),
        ({"keep_versions": [-1]}, "keep_versions has -1, which is not in the log: choose from 0 to 2"),
        ({"keep_versions": [3]}, "keep_versions has 3, which is not in the log: choose from 0 to 2"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(aged: Aged, arguments: dict[str, Any], words: str) -> None:
    table = three_versions(aged)
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        open_table(table).plan_vacuum(**arguments)
    assert "\n" not in str(caught.value)


def test_versions_to_keep_that_lack_files_are_refused_with_the_files(aged: Aged) -> None:
    table = three_versions(aged)
    (table / "p/a").unlink()
    with pytest.raises(InvalidArgumentError, match=r"1 file that it needs is missing \(p/a\); leave it out"):
        open_table(table).plan_vacuum(keep_versions=[2, 0])
    table = handmade.write_log(table / "other", [handmade.add("a%0Ab")])
    with pytest.raises(InvalidArgumentError, match=r"1 file that it needs is missing \(a b\); leave it out"):
        open_table(table).plan_vacuum(keep_versions=[0])


@pytest.mark.parametrize("hours", [0, 24])
def test_less_than_the_tables_retention_is_refused_by_the_name_of_deltas_check(
    aged: Aged, hours: int
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"retentionDurationCheck\.enabled refuses"):
        open_table(three_versions(aged)).plan_vacuum(retention=f"{hours} hours")


def test_iceberg_metadata_is_hidden_where_delta_writes_it(aged: Aged) -> None:
    properties = {"delta.universalFormat.enabledFormats": "iceberg"}
    for configuration, expected in (({}, ["metadata/v1"]), (properties, [])):
        folder = aged((9, [metadata(configuration=configuration), add("live")]))
        drop_file(folder, "metadata/v1", 30)
        assert open_table(folder).plan_vacuum().files["path"].to_pylist() == expected


def test_the_page_shows_what_stays_and_the_figure(aged: Aged) -> None:
    table = three_versions(aged)
    later = open_table(table).plan_vacuum(at=datetime.now(UTC) + timedelta(days=8))
    page = later._repr_html_()
    assert page.index("would be lost") < page.index("would delete") < page.index("reason to keep")
    assert 'aria-label="VACUUM would cost ' in page


def test_a_file_that_a_path_out_and_back_leads_to_stays_and_a_link_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t"
    (table / "real").mkdir(parents=True)
    for place in ("back", "enc", "x", "real/y", "orphan"):
        (table / place).write_bytes(b"1")
        os.utime(table / place, (0, 0))
    (tmp_path / "link").symlink_to(table)
    paths = ["../t/back", "a/%2e%2e/enc", f"{tmp_path}/link/x", "real/y"]
    handmade.write_log(table, [handmade.add(path) for path in paths])
    for name in (table, tmp_path / "link"):
        assert open_table(name).plan_vacuum().files["path"].to_pylist() == ["orphan"]
        assert set(open_table(name).versions()["readable"].to_pylist()) == {"yes"}
    (table / "real/alias").symlink_to(table)
    with pytest.raises(UnsupportedTableError, match="holds real/alias, a symbolic link"):
        open_table(table).plan_vacuum()
