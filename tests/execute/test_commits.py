"""Which commits are a run's, what they did together, and whether they may be undone."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException

from compaction_kit import open_table
from compaction_kit.execute.commits import commits_of, net_files
from compaction_kit.execute.delta import is_conflict
from compaction_kit.execute.proof import prove_or_undo
from compaction_kit.storage import open_store
from tests import handmade
from tests.handmade import Action, add, remove, unchanged, write_commit, write_log


def info(tag: str, **more: Any) -> Action:
    return {"commitInfo": {"userMetadata": f"mine; compaction_kit {tag}"} | more}


def compacted(gone: str, new: str) -> list[Action]:
    return [unchanged(remove(gone)), unchanged(add(new))]


def test_commits_of_a_plan_are_those_that_change_no_data_and_its_restores(tmp_path: Path) -> None:
    """Other writes of the session meanwhile have its userMetadata too."""
    write_log(
        tmp_path,
        [add("a")],
        [info("arrow, plan 0a"), *compacted("a", "b")],
        [info("arrow, plan 0a"), remove("b"), add("c")],
        [info("arrow, plan 0a"), unchanged(add("d"))],
        [info("arrow, plan 0b"), *compacted("c", "e")],
        [info("undo, plan 0a", operation="RESTORE", readVersion=3), remove("e"), add("a")],
        [info("undo, plan 0a", operation="WRITE"), remove("a"), add("f")],
        [info("arrow, plan 0a", operation="RESTORE"), remove("f"), add("a")],
        [info("arrow, plan 0a, it seems"), *compacted("a", "g")],
        [info("arrow, plan 0a, proved 7 rows -1f 2e by DuckDB+bytes"), *compacted("g", "h")],
    )
    commits = commits_of(open_store(tmp_path), "0a", 0)
    found = [(one.version, one.read_version, one.is_proved) for one in commits]
    assert found == [(1, 0, False), (5, 3, False), (9, 8, True)]


def test_what_other_writers_say_of_their_commits_may_be_anything(tmp_path: Path) -> None:
    infos: list[Any] = ["said", [], {"userMetadata": {"by": "me"}}]
    write_log(tmp_path, [add("a")], *([{"commitInfo": one}, add("b")] for one in infos))
    write_commit(tmp_path, 4, [info("arrow, plan 0a"), *compacted("a", "b")])
    assert [one.version for one in commits_of(open_store(tmp_path), "0a", 0)] == [4]


def test_files_that_commits_add_and_remove_are_told_by_their_deletion_vectors_too(tmp_path: Path) -> None:
    vector, other = handmade.inline_vector([1]), handmade.inline_vector([2])
    tag = info("rewrite, plan 0a")
    write_log(
        tmp_path,
        [add("a"), add("b", vector=vector)],
        [tag, *map(unchanged, (remove("a"), add("a", vector=vector), remove("b", vector=vector), add("c")))],
        [tag, *map(unchanged, (remove("c"), add("d"), remove("a", vector=vector), add("a", vector=other)))],
    )
    gone, new = net_files(commits_of(open_store(tmp_path), "0a", 0))
    files = [[(one["add"]["path"], one["add"].get("deletionVector")) for one in side] for side in (gone, new)]
    assert files == [[("a", None), ("b", vector)], [("d", None), ("a", other)]]


def test_what_another_writer_committed_between_two_batches_is_not_undone(tmp_path: Path) -> None:
    tag, first = info("optimize, plan 0a"), [add("a"), add("b")]
    write_log(tmp_path, first, [tag, *compacted("a", "c")], [add("d")], [tag, *compacted("b", "e")])
    commits, run = commits_of(open_store(tmp_path), "0a", 0), Mock(log=open_table(tmp_path).log)
    outcome = prove_or_undo(run, commits, has_failed=True, is_cancelled=False)
    assert outcome.startswith("another writer has committed too, up to version 3, so nothing was undone")


@pytest.mark.parametrize("what", ["Concurrent Append", "Metadata Changed", "Protocol Changed"])
def test_a_conflict_is_known_by_its_class_or_by_its_code(what: str) -> None:
    named = type(f"{what.replace(' ', '')}Exception", (Exception,), {})
    assert is_conflict(named("Something was changed."))
    assert is_conflict(PySparkException(f"[DELTA_{what.upper().replace(' ', '_')}] Something was changed."))
    assert not is_conflict(PySparkException(f"[DELTA_FILE_NOT_FOUND] {what}"))
