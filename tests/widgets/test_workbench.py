"""State to views and back; the browser's tests do the rest."""

import threading
from pathlib import Path

import pytest

from compaction_kit.datasets import shaped_table
from compaction_kit.sizes import GIB, KIB, MIB
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.workbench import Workbench

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
