"""What is said of a table before anything else, from logs written by hand; and of runs by Spark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from compaction_kit.errors import EmptyTableError
from compaction_kit.execute import CompactionResult
from compaction_kit.files import Files
from compaction_kit.log import TransactionLog
from compaction_kit.plan import BinPlan, Planner, Thresholds
from compaction_kit.reads import ReadComparison
from compaction_kit.text import KIB
from compaction_kit.verdict import Verdict
from compaction_kit.verify import Fingerprint
from tests import handmade

LIMITS = Thresholds(KIB, KIB)
RUNS = pa.table({"version": [1, 2] * 3, "repeat": [0, 0, 1, 1, 2, 2], "seconds": [2.0, 0.5] * 3})
READS = ReadComparison("id < 3", (1, 2), 2.0, 0.5, 30, 1, 10, 35, RUNS, False, True)


def files_of(table: Path, *actions: handmade.Action) -> Files:
    metadata = handmade.metadata({"id": "long", "p": "string"}, ["p"])
    return Files(TransactionLog(handmade.write_log(table, [metadata, *actions])).snapshot())


def verdict_of(
    files: Files,
    limits: Thresholds = LIMITS,
    where: str | None = None,
    budget: int | None = None,
    **past: Any,
) -> Verdict:
    verdict = Verdict.of(files, BinPlan.of(Planner(files), limits, where, budget=budget), **past)
    assert verdict is not None
    return verdict


def small(count: int, partitions: int = 1, size: int = 10) -> list[handmade.Action]:
    """Files of sizes that differ, in partitions of so many."""
    return [
        handmade.add(f"{p}-{i}", size + i, {"p": str(p)}, records=size + i)
        for p in range(partitions)
        for i in range(count)
    ]


def test_a_sick_table_is_told_by_the_files_that_would_do(tmp_path: Path) -> None:
    assert verdict_of(files_of(tmp_path, *small(30))) == Verdict(
        "warning",
        (
            "30 files where 1 would do: a full scan opens 30 times as many files as it needs to.",
            "Compaction rewrites 30 files (735 B in total) into 1 file, about 735 B, in 1 partition.",
            "The plan is exact.",
        ),
    )


def test_few_files_too_many_are_no_alarm_and_more_files_no_promise(tmp_path: Path) -> None:
    large = [handmade.add(f"large {i}", 2 * KIB, {"p": "0"}) for i in range(10)]
    verdict = verdict_of(files_of(tmp_path / "few", *small(2), *large))
    assert verdict.kind == "text"
    assert (
        verdict.sentences[0] == "12 files where 11 would do: a full scan opens 1 file more than it needs to."
    )
    more = verdict_of(files_of(tmp_path / "more", *small(2)), Thresholds(KIB, KIB, max_records_per_file=10))
    assert (more.kind, more.sentences[0]) == ("text", "2 files, and compaction would leave 3.")


def test_a_plan_for_some_partitions_says_for_which(tmp_path: Path) -> None:
    files = files_of(tmp_path, *small(4, 2))
    some = Files(files.snapshot, np.arange(4))
    assert verdict_of(some, where="p = '0'").sentences[0] == (
        "4 files where 1 would do, where p = '0': "
        "a full scan of them opens 4 times as many files as it needs to."
    )


@pytest.mark.parametrize(
    ("typed", "meant"), [("jfk", " (did you mean 'JFK'?)"), ("LGB", " (did you mean 'LGA'?)"), ("x", "")]
)
def test_a_value_that_may_be_meant_is_named(tmp_path: Path, typed: str, meant: str) -> None:
    files = files_of(tmp_path, *(handmade.add(name, 10, {"p": name}) for name in ("JFK", "LGA")))
    none = Files(files.snapshot, np.array([], np.int64))
    assert verdict_of(none, where=f"p = '{typed}'").sentences == (
        f"Nothing to do where p = '{typed}', because no file matches{meant}.",
    )


def test_a_healthy_table_is_told_why_and_a_plan_what_is_not_certain(tmp_path: Path) -> None:
    healthy = verdict_of(files_of(tmp_path / "a", *small(3)), Thresholds(5, KIB))
    assert healthy == Verdict("good", ("Nothing to do, because no file is under 5 B.",))
    budget = verdict_of(files_of(tmp_path / "b", *small(3)), budget=5)
    assert "the smallest of 1 bin has 33 B, more than the budget of 5 B" in str(budget)
    same = [handmade.add(f"f{i}", 400, {"p": "0"}) for i in range(4)]
    assert verdict_of(files_of(tmp_path / "c", *same)).sentences[-1] == (
        "The plan is exact, except for which of equal-sized files go into which bin."
    )


def test_deleted_rows_that_no_optimize_takes_are_named(tmp_path: Path) -> None:
    def marked(name: str, size: int, rows: int) -> handmade.Action:
        return handmade.add(name, size, {"p": "0"}, 100, handmade.vector(name, rows))

    large = [marked("few rows", 2 * KIB, 5), marked("many rows", 2 * KIB, 50)]
    clean = handmade.add("clean", 2 * KIB, {"p": "0"})
    verdict = verdict_of(files_of(tmp_path / "two", *large, marked("small", 10, 2), clean))
    # The small file and the one with many deleted rows would be alone in a bin each.
    assert verdict.sentences[-1] == (
        "57 deleted rows in 3 files stay on disk: OPTIMIZE doesn't rewrite these files, plan_purge() does."
    )
    verdict = verdict_of(files_of(tmp_path / "one", marked("few", 2 * KIB, 1), *small(2)))
    assert verdict.sentences[-1] == (
        "1 deleted row in 1 file stays on disk: OPTIMIZE doesn't rewrite this file, plan_purge() does."
    )
    assert "deleted" not in str(verdict_of(files_of(tmp_path / "gone", marked("small", 10, 2), *small(2))))


def test_auto_compaction_is_named(tmp_path: Path) -> None:
    on = {"delta.autoOptimize.autoCompact": "true"}
    metadata = handmade.metadata({"id": "long"}, configuration=on)
    handmade.write_log(tmp_path, [metadata, handmade.add("a"), handmade.add("b")])
    sentence = verdict_of(Files(TransactionLog(tmp_path).snapshot())).sentences[-1]
    assert sentence.startswith(
        "Auto compaction is on (delta.autoOptimize.autoCompact): auto_compaction() says"
    )


def test_many_partitions_are_named_as_what_keeps_files_small(tmp_path: Path) -> None:
    healthy = verdict_of(files_of(tmp_path / "healthy", *small(1, 200)))
    assert healthy.kind == "good"
    assert healthy.sentences[1] == (
        "With 200 partitions, files have 10 B on average: only fewer partitions would make them larger."
    )
    sick = verdict_of(files_of(tmp_path / "sick", *small(3, 200)))
    assert (
        sick.sentences[0]
        == "600 files where 200 would do: a full scan opens 3 times as many files as it needs to."
    )
    assert "in 200 partitions" in sick.sentences[1]
    assert sick.sentences[-1].startswith("With 200 partitions, files would still have about 33 B on average")
    assert "With" not in str(verdict_of(files_of(tmp_path / "few", *small(1, 20))))


def test_an_empty_table_is_healthy_and_one_that_can_t_be_read_is_not(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    with pytest.raises(EmptyTableError) as caught:
        Planner(files)
    assert Verdict.of(files, None, str(caught.value)) == Verdict("good", (str(caught.value),))
    assert Verdict.of(None, None, "No log.") == Verdict("error", ("No log.",))
    assert Verdict.of(None, None) is None
    after_a_run = Verdict.of(None, None, "No log.", stopped="It was cancelled.")
    assert after_a_run == Verdict("error", ("No log.", "It was cancelled."))


@pytest.fixture
def done() -> CompactionResult:
    """The result of a run, in numbers that a test can tell apart."""
    nothing = CompactionResult("none", "the plan is empty", np.array([1_000]), np.array([1_000]))
    counts = {"num_files_removed": 30, "num_files_added": 1, "bytes_removed": 3 * KIB, "bytes_added": KIB}
    proof = {"verified": True, "fingerprint": Fingerprint(1_200, (1, 2), ("DuckDB", "Spark"))}
    return replace(nothing, strategy="arrow", versions=(366,), seconds=3.2, **counts, **proof)  # type: ignore[arg-type]


def test_after_a_run_the_outcome_comes_first_and_then_what_is_left(
    tmp_path: Path, done: CompactionResult
) -> None:
    assert str(Verdict.of(None, None, result=done, reads=READS)).endswith(
        "Measured by id < 3: 4.0 times as fast: 2.0 s → 0.50 s, 30 → 1 files, 10 B → 35 B, 3.5 times as much."
    )
    assert verdict_of(files_of(tmp_path, *small(1)), result=done) == Verdict(
        "good",
        (
            "30 files became 1: 3 KiB → 1 KiB in 3.2 s, as version 366, by arrow.",
            "The content is the same: 1,200 rows compared by DuckDB and Spark.",
            "Nothing to do, because only one file is under 1 KiB.",
        ),
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"verified": None, "fingerprint": None}, "The content was not compared."),
        ({"conflicts": ("a", "b")}, "2 conflicts with other writers, and all was done as planned."),
        (
            {"conflicts": ("a",), "as_planned": False},
            "1 conflict with other writers, and what they had changed was left out.",
        ),
        ({"as_planned": False}, "Not exactly the planned files were rewritten."),
        ({"versions": (366, 367)}, "as versions 366, 367, by arrow."),
    ],
    ids=str,
)
def test_after_a_run_what_was_not_smooth_is_said(
    done: CompactionResult, changes: dict[str, object], sentence: str
) -> None:
    verdict = Verdict.of(None, None, result=replace(done, **changes))  # type: ignore[arg-type]
    assert sentence in str(verdict)
    assert verdict is not None
    assert verdict.kind == ("good" if changes.get("as_planned", True) else "warning")


def test_a_run_that_was_stopped_and_one_that_did_nothing(tmp_path: Path, done: CompactionResult) -> None:
    files = files_of(tmp_path, *small(30))
    now, cancelled = verdict_of(files), "The run was cancelled: nothing was committed."
    assert verdict_of(files, stopped=cancelled) == Verdict("warning", (cancelled, *now.sentences))
    nothing = CompactionResult("none", "the plan is empty", files.sizes, files.sizes)
    assert verdict_of(files, result=nothing) == now
