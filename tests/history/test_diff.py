from pathlib import Path
from typing import Any

import pytest

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from tests import handmade


def rows(table: Path, start: int, end: int) -> set[tuple[Any, ...]]:
    files = open_table(table).diff(start, end).files
    return {(row["path"], row["change"], row["num_records"]) for row in files.to_pylist()}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    vector = handmade.vector("0rJua", cardinality=3)
    p, q = {"p": "1"}, {"p": None}
    return handmade.write_log(
        tmp_path,
        [handmade.metadata({"id": "long", "p": "string"}, ["p"]), handmade.add("a", 10, p)],
        [handmade.add("b", 20, q, records=None)],
        [handmade.add("a", 10, p, vector=vector), handmade.remove("a")],
        [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}],
    )


def test_a_diff_tells_the_files_of_one_side_alone_and_their_live_rows(table: Path) -> None:
    assert rows(table, 0, 1) == {("b", "added", None)}
    assert rows(table, 0, 3) == {("a", "removed", 10), ("a", "added", 7), ("b", "added", None)}


def test_a_diff_backwards_is_the_same_the_other_way_round(table: Path) -> None:
    turned = {"added": "removed", "removed": "added"}
    forth, back = rows(table, 0, 3), rows(table, 3, 0)
    assert back == {(path, turned[change], records) for path, change, records in forth}


def test_sums_are_of_the_files_and_unknown_where_one_does_not_say(table: Path) -> None:
    diff = open_table(table).diff(0, 3)
    assert (diff.num_files_added, diff.num_files_removed) == (2, 1)
    assert (diff.bytes_added, diff.bytes_removed) == (30, 10)
    assert (diff.records_added, diff.records_removed) == (None, 10)
    by_partition = {row["partition.p"]: row for row in diff.by_partition.to_pylist()}
    assert by_partition["1"] == {
        "partition.p": "1",
        "files_added": 1,
        "files_removed": 1,
        "bytes_added": 10,
        "bytes_removed": 10,
        "records_added": 7,
        "records_removed": 10,
    }
    assert by_partition[None]["records_added"] is None
    assert diff.commits["data_change"].to_pylist() == [True, True, False]
    assert "unknown added, 10 removed" in repr(diff)
    assert ">p IS NULL</td>" in diff._repr_html_()


@pytest.mark.parametrize(("start", "end", "same"), [(2, 3, True), (3, 2, True), (1, 2, False), (1, 1, True)])
def test_content_is_the_same_where_no_commit_between_changes_data(
    table: Path, start: int, end: int, same: bool
) -> None:
    assert open_table(table).diff(start, end).same_content is same


def test_a_table_without_partitions_has_one_line(tmp_path: Path) -> None:
    handmade.write_log(tmp_path, [handmade.add("a", 10)], [handmade.add("b", 5), handmade.remove("a")])
    diff = open_table(tmp_path).diff(0, 1)
    assert diff.by_partition.to_pylist() == [
        {
            "files_added": 1,
            "files_removed": 1,
            "bytes_added": 5,
            "bytes_removed": 10,
            "records_added": 10,
            "records_removed": 10,
        }
    ]


@pytest.mark.parametrize("version", [-1, 4, 1.5, "1", True])
def test_a_version_out_of_range_is_refused_in_one_sentence(table: Path, version: Any) -> None:
    opened = open_table(table)
    for call in (
        lambda: opened.diff(0, version),
        lambda: opened.at(version),
        lambda: opened.plan_restore(version),
        lambda: opened.files(version),
    ):
        with pytest.raises(InvalidArgumentError, match=f"version={version!r} ") as caught:
            call()
        assert "\n" not in str(caught.value)
