from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from tests import handmade
from tests.handmade import add, metadata, remove, write_log
from tests.test_table import refused


def rows(table: Path, start: int, end: int) -> set[tuple[Any, ...]]:
    files = open_table(table).diff(start, end).files
    return {(row["path"], row["change"], row["num_records"]) for row in files.to_pylist()}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    vector = handmade.vector("0rJua", cardinality=3)
    p, q = {"p": "1"}, {"p": None}
    return write_log(
        tmp_path,
        [metadata({"id": "long", "p": "string"}, ["p"]), add("a", 10, p)],
        [add("b", 20, q, records=None)],
        [add("a", 10, p, vector=vector), remove("a")],
        [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}],
    )


def test_a_diff_has_the_files_of_one_side_alone_with_their_live_rows(table: Path) -> None:
    assert rows(table, 0, 1) == {("b", "added", None)}
    assert rows(table, 0, 3) == {("a", "removed", 10), ("a", "added", 7), ("b", "added", None)}
    assert rows(table, 3, 0) == {("a", "added", 10), ("a", "removed", 7), ("b", "removed", None)}
    diff = open_table(table).diff(0, 3)
    assert (diff.num_files_added, diff.num_files_removed) == (2, 1)
    assert (diff.bytes_added, diff.bytes_removed) == (30, 10)
    # Unknown where one file has no statistics.
    assert (diff.records_added, diff.records_removed) == (None, 10)
    assert diff.commits["data_change"].to_pylist() == [True, True, False]
    assert "unknown added, 10 removed" in repr(diff)
    # No commit changes data between versions of the same content.
    same = {(2, 3): True, (3, 2): True, (1, 2): False, (1, 1): True}
    assert {pair: open_table(table).diff(*pair).same_content for pair in same} == same


@pytest.mark.parametrize("version", [-1, 4, 1.5, "1", True])
def test_a_version_out_of_range_is_refused_in_one_sentence(table: Path, version: Any) -> None:
    opened = open_table(table)
    for call in (opened.at, opened.plan_restore, opened.files, partial(opened.diff, 0)):
        refused(partial(call, version), InvalidArgumentError, f"version={version!r} ")
