"""From state to views and back; the tests in tests/browser do the rest."""

import gc
import html
import importlib
import os
import re
import shutil
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import deltalake
import ipywidgets as w
import pytest
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit.datasets import shaped_table
from compaction_kit.discovery import Discovered, look_for_tables
from compaction_kit.execute.jobs import session_confs
from compaction_kit.handle import Handle
from compaction_kit.history import RestoreResult
from compaction_kit.session import cache_folder
from compaction_kit.surveys import survey
from compaction_kit.table import Table
from compaction_kit.text import GIB, KIB, MIB
from compaction_kit.widgets.compaction import plan_code
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.parts import Keys, absolute, within
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.tables import recent_tables, remember
from compaction_kit.widgets.workbench import Workbench
from tests import folders
from tests.ageing import age_file
from tests.displayed import outputs_of
from tests.execute.meanwhile import clustered_table
from tests.handmade import add, metadata, write_commit, write_log, write_sink_log
from tests.processes import run_python
from tests.widgets.pages import (
    SECONDS,
    at,
    choose,
    click,
    enter,
    folds,
    held,
    is_shown,
    said,
    settle,
    show,
    words,
)

# Slow as a whole file: a process that begins these tests last would run on alone.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of 10 and of 3 files; no test changes them."""
    root = tmp_path_factory.mktemp("tables")
    shaped_table(root / "a", partitions=2, files=5, rows=100)
    shaped_table(root / "nested" / "b", partitions=0, files=3, rows=10)
    return root


def made(root: Path) -> Workbench:
    return settle(Workbench(WorkbenchState(root)))


@pytest.fixture
def bench(folder: Path) -> Workbench:
    return made(folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 files from 10 commits; copy it to change it."""
    return Path(shaped_table(tmp_path_factory.mktemp("small") / "table", partitions=2, files=5, rows=50))


@pytest.fixture
def own(tmp_path: Path, small: Path) -> Path:
    """Two tables, and a folder with another table of the same name, for one test to change."""
    for name in ("a", "b", "else/a"):
        folders.copy(small, tmp_path / "tables" / name)
    return tmp_path / "tables"


@pytest.fixture
def own_bench(own: Path, spark: object) -> Iterator[Workbench]:
    """The workbench on the tables of `own`, with a session."""
    bench = made(own)
    yield bench
    settle(bench)


def next_steps(bench: Workbench) -> list[str]:
    return [step.description for step in at(bench, "ck-next").children[1:] if is_shown(step)]


def plan_of(bench: Workbench) -> Any:
    assert bench.state.plan is not None
    return bench.state.plan


def open_table(bench: Workbench, path: Path) -> None:
    choose(bench, name=str(path))


def num_files(table: Path) -> int:
    return ck.open_table(table).files().num_files


def delete(table: Path, predicate: str) -> int:
    """Another writer's commit; returns its version."""
    other = deltalake.DeltaTable(table)
    other.delete(predicate)
    return int(other.version())


def test_what_is_on_screen_is_drawn_and_left_in_a_notebook_without_a_kernel(bench: Workbench) -> None:
    assert at(bench, "ck-plan-figure").value == ""
    show(bench, "Plan")
    alive, still = outputs_of(bench)
    assert "application/vnd.jupyter.widget-view+json" in alive
    for shown in ("where 2 would do", 'aria-label="10 → 2 files, '):
        assert shown in still["text/html"]
    show(bench, "Files")
    assert "10 → 2 files" not in outputs_of(bench)[1]["text/html"]


def test_sliders_fields_and_plan_go_together(bench: Workbench, folder: Path) -> None:
    show(bench, "Plan")
    smaller, target, removed = at(bench, "ck-min"), at(bench, "ck-max"), list[int]()
    for slider in (smaller, target):
        for stop in slider.slider.stops:
            slider.slider.set_state({"value": stop})
            limits = plan_of(bench).thresholds
            assert slider.size_bytes == 2**stop
            assert (smaller.size_bytes, target.size_bytes) == (limits.min_file_size, limits.target_file_size)
            removed.append(plan_of(bench).num_files_removed)
    # Each stop of the slider for the minimum makes a different plan.
    by_minimum = removed[: len(smaller.slider.stops)]
    assert by_minimum == sorted({0, 10, *by_minimum})
    assert "the plan before" in said(bench, "ck-plan-figure")
    open_table(bench, folder / "nested" / "b")
    assert "the plan before" not in said(bench, "ck-plan-figure")


def test_the_target_is_the_size_of_new_files_or_of_a_bin(bench: Workbench) -> None:
    show(bench, "Plan")
    smaller, target = at(bench, "ck-min").field, at(bench, "ck-max").field
    # With a minimum of half the target, the next plan leaves the new files alone.
    for target.value, half in (("1 MiB", "512 KiB"), ("1 GiB", "1 GiB"), ("8 KiB", "4 KiB")):
        assert smaller.value == half
    limits = plan_of(bench).thresholds
    assert limits.output_file_size == 8 * KIB < limits.max_file_size
    assert "plan_compaction(output_file_size='8 KiB')" in plan_code(bench.state)
    at(bench, "ck-by-output").value = False
    assert smaller.value == "8 KiB"
    # As in OPTIMIZE, the minimum may be above the target.
    smaller.value = "4 MiB"
    limits = plan_of(bench).thresholds
    assert (limits.min_file_size, limits.max_file_size) == (4 * MIB, 8 * KIB)
    assert limits.output_file_size is None
    assert "max_file_size='8 KiB'" in plan_code(bench.state)


@pytest.mark.parametrize("target", ["", "8 KiB", "1 MiB"])
def test_in_another_order_the_lines_of_python_make_the_same_plan(bench: Workbench, target: str) -> None:
    show(bench, "Plan")
    at(bench, "ck-max").field.value = target or at(bench, "ck-max").field.value
    before = at(bench, "ck-min").field.value
    at(bench, "ck-order").value = "ingest"
    settle(bench)
    plan, names = plan_of(bench), {"ck": ck}
    exec(plan_code(bench.state), names)
    assert names["plan"].order == plan.order == "ingest"
    assert names["plan"].thresholds == plan.thresholds
    # The next plan doesn't select the files that this plan makes.
    assert 2 * plan.thresholds.min_file_size == plan.thresholds.target_file_size
    at(bench, "ck-order").value = "size"
    settle(bench)
    assert at(bench, "ck-min").field.value == before


def test_a_condition_that_waits_for_spark_says_so(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    show(bench, "Plan")
    with monkeypatch.context() as patched, held(bench.state.loading):
        # Act as if no session runs.
        patched.setattr(Handle, "session", None)
        at(bench, "ck-where").value = "part = 'p0000'"
        assert '<div role="status">Waiting for Spark to start' in said(bench, "ck-waiting")
    settle(bench)
    assert said(bench, "ck-waiting") == ""


def test_a_folder_without_a_table_offers_to_make_one(
    bench: Workbench, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for root, why in ((folder / "typo", "typo yet: check the spelling"), (tmp_path, "no Delta table under")):
        at(bench, "ck-root").value = str(root)
        assert why in said(bench, "ck-empty")
        assert [is_shown(at(bench, name)) for name in ("ck-make", "ck-verdict")] == [True, False]
        for part in ("Files", "Plan", "Run"):
            show(bench, part)
            assert "No table is open." in words(bench.stack.children[bench.rail.index])
    # Make a small table instead, because a year of flights takes a while.
    flights = partial(shaped_table, partitions=0, files=2, rows=10)
    monkeypatch.setattr("compaction_kit.datasets.flights", lambda path, progress: flights(path))
    click(bench, "ck-make")
    assert bench.state.name == str(tmp_path / "flights")
    assert plan_of(bench).num_files_removed == 2
    assert said(bench, "ck-empty") == ""


@pytest.mark.usefixtures("spark")
def test_the_verdict_is_about_the_table_whatever_is_chosen_for_a_plan(
    bench: Workbench, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = at(bench, "ck-verdict")
    before = verdict.value
    assert 'class="ck-warning" role="status"' in before
    assert "<b>10 files where 2 would do: a full scan opens 5 times as many files" in words(verdict)
    exec(bench.verdict.as_code(), {})
    assert capsys.readouterr().out == f"{bench.state.verdict}\n"
    show(bench, "Plan")
    bench.state.min_file_size = 1
    assert "0 under 1 B" in said(bench, "ck-plan")
    bench.state.budget = "soon"
    for where in ("part = 'p0000'", "value = 1"):
        choose(bench, where=where)
        assert verdict.value == before
    assert "value, which is not a partition column" in said(bench, "ck-where-error")
    seen: list[str] = []
    verdict.observe(lambda change: seen.append(change.new), "value")
    open_table(bench, folder / "nested" / "b")
    # The verdict changes once, from the one table to the other.
    assert [value.count("files where 1 would do") for value in seen] == [1]


@pytest.mark.parametrize(
    ("field", "typed", "why"),
    [
        ("ck-min", "12x MiB", "Minimum file size: .*is not a size"),
        ("ck-budget", "0", "Budget: .*is out of range"),
    ],
)
def test_what_is_no_size_gets_a_sentence_and_leaves_no_plan_to_run(
    bench: Workbench, folder: Path, field: str, typed: str, why: str
) -> None:
    show(bench, "Plan")
    box, before = at(bench, field), plan_of(bench)
    box = getattr(box, "field", box)
    former, box.value = box.value, typed
    assert re.search(why, words(bench.parts[2]))
    assert words(bench.parts[2]).count("alert") == 1
    assert (at(bench, "ck-to-run").disabled, is_shown(at(bench, "ck-plan-figure"))) == (True, False)
    show(bench, "Run")
    assert at(bench, "ck-run").disabled
    assert re.search("can&#x27;t be read|Budget", said(bench, "ck-run-plan"))
    box.value = former
    assert plan_of(bench).thresholds == before.thresholds
    assert not at(bench, "ck-run").disabled
    box.value = typed
    open_table(bench, folder / "nested" / "b")
    assert box.value == former


def test_an_empty_plan_says_where_its_bins_would_be_that_there_are_none(bench: Workbench) -> None:
    show(bench, "Plan")
    folds(bench, "Plan").selected_index = 0
    for budget, sentence in (("", ""), ("1 KiB", "No bin: no file is rewritten.")):
        choose(bench, budget=budget)
        assert said(bench, "ck-no-bins") == sentence
    assert not is_shown(at(bench, "ck-bins-figure"))


def test_the_lines_of_python_make_the_same_plan_and_run_it(own_bench: Workbench, own: Path) -> None:
    bench, plan = own_bench, own_bench.parts[2]
    assert "plan = table.plan_compaction()\n" in plan.as_code()
    bench.state.min_file_size = 100_000
    assert "plan_compaction(min_file_size=100000, max_file_size='1 GiB')" in plan.as_code()
    choose(bench, max_file_size=8 * KIB, order="ingest", budget="20 KiB")
    bench.as_python.selected_index = 0
    show(bench, "Run")
    at(bench, "ck-strategy").value = "arrow"
    assert "plan.run(strategy=&#x27;arrow&#x27;, progress=True)" in bench.code.value
    show(bench, "Plan")
    assert "output_file_size='8 KiB', order='ingest', budget='20 KiB'" in bench.copy.text
    scope: dict[str, object] = {}
    exec(bench.copy.text, scope)
    assert repr(scope["plan"]) == repr(bench.state.plan)
    assert num_files(own / "a") == plan_of(bench).num_files_after


def test_the_table_that_is_open_is_shown_whoever_asks_for_it_to_be_read_again(
    bench: Workbench, folder: Path
) -> None:
    state = bench.state
    state.max_file_size = KIB
    with held(state.loading):
        asked = threading.Thread(target=state.reload)
        asked.start()
        at(bench, "ck-table").value = str(folder / "nested" / "b")
        asked.join(SECONDS)
    settle(bench)
    assert state.files is not None
    assert (state.files.num_files, plan_of(bench).num_files_removed) == (3, 3)
    assert (state.max_file_size, state.where) == (GIB, "")


def test_one_step_is_next_and_what_was_typed_is_planned_before_anything_is_run(
    own_bench: Workbench, own: Path
) -> None:
    bench, run, step = own_bench, at(own_bench, "ck-run"), at(own_bench, "ck-next-plan")
    # The step is disabled on its own part, and filled on parts that have no other filled button.
    for part, is_disabled, style in (("Plan", True, ""), ("History", False, "primary"), ("Run", False, "")):
        show(bench, part)
        assert next_steps(bench) == ["Plan it →"]
        assert (step.disabled, step.button_style) == (is_disabled, style)
    at(bench, "ck-where").value = "part = 'p0000'"
    assert run.disabled
    run.click()
    settle(bench)
    assert (num_files(own / "a"), plan_of(bench).num_files_removed, run.disabled) == (10, 5, False)


@pytest.mark.works("local disk", "workbench")
def test_a_run_is_proved_its_query_can_be_timed_and_its_undo_is_refused_if_others_commit_meanwhile(
    own_bench: Workbench, own: Path
) -> None:
    bench, table, seen, costs = own_bench, own / "a", list[str](), list[str]()
    cost = re.compile("A run takes about .* s, and .* s for its proof; about .* of memory")
    show(bench, "Plan")
    show(bench, "Run")
    for bench.state.strategy in ("optimize", "auto"):
        costs += cost.findall(said(bench, "ck-run-plan"))
    # OPTIMIZE takes longer on many small files.
    assert costs[0] != costs[1]
    assert costs[1] in said(bench, "ck-plan")
    at(at(bench, "ck-progress"), "ck-status").observe(lambda change: seen.append(change.new), "value")
    click(bench, "ck-run")
    steps = ("Preparing", "Rewriting", "Comparing the content", "Committing")
    assert list(dict.fromkeys(step for text in seen for step in steps if step in text)) == list(steps)
    verdict = "500 rows compared by DuckDB. Nothing more to do."
    assert verdict in said(bench, "ck-verdict")
    assert not cost.search(said(bench, "ck-run-plan"))
    took = re.compile(r">seconds</th><td[^>]*>[\d.]+ \([\d.]+ to [\d.]+ s were predicted\)")
    assert took.search(said(bench, "ck-outcome", "Run"))
    assert next_steps(bench) == ["My query", "Undo …", "Report", "Plan another"]

    show(bench, "My query")
    at(bench, "ck-query").value = "no_such_column < 3"
    click(bench, "ck-measure")
    assert "no_such_column" in said(bench, "ck-measuring")
    at(bench, "ck-query").value, measuring = "id < 3", bench.state.measuring
    measuring.observe(lambda change: measuring.cancel() if "Running" in change.new else None, "message")
    click(bench, "ck-measure")
    assert "the query was not measured" in said(bench, "ck-measuring")

    click(bench, "ck-next-undo")
    assert bench.rail.value == "Run"
    assert "remove 2 files" in said(bench, "ck-restore-plan", "Run")
    assert "restore = table.plan_restore(10)" in bench.parts[4].as_code()
    click(bench, "ck-keep-table", "Run")
    show(bench, "My query")
    deleted = delete(table, "part = 'p0000'")
    # Going to Run, the page sees that commit, and plans the restore again.
    click(bench, "ck-next-undo")
    assert f"would undo what version {deleted} (DELETE) did: 250 rows more." in words(bench.parts[4])
    assert "would undo" not in said(bench, "ck-restore-plan", "Run")
    delete(table, "part = 'p0001'")
    click(bench, "ck-restore", "Run")
    refusal = said(bench, "ck-restoring", "Run")
    assert f"made at version {deleted}" in refusal
    assert "Plan the restore again." in refusal
    # No other part shows the refusal.
    show(bench, "History")
    assert "Plan the restore again." not in words(bench.parts[5])
    assert ck.open_table(table).version == deleted + 1
    assert not is_shown(at(bench, "ck-restore-choice", "Run"))
    assert is_shown(at(bench, "ck-ask-restore", "Run"))


def test_what_was_not_done_as_planned_is_no_good_news(bench: Workbench) -> None:
    job, outcome = bench.state.restoring, at(bench, "ck-restored", "Run")
    show(bench, "Run")
    for as_planned, kind, other in ((False, "warning", "good"), (True, "good", "warning")):
        job.result, job.status = RestoreResult(5, 3, 1, 1, 10, 10, as_planned, 1.0), "idle"
        job.status = "done"
        assert ("NOT as planned" in outcome.value) is not as_planned
        assert f"ck-{kind}" in outcome._dom_classes
        assert f"ck-{other}" not in outcome._dom_classes


def test_a_report_right_after_a_run_has_the_history_of_then(
    own_bench: Workbench, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bench = own_bench
    open_table(bench, own / "b")
    show(bench, "History")
    show(bench, "Run")
    at(bench, "ck-run").click()
    settle(bench)
    click(bench, "ck-export")
    (page,) = tmp_path.glob("b-v11.html")
    text = page.read_text()
    assert "Version 11 of" in text
    assert "All 12 versions can be read" in text


_REPRS = re.compile(r"object at 0x|DataFrame\[|<class |\b[A-Z]\w*(?:Plan|Result|Table|Survey|Log|Files)\(")


def test_a_run_and_what_is_folded_away_are_shown_under_their_own_table_in_words(
    own_bench: Workbench, own: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The report is written to the working folder.
    monkeypatch.chdir(tmp_path)
    bench = own_bench
    open_table(bench, own / "b")
    show(bench, "Run")
    at(bench, "ck-run").click()
    open_table(bench, own / "a")
    assert [num_files(own / name) for name in ("a", "b")] == [10, 2]
    assert f"about {own / 'b'}, the table that was open" in said(bench, "ck-other-table", "Run")
    assert f"run of {own / 'b'} done: version 11" in said(bench, "ck-footer")
    assert bench.parts[4].section() is None
    assert "became" not in said(bench, "ck-verdict")
    for part in bench.parts:
        show(bench, part.title)
        for folded in (one for one in within([part]) if isinstance(one, w.Accordion)):
            for index in reversed(range(len(folded.children))):
                folded.selected_index = index
                drawn = "".join(str(one.value) for one in within([part]) if isinstance(one, w.HTML))
                assert not _REPRS.search(drawn), (part.title, _REPRS.search(drawn))
    assert said(bench, "ck-partitions").count("<tr>") == 3
    assert ">under 16 MiB</th>" in said(bench, "ck-partitions")
    assert "in 2 bins" in said(bench, "ck-bins-figure")
    for title in ("Files", "Plan"):
        folds(bench, title).selected_index = None
    click(bench, "ck-export")
    assert "download" in said(bench, "ck-saved")
    # When the run's table is opened again, the run's result is shown; the other table's report is not.
    open_table(bench, own / "b")
    assert not said(bench, "ck-saved")
    assert "became" in said(bench, "ck-verdict")
    assert "Undo …" in next_steps(bench)
    show(bench, "Run")
    open_table(bench, own / "else" / "a")
    assert not any(is_shown(at(bench, name, "Run")) for name in ("ck-other-table", "ck-outcome"))
    show(bench, "Plan")
    open_table(bench, folder / "nested" / "b")
    show(bench, "Files")
    assert (at(bench, "ck-partitions").value, at(bench, "ck-bins-figure").value) == ("", "")
    assert "overlap('id')" in bench.parts[1].as_code()
    write_log(own / "other", [metadata({"other": "long"}), add("f")])
    open_table(bench, own / "other")
    assert "overlap" not in bench.parts[1].as_code()


def litter(table: Path) -> Path:
    """Make a file that a vacuum deletes."""
    file = table / "left-behind.parquet"
    file.write_text("x" * 100)
    age_file(file, 20)
    return file


def test_nothing_is_deleted_but_what_the_name_was_typed_for(own_bench: Workbench, own: Path) -> None:
    bench, files = own_bench, [litter(own / "a"), litter(own / "else" / "a")]
    show(bench, "Vacuum")
    name, delete = at(bench, "ck-confirm"), at(bench, "ck-vacuum")
    # Each key press counts at once.
    assert name.continuous_update
    for typed in ("b", "", "a"):
        name.value = typed
        assert delete.disabled is (typed != "a")
    # Another table of the same name.
    open_table(bench, own / "else" / "a")
    assert (name.value, delete.disabled) == ("", True)
    # A retention that isn't planned yet.
    name.value = "a"
    with held(bench.state.planning_vacuum):
        at(bench, "ck-retention").value = "30 days"
        delete.click()
        assert not bench.state.vacuum("a")
    settle(bench)
    assert "would delete nothing" in said(bench, "ck-vacuum-plan")
    assert not is_shown(at(bench, "ck-danger"))
    enter(bench, "ck-retention", "soon")
    assert "Retention: " in said(bench, "ck-vacuum-error")
    assert all(file.exists() for file in files)
    enter(bench, "ck-retention", "")
    name.value = "a"
    assert "deleted by then stay deleted" in at(bench, "ck-vacuuming").cancel_button.tooltip
    click(bench, "ck-vacuum")
    assert "1 file" in said(bench, "ck-outcome", "Vacuum")
    assert [file.exists() for file in files] == [True, False]
    assert "● vacuum done: deleted 1 file, 100 B" in said(bench, "ck-footer")
    # The next vacuum hides the result of the last one.
    with held(bench.state.vacuuming):
        assert not is_shown(at(bench, "ck-outcome", "Vacuum"))


@pytest.mark.usefixtures("spark")
def test_what_others_commit_is_seen_and_nothing_stays_on_screen_of_a_table_that_is_gone(own: Path) -> None:
    bench = made(own)
    state, about = bench.state, at(bench, "ck-about")
    show(bench, "Run")
    choose(bench, order="ingest")
    opened = state.opened
    show(bench, "Plan")
    assert state.opened is opened
    deleted = delete(own / "a", "part = 'p0000'")
    show(bench, "Files")
    assert plan_of(bench).version == deleted
    assert f"version {deleted} · 5 files" in words(about)
    deltalake.DeltaTable(own / "a").restore(deleted - 1)
    shaped_table(own / "0", partitions=0, files=2, rows=10)
    click(bench, "ck-refresh")
    assert plan_of(bench).version == deleted + 1
    assert f"version {deleted + 1} · 10 files" in words(about)
    assert str(own / "0") in at(bench, "ck-table").options
    assert (at(bench, "ck-table").value, at(bench, "ck-order").value) == (str(own / "a"), "ingest")

    # The table is away while files are counted, rows are read and the plan is run; then it is put back.
    show(bench, "History")
    show(bench, "My query")
    at(bench, "ck-query").value = "id < 3"
    (own / "a").rename(own / ".away")
    click(bench, "ck-count")
    at(bench, "ck-read-rows", "History").click()
    state.sampling.wait(SECONDS)
    for bar in ("ck-predicting", "ck-sampling"):
        assert "put it back, or open another table" in said(bench, bar)
    show(bench, "Run")
    click(bench, "ck-run")
    verdict = said(bench, "ck-verdict")
    assert (words(bench).count("does not exist"), "open another table" in verdict) == (1, True)
    assert at(bench, "ck-run").disabled
    assert not is_shown(about)
    for part in ("Files", "Plan", "My query", "Run", "History", "Vacuum"):
        show(bench, part)
        assert "The table can&#x27;t be read." in words(bench.stack.children[bench.rail.index])
    (own / ".away").rename(own / "a")
    show(bench, "Plan")
    assert "ck-error" not in said(bench, "ck-verdict")
    assert state.can_run


def test_a_refusal_says_that_the_plan_shown_is_new_until_something_else_is_chosen(
    own_bench: Workbench, own: Path
) -> None:
    bench, refusal = own_bench, "make a new plan; nothing was {}. This page shows one already."
    acts = partial(choose, bench, order="ingest"), partial(click, bench, "ck-refresh")
    show(bench, "Run")
    for number, act in enumerate(acts):
        version = delete(own / "a", f"id = {number}")
        click(bench, "ck-run")
        assert plan_of(bench).version == version
        assert words(bench).count(refusal.format("changed")) == 1
        assert refusal.format("changed") in said(bench, "ck-progress")
        assert "run failed" in said(bench, "ck-footer")
        act()
        for place in ("ck-progress", "ck-footer"):
            assert not re.search("run failed|make a new plan", said(bench, place))
    litter(own / "a")
    show(bench, "Vacuum")
    at(bench, "ck-confirm").value = "a"
    version = delete(own / "a", "id = 2")
    click(bench, "ck-vacuum")
    assert plan_of(bench).version == version
    assert refusal.format("deleted") in said(bench, "ck-vacuuming")


def test_refresh_stays_on_a_table_that_can_t_be_read(own: Path) -> None:
    bench = made(own)
    for closed in (own / "b", own):
        open_table(bench, own / "a")
        closed.chmod(0)
        with folders.no_permission(own):
            open_table(bench, own / "b")
            for _ in range(2):
                assert re.search("can&#x27;t be reached|Permission denied", said(bench, "ck-verdict"))
                click(bench, "ck-refresh")
                assert bench.state.name == str(own / "b")
        closed.chmod(0o755)
        click(bench, "ck-refresh")
        assert plan_of(bench).num_files_removed == 10


def test_folders_that_can_t_be_read_are_named_in_the_page_alone(
    own: Path, recwarn: pytest.WarningsRecorder
) -> None:
    closed = own / "closed"
    closed.mkdir(0)
    with folders.no_permission(own):
        bench = made(own)
        show(bench, "Streams")
    # A front end would show warnings below the cell.
    assert not recwarn.list
    assert said(bench, "ck-skipped") == f"Skipped: {closed} can&#x27;t be read; check the permissions."
    closed.chmod(0o755)
    click(bench, "ck-refresh")
    assert said(bench, "ck-skipped") == ""


def test_the_header_says_that_the_session_has_ended(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session:
        version, is_stopped = "4.2.0", False
        conf = SimpleNamespace(get=lambda _: "local[*]")
        sql = active = None

    monkeypatch.setattr(SparkSession, "active", lambda: Session())
    session = Session()
    bench.session.start(lambda job: session)
    settle(bench)
    assert "Spark 4.2.0 · Delta " in said(bench, "ck-spark")
    Session.is_stopped = True
    show(bench, "Run")
    assert said(bench, "ck-spark") == "Spark has ended: restart the kernel."


def test_the_table_that_gains_the_most_is_opened_unless_one_is_chosen_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, files in (("a", 2), ("b", 9), ("c", 4)):
        shaped_table(tmp_path / name, partitions=0, files=files, rows=10)
    bench = made(tmp_path)
    assert bench.state.name == str(tmp_path / "b")
    assert "9 files where 1 would do" in said(bench, "ck-verdict")
    go = threading.Event()
    monkeypatch.setattr(
        "compaction_kit.widgets.state.survey", lambda *a, **b: go.wait(SECONDS) and survey(*a, **b)
    )
    slow = Workbench(WorkbenchState(tmp_path))
    assert "Looking which of 3 tables gains the most" in said(slow, "ck-verdict")
    at(slow, "ck-table").value = str(tmp_path / "c")
    go.set()
    settle(slow)
    assert slow.state.name == str(tmp_path / "c")
    assert slow.state.surveying.value is not None
    go.clear()
    refreshed = Workbench(WorkbenchState(tmp_path))
    at(refreshed, "ck-refresh").click()
    go.set()
    settle(refreshed)
    assert refreshed.state.name == str(tmp_path / "b")


def test_a_survey_marks_small_files_where_there_is_something_to_do(tmp_path: Path) -> None:
    for name, files in (("fed", 4), ("healthy", 1)):
        shaped_table(tmp_path / name, partitions=0, files=files, rows=10)
    write_log(tmp_path / "empty", [metadata()])
    bench = made(tmp_path)
    show(bench, "Survey")
    fed, healthy, empty = at(bench, "ck-tables").rows
    assert fed[2] == ["100 %", 1.0, 1.0]
    assert (healthy[2], healthy[6]) == (["", None, None], ["nothing to do", 0])
    assert empty[6] == ["nothing to do", 0]
    assert said(bench, "ck-survey-errors") == ""
    open_table(bench, tmp_path / "empty")
    for part in ("Plan", "Run"):
        show(bench, part)
        assert words(bench).count("The table is empty at version 0") == 1
        assert "No file is live, so there is no plan." in words(bench.stack.children[bench.rail.index])


def test_a_store_that_is_slow_or_refuses_holds_up_nothing_and_says_so(
    bench: Workbench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, state, root = threading.Event(), bench.state, at(bench, "ck-root")

    def find(root: str) -> Discovered:
        if "://" in root and not go.wait(5):
            raise ValueError("no answer")
        return look_for_tables(root)

    monkeypatch.setattr("compaction_kit.widgets.state.look_for_tables", find)
    root.value = folder.as_uri()
    assert f"Looking for tables under {folder.as_uri()}" in said(bench, "ck-searching")
    assert state.table is None
    assert not any(is_shown(at(bench, name)) for name in ("ck-empty", "ck-make", "ck-verdict"))
    bench.rail.value = "Survey"
    assert "Looking for tables" in said(bench, "ck-survey")
    # Another folder is shown at once; what is found too late is not shown.
    root.value = str(folder / "nested")
    assert state.tables == [str(folder / "nested" / "b")]
    go.set()
    settle(bench)
    assert state.name == str(folder / "nested" / "b")
    enter(bench, "ck-root", folder.as_uri())
    assert state.name == f"{folder.as_uri()}/a"
    assert plan_of(bench).num_files_removed == 10
    go.clear()
    root.value = (folder / "nested").as_uri()
    at(bench, "ck-searching").cancel_button.click()
    assert "Cancelled" in said(bench, "ck-searching")
    assert not is_shown(at(bench, "ck-empty"))
    go.set()
    enter(bench, "ck-root", "no-such-scheme://host/a")
    assert "no-such-scheme" in said(bench, "ck-verdict")


def test_a_table_on_a_slow_store_opens_in_the_background(
    bench: Workbench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, state, slow = threading.Event(), bench.state, f"{folder.as_uri()}/a"

    def open_slowly(name: str) -> Table:
        if "://" in name and not go.wait(5):
            raise ValueError("no answer")
        return ck.open_table(name)

    monkeypatch.setattr("compaction_kit.widgets.state.open_table", open_slowly)
    state.name = slow
    assert (state.table, state.opened.pending, is_shown(at(bench, "ck-empty"))) == (None, True, False)
    # A table that is chosen meanwhile is shown at once, and the other one isn't shown later.
    state.name = str(folder / "nested" / "b")
    assert state.table is not None
    go.set()
    settle(bench)
    assert state.table.name == state.name == str(folder / "nested" / "b")
    state.name = slow
    settle(bench)
    assert plan_of(bench).num_files_removed == 10


def test_the_lines_of_python_run_in_any_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    bench = made(Path("nested"))
    assert bench.state.name == "nested/b"
    for part in (bench.verdict, *bench.parts[1:-1]):
        assert f"ck.open_table({str(folder / 'nested' / 'b')!r})" in part.as_code()
    for part in (bench.parts[0], bench.parts[-1]):
        assert repr(str(folder / "nested")) in part.as_code()
    for name in ("lake.sales.orders", "s3a://bucket/nested", "no_such_folder"):
        assert absolute(name) == name


def test_a_page_that_is_on_screen_gets_the_state_of_all_widgets_again(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[w.Widget] = []
    monkeypatch.setattr(w.Widget, "send_state", lambda widget: sent.append(widget))
    (keys,) = (one for one in within([bench]) if isinstance(one, Keys))
    # The message that a page sends as soon as it is on screen.
    keys._handle_custom_msg({"shown": True}, [])
    verdict = at(bench, "ck-verdict")
    assert all(any(one is other for other in sent) for one in (bench, verdict, verdict.layout))


def test_the_column_of_files_that_a_query_opens_is_chosen(bench: Workbench) -> None:
    show(bench, "Plan")
    column, drawn = at(bench, "ck-opened-column"), at(bench, "ck-comparison-figure")
    assert (column.options, drawn.value) == ((), "")
    folds(bench, "Plan").selected_index = 1
    # All columns except part, which is a partition column.
    assert column.options == ("id", "event_time", "value", "label")
    assert "A narrow range of id opens the fewest files now" in drawn.value
    column.value = "value"
    assert "A narrow range of value opens the fewest files " in drawn.value
    choose(bench, order="id")
    assert "A narrow range of value opens" in drawn.value


def test_tables_opened_before_are_offered_without_those_gone_and_without_secrets(
    bench: Workbench, folder: Path, tmp_path: Path
) -> None:
    for number in range(9):
        remember(shaped_table(tmp_path / f"other {number}", partitions=0, files=1, rows=10))
    for name in ("lake.sales.orders", "s3a://key:secret@bucket/table", "https://bucket/table?sig=secret"):
        remember(name)
    shutil.rmtree(tmp_path / "other 3")
    others = [str(tmp_path / f"other {n}") for n in (8, 7, 6, 5, 4, 2, 1, 0)]
    assert recent_tables() == ["lake.sales.orders", *others]
    assert "secret" not in (cache_folder() / "recent.json").read_text()
    enter(bench, "ck-root", str(folder / "nested"))
    enter(bench, "ck-table", others[0])
    assert (bench.state.name, bench.state.root) == (others[0], str(folder / "nested"))
    assert at(bench, "ck-table").label == f"{others[0]} (recent)"


def test_a_sink_log_is_found_and_drawn(bench: Workbench, folder: Path, tmp_path: Path) -> None:
    part = bench.parts[-1]
    show(bench, "Streams")
    assert "_spark_metadata" in said(bench, "ck-sink-log")
    assert part.as_code().endswith(f"ck.find_sink_logs({str(folder)!r})")
    write_sink_log(tmp_path / "clicks", 5)
    enter(bench, "ck-root", str(tmp_path))
    assert at(bench, "ck-log").value == str(tmp_path / "clicks")
    assert "batch 4, 5 entries" in said(bench, "ck-sink-log")
    assert "<svg" in said(bench, "ck-sink-figure")
    for batches, shown in ((1, "1 batch"), (300, "300 batches")):
        at(bench, "ck-ahead").set_state({"value": batches})
        assert at(bench, "ck-ahead").text == shown
    assert "log.plot(300)" in part.as_code()
    scope: dict[str, object] = {}
    exec(part.as_code(), scope)
    assert repr(scope["log"]) == repr(bench.state.following.value)


def test_a_closed_workbench_leaves_no_work_and_no_widget(bench: Workbench) -> None:
    begun = threading.Event()

    def work(job: Job) -> None:
        while True:
            job.report(0.5, "Going on")
            begun.set()

    bench.state.running.start(work)
    assert begun.wait(SECONDS)
    bench.close()
    settle(bench)
    assert bench.state.running.status == "cancelled"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("Job")]
    assert bench.rail.comm is None


def test_a_closed_page_is_forgotten_with_its_table(folder: Path) -> None:
    # The first page makes the widgets that all pages share.
    for _ in range(2):
        before = len(w.widget._instances)
        page = ck.widgets.plan(folder / "nested" / "b")
        page.state.loading.wait(SECONDS)
        assert page.state.plan is not None
        state = weakref.ref(page.state)
        page.close()
        del page
        gc.collect()
    assert state() is None
    assert len(w.widget._instances) == before


@pytest.mark.usefixtures("spark")
def test_a_cell_that_is_run_again_shows_its_workbench_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = {"now": "one"}
    shell = SimpleNamespace(get_parent=lambda: {"metadata": {"cellId": cells["now"]}})
    module = importlib.import_module("compaction_kit.widgets.workbench")
    monkeypatch.setattr(module, "get_ipython", lambda: shell)

    def run(cell: str, root: Path = folder) -> Workbench:
        cells["now"] = cell
        return ck.workbench(root)

    first = run("one")
    first.state.name = str(folder / "nested" / "b")
    first.rail.value = "Plan"
    with held(first.state.running):
        other, again = run("two"), run("one")
        assert again is first is not other
        assert (again.state.name, again.rail.value) == (str(folder / "nested" / "b"), "Plan")
        assert "● run: Starting" in said(again, "ck-footer")
    assert run("one", folder / "nested") is first
    assert at(first, "ck-root").value == str(folder / "nested")
    first.close()
    fresh = run("one")
    assert fresh is not first
    for bench in (first, other, fresh):
        bench.close()
        bench.session.wait(SECONDS)


def test_schemas_and_catalogs_of_the_session_are_browsed(
    bench: Workbench, spark: SparkSession, folder: Path
) -> None:
    early, schema = Workbench(WorkbenchState("kit_bench")), "spark_catalog.kit_bench"
    assert early.state.tables == []
    spark.sql("CREATE SCHEMA kit_bench")
    try:
        for name, path in (("a", "a"), ("b", "nested/b")):
            spark.sql(f"CREATE TABLE kit_bench.{name} USING delta LOCATION '{folder}/{path}'")
        # The schema was chosen before the session was there.
        early.session.start(lambda job: spark)
        settle(early)
        assert early.state.tables == ["kit_bench.a", "kit_bench.b"]
        show(bench, "Survey")
        enter(bench, "ck-root", schema)
        assert bench.state.tables == [f"{schema}.a", f"{schema}.b"]
        assert at(bench, "ck-table").value == f"{schema}.a"
        assert plan_of(bench).num_files_removed == 10
        assert sorted(row[0][1] for row in at(bench, "ck-tables").rows) == bench.state.tables
        spark.sql("DROP TABLE kit_bench.b")
        click(bench, "ck-refresh")
        assert bench.state.tables == [f"{schema}.a"]
    finally:
        spark.sql("DROP SCHEMA kit_bench CASCADE")
    with session_confs(spark, {"spark.sql.catalog.broken": "no.such.Catalog"}):
        at(bench, "ck-root").value = "broken"
        assert "no.such.Catalog" in said(bench, "ck-verdict")
        assert bench.state.table is None
    at(bench, "ck-root").value = "default.no_such"
    assert "default.no_such yet: check the spelling" in said(bench, "ck-empty")
    assert "ck-error" not in said(bench, "ck-verdict")


def test_a_part_that_can_t_be_drawn_says_so_and_shows_nothing_old(
    bench: Workbench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no <glyph>")

    show(bench, "Plan")
    with monkeypatch.context() as broken:
        broken.setattr(type(plan_of(bench)), "explain", fail)
        bench.state.max_file_size = 8 * KIB
    assert "Unexpected ValueError: no &lt;glyph&gt;" in said(bench, "ck-drawing-error", "Plan")
    assert not is_shown(at(bench, "ck-plan-figure"))
    bench.state.max_file_size = MIB
    assert said(bench, "ck-drawing-error", "Plan") == ""
    assert is_shown(at(bench, "ck-plan-figure"))
    show(bench, "Files")
    monkeypatch.setattr("compaction_kit.files.Files.plot", fail)
    bench.state.name = str(folder / "nested" / "b")
    bench.state.loading.wait(SECONDS)
    assert "3 files" in said(bench, "ck-about")
    assert "files are under" not in at(bench, "ck-files-figure").value
    assert "Unexpected ValueError" in said(bench, "ck-drawing-error", "Files")


@pytest.mark.parametrize("title", ["Files", "Plan", "Vacuum"])
def test_words_and_figure_are_always_of_one_table(bench: Workbench, folder: Path, title: str) -> None:
    show(bench, title)
    name = title.lower()
    figure, sentence = at(bench, f"ck-{name}-figure"), f"ck-{name}" + "-plan" * (title == "Vacuum")
    former, seen = figure.value, []
    at(bench, sentence, title).observe(lambda change: seen.append((change.new, figure.value)), "value")
    open_table(bench, folder / "nested" / "b")
    drawn = [shown for text, shown in seen if text and "Looking" not in text]
    assert drawn
    assert former not in drawn


def test_versions_are_listed_with_their_commits_and_two_are_compared(bench: Workbench, folder: Path) -> None:
    table, part = ck.open_table(folder / "a"), bench.parts[5]
    show(bench, "History")
    grid, history = at(bench, "ck-versions"), table.history().to_pylist()
    assert (grid.counts, grid.order) == ([len(history), len(history)], [0, -1])
    expected = [
        [
            *(row["version"], row["timestamp"].timestamp() * 1_000, row["operation"]),
            *(row["num_added"] - row["num_removed"], row["bytes_added"] - row["bytes_removed"]),
            *(row["records_added"], "changed"),
        ]
        for row in reversed(history)
    ]
    assert [[cell[1] for cell in row] for row in grid.rows] == expected
    assert grid.offered == sorted({row["operation"] for row in history})

    # The actions of a commit are read when their section is opened.
    actions = at(bench, "ck-actions")
    grid.on_open(2)
    settle(bench)
    assert actions.value == ""
    folds(bench, "History").selected_index = 0
    settle(bench)
    lines = table.log.actions(2)["fields"].to_pylist()
    cut = [line if len(line) <= 400 else f"{line[:399]}…" for line in lines]
    assert cut != lines
    assert html.unescape(actions.value) == "<pre>{}</pre>".format("\n".join(cut))
    grid.on_open(1)
    settle(bench)
    assert "part-000002" not in actions.value

    # A single ticked version isn't compared; of two, the earlier one is the start, in whatever order ticked.
    difference = at(bench, "ck-diff")
    choose(bench, compared=[1, 99])
    assert "99" in said(bench, "ck-comparing")
    grid.set_state({"ticked": [3]})
    assert said(bench, "ck-comparing") == ""
    assert "Tick another version to compare it with version 3" in difference.value
    grid.set_state({"ticked": [3, 1]})
    settle(bench)
    assert difference.value == table.diff(1, 3)._repr_html_()
    exec(part.as_code(), {})
    assert "table.diff(start=1, end=3)" in part.as_code()
    grid.words, grid.order = "write", [4, 1]
    open_table(bench, folder / "nested" / "b")
    assert (bench.state.compared, grid.ticked, grid.words, difference.value) == ([], [], "", "")
    assert grid.order == [0, -1]


def test_a_commit_without_an_operation_is_shown(tmp_path: Path) -> None:
    bench = made(write_log(tmp_path, [add("a")]))
    show(bench, "History")
    assert ", no operation named: it " in said(bench, "ck-version-text")


def test_a_version_is_chosen_by_a_time_that_is_shown(own: Path) -> None:
    begin = time.time_ns() - 3_600_000_000_000
    for number, commit in enumerate(sorted((own / "a" / "_delta_log").glob("*.json"))):
        # Several commits in a second.
        os.utime(commit, ns=(0, begin + 300_000_000 * number))
    bench = made(own / "a")
    show(bench, "History")
    grid, field, state = at(bench, "ck-versions"), at(bench, "ck-time"), bench.state
    for version in (2, 3, 5):
        grid.on_open(version)
        shown = re.search(rf"Version {version} of (.*?),", said(bench, "ck-version-text"))
        assert shown is not None
        listed = next(row[1][0] for row in grid.rows if row[0][1] == version)
        for text in (shown[1], listed):
            grid.on_open(0)
            field.value = text
            assert (state.version, grid.chosen, said(bench, "ck-time-error")) == (version, version, "")
    field.value = "the day before yesterday"
    assert "the day before yesterday" in said(bench, "ck-time-error")
    # The error disappears after a click on a row, and for another table.
    grid.on_open(1)
    assert (field.value, said(bench, "ck-time-error")) == ("", "")
    field.value = "the day before yesterday"
    open_table(bench, own / "b")
    assert (field.value, said(bench, "ck-time-error")) == ("", "")


def test_an_earlier_version_is_read_and_restored(own_bench: Workbench, own: Path) -> None:
    bench, table, state = own_bench, ck.open_table(own / "a"), own_bench.state
    open_table(bench, own / "a")
    show(bench, "History")
    grid, ask, latest = at(bench, "ck-versions"), at(bench, "ck-ask-restore", "History"), table.version
    assert state.version == latest == grid.chosen
    assert not is_shown(ask)
    grid.on_open(latest - 1)
    assert ask.description == f"Restore version {latest - 1} …"
    folds(bench, "History").selected_index = 1
    click(bench, "ck-read-rows")
    assert said(bench, "ck-rows").count("<tr>") == 21
    assert f"20 rows of version {latest - 1}" in said(bench, "ck-rows")
    click(bench, "ck-ask-restore", "History")
    assert is_shown(at(bench, "ck-restore-choice", "History"))
    grid.on_open(1)
    assert said(bench, "ck-rows") == ""
    assert not is_shown(at(bench, "ck-restore-choice", "History"))
    click(bench, "ck-ask-restore", "History")
    hidden: list[Any] = []
    at(bench, "ck-past").layout.observe(hidden.append, "display")
    click(bench, "ck-restore", "History")
    # The list isn't hidden, so the page doesn't move.
    assert hidden == []
    assert table.version == latest + 1 == state.version
    assert table.diff(1, latest + 1).same_content

    # A version whose files are gone can't be restored, and the page says why.
    assert not ask.disabled
    gone = next(path for path in folders.live(own / "a", 1) if "p0000" in path)
    delete(own / "a", "part = 'p0000'")
    (own / "a" / unquote(gone)).unlink()
    grid.on_open(1)
    click(bench, "ck-refresh")
    # Another writer has committed; the chosen version stays.
    assert state.version == 1
    assert (is_shown(ask), ask.disabled) == (True, True)
    assert "files that it needs are gone" in said(bench, "ck-restore-refusal", "History")
    state.plan_restore(1)
    settle(bench)
    assert "be restored: 1 file that it needs is missing" in said(bench, "ck-restore-plan", "History")
    assert at(bench, "ck-restore", "History").disabled
    for version in (99, state.version):
        state.plan_restore(version)
        settle(bench)
        assert is_shown(at(bench, "ck-planning-restore", "History")) is (version == state.version)
    click(bench, "ck-read-rows")
    refusal = said(bench, "ck-sampling")
    assert f"Version {state.version} can&#x27;t be read: files are gone, probably by VACUUM" in refusal
    assert "choose another version." in refusal


@pytest.mark.usefixtures("spark")
def test_the_files_of_a_query_are_counted_and_predicted_without_a_run(
    bench: Workbench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, part, job = folder / "nested" / "b", bench.parts[3], bench.state.predicting
    show(bench, "My query")
    query, sql = at(bench, "ck-query"), f"SELECT max(value) FROM delta.`{table}` WHERE id < 10"
    assert not is_shown(at(bench, "ck-measure"))
    query.value = sql
    open_table(bench, table)
    assert (query.value, at(bench, "ck-count").disabled) == ("", True)
    query.value, version = sql, ck.open_table(table).version
    seen: dict[str, str] = {}
    bar = at(bench, "ck-predicting").bar
    job.observe(lambda change: seen.setdefault(change.new.partition(" to start")[0], bar.value), "message")
    with monkeypatch.context() as patched:
        # Act as if no session runs; the bar moves to and fro while no share is known.
        patched.setattr(Handle, "session", None)
        click(bench, "ck-count")
    assert ("value=" in seen["Waiting for Spark"], "value=" in seen["Done"]) == (False, True)
    figure = at(bench, "ck-prediction-figure")
    for words_drawn in ("The query opens 1 of 3 files now", "<svg", "by id"):
        assert words_drawn in figure.value
    assert "Run the plan to time" in said(bench, "ck-not-run")
    assert "The others are predictions" in said(bench, "ck-prediction")
    assert "prediction = plan.predict_reads('SELECT max(value) FROM {table} WHERE id < 10')" in part.as_code()
    section = part.section()
    assert section is not None
    assert section.records == (job.value,)
    # The prediction disappears, because it is for the query or the plan before.
    for name, other in (("query", "id < 20"), ("max_file_size", KIB)):
        click(bench, "ck-count")
        assert is_shown(figure)
        setattr(bench.state, name, other)
        assert job.value is None
        assert not is_shown(figure)
    query.value = "SELECT id FROM elsewhere"
    click(bench, "ck-count")
    assert "names neither the table nor {table}" in said(bench, "ck-predicting")
    assert ck.open_table(table).version == version


@pytest.mark.usefixtures("spark")
def test_the_example_of_a_condition_selects_files_whatever_the_names(tmp_path: Path) -> None:
    values = {"q `q`": "O'Hare", "2024": "back\\slash", "p": None, "select": "1"}
    for number, (name, value) in enumerate(values.items()):
        adds = [add(f"f{place}", partition={name: one}) for place, one in enumerate((value, "other"))]
        columns = metadata({"id": "long", name: "string"}, [name])
        bench = made(Path(write_log(tmp_path / str(number), [columns, *adds])))
        show(bench, "Plan")
        example = at(bench, "ck-where").placeholder.removeprefix("such as ")
        show(bench, "My query")
        assert at(bench, "ck-query").placeholder.endswith(f"WHERE {example}, or a condition alone: {example}")
        choose(bench, where=example)
        assert bench.state.files is not None
        assert (bench.state.files.num_files, bench.state.input_error) == (1, "")
    # The last name, `select`, would begin a whole query.
    bench.state.query = example
    click(bench, "ck-count")
    assert bench.state.predicting.error == ""


@pytest.mark.usefixtures("spark")
def test_a_clustered_table_is_planned_by_its_cubes_and_run(tmp_path: Path) -> None:
    clustered_table(tmp_path / "events", files=6)
    bench = made(tmp_path)
    assert "6 files of 6 are not clustered by id, value yet." in said(bench, "ck-verdict")
    show(bench, "Plan")
    controls = ("ck-min", "ck-where", "ck-order", "ck-budget", "ck-max", "ck-full")
    assert [is_shown(at(bench, name)) for name in controls] == [False] * 4 + [True] * 2
    assert " is new and rewritten" in said(bench, "ck-plan-figure")
    folds(bench, "Plan").selected_index = 1
    assert "A value of id is in 1 of 6 files, on average" in said(bench, "ck-comparison-figure")
    at(bench, "ck-full").value = True
    assert plan_of(bench).full
    show(bench, "Run")
    click(bench, "ck-run")
    assert bench.state.result is not None
    assert (bench.state.result.strategy, bench.state.result.verified) == ("optimize", True)
    assert "6 files became 1" in said(bench, "ck-verdict")
    assert "Nothing more to do." in said(bench, "ck-verdict")
    open_table(bench, Path(shaped_table(tmp_path / "plain", partitions=2, files=2, rows=10)))
    show(bench, "Plan")
    assert [is_shown(at(bench, name)) for name in controls] == [True] * 5 + [False]
    assert not plan_of(bench).full


def test_what_was_chosen_ends_with_its_table_and_a_refused_predicate_hides_no_commit(tmp_path: Path) -> None:
    columns = {"size": "long", "ingestion": "long"}
    for name in "ab":
        write_log(tmp_path / name, [metadata(columns), add("f1"), add("f2")])
    bench = made(tmp_path / "a")
    state = bench.state
    show(bench, "Plan")
    offered = ["size", "ingest", "`size`", "ingestion"]
    assert [value for _, value in at(bench, "ck-order").options] == offered
    show(bench, "Vacuum")
    for days, shown in ((1, "in 1 day"), (3, "in 3 days")):
        choose(bench, where="nope = 1", keep="0 0", days=days)
        assert at(bench, "ck-days").text == shown
    compile(bench.parts[bench.rail.index].as_code(), "As Python", "exec")
    write_commit(tmp_path / "a", 1, [add("f3")])
    click(bench, "ck-refresh")
    assert state.files is not None
    assert (state.files.version, "nope" in state.input_error) == (1, True)
    open_table(bench, tmp_path / "b")
    assert (state.where, state.keep, state.days) == ("", "", 0)


WARM = """
import sys, tempfile, time
from pathlib import Path
import compaction_kit as ck
from compaction_kit.cost import RAN

def scratch():
    made = Path(tempfile.gettempdir()).glob("compaction-kit-*")
    return [folder for folder in made if not folder.name.startswith("compaction-kit-spark")]

table = ck.open_table(sys.argv[1])
before = table.plan_compaction().cost
bench = ck.workbench(sys.argv[1])
bench.session.wait()
while not RAN or scratch():
    time.sleep(0.1)
after = table.plan_compaction().cost
print(*RAN, before.amounts[0].first_runs, after.amounts[0].first_runs, table.version)
"""


@pytest.mark.nightly
def test_a_session_that_the_workbench_starts_has_run_once_and_left_nothing(
    changed: Path, tmp_path: Path
) -> None:
    version = ck.open_table(changed).version
    said = run_python("-c", WARM, str(changed), TMPDIR=str(tmp_path)).stdout
    assert said == f"arrow 1 0 {version}\n"
