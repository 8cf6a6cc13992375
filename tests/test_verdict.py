"""Verdicts on tables, from logs written by hand; and on runs by Spark."""

from collections.abc import Sequence
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
from compaction_kit.text import KIB, MIB
from compaction_kit.verdict import Verdict
from compaction_kit.verify import Fingerprint
from tests import handmade

Actions = Sequence[handmade.Action]
LIMITS = Thresholds(KIB, KIB)


def files_of(table: Path, *actions: handmade.Action, **configuration: str) -> Files:
    metadata = handmade.metadata({"id": "long", "p": "string"}, ["p"], configuration)
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


def small(count: int, partitions: int = 1, size: int = 10) -> Actions:
    """Return files of different sizes, `count` in each partition."""
    return [
        handmade.add(f"{p}-{i}", size + i, {"p": str(p)}, records=size + i)
        for p in range(partitions)
        for i in range(count)
    ]


def marked(name: str, size: int, rows: int) -> handmade.Action:
    """Return a file with `rows` of its 100 rows deleted."""
    return handmade.add(name, size, {"p": "0"}, 100, handmade.vector(name, rows))


LARGE = [handmade.add(f"large {i}", 2 * KIB, {"p": "0"}) for i in range(10)]
EQUAL = [handmade.add(f"equal {i}", 400, {"p": "0"}) for i in range(4)]
# The last two would each be alone in a bin.
WHOLE = [marked("whole", 2 * KIB, 100)]
MARKED = [marked("few rows", 2 * KIB, 5), marked("many rows", 2 * KIB, 50), marked("small", 10, 2)]


def test_a_sick_table_is_told_by_the_files_that_would_do(tmp_path: Path) -> None:
    assert verdict_of(files_of(tmp_path, *small(30))) == Verdict(
        "warning",
        (
            "30 files where 1 would do: a full scan opens 30 times as many files as it needs to.",
            "Compaction rewrites 30 files (735 B in total) into 1 file, about 735 B, in 1 partition.",
            "The plan is exact.",
        ),
    )


@pytest.mark.parametrize(
    ("actions", "limits", "kind", "said"),
    [
        ([*small(2), *LARGE], LIMITS, "text", "opens 1 file more than it needs to."),
        (small(2), Thresholds(KIB, KIB, max_records_per_file=11), "text", "would leave 2."),
        (small(3), Thresholds(5, KIB), "good", "Nothing to do, because no file is under 5 B."),
        (EQUAL, LIMITS, "warning", "of equal-sized files"),
        (MARKED, LIMITS, "good", "57 deleted rows in 3 files stay on disk"),
        # Files without live rows need no purge.
        ([*WHOLE, *MARKED], LIMITS, "good", "57 deleted rows in 3 files stay on disk"),
        ([marked("few", 2 * KIB, 1), *small(2)], LIMITS, "text", "1 deleted row in 1 file stays on disk"),
        (small(1, 100), LIMITS, "good", "With 100 partitions, files have 10 B on average"),
        (small(3, 200), LIMITS, "warning", "files would still have about 33 B on average"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_how_bad_it_is_and_what_else_matters_is_said(
    tmp_path: Path, actions: Actions, limits: Thresholds, kind: str, said: str
) -> None:
    verdict = verdict_of(files_of(tmp_path, *actions), limits)
    assert (verdict.kind, said in str(verdict)) == (kind, True), str(verdict)


def test_what_does_not_matter_is_not_said(tmp_path: Path) -> None:
    few = [marked("small", 10, 2), *small(2), *small(1, 20)]
    # A larger maximum would make larger files.
    said = str(verdict_of(files_of(tmp_path / "limited", *small(3, 120)), Thresholds(KIB, 15)))
    assert "With 120 partitions" not in said
    for number, actions in enumerate((few, WHOLE, small(2, 100, 2 * KIB), small(1, 100, 20 * MIB))):
        said = str(verdict_of(files_of(tmp_path / str(number), *actions)))
        assert not any(word in said for word in ("on disk", "With", "Auto")), said


def test_a_budget_that_no_bin_is_within_is_told(tmp_path: Path) -> None:
    for which, actions in {"only bin": small(3), "smallest of 2 bins": [*small(3), *small(4, 2)[4:]]}.items():
        said = str(verdict_of(files_of(tmp_path / which, *actions), budget=5))
        assert f"the {which} has 33 B, more than the budget of 5 B" in said


def test_a_plan_for_some_partitions_says_for_which_and_auto_compaction_is_named(tmp_path: Path) -> None:
    files = files_of(tmp_path, *small(4, 2), **{"delta.autoOptimize.autoCompact": "true"})
    first, *_, last = verdict_of(Files(files.snapshot, np.arange(4)), where="p = '0'").sentences
    assert first.startswith("4 files where 1 would do, where p = '0': a full scan of them opens 4 times")
    call = "table.auto_compaction() in Python says"
    assert last.startswith(f"Auto compaction is on (delta.autoOptimize.autoCompact): {call}")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("jfk", " (did you mean 'JFK'?)"), ("LGB", " (did you mean 'LGA'?)"), ("x", ""), ("JFK", "")],
)
def test_a_value_that_may_be_meant_is_named(tmp_path: Path, typed: str, meant: str) -> None:
    files = files_of(tmp_path, *(handmade.add(name, 10, {"p": name}) for name in ("JFK", "LGA")))
    none = Files(files.snapshot, np.array([], np.int64))
    assert verdict_of(none, where=f"p = '{typed}'").sentences == (
        f"Nothing to do where p = '{typed}', because no file matches{meant}.",
    )


def test_an_empty_table_is_healthy_and_one_that_can_t_be_read_is_not(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    with pytest.raises(EmptyTableError) as caught:
        Planner(files)
    assert Verdict.of(files, None, str(caught.value)) == Verdict("good", (str(caught.value),))
    assert Verdict.of(None, None) is None
    assert Verdict.of(None, None, "No log.") == Verdict("error", ("No log.",))
    files = files_of(tmp_path / "other", *small(1))
    after_a_run = Verdict.of(files, None, "No log.", DONE)
    assert after_a_run is not None
    assert (after_a_run.kind, after_a_run.sentences[0]) == ("error", "No log.")


# Numbers that differ, so that a test can tell them apart.
COUNTS = {"num_files_removed": 30, "num_files_added": 1, "bytes_removed": 3 * KIB, "bytes_added": KIB}
PROOF = {"verified": True, "fingerprint": Fingerprint(1_200, (1, 2), ("DuckDB", "Spark"))}
SIZES = np.array([1_000])
DONE = CompactionResult("arrow", "", SIZES, SIZES, versions=(366,), seconds=3.2, **COUNTS, **PROOF)  # type: ignore[arg-type]


def test_after_a_run_the_outcome_comes_first_and_then_what_is_left(tmp_path: Path) -> None:
    runs = pa.table({"version": [1, 2] * 3, "repeat": [0, 0, 1, 1, 2, 2], "seconds": [2.0, 0.5] * 3})
    reads = ReadComparison("id < 3", (1, 2), 2.0, 0.5, 30, 1, 10, 35, runs, False, True)
    measured = str(Verdict.of(None, None, result=DONE, reads=reads))
    assert "\nYour query: 4 times as fast" in measured
    # The query isn't shown, because a long one would move what is below the verdict.
    assert "id < 3" not in measured
    assert verdict_of(files_of(tmp_path, *small(1)), result=DONE) == Verdict(
        "good",
        (
            "30 files became 1: 3 KiB → 1 KiB in 3.2 s, as version 366, by arrow.",
            "The content is the same: 1,200 rows compared by DuckDB and Spark.",
            "Nothing more to do.",
        ),
    )
    some = verdict_of(files_of(tmp_path / "some", *small(1)), where="p = '0'", result=DONE)
    assert some.sentences[-1] == "Nothing more to do where p = '0'."


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"verified": None, "fingerprint": None}, "good", "The content was not compared."),
        ({"conflicts": ("a", "b")}, "good", "2 conflicts with other writers, and all was done as planned."),
        ({"conflicts": ("a",), "as_planned": False}, "warning", "files that they changed were left out."),
        ({"as_planned": False}, "warning", "What was done isn't exactly what was planned."),
        ({"versions": (366, 367)}, "good", "as versions 366, 367, by arrow."),
    ],
)
def test_deviations_of_a_run_are_named(changes: dict[str, object], kind: str, sentence: str) -> None:
    verdict = Verdict.of(None, None, result=replace(DONE, **changes))  # type: ignore[arg-type]
    assert verdict is not None
    assert (verdict.kind, sentence in str(verdict)) == (kind, True), str(verdict)


def test_a_run_that_did_nothing_changes_no_verdict(tmp_path: Path) -> None:
    files = files_of(tmp_path, *small(30))
    nothing = CompactionResult("none", "the plan is empty", files.sizes, files.sizes)
    assert verdict_of(files, result=nothing) == verdict_of(files)
