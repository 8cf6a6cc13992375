from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.history import read_versions
from compaction_kit.retention import GUARD
from tests import handmade
from tests.ageing import age_file

CopyOf = Callable[[Path], Path]


def column(table: Path, name: str, now: datetime | None = None, guard: bool = True) -> list[Any]:
    opened = open_table(table)
    return read_versions(table, opened.log, now, guard)[name].to_pylist()


def written(table: Path, *commits: list[handmade.Action]) -> Path:
    """A log, and a file on disk for each add that it has."""
    handmade.write_log(table, *commits)
    for action in (action for commit in commits for action in commit if "add" in action):
        (table / action["add"]["path"]).write_text("x")
    return table


def test_a_version_that_lacks_a_file_says_which(tmp_path: Path) -> None:
    table = written(
        tmp_path,
        [handmade.add("a"), handmade.add("b")],
        [handmade.remove("a"), handmade.add("c")],
        [handmade.remove("b")],
    )
    assert column(table, "readable") == ["yes", "yes", "yes"]
    (table / "b").unlink()
    assert column(table, "readable") == ["missing files", "missing files", "yes"]
    assert column(table, "num_missing") == [1, 1, 0]
    assert column(table, "missing") == [["b"], ["b"], []]


def test_a_vectors_file_is_needed_too_once_for_all_the_vectors_in_it(tmp_path: Path) -> None:
    # "u" and 20 characters: a file named by their UUID; two vectors of it, at two offsets.
    first, second = (handmade.vector("ab^-aqEH.-t@S}K{vb[*k^", storage="u") | {"offset": n} for n in (1, 43))
    table = written(tmp_path, [handmade.add("a", vector=first), handmade.add("b", vector=second)])
    assert column(table, "num_missing") == [1]
    missing = column(table, "missing")[0]
    assert missing == ["ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"]
    (table / "ab").mkdir()
    (table / missing[0]).write_text("x")
    assert column(table, "readable") == ["yes"]


def test_files_elsewhere_and_hidden_ones_are_looked_for_where_they_are(tmp_path: Path) -> None:
    table, elsewhere = tmp_path / "table", tmp_path / "elsewhere"
    table.mkdir()
    adds = [handmade.add(f"file://{elsewhere}"), handmade.add(".hidden"), handmade.add("_folder/a%20b")]
    handmade.write_log(table, adds)
    files = [elsewhere, table / ".hidden", table / "_folder" / "a b"]
    files[-1].parent.mkdir()
    for file in files:
        file.write_text("x")
    assert column(table, "readable") == ["yes"]
    for file in files:
        file.unlink()
    assert set(column(table, "missing")[0]) == {str(elsewhere), ".hidden", "_folder/a b"}


def test_versions_before_the_oldest_checkpoint_have_lost_their_log(changed: Path) -> None:
    deltalake.DeltaTable(str(changed)).create_checkpoint()
    handmade.remove_commits(changed, 0, 1)
    assert column(changed, "version") == [2, 3, 4]
    assert column(changed, "readable") == ["log gone", "log gone", "yes"]
    assert column(changed, "readable_until") == [None, None, None]


def test_a_checkpoint_whose_commit_is_gone_is_not_readable(changed: Path) -> None:
    deltalake.DeltaTable(str(changed)).create_checkpoint()
    handmade.remove_commits(changed, *range(5))
    assert column(changed, "readable") == ["log gone"]
    assert column(changed, "timestamp") == column(changed, "operation") == [None]


def test_the_guard_blocks_all_but_the_latest(tmp_path: Path) -> None:
    table = written(tmp_path, [handmade.add("a")], [handmade.add("b")], [handmade.add("c")])
    for version, days in ((0, 8), (1, 6)):
        age_file(handmade.commit_path(table, version), days)
    assert column(table, "readable") == ["blocked", "yes", "yes"]
    assert column(table, "readable", guard=False) == ["yes", "yes", "yes"]
    later = datetime.now(UTC) + timedelta(days=30)
    assert column(table, "readable", later) == ["blocked", "blocked", "yes"]
    # b and c are live now, so that nothing but the guard takes version 1 away.
    until = column(table, "readable_until")
    assert until[0] is None
    assert until[2] is None
    assert until[1] - column(table, "timestamp")[1] == timedelta(days=7)
    assert column(table, "readable_until", guard=False) == [None, None, None]


def test_a_version_can_be_read_until_its_first_file_may_be_vacuumed(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    removed = int((now - timedelta(days=3)).timestamp() * 1000)
    table = written(
        tmp_path, [handmade.add("a"), handmade.add("b")], [handmade.remove("a", removed)], [handmade.add("c")]
    )
    for name in ("a", "b"):
        age_file(table / name, 20)
    assert column(table, "readable_until", guard=False) == [now + timedelta(days=4), None, None]
    # A file that was itself written later than that is kept as long.
    age_file(table / "a", -19)
    assert column(table, "readable_until", guard=False)[0] > now + timedelta(days=5)


def test_a_compaction_has_the_content_of_the_version_before_and_can_be_read_instead(tmp_path: Path) -> None:
    def unchanged(action: handmade.Action) -> handmade.Action:
        return {name: fields | {"dataChange": False} for name, fields in action.items()}

    table = written(
        tmp_path,
        [handmade.add("a"), handmade.add("b")],
        [handmade.add("c")],
        [
            {"commitInfo": {"operation": "OPTIMIZE"}},
            *map(unchanged, (handmade.remove("b"), handmade.remove("c"), handmade.add("d", records=20))),
        ],
        [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}, handmade.metadata(configuration={"x": "y"})],
        [{"commitInfo": {"operation": "ADD COLUMNS"}}, handmade.metadata({"id": "long", "c": "long"})],
        [handmade.remove("a")],
    )
    assert column(table, "same_content_as") == [None, 2, 1, 1, None, None]
    compacted = "says OPTIMIZE, row counts agree"
    assert column(table, "same_content_by") == [None, compacted, compacted, compacted, None, None]
    (table / "c").unlink()
    assert column(table, "read_instead") == [None, 3, None, None, None, None]


def test_a_restore_has_the_content_of_the_version_that_it_restored(tmp_path: Path) -> None:
    table = written(
        tmp_path,
        [handmade.add("a"), handmade.add("b")],
        [handmade.remove("a")],
        [handmade.add("a")],
        [handmade.add("c")],
    )
    assert column(table, "same_content_as") == [2, None, 0, None]
    assert column(table, "same_content_by") == ["identical files", None, "identical files", None]
    age_file(handmade.commit_path(table, 0), 10)
    assert column(table, "read_instead") == [2, None, None, None]


@pytest.mark.spark
def test_the_sessions_setting_turns_the_guard_off(
    spark: SparkSession, copy_of: CopyOf, lived: Path, confs: Callable[[str, str], None]
) -> None:
    table = copy_of(lived)
    for version in range(5):
        age_file(handmade.commit_path(table, version), 10)
    assert open_table(table, spark).versions()["readable"].to_pylist() == ["blocked"] * 4 + ["yes"]
    confs(GUARD, "false")
    assert open_table(table, spark).versions()["readable"].to_pylist() == ["yes"] * 5
