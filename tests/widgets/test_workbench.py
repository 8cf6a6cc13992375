"""State to views and back; the browser's tests do the rest."""

import importlib
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import deltalake
import ipywidgets as w
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit.compaction import CompactionPlan
from compaction_kit.datasets import shaped_table
from compaction_kit.files import Files
from compaction_kit.history import RestorePlan, RestoreResult
from compaction_kit.text import GIB, KIB, MIB
from compaction_kit.vacuum import VacuumResult
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.parts import within
from compaction_kit.widgets.recent import recent_tables, remember
from compaction_kit.widgets.restore import RestoreView
from compaction_kit.widgets.sizes import SizeSlider
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.vacuum import VacuumView
from compaction_kit.widgets.workbench import Workbench
from tests import folders
from tests.ageing import age_file
from tests.displayed import outputs_of
from tests.handmade import commit_path, metadata, write_log, write_sink_log

SECONDS = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    shaped_table(root / "a", partitions=2, files=5, rows=100)
    shaped_table(root / "nested" / "b", partitions=0, files=3, rows=10)
    return root


@pytest.fixture
def bench(folder: Path) -> Workbench:
    made = Workbench(WorkbenchState(folder))
    made.state.loading.wait(SECONDS)
    return made


def plan_of(bench: Workbench) -> CompactionPlan:
    """The plan on screen."""
    assert bench.state.plan is not None
    return bench.state.plan


def files_of(bench: Workbench) -> Files:
    """The files on screen."""
    assert bench.state.files is not None
    return bench.state.files


def show(bench: Workbench, title: str) -> None:
    """Click a part in the rail."""
    bench.rail.value = title


def test_a_notebook_without_a_kernel_shows_the_verdict_and_the_part_that_was_on_screen(
    bench: Workbench,
) -> None:
    show(bench, "Plan")
    alive, still = outputs_of(bench)
    assert "application/vnd.jupyter.widget-view+json" in alive
    assert "where 2 would do" in still["text/html"]
    assert "10 → 2 files" in still["text/html"]
    show(bench, "Files")
    assert "10 → 2 files" not in outputs_of(bench)[1]["text/html"]


def test_the_first_table_is_opened_and_planned(bench: Workbench, folder: Path) -> None:
    state = bench.state
    assert state.tables == [str(folder / "a"), str(folder / "nested" / "b")]
    assert (state.name, plan_of(bench).num_bins, plan_of(bench).num_files_removed) == (
        str(folder / "a"),
        2,
        10,
    )
    assert "10 files" in bench.picker.about.value
    assert 'aria-label="10 of 10 files are under 16 MiB"' in bench.files.image.value
    assert bench.plan.image.value == ""
    show(bench, "Plan")
    assert 'aria-label="10 → 2 files, ' in bench.plan.image.value


def test_thresholds_replan_and_come_back_to_the_sliders(bench: Workbench) -> None:
    bench.plan.target.slider.set_state({"value": 13})
    assert bench.state.max_file_size == 8 * KIB
    assert plan_of(bench).thresholds.max_file_size == 8 * KIB
    assert plan_of(bench).num_bins > 2
    bench.state.max_file_size = MIB
    assert bench.plan.target.field.value == "1 MiB"


def test_a_bin_limit_below_the_small_size_lowers_it_and_the_slider(bench: Workbench) -> None:
    bench.plan.target.field.value = "1 MiB"
    assert bench.plan.smaller.field.value == "1 MiB"
    assert plan_of(bench).thresholds.min_file_size == MIB
    bench.plan.target.field.value = "1 GiB"
    assert bench.plan.smaller.field.value == "1 GiB"


def test_a_small_size_above_the_bin_limit_is_planned_as_optimize_does(bench: Workbench) -> None:
    bench.plan.target.field.value = "2 MiB"
    bench.plan.smaller.field.value = "4 MiB"
    thresholds = plan_of(bench).thresholds
    assert (thresholds.min_file_size, thresholds.max_file_size) == (4 * MIB, 2 * MIB)
    assert (bench.plan.smaller.field.value, bench.plan.target.field.value) == ("4 MiB", "2 MiB")


def test_sliders_and_lines_stand_where_the_plan_goes_by(bench: Workbench) -> None:
    show(bench, "Plan")
    lines = bench.plan.image
    scale = lines.scale

    @given(st.sampled_from([("first", bench.plan.smaller), ("second", bench.plan.target)]), st.data())
    @settings(max_examples=20)
    def check(moved: tuple[str, SizeSlider], data: st.DataObject) -> None:
        name, slider = moved
        place = data.draw(st.sampled_from(slider.slider.stops))
        lines.set_state({name: place})
        thresholds = plan_of(bench).thresholds
        assert slider.size_bytes == 2**place == 2**slider.slider.value
        assert bench.plan.smaller.size_bytes == thresholds.min_file_size == 2**lines.first
        assert bench.plan.target.size_bytes == thresholds.max_file_size == 2**lines.second
        assert lines.scale == scale

    check()


def test_every_stop_of_a_slider_makes_another_plan(bench: Workbench) -> None:
    plans = []
    for stop in bench.plan.smaller.slider.stops:
        bench.plan.smaller.slider.set_state({"value": stop})
        plans.append(sorted(plan_of(bench).files["path"].to_pylist()))
    assert len({tuple(paths) for paths in plans}) == len(plans)
    assert (len(plans[0]), len(plans[-1])) == (0, 10)


def test_the_plan_before_is_an_outline(bench: Workbench, folder: Path) -> None:
    show(bench, "Plan")
    assert "the plan before" not in bench.plan.image.value
    bench.state.max_file_size = 8 * KIB
    assert "the plan before" in bench.plan.image.value
    bench.state.name = str(folder / "nested" / "b")
    bench.state.loading.wait(SECONDS)
    assert "the plan before" not in bench.plan.image.value


def test_another_table_starts_afresh(bench: Workbench, folder: Path) -> None:
    bench.state.max_file_size = KIB
    bench.picker.choice.value = str(folder / "nested" / "b")
    bench.state.loading.wait(SECONDS)
    assert bench.state.max_file_size == GIB
    assert plan_of(bench).num_files_removed == 3
    assert bench.state.where == ""


def test_the_table_that_is_open_is_shown_whoever_asks_for_it_to_be_read_again(
    bench: Workbench, folder: Path
) -> None:
    state, go = bench.state, threading.Event()
    state.loading.start(lambda job: go.wait(SECONDS))
    asked = threading.Thread(target=state.reload)
    asked.start()
    threading.Timer(0.2, go.set).start()
    state.name = str(folder / "nested" / "b")
    asked.join(SECONDS)
    state.loading.wait(SECONDS)
    assert (files_of(bench).num_files, plan_of(bench).num_files_removed) == (3, 3)


def test_a_bad_path_gets_a_sentence_in_the_page(bench: Workbench, folder: Path) -> None:
    bench.picker.root.value = str(folder / "typo")
    assert "typo yet: check the spelling" in bench.picker.empty.value
    assert bench.picker.empty.layout.display == ""
    assert bench.state.plan is None
    show(bench, "Run")
    assert bench.run.run_button.disabled


def test_an_empty_folder_offers_to_make_a_table(bench: Workbench, tmp_path: Path) -> None:
    bench.picker.root.value = str(tmp_path)
    assert "There is no Delta table under" in bench.picker.empty.value
    assert bench.picker.make.layout.display == ""
    assert "ck-error" not in bench.verdict.sentences.value


def test_the_verdict_is_about_the_table_whatever_is_chosen_for_a_plan(bench: Workbench, folder: Path) -> None:
    told = bench.verdict.sentences
    finding = "<b>10 files where 2 would do: a query that reads all opens 5 times as many.</b>"
    assert finding in told.value
    assert 'class="ck-warning"' in told.value
    assert 'role="status"' in told.value
    before = told.value
    show(bench, "Plan")
    bench.state.min_file_size = 1
    assert "0 under 1 B" in bench.plan.sentence.value
    bench.state.budget = "soon"
    for where in ("part = 'p0000'", "value = 1"):
        bench.state.where = where
        bench.state.loading.wait(SECONDS)
        assert told.value == before
    assert "value, which is not a partition column" in bench.plan.error.value
    seen: list[str] = []
    told.observe(lambda change: seen.append(change.new), "value")
    bench.state.name = str(folder / "nested" / "b")
    bench.state.loading.wait(SECONDS)
    # From the one to the other, with nothing in between.
    assert [value.count("3 files where 1 would do") for value in seen] == [1]
    bench.picker.root.value = str(folder / "typo")
    assert told.value == ""
    assert told.layout.display == "none"


def test_the_verdict_of_an_empty_table_is_calm_and_of_a_damaged_one_an_error(
    bench: Workbench, tmp_path: Path
) -> None:
    write_log(tmp_path / "empty", [metadata()])
    bench.state.root = str(tmp_path / "empty")
    bench.state.loading.wait(SECONDS)
    assert 'class="ck-good"' in bench.verdict.sentences.value
    assert "The table is empty at version 0" in bench.verdict.sentences.value
    commit_path(write_log(tmp_path / "damaged", [metadata()]), 0).write_text("{")
    bench.state.root = str(tmp_path / "damaged")
    bench.state.loading.wait(SECONDS)
    assert 'class="ck-error" role="alert"' in bench.verdict.sentences.value
    assert "Nothing to do" not in bench.verdict.sentences.value


def test_the_verdict_s_lines_of_python_say_the_same(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(bench.verdict.as_code(), {})
    assert capsys.readouterr().out == f"{bench.state.verdict}\n"


@pytest.mark.spark
def test_the_lines_of_python_make_the_same_plan_and_run_it(
    own_bench: Workbench, own: Path, spark: object
) -> None:
    bench = own_bench
    assert "plan = table.plan_compaction()\n" in bench.plan.as_code()
    bench.state.min_file_size = 100_000
    assert "plan_compaction(min_file_size=100000)" in bench.plan.as_code()
    bench.state.max_file_size = 8 * KIB
    assert "plan_compaction(max_file_size='8 KiB')" in bench.plan.as_code()
    bench.state.order = "ingest"
    bench.state.loading.wait(SECONDS)
    bench.state.budget = "20 KiB"
    show(bench, "Plan")
    bench.as_python.selected_index = 0
    code = bench.copy.text
    assert "max_file_size='8 KiB', order='ingest', budget='20 KiB'" in code
    scope: dict[str, object] = {}
    exec(code, scope)
    assert repr(scope["plan"]) == repr(bench.state.plan)
    assert ck.open_table(own / "a").files().num_files == plan_of(bench).num_files_after


@pytest.mark.spark
@pytest.mark.works("local disk", "workbench")
def test_a_run_is_proved_and_the_next_plan_is_empty(folder: Path, tmp_path: Path, spark: object) -> None:
    root = Path(shutil.copytree(folder, tmp_path / "copy"))
    bench = Workbench(WorkbenchState(root))
    bench.state.loading.wait(SECONDS)
    show(bench, "Run")
    told: list[str] = []
    bench.run.bar.message.observe(lambda change: told.append(change.new), "value")
    bench.run.run_button.click()
    bench.state.running.wait(120)
    assert bench.state.running.message == "Done"
    steps = ("Preparing", "Rewriting", "Comparing the content", "Committing")
    assert list(dict.fromkeys(step for text in told for step in steps if step in text)) == list(steps)
    assert bench.state.result is not None
    assert bench.state.result.verified is True
    assert "identical: 1,000 rows" in bench.run.outcome.value
    bench.state.loading.wait(SECONDS)
    assert plan_of(bench).is_empty
    assert bench.run.run_button.disabled
    assert "content identical" in bench.footer.value
    verdict = bench.verdict.sentences.value
    assert "<b>10 files became 2: " in verdict
    assert "1,000 rows compared by DuckDB. Nothing to do, because each of the 2 files" in verdict
    section = bench.verdict.section()
    assert section is not None
    assert section.records == (bench.state.verdict,)
    show(bench, "My query")
    bench.query.query.value = "no_such_column < 3"
    bench.query.measure_button.click()
    bench.state.measuring.wait(SECONDS)
    assert "no_such_column" in bench.query.measuring.error.value
    assert "Measured" not in bench.verdict.sentences.value
    bench.query.query.value = "SELECT max(value) FROM a WHERE id = 7"
    bench.query.measure_button.click()
    bench.state.measuring.wait(120)
    assert "Measured by SELECT max(value) FROM {table} WHERE id = 7: " in bench.verdict.sentences.value
    assert "<svg" in bench.query.reads.value
    scope: dict[str, object] = {}
    exec(bench.query.as_code(), scope)
    assert "measure_reads(table.spark, table.location, 10, 11, " in bench.query.as_code()
    bench.state.name = str(root / "nested" / "b")
    bench.state.loading.wait(SECONDS)
    assert "became" not in bench.verdict.sentences.value


def test_tables_are_ranked_and_a_click_opens_one(bench: Workbench, folder: Path) -> None:
    show(bench, "Survey")
    bench.state.surveying.wait(SECONDS)
    grid = bench.survey.grid
    rows = {row[0][0]: dict(zip(grid.columns, row, strict=True)) for row in grid.rows}
    assert rows["a"]["table"] == ["a", str(folder / "a")]
    assert rows["nested/b"]["small"] == ["100 %", 1.0, 1.0]
    assert rows["nested/b"]["files"] == ["3", 3]
    assert rows["a"]["fewer files"] == ["8", 8]
    assert "a full read of 2 tables would open 10 fewer files" in bench.survey.sentence.value
    assert "Small: under 16 MiB" in bench.survey.hint.value
    grid.on_open(str(folder / "nested" / "b"))
    bench.state.loading.wait(SECONDS)
    assert files_of(bench).num_files == 3
    assert bench.rail.value == "Files"


@pytest.mark.parametrize("field", ["smaller", "target"])
def test_what_is_no_size_leaves_no_plan_to_run(bench: Workbench, field: str) -> None:
    show(bench, "Plan")
    slider: SizeSlider = getattr(bench.plan, field)
    planned = plan_of(bench)
    slider.field.value = "12x MiB"
    assert "&quot;12x MiB&quot; is not a size" in slider.error.value
    assert bench.state.plan is None
    assert not bench.state.run()
    assert (bench.to_run.disabled, bench.plan.image.layout.display) == (True, "none")
    assert "a file size can&#x27;t be read" in bench.plan.error.value
    show(bench, "Run")
    assert bench.run.run_button.disabled
    assert "a file size can&#x27;t be read" in bench.run.sentence.value
    slider.field.value = "1 GiB"
    assert plan_of(bench).thresholds == planned.thresholds
    assert not bench.run.run_button.disabled


def test_another_table_forgets_what_was_no_size(bench: Workbench, folder: Path) -> None:
    bench.plan.target.field.value = "12x MiB"
    bench.state.name = str(folder / "nested" / "b")
    bench.state.loading.wait(SECONDS)
    assert bench.plan.target.field.value == "1 GiB"
    assert plan_of(bench).thresholds.max_file_size == GIB


@pytest.mark.parametrize(
    ("budget", "words"), [("soon", "is not a size"), ("-1", "is not a size"), ("0", "is out of range")]
)
def test_a_bad_budget_gets_a_sentence_and_no_plan(bench: Workbench, budget: str, words: str) -> None:
    show(bench, "Plan")
    bench.plan.budget.value = budget
    assert re.search(f"Budget: &(quot|#x27);{budget}&.*{words}", bench.plan.error.value)
    assert bench.state.plan is None
    assert "10 files where 2 would do" in bench.verdict.sentences.value
    show(bench, "Run")
    assert re.search(words, bench.run.sentence.value)
    show(bench, "Plan")
    bench.plan.budget.value = ""
    assert not bench.state.error
    assert bench.plan.error.layout.display == "none"


def test_partitions_and_overlap_are_told(bench: Workbench) -> None:
    bench.files.more.selected_index = 0
    assert bench.files.partitions.value.count("<tr>") == 3
    assert ">under 16 MiB</th>" in bench.files.partitions.value
    bench.files.more.selected_index = 1
    assert "A query for one value of" in bench.files.overlap.value


def test_the_lines_of_python_are_those_of_the_part_on_screen(bench: Workbench) -> None:
    bench.as_python.selected_index = 0
    assert ".files()" in bench.code.value
    show(bench, "Run")
    assert "plan.run(progress=True)" in bench.code.value
    bench.run.strategy.value = "rewrite"
    assert "strategy=&#x27;rewrite&#x27;" in bench.code.value


def test_a_sink_log_is_found_and_drawn(bench: Workbench, tmp_path: Path) -> None:
    write_sink_log(tmp_path / "clicks", 5)
    bench.picker.root.value = str(tmp_path)
    show(bench, "Streams")
    state = bench.streams.state
    state.reading.wait(SECONDS)
    assert (state.logs, bench.streams.choice.value) == ([str(tmp_path / "clicks")], str(tmp_path / "clicks"))
    assert "batch 4, 5 entries" in bench.streams.sentence.value
    assert "<svg" in bench.streams.image.value
    bench.streams.ahead.set_state({"value": 300})
    assert "log.plot(300)" in bench.streams.as_code()
    bench.streams.retention.value = "7 days"
    assert "drops 5 of 10 entries" in bench.streams.cost.value
    scope: dict[str, object] = {}
    exec(bench.streams.as_code(), scope)
    assert repr(scope["log"]) == repr(state.log)


def test_a_retention_that_is_no_length_of_time_gets_a_sentence(bench: Workbench, tmp_path: Path) -> None:
    write_sink_log(tmp_path / "clicks", 5)
    bench.picker.root.value = str(tmp_path)
    show(bench, "Streams")
    bench.streams.state.reading.wait(SECONDS)
    bench.streams.retention.value = "soon"
    assert "soon" in bench.streams.error.value
    assert bench.streams.cost.layout.display == "none"
    bench.streams.retention.value = ""
    assert bench.streams.error.layout.display == "none"


def test_without_a_log_the_part_says_where_they_are_kept(bench: Workbench, folder: Path) -> None:
    show(bench, "Streams")
    bench.streams.state.reading.wait(SECONDS)
    assert "_spark_metadata" in bench.streams.sentence.value
    assert bench.streams.as_code().endswith(f"ck.find_sink_logs({str(folder)!r})")


def test_a_report_has_what_the_parts_show(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bench.export.export_button.click()
    bench.export.writing.wait(SECONDS)
    name = f"a-v{files_of(bench).version}.html"
    page = (tmp_path / name).read_text(encoding="utf-8")
    assert page.index("<h2>Verdict</h2>") < page.index("<h2>Files</h2>")
    assert bench.state.verdict is not None
    assert f"<b>{bench.state.verdict.sentences[0]}</b>" in page
    assert plan_of(bench).explain().splitlines()[0] in page
    assert "<h2>Vacuum</h2>" not in page
    assert f'download="{name}"' in bench.export.saved.value


def test_a_closed_workbench_leaves_no_work_and_no_widget(bench: Workbench) -> None:
    going = threading.Event()

    def work(job: Job) -> None:
        while True:
            job.report(0.5, "Going on")
            going.set()

    bench.state.running.start(work)
    assert going.wait(SECONDS)
    bench.close()
    bench.state.running.wait(SECONDS)
    assert bench.state.running.status == "cancelled"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("Job")]
    assert bench.rail.comm is None


@pytest.mark.spark
def test_a_cell_that_is_run_again_shows_its_workbench_as_it_was(
    folder: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = {"now": "one"}
    shell = SimpleNamespace(get_parent=lambda: {"metadata": {"cellId": cells["now"]}})
    module = importlib.import_module("compaction_kit.widgets.workbench")
    monkeypatch.setattr(module, "get_ipython", lambda: shell)
    first = ck.workbench(folder)
    first.state.name = str(folder / "nested" / "b")
    show(first, "Plan")
    go = threading.Event()
    first.state.running.start(lambda job: go.wait(SECONDS))
    cells["now"] = "two"
    other = ck.workbench(folder)
    cells["now"] = "one"
    again = ck.workbench(folder)
    assert again is first
    assert other is not first
    assert again.comm is not None
    assert (again.state.name, again.rail.value) == (str(folder / "nested" / "b"), "Plan")
    assert again.state.running.running
    assert "running" in again.footer.value
    go.set()
    again.state.running.wait(SECONDS)
    assert again.state.running.status == "done"
    moved = ck.workbench(folder / "nested")
    assert moved is first
    assert moved.picker.root.value == str(folder / "nested")
    first.close()
    fresh = ck.workbench(folder)
    assert fresh is not first
    for made in (first, other, fresh):
        made.close()
        made.session.wait(SECONDS)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 files from 10 commits; copy it to change it."""
    return Path(shaped_table(tmp_path_factory.mktemp("small") / "table", partitions=2, files=5, rows=50))


@pytest.fixture
def own(tmp_path: Path, small: Path) -> Path:
    """Two tables, and a folder with another of the same name, for one test to change."""
    for name in ("a", "b", "else/a"):
        folders.copy(small, tmp_path / "tables" / name)
    return tmp_path / "tables"


@pytest.fixture
def own_bench(own: Path) -> Iterator[Workbench]:
    made = Workbench(WorkbenchState(own))
    made.state.loading.wait(SECONDS)
    yield made
    for job in made.jobs:
        job.wait(SECONDS)


@pytest.mark.spark
def test_the_table_on_screen_is_run_though_the_report_of_another_is_gone(
    own_bench: Workbench, own: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own)
    before = ck.open_table(own / "a").version
    own_bench.export.export_button.click()
    own_bench.export.writing.wait(SECONDS)
    next(own.glob("*.html")).unlink()
    own_bench.picker.choice.value = str(own / "b")
    own_bench.state.loading.wait(SECONDS)
    show(own_bench, "Run")
    own_bench.run.run_button.click()
    own_bench.state.running.wait(120)
    assert ck.open_table(own / "a").version == before
    assert ck.open_table(own / "b").files().num_files == 2


@pytest.mark.spark
def test_what_was_typed_is_planned_before_anything_is_run(
    own_bench: Workbench, own: Path, spark: object
) -> None:
    table = ck.open_table(own / "a")
    before = table.version
    own_bench.plan.where.value = "part = 'p0000'"
    assert own_bench.run.run_button.disabled
    assert own_bench.to_run.disabled
    own_bench.run.run_button.click()
    own_bench.state.running.wait(120)
    assert table.version == before
    assert "Nothing was run" in own_bench.run.bar.error.value
    own_bench.state.loading.wait(SECONDS)
    assert not own_bench.run.run_button.disabled
    own_bench.run.run_button.click()
    own_bench.state.running.wait(120)
    assert own_bench.state.result is not None
    assert own_bench.state.result.num_files_removed == 5
    assert table.files().num_files == 6


@pytest.mark.spark
def test_a_run_that_ends_under_another_table_is_told_as_of_its_own(
    own_bench: Workbench, own: Path, spark: object
) -> None:
    show(own_bench, "Run")
    own_bench.run.run_button.click()
    own_bench.state.name = str(own / "b")
    own_bench.state.running.wait(120)
    own_bench.state.loading.wait(SECONDS)
    assert f"of {own / 'a'}, which was open" in own_bench.run.other.value
    assert own_bench.run.section() is None
    assert files_of(own_bench).num_files == 10
    own_bench.state.name = str(own / "else" / "a")
    assert own_bench.run.other.layout.display == "none"
    assert own_bench.run.outcome.layout.display == "none"


def vacuum_of(bench: Workbench) -> VacuumView:
    """The part that deletes, with a plan on screen."""
    show(bench, "Vacuum")
    bench.vacuum.state.planning.wait(SECONDS)
    return bench.vacuum


def litter(table: Path) -> Path:
    """A file that a vacuum takes."""
    file = table / "left-behind.parquet"
    file.write_text("x" * 100)
    age_file(file, 20)
    return file


@pytest.mark.spark
def test_nothing_is_deleted_by_the_plan_for_another_retention(
    own_bench: Workbench, own: Path, spark: object
) -> None:
    file, go = litter(own / "a"), threading.Event()
    vacuum = vacuum_of(own_bench)
    vacuum.confirm.value = "a"
    assert not vacuum.run_button.disabled
    vacuum.state.planning.start(lambda job: go.wait(SECONDS))
    vacuum.retention.value = "30 days"
    vacuum.run_button.click()
    vacuum.state.running.wait(60)
    assert file.exists()
    assert "Nothing was deleted" in vacuum.bar.error.value
    go.set()
    vacuum.state.planning.wait(SECONDS)
    assert vacuum.state.plan is not None
    assert vacuum.state.plan.is_empty
    assert vacuum.danger.layout.display == "none"


@pytest.mark.spark
def test_a_vacuum_that_begins_takes_the_result_of_the_last_one_off_the_screen(
    own_bench: Workbench, own: Path, spark: object
) -> None:
    litter(own / "a")
    go, vacuum, state = threading.Event(), vacuum_of(own_bench), own_bench.state
    vacuum.confirm.value = "a"
    vacuum.run_button.click()
    vacuum.state.running.wait(60)
    assert vacuum.state.result is not None
    assert "1 file" in vacuum.outcome.value
    assert state.table is not None

    def held(_: Job) -> None:
        go.wait(SECONDS)

    vacuum.state.start_run(state, state.table, held)
    deadline = time.monotonic() + SECONDS
    while vacuum.state.result is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert vacuum.state.running.running
    assert vacuum.state.result is None
    assert vacuum.outcome.layout.display == "none"
    go.set()
    vacuum.state.running.wait(SECONDS)


def test_a_name_arms_the_plan_that_it_was_typed_under_and_no_other(own_bench: Workbench, own: Path) -> None:
    files = [litter(own / "a"), litter(own / "else" / "a")]
    vacuum = vacuum_of(own_bench)
    vacuum.confirm.value = "a"
    assert not vacuum.run_button.disabled
    own_bench.state.name = str(own / "else" / "a")
    own_bench.state.loading.wait(SECONDS)
    vacuum.state.planning.wait(SECONDS)
    assert vacuum.state.plan is not None
    assert vacuum.state.plan.num_files == 1
    assert vacuum.run_button.disabled
    vacuum.run_button.click()
    assert all(file.exists() for file in files)


@pytest.mark.parametrize("ask", ["another part", "Refresh"])
def test_what_others_commit_is_seen(own_bench: Workbench, own: Path, ask: str) -> None:
    show(own_bench, "Run")
    own_bench.state.order = "ingest"
    own_bench.state.loading.wait(SECONDS)
    deltalake.DeltaTable(str(own / "a")).delete("part = 'p0000'")
    shaped_table(own / "0", partitions=0, files=2, rows=10)
    if ask == "Refresh":
        own_bench.picker.refresh.click()
        assert str(own / "0") in own_bench.picker.choice.options
    else:
        show(own_bench, "Files")
    own_bench.state.loading.wait(SECONDS)
    version = ck.open_table(own / "a").version
    assert (files_of(own_bench).version, plan_of(own_bench).version) == (version, version)
    assert f"version {version} · 5 files" in own_bench.picker.about.value
    assert f"· 1 version since {version - 1}" in own_bench.picker.about.value
    own_bench.picker.refresh.click()
    own_bench.state.loading.wait(SECONDS)
    assert f"· no version since {version}" in own_bench.picker.about.value
    assert own_bench.picker.choice.value == str(own / "a")
    assert own_bench.plan.order.value == "ingest"


def test_a_table_that_nobody_changed_is_not_read_again(own_bench: Workbench) -> None:
    opened = own_bench.state.opened
    show(own_bench, "Plan")
    own_bench.state.loading.wait(SECONDS)
    assert own_bench.state.opened is opened


def test_a_table_that_is_put_back_is_there_again(own_bench: Workbench, own: Path) -> None:
    (own / "a").rename(own / ".away")
    show(own_bench, "Run")
    own_bench.state.loading.wait(SECONDS)
    assert "does not exist" in own_bench.verdict.sentences.value
    assert own_bench.run.run_button.disabled
    (own / ".away").rename(own / "a")
    show(own_bench, "Plan")
    own_bench.state.loading.wait(SECONDS)
    assert "ck-error" not in own_bench.verdict.sentences.value
    assert own_bench.state.can_run


def test_a_folder_that_is_yet_to_be_made_offers_to_make_a_table(tmp_path: Path) -> None:
    bench = Workbench(WorkbenchState(tmp_path / "data"))
    assert "ck-error" not in bench.verdict.sentences.value
    assert "There is no" in bench.picker.empty.value
    assert bench.picker.make.layout.display == ""
    shaped_table(tmp_path / "data" / "mine", partitions=0, files=2, rows=10)
    bench.picker.refresh.click()
    bench.state.loading.wait(SECONDS)
    assert files_of(bench).num_files == 2
    assert bench.picker.empty.layout.display == "none"


@pytest.mark.parametrize("part", ["Plan", "Run"])
def test_where_nothing_is_open_nothing_is_said_to_be_planned(bench: Workbench, part: str) -> None:
    bench.state.loading.wait(SECONDS)
    show(bench, part)
    bench.picker.root.value = "nowhere"
    sentence = bench.parts[bench.rail.index].sentence
    assert "No plan yet: open a table." in sentence.value


_REPRS = re.compile(r"object at 0x|DataFrame\[|<class |\b[A-Z]\w*(?:Plan|Result|Table|Survey|Log|Files)\(")


@pytest.mark.spark
def test_no_part_shows_an_object_instead_of_words(own_bench: Workbench, spark: object) -> None:
    compacted(own_bench)
    for part in own_bench.parts:
        show(own_bench, part.title)
        for job in own_bench.jobs * 2:
            job.wait(SECONDS)
        for folded in (widget for widget in within([part]) if isinstance(widget, w.Accordion)):
            for index in range(len(folded.children)):
                folded.selected_index = index
                told = "".join(str(one.value) for one in within([part]) if isinstance(one, w.HTML))
                assert not _REPRS.search(told), (part.title, _REPRS.search(told))


@pytest.fixture
def schema(spark: SparkSession, folder: Path) -> Iterator[str]:
    """A schema with the tables of `folder` and a view."""
    spark.sql("CREATE SCHEMA kit_bench")
    spark.sql(f"CREATE TABLE kit_bench.a USING delta LOCATION '{folder}/a'")
    spark.sql(f"CREATE TABLE kit_bench.b USING delta LOCATION '{folder}/nested/b'")
    spark.sql("CREATE VIEW kit_bench.v AS SELECT 1 AS one")
    yield "spark_catalog.kit_bench"
    spark.sql("DROP SCHEMA kit_bench CASCADE")


@pytest.mark.spark
def test_a_schema_of_the_session_is_browsed(
    bench: Workbench, spark: SparkSession, folder: Path, schema: str
) -> None:
    state = bench.state
    bench.session.start(lambda job: spark)
    bench.session.wait(SECONDS)
    show(bench, "Survey")
    bench.picker.root.value = schema
    state.loading.wait(SECONDS)
    assert state.tables == [f"{schema}.a", f"{schema}.b"]
    assert (state.name, bench.picker.choice.value) == (f"{schema}.a", f"{schema}.a")
    num_files = ck.open_table(folder / "a").files().num_files
    assert files_of(bench).num_files == num_files
    state.surveying.wait(SECONDS)
    assert sorted(row[0][1] for row in bench.survey.grid.rows) == state.tables
    assert bench.survey.as_code().endswith(f"ck.survey({schema!r})")
    spark.sql("DROP TABLE kit_bench.b")
    bench.picker.refresh.click()
    state.loading.wait(SECONDS)
    assert state.tables == [f"{schema}.a"]
    assert files_of(bench).num_files == num_files


@pytest.mark.spark
def test_a_schema_named_before_the_session_is_there_is_looked_up_then(
    spark: SparkSession, folder: Path
) -> None:
    bench = Workbench(WorkbenchState("kit_late"))
    assert bench.state.tables == []
    spark.sql("CREATE SCHEMA kit_late")
    try:
        spark.sql(f"CREATE TABLE kit_late.a USING delta LOCATION '{folder}/a'")
        bench.session.start(lambda job: spark)
        bench.session.wait(SECONDS)
        bench.state.loading.wait(SECONDS)
        assert bench.state.tables == ["kit_late.a"]
        assert files_of(bench).num_files == ck.open_table(folder / "a").files().num_files
    finally:
        spark.sql("DROP SCHEMA kit_late CASCADE")


@pytest.mark.spark
def test_a_catalog_that_can_t_be_asked_gets_a_sentence(bench: Workbench, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.catalog.broken", "no.such.Catalog")
    try:
        bench.picker.root.value = "broken"
        assert "no.such.Catalog" in bench.verdict.sentences.value
        assert bench.state.table is None
    finally:
        spark.conf.unset("spark.sql.catalog.broken")
    bench.picker.root.value = "default.no_such"
    assert "default.no_such yet: check the spelling" in bench.picker.empty.value
    assert "ck-error" not in bench.verdict.sentences.value


def test_another_folder_leaves_the_survey_on_screen(bench: Workbench, folder: Path) -> None:
    show(bench, "Survey")
    bench.picker.root.value = str(folder / "nested")
    bench.state.loading.wait(SECONDS)
    bench.state.surveying.wait(SECONDS)
    assert bench.rail.value == "Survey"
    assert [row[0][1] for row in bench.survey.grid.rows] == [bench.state.name]
    bench.survey.grid.on_open(bench.state.name)
    assert bench.rail.value == "Files"


def test_tables_opened_before_are_offered_without_those_gone_and_without_secrets(
    bench: Workbench, folder: Path, tmp_path: Path
) -> None:
    for number in range(9):
        shaped_table(tmp_path / f"other {number}", partitions=0, files=1, rows=10)
        remember(str(tmp_path / f"other {number}"))
    for name in ("lake.sales.orders", "s3a://key:secret@bucket/table", "https://bucket/table?sig=secret"):
        remember(name)
    shutil.rmtree(tmp_path / "other 3")
    assert recent_tables() == [
        "lake.sales.orders",
        *(str(tmp_path / f"other {n}") for n in (8, 7, 6, 5, 4, 2, 1, 0)),
    ]
    assert "secret" not in (tmp_path / ".cache" / "recent.json").read_text()
    bench.picker.root.value = str(folder / "nested")
    bench.state.loading.wait(SECONDS)
    bench.picker.choice.value = str(tmp_path / "other 8")
    bench.state.loading.wait(SECONDS)
    assert bench.state.name == str(tmp_path / "other 8")
    assert bench.picker.choice.label == f"{tmp_path}/other 8 (recent)"
    assert bench.state.root == str(folder / "nested")
    remember(str(folder / "a"))
    assert len(recent_tables()) == 10


def test_a_part_that_can_t_be_drawn_says_so_and_shows_nothing_old(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(bench, "Plan")
    assert bench.plan.image.layout.display == ""
    plan = type(plan_of(bench))
    with monkeypatch.context() as broken:
        broken.setattr(plan, "explain", lambda self: 1 / 0)
        bench.state.max_file_size = 8 * KIB
    assert "Unexpected ZeroDivisionError" in bench.plan.failure.value
    assert bench.plan.image.layout.display == "none"
    bench.state.max_file_size = MIB
    assert bench.plan.failure.layout.display == "none"
    assert bench.plan.image.layout.display == ""


def test_a_figure_that_cannot_be_drawn_leaves_no_other_in_its_place(
    bench: Workbench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no <glyph>")

    assert "files are under" in bench.files.image.value
    monkeypatch.setattr("compaction_kit.files.Files.plot", fail)
    bench.state.name = str(folder / "nested" / "b")
    bench.state.loading.wait(SECONDS)
    assert "3 files" in bench.picker.about.value
    assert "files are under" not in bench.files.image.value
    assert "files are under" not in bench.files.image.value
    assert bench.files.image.layout.display == "none"
    assert "Unexpected ValueError: no &lt;glyph&gt;" in bench.files.failure.value


@pytest.mark.parametrize("title", ["Files", "Plan", "Vacuum"])
def test_words_and_figure_are_of_the_same_table_at_any_time(
    bench: Workbench, folder: Path, title: str
) -> None:
    show(bench, title)
    part = next(part for part in bench.parts if part.title == title)
    for job in bench.jobs:
        job.wait(SECONDS)
    former, seen = part.image.value, []
    part.sentence.observe(lambda change: seen.append((change.new, part.image.value)), "value")
    bench.state.name = str(folder / "nested" / "b")
    for job in bench.jobs:
        job.wait(SECONDS)
    told = [figure for sentence, figure in seen if sentence and "Looking" not in sentence]
    assert told
    assert former not in told


def test_what_is_folded_away_is_not_of_another_table_when_it_is_unfolded(
    bench: Workbench, folder: Path, tmp_path: Path
) -> None:
    shaped_table(tmp_path / "c", partitions=2, files=3, rows=10)
    bench.state.name = str(tmp_path / "c")
    bench.state.loading.wait(SECONDS)
    show(bench, "Plan")
    bench.plan.more.selected_index = 0
    assert "in 2 bins" in bench.plan.bins.value
    bench.plan.more.selected_index = None
    assert bench.plan.bins.value == ""
    show(bench, "Files")
    bench.files.more.selected_index = 0
    assert "part=" in bench.files.partitions.value
    bench.files.more.selected_index = None
    bench.state.name = str(folder / "nested" / "b")
    bench.state.loading.wait(SECONDS)
    assert bench.files.partitions.value == ""


def test_the_footer_tells_of_a_vacuum_and_claims_nothing_of_the_past(bench: Workbench) -> None:
    assert "ready; looking and planning change nothing" in bench.footer.value
    sizes = pa.array([KIB, KIB, KIB, 2 * KIB])
    deleted = pa.table({"path": ["a", "b", "c", "d"], "size_bytes": sizes})
    nothing = pa.table({})
    bench.vacuum.state.result = VacuumResult(
        deleted, nothing, (), (), (), nothing, nothing, [], {}, versions_lost_as_planned=True, seconds=1.0
    )
    assert "● vacuum done: 4 files deleted, 5 KiB freed" in bench.footer.value
    bench.vacuum.state.running.message = "Deleting"
    bench.vacuum.state.running.status = "running"
    assert "● vacuum running: Deleting" in bench.footer.value


def compacted(bench: Workbench) -> None:
    """Run the plan on screen, to its end."""
    show(bench, "Run")
    bench.run.run_button.click()
    bench.state.running.wait(120)
    bench.state.loading.wait(SECONDS)


def planned(undo: RestoreView) -> RestorePlan:
    """Click for the plan of a restore, and wait for it."""
    undo.ask_button.click()
    undo.state.planning.wait(SECONDS)
    assert undo.state.plan is not None
    return undo.state.plan


@pytest.mark.spark
def test_a_run_is_undone_after_its_plan_is_shown(own_bench: Workbench, own: Path, spark: object) -> None:
    table, undo = ck.open_table(own / "a"), own_bench.run.undo
    before = table.version
    paths = sorted(table.files().to_arrow()["path"].to_pylist())
    show(own_bench, "Run")
    assert undo.ask_button.layout.display == "none"
    compacted(own_bench)
    assert undo.ask_button.description == "Undo this run …"
    plan = planned(undo)
    assert (plan.target, plan.version) == (before, before + 1)
    for words in ("add back 10 files", "remove 2 files", "The rows stay the same", "A stream that reads"):
        assert words in undo.sentence.value
    assert undo.loss.layout.display == "none"
    assert table.version == before + 1
    assert f"restore = table.plan_restore({before})" in own_bench.run.as_code()
    undo.keep_button.click()
    undo.run_button.click()
    undo.state.running.wait(SECONDS)
    assert table.version == before + 1
    planned(undo)
    undo.run_button.click()
    undo.state.running.wait(60)
    own_bench.state.loading.wait(SECONDS)
    assert sorted(table.files().to_arrow()["path"].to_pylist()) == paths
    assert f"Version {before + 2} has the content of version {before}" in undo.outcome.value
    assert "restore done" in own_bench.footer.value
    verdict = own_bench.verdict.sentences.value
    assert "became" not in verdict
    assert "10 files where 2 would do" in verdict
    assert undo.ask_button.layout.display == "none"
    show(own_bench, "Plan")
    assert plan_of(own_bench).num_files_removed == 10


@pytest.mark.spark
def test_an_undo_tells_whose_commits_it_takes_back_and_is_refused_if_others_commit_meanwhile(
    own_bench: Workbench, own: Path, spark: object
) -> None:
    undo, other = own_bench.run.undo, deltalake.DeltaTable(str(own / "a"))
    compacted(own_bench)
    other.update_incremental()
    other.delete("part = 'p0000'")
    plan = planned(undo)
    deleted = plan.version
    assert f"would take back what version {deleted} (DELETE) did: 250 rows more." in undo.loss.value
    assert "take back" not in undo.sentence.value
    assert undo.children.index(undo.loss) < undo.children.index(undo.sentence)
    other.delete("part = 'p0001'")
    undo.run_button.click()
    undo.state.running.wait(60)
    assert f"made at version {deleted}" in undo.bar.error.value
    own_bench.state.loading.wait(SECONDS)
    assert ck.open_table(own / "a").version == deleted + 1
    assert undo.choice.layout.display == "none"
    assert undo.ask_button.layout.display == ""


def test_the_time_shown_of_a_version_typed_back_gives_that_version(own_bench: Workbench, own: Path) -> None:
    commits = sorted((own / "a" / "_delta_log").glob("*.json"))
    for number, commit in enumerate(commits):
        # Several in a second.
        os.utime(commit, ns=(0, 1_700_000_000_000_000_000 + 300_000_000 * number))
    own_bench.state.refresh()
    own_bench.state.loading.wait(SECONDS)
    show(own_bench, "History")
    history = own_bench.history
    history.state.reading.wait(SECONDS)
    for version in (2, 3, 5):
        history.slider.set_state({"value": version})
        shown = re.search(rf"Version {version} of (.*?),", history.sentence.value)
        assert shown is not None
        history.slider.set_state({"value": 0})
        history.time.value = shown[1]
        assert (history.state.version, history.time_error.value) == (version, "")
        history.time.value = ""


def test_what_was_not_done_as_planned_is_no_good_news(bench: Workbench) -> None:
    state, undo = bench.run.undo.state, bench.run.undo
    for as_planned, kind, other in ((False, "warning", "good"), (True, "good", "warning")):
        state.result = RestoreResult(5, 3, 1, 1, 10, 10, as_planned, 1.0)
        assert ("NOT as planned" in undo.outcome.value) is not as_planned
        assert f"ck-{kind}" in undo.outcome._dom_classes
        assert f"ck-{other}" not in undo.outcome._dom_classes


@pytest.mark.spark
def test_an_earlier_version_is_chosen_by_time_its_rows_are_read_and_it_is_restored(
    own_bench: Workbench, own: Path, spark: object
) -> None:
    show(own_bench, "History")
    history, table = own_bench.history, ck.open_table(own / "a")
    history.state.reading.wait(SECONDS)
    latest = table.version
    assert history.state.version == latest
    assert history.undo.ask_button.layout.display == "none"
    first = table.at(0).timestamp
    assert first is not None
    history.time.value = first.isoformat()
    assert history.state.version == 0 == history.slider.value
    history.time.value = "the day before yesterday"
    assert "the day before yesterday" in history.time_error.value
    assert history.state.version == 0
    history.slider.value = latest - 1
    assert history.time.value == ""
    assert history.time_error.layout.display == "none"
    assert history.undo.ask_button.description == f"Restore version {latest - 1} …"
    history.read_button.click()
    history.state.sampling.wait(60)
    assert history.rows.value.count("<tr>") == 21
    assert f"20 rows of version {latest - 1}" in history.rows.value
    planned(history.undo)
    history.slider.value = 1
    assert history.rows.value == ""
    assert history.undo.state.plan is None
    planned(history.undo)
    history.undo.run_button.click()
    history.undo.state.running.wait(60)
    own_bench.state.loading.wait(SECONDS)
    history.state.reading.wait(SECONDS)
    assert table.version == latest + 1 == history.state.version
    assert table.diff(1, latest + 1).same_content


@pytest.mark.spark
def test_a_version_whose_files_are_gone_is_not_offered_to_be_restored(
    own_bench: Workbench, own: Path, spark: object
) -> None:
    paths = ck.open_table(own / "a").files(version=1).to_arrow()["path"].to_pylist()
    gone = next(path for path in paths if "p0000" in path)
    deltalake.DeltaTable(str(own / "a")).delete("part = 'p0000'")
    (own / "a" / unquote(gone)).unlink()
    show(own_bench, "History")
    # It is another's commit, by which the table is read again, and the latest version looked at.
    own_bench.state.loading.wait(SECONDS)
    history = own_bench.history
    history.state.reading.wait(SECONDS)
    history.slider.value = 1
    assert not planned(history.undo).can_run
    assert "be restored: 1 file that it needs is missing" in history.undo.sentence.value
    assert history.undo.run_button.disabled
    history.read_button.click()
    history.state.sampling.wait(60)
    assert "be read: files of it were deleted" in history.sampling.error.value


@pytest.mark.spark
def test_the_files_of_a_query_are_counted_and_predicted_without_a_run(
    bench: Workbench, folder: Path, spark: object
) -> None:
    show(bench, "My query")
    query = bench.query
    assert query.measure_button.layout.display == "none"
    query.query.value = f"SELECT max(value) FROM delta.`{folder / 'nested' / 'b'}` WHERE id < 10"
    bench.state.name = str(folder / "nested" / "b")
    bench.state.loading.wait(SECONDS)
    assert query.query.value == ""
    version = ck.open_table(folder / "nested" / "b").version
    query.query.value = f"SELECT max(value) FROM delta.`{folder / 'nested' / 'b'}` WHERE id < 10"
    query.count_button.click()
    query.state.predicting.wait(120)
    assert "The query opens 1 of 3 files now" in query.image.value
    assert "Run the plan, and" in query.not_run.value
    assert "The others are predictions" in query.sentence.value
    assert "<svg" in query.image.value
    assert "by id" in query.image.value
    scope: dict[str, Any] = {}
    exec(query.as_code(), scope)
    assert query.state.prediction is not None
    assert scope["prediction"].layouts.equals(query.state.prediction.layouts)
    section = query.section()
    assert section is not None
    assert section.records == (query.state.prediction,)
    bench.state.max_file_size = 1 * KIB
    assert query.state.prediction is None
    assert query.sentence.layout.display == "none"
    query.query.value = "SELECT id FROM elsewhere"
    query.count_button.click()
    query.state.predicting.wait(60)
    assert "names neither the table nor {table}" in query.bar.error.value
    assert ck.open_table(folder / "nested" / "b").version == version


@pytest.mark.spark
def test_a_range_is_written_as_a_condition(bench: Workbench, spark: object) -> None:
    show(bench, "My query")
    query = bench.query
    assert set(query.column.options) == {"id", "event_time", "value", "label", "part"}
    query.column.value = "event_time"
    query.low.value = "2000-01-01"
    assert query.query.value == "event_time >= CAST('2000-01-01' AS timestamp)"
    query.column.value = "label"
    query.low.value, query.high.value = "a'b", "c"
    assert query.query.value.endswith(" AND label <= 'c'")
    query.count_button.click()
    query.state.predicting.wait(120)
    assert query.state.prediction is not None
    assert query.bar.error.layout.display == "none"
    query.high.value = ""
    assert "<=" not in query.query.value
