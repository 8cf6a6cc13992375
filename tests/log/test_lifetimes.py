from pathlib import Path

import deltalake
import pytest

from compaction_kit.log import TransactionLog
from compaction_kit.log.listing import LogFile, log_file, version_ranges
from tests import handmade


def lives(table: Path) -> set[tuple[str, str | None, int, int | None]]:
    _, lifetimes = TransactionLog(table).lifetimes()
    return {
        (life["path"], life["deletion_vector_id"], life["added"], life["removed"])
        for life in lifetimes.to_pylist()
    }


VECTOR = handmade.vector("0rJua")


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        (
            [[handmade.add("a%20b"), handmade.add("c")], [handmade.remove("a%20b")], [handmade.add("a%20b")]],
            {("a b", None, 0, 1), ("a b", None, 2, None), ("c", None, 0, None)},
        ),
        (
            [[handmade.add("a")], [handmade.add("a", vector=VECTOR), handmade.remove("a")]],
            {("a", None, 0, 1), ("a", "i0rJua", 1, None)},
        ),
        ([[handmade.add("a")], [handmade.add("a"), handmade.remove("unknown")]], {("a", None, 0, None)}),
    ],
    ids=["it may come back", "a vector ends the life without it", "added again it lives on"],
)
def test_a_file_lives_from_its_add_to_its_remove(
    tmp_path: Path,
    commits: list[list[handmade.Action]],
    expected: set[tuple[str, str | None, int, int | None]],
) -> None:
    assert lives(handmade.write_log(tmp_path, *commits)) == expected


def files_of(commits: list[int], checkpoints: list[int]) -> list[LogFile]:
    names = [f"{v:020d}.json" for v in commits] + [f"{v:020d}.checkpoint.parquet" for v in checkpoints]
    return [log_file(name, 100) for name in names]


@pytest.mark.parametrize(
    ("commits", "checkpoints", "ranges"),
    [
        ([0, 1, 2], [], [(0, 2)]),
        ([0, 1, 2], [2], [(0, 2)]),
        ([5, 6, 7], [6], [(6, 7)]),
        ([5, 6, 7], [4], [(4, 7)]),
        ([5, 6, 7], [5, 7], [(5, 7)]),
        ([], [7], [(7, 7)]),
        ([0, 1, 3, 4], [2], [(0, 1), (2, 4)]),
        ([7], [7], [(7, 7)]),
        ([0, 1, 4, 5], [5], [(0, 1), (5, 5)]),
        ([0, 5, 6], [5], [(0, 0), (5, 6)]),
        ([3, 4, 6, 7], [4, 7], [(4, 4), (7, 7)]),
        ([3, 4, 6, 7], [1, 7], [(7, 7)]),
    ],
)
def test_versions_can_be_read_from_version_0_or_a_checkpoint_on(
    commits: list[int], checkpoints: list[int], ranges: list[tuple[int, int]]
) -> None:
    files = files_of(commits, checkpoints)
    assert version_ranges(files) == [range(start, end + 1) for start, end in ranges]


def test_what_lost_commits_did_counts_as_done_by_the_next_version_that_can_be_read(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d", "e", "f")
    commits = [[handmade.add(name)] for name in names]
    commits[2] += [handmade.remove("a")]
    table = handmade.write_log(tmp_path, *commits[:4])
    deltalake.DeltaTable(str(table)).create_checkpoint()
    for version in (4, 5):
        handmade.write_commit(table, version, commits[version])
    handmade.remove_commits(table, 2)
    assert lives(table) == {
        ("a", None, 0, 3), ("b", None, 1, None), ("c", None, 3, None), ("d", None, 3, None),
        ("e", None, 4, None), ("f", None, 5, None),
    }  # fmt: skip
