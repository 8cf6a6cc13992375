"""Which commits belong to a run, their changes taken together, and whether they may be undone."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.execute import proof
from compaction_kit.execute.commits import commits_of, net_files, other_commits
from compaction_kit.execute.delta import is_conflict
from compaction_kit.execute.failures import NotCompared
from compaction_kit.execute.work import Recorder
from compaction_kit.storage import open_store
from compaction_kit.verify import Fingerprint
from tests import handmade
from tests.handmade import Action, add, remove, unchanged, write_log


def info(tag: str, **more: Any) -> Action:
    return {"commitInfo": {"userMetadata": f"mine; compaction_kit {tag}"} | more}


def compacted(gone: str, new: str) -> list[Action]:
    return [unchanged(remove(gone)), unchanged(add(new))]


def test_commits_of_a_run_are_those_that_change_no_data_and_its_restores(tmp_path: Path) -> None:
    """Other writes of the same session have its userMetadata too; other writers may write anything."""
    infos: list[Any] = ["said", [], {"operation": "RESTORE"}, {"userMetadata": {"by": "me"}}]
    write_log(
        tmp_path,
        [add("a")],
        [info("arrow, plan 0a", inCommitTimestamp=5_000, operationMetrics={"n": 1}), *compacted("a", "b")],
        [info("arrow, plan 0a"), remove("b"), unchanged(add("c"))],
        [info("arrow, plan 0a"), unchanged(add("d"))],
        [info("arrow, plan 0b", operation="OPTIMIZE"), *compacted("c", "e"), unchanged(remove("x"))],
        [info("undo, plan 0a", operation="RESTORE", readVersion=3, operationMetrics=None), remove("e")],
        [info("undo, plan 0a", operation="WRITE"), unchanged(remove("a")), add("f")],
        [info("arrow, plan 0a", operation="RESTORE"), remove("f"), add("a")],
        [info("arrow, plan 0a, it seems"), *compacted("a", "g")],
        *([{"commitInfo": one}, add("b")] for one in infos),
        [info("arrow, plan 0a, proved 7 rows -1f 2e by DuckDB+bytes"), *compacted("g", "h")],
    )
    handmade.write_actions(tmp_path / "_delta_log" / handmade.log_name(13, "crc"), [])
    commits = commits_of(open_store(tmp_path), "0a", 0)
    found = [(one.version, one.read_version, one.is_proved) for one in commits]
    assert found == [(1, 0, False), (5, 3, False), (13, 12, True)]
    assert (commits[0].time, commits[0].metrics) == (5, {"n": "1"})
    for verify, differs, left in ((True, False, commits[:2]), (False, True, commits[:2]), (False, False, [])):
        assert proof.unproved(Mock(verify=verify), commits, differs) == left
    for since, paths, told in (
        (0, "acx", "Other writers removed 3 of the plan's 3 files (OPTIMIZE, version 4, version 8)"),
        (11, "c", "Another writer changed the table (version 12)"),
        (12, "c", "Another writer changed the table"),
    ):
        plan = Mock(files={"path": Mock(to_pylist=lambda paths=paths: paths)})
        assert other_commits(open_store(tmp_path), "0a", plan, since) == told


def test_files_that_commits_add_and_remove_are_told_by_their_deletion_vectors_too(tmp_path: Path) -> None:
    vector, other = handmade.inline_vector([1]), handmade.inline_vector([2])
    tag, turned = info("z-order, plan 0a"), dict(reversed(vector.items()))
    write_log(
        tmp_path,
        [add("a"), add("b", vector=vector)],
        [tag, *map(unchanged, (remove("a"), add("a", vector=vector), remove("b", vector=vector), add("c")))],
        [tag, *map(unchanged, (remove("c"), add("d"), remove("a", vector=turned), add("a", vector=other)))],
    )
    gone, new = net_files(commits_of(open_store(tmp_path), "0a", 0))
    files = [[(one["add"]["path"], one["add"].get("deletionVector")) for one in side] for side in (gone, new)]
    assert files == [[("a", None), ("b", vector)], [("d", None), ("a", other)]]


def test_what_another_writer_committed_between_two_batches_is_proved_and_not_undone(tmp_path: Path) -> None:
    tag, first, told = info("optimize, plan 0a"), [add("a"), add("b")], list[int]()
    write_log(tmp_path, first, [tag, *compacted("a", "c")], [add("d")], [tag, *compacted("b", "e")])
    commits, table = commits_of(open_store(tmp_path), "0a", 0), open_table(tmp_path)
    commits[0].removes[0]["size"] = 300
    record = Recorder(lambda one: told.append(one.bytes_compared), table.plan_compaction(), verify=True)
    reader = Mock(side_effect=[*[Fingerprint(7, (1, 2), ("x",))] * 3, KeyboardInterrupt])
    run = Mock(log=table.log, record=record, readers=(Mock(side_effect=NotCompared("it can't")), reader))
    said = "up to version 3, so nothing was undone: versions 1, 3 are .* go back with RESTORE to version 0, "
    assert re.search(said, proof.prove_or_undo(run, commits, proof_began=True, is_cancelled=False))
    proof.prove(run, commits[:1])
    reader.call_args.args[-1](0.5)
    for proof_began in (True, False):
        assert proof.prove_or_undo(run, commits, proof_began, is_cancelled=proof_began) == ""
    again = proof.prove_or_undo(run, commits, proof_began=False, is_cancelled=False)
    assert re.search(f"^the content was not proved .KeyboardInterrupt.; .*{said}", again)
    asked = [[[one["add"]["path"] for one in side] for side in call.args[2:4]] for call in reader.mock_calls]
    assert asked == [[["a"], ["c"]], *[[["a", "b"], ["c", "e"]]] * 3]
    assert (told, record.bytes_compared, record.proof_reason) == ([0, 450], 900, "it can't")
    assert record.fingerprint == Fingerprint(21, (3, 6))


def test_both_sides_are_read_with_the_columns_of_one_version(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Mock(schema=columns) for columns in "abbb"]
    monkeypatch.setattr(proof, "rows_of", Mock(side_effect=found))
    monkeypatch.setattr(proof, "fingerprint", lambda rows: rows)
    assert [read() for read in proof.contents(spark, "table", [[], []], ())] == found[2:]


@pytest.mark.parametrize("what", ["Concurrent Append", "Metadata Changed", "Protocol Changed"])
def test_a_conflict_is_known_by_its_class_or_by_its_code(what: str) -> None:
    named = type(f"{what.replace(' ', '')}Exception", (Exception,), {})
    assert is_conflict(named("Something was changed."))
    assert is_conflict(PySparkException(f"[DELTA_{what.upper().replace(' ', '_')}] Something was changed."))
    assert not is_conflict(PySparkException(f"[DELTA_FILE_NOT_FOUND] {what}"))
