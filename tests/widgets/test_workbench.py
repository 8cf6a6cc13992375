"""State to views and back; the browser's tests do the rest."""

import importlib
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import compaction_kit as ck
from compaction_kit.datasets import shaped_table
from compaction_kit.sizes import GIB, KIB, MIB
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.workbench import Workbench
from tests.handmade import write_sink_log

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


def show(bench: Workbench, title: str) -> None:
    """Click a part in the rail."""
    bench.rail.value = title


def test_the_first_table_is_opened_and_planned(bench: Workbench, folder: Path) -> None:
    state = bench.state
    assert state.tables == [str(folder / "a"), str(folder / "nested" / "b")]
    assert (state.name, state.plan.num_bins, state.plan.num_files_removed) == (str(folder / "a"), 2, 10)
    assert "10 files" in bench.picker.about.value
    assert 'aria-label="10 of 10 files are under 16 MiB"' in bench.files.image.value
    assert bench.plan.image.value == ""
    show(bench, "Plan")
    assert 'aria-label="10 → 2 files, ' in bench.plan.image.value


def test_thresholds_replan_and_come_back_to_the_sliders(bench: Workbench) -> None:
    bench.plan.target.slider.set_state({"value": 13})
    assert bench.state.max_file_size == 8 * KIB
    assert bench.state.plan.thresholds.max_file_size == 8 * KIB
    assert bench.state.plan.num_bins > 2
    bench.state.max_file_size = MIB
    assert bench.plan.target.field.value == "1 MiB"


def test_a_bin_limit_below_the_small_size_lowers_it_for_the_plan(bench: Workbench) -> None:
    bench.state.max_file_size = MIB
    assert bench.state.min_file_size == GIB
    assert bench.state.plan.thresholds.min_file_size == MIB


def test_another_table_starts_afresh(bench: Workbench, folder: Path) -> None:
    bench.state.max_file_size = KIB
    bench.picker.choice.value = str(folder / "nested" / "b")
    bench.state.loading.wait(SECONDS)
    assert bench.state.max_file_size == GIB
    assert bench.state.plan.num_files_removed == 3
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
    assert (state.files.num_files, state.plan.num_files_removed) == (3, 3)


def test_a_bad_path_gets_a_sentence_in_the_page(bench: Workbench, folder: Path) -> None:
    bench.picker.root.value = str(folder / "typo")
    assert "the path does not exist" in bench.picker.error.value
    assert bench.picker.error.layout.display == ""
    assert bench.state.plan is None
    show(bench, "Run")
    assert bench.run.run_button.disabled


def test_an_empty_folder_offers_to_make_a_table(bench: Workbench, tmp_path: Path) -> None:
    bench.picker.root.value = str(tmp_path)
    assert "There is no Delta table under" in bench.picker.empty.value
    assert bench.picker.make.layout.display == ""
    assert bench.picker.error.layout.display == "none"


def test_the_lines_of_python_make_the_same_plan(bench: Workbench) -> None:
    bench.state.max_file_size = 8 * KIB
    bench.state.order = "ingest"
    bench.state.loading.wait(SECONDS)
    bench.state.budget = "20 KiB"
    code = bench.plan.as_code()
    assert "order='ingest', budget='20 KiB'" in code
    scope: dict[str, object] = {}
    exec(code, scope)
    assert repr(scope["plan"]) == repr(bench.state.plan)


@pytest.mark.spark
def test_a_run_is_proved_and_the_next_plan_is_empty(bench: Workbench, folder: Path, spark: object) -> None:
    show(bench, "Run")
    bench.run.run_button.click()
    bench.state.running.wait(120)
    assert bench.state.running.message == "Done"
    assert bench.state.result.verified is True
    assert "identical: 1,000 rows" in bench.run.outcome.value
    bench.state.loading.wait(SECONDS)
    assert bench.state.plan.is_empty
    assert bench.run.run_button.disabled
    assert "content identical" in bench.footer.value


def test_tables_are_ranked_and_a_click_opens_one(bench: Workbench, folder: Path) -> None:
    show(bench, "Survey")
    bench.state.surveying.wait(SECONDS)
    openers = [row.children[0] for row in bench.survey.rows.children]
    assert sorted(opener.description for opener in openers) == [
        str(folder / "a"),
        str(folder / "nested" / "b"),
    ]
    next(opener for opener in openers if opener.description.endswith("b")).click()
    bench.state.loading.wait(SECONDS)
    assert bench.state.files.num_files == 3
    assert bench.rail.value == "Files"


@pytest.mark.parametrize(
    ("budget", "words"), [("soon", "is not a size"), ("-1", "is not a size"), ("0", "budget")]
)
def test_a_bad_budget_gets_a_sentence_and_no_plan(bench: Workbench, budget: str, words: str) -> None:
    show(bench, "Plan")
    bench.plan.budget.value = budget
    assert words in bench.plan.error.value
    assert bench.state.plan is None
    bench.plan.budget.value = ""
    assert not bench.state.error
    assert bench.plan.error.layout.display == "none"


def test_partitions_and_overlap_are_told(bench: Workbench) -> None:
    bench.files.more.selected_index = 0
    assert bench.files.partitions.value.count("<tr>") == 3
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
    assert "would drop 5 of 5 entries" in bench.streams.cost.value
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
    name = f"a-v{bench.state.files.version}.html"
    page = (tmp_path / name).read_text(encoding="utf-8")
    assert "<h2>Files</h2>" in page
    assert bench.state.plan.explain().splitlines()[0] in page
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
def test_a_cell_that_is_run_again_closes_its_former_workbench(
    folder: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = {"now": "one"}
    shell = SimpleNamespace(get_parent=lambda: {"metadata": {"cellId": cells["now"]}})
    module = importlib.import_module("compaction_kit.widgets.workbench")
    monkeypatch.setattr(module, "get_ipython", lambda: shell)
    first = ck.workbench(folder)
    cells["now"] = "two"
    other = ck.workbench(folder)
    cells["now"] = "one"
    again = ck.workbench(folder)
    assert [made.comm is None for made in (first, other, again)] == [True, False, False]
    for made in (first, other, again):
        made.close()
        made.session.wait(SECONDS)
