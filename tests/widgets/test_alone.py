"""Parts of the workbench by themselves."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import ipywidgets as w
import pytest

import compaction_kit as ck
from compaction_kit import widgets
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import TableNotFoundError
from compaction_kit.text import KIB
from compaction_kit.widgets.page import PartPage, still_of
from compaction_kit.widgets.parts import Drawing, FigureView
from tests.displayed import outputs_of
from tests.handmade import add, commit_path, metadata, write_log, write_sink_log

SECONDS = 30
WITHOUT_FIGURE = [widgets.run, widgets.query, widgets.vacuum]
OF_TABLES = [widgets.verdict, widgets.files, widgets.plan, widgets.history, *WITHOUT_FIGURE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    shaped_table(root / "a", partitions=2, files=5, rows=50)
    return root


def settled(page: PartPage) -> PartPage:
    """The page once all of its work has ended."""
    # What is read is looked at, and looking may read more.
    for job in page.jobs * 2:
        job.wait(SECONDS)
    return page


def words(widget: w.Widget) -> str:
    """All that is shown in a widget."""
    if getattr(widget.layout, "display", "") == "none":
        return ""
    inner = "".join(map(words, getattr(widget, "children", ())))
    return f"{widget.value}{inner}" if isinstance(widget, (w.HTML, Drawing)) else inner


@pytest.mark.parametrize("part", OF_TABLES)
def test_a_part_takes_a_table_or_its_name(part: Callable[..., PartPage], folder: Path) -> None:
    by_name, by_path = settled(part(str(folder / "a"))), settled(part(folder / "a"))
    table = ck.open_table(folder / "a")
    by_table = settled(part(table))
    assert by_table.state.table is table
    shown = [words(page.part) for page in (by_name, by_path, by_table)]
    assert len({len(text) for text in shown}) == 1
    assert f"version {table.version} · 10 files" in words(by_name)
    assert "No table" not in shown[0]
    still = outputs_of(by_table)[1]["text/html"]
    assert f"version {table.version} · 10 files" in still
    assert still.count("<svg") == words(by_table).count("<svg")
    figures = [one for one in by_name.part.children if isinstance(one, FigureView)]
    assert not figures or any("<svg" in one.value for one in figures) or part in WITHOUT_FIGURE


@pytest.mark.parametrize("part", OF_TABLES)
def test_a_table_that_is_not_there_is_an_error_and_one_that_is_damaged_a_sentence(
    part: Callable[..., PartPage], tmp_path: Path
) -> None:
    with pytest.raises(TableNotFoundError):
        part(tmp_path / "nowhere")
    commit_path(write_log(tmp_path / "damaged", [metadata()]), 0).write_text("{")
    page = settled(part(tmp_path / "damaged"))
    assert page.state.error
    assert page.state.error[:20] in words(page)


def test_a_plan_alone_follows_its_state(folder: Path) -> None:
    page = settled(ck.widgets.plan(folder / "a"))
    page.state.max_file_size = 8 * KIB
    assert page.state.plan is not None
    assert page.state.plan.num_bins > 2
    assert f"fill {page.state.plan.num_bins} bins of at most 8 KiB" in words(page)


def test_partitions_that_are_not_shown_are_counted_with_their_most_files(tmp_path: Path) -> None:
    cities = [*[None] * 3, *[f"city {i % 13}" for i in range(26)], "last"]
    adds = [add(f"f{i}", partition={"city": city}) for i, city in enumerate(cities)]
    page = settled(ck.widgets.files(write_log(tmp_path, [metadata({"city": "string"}, ["city"]), *adds])))
    page.part.more.selected_index = 0
    assert ">city IS NULL</td>" in page.part.partitions.value
    assert "and 5 more partitions with at most 2 files each" in page.part.partitions.value


@pytest.mark.spark
def test_a_run_alone_compacts(spark: object, tmp_path: Path) -> None:
    shaped_table(tmp_path / "mine", partitions=2, files=4, rows=20)
    page = settled(ck.widgets.run(tmp_path / "mine"))
    page.part.run_button.click()
    page.state.running.wait(120)
    assert page.state.result is not None
    assert page.state.result.verified is True
    assert ck.open_table(tmp_path / "mine").files().num_files == 2


def test_a_click_in_a_survey_alone_shows_the_files(folder: Path) -> None:
    page = settled(ck.widgets.survey(folder))
    assert "10 files ·" not in words(page)
    assert [cell in still_of(page.part) for cell in (">a</td>", ">10</td>", ">8</td>")] == [True] * 3
    for _ in range(2):
        page.part.grid.on_open(str(folder / "a"))
    clicked = page.children[-1].children[-1].children
    assert len(clicked) == 1
    settled(clicked[0])
    assert "10 files ·" in words(page)


def test_the_log_of_a_stream_alone(tmp_path: Path) -> None:
    write_sink_log(tmp_path / "clicks", 5)
    page = settled(ck.widgets.streams(tmp_path))
    assert "batch 4, 5 entries" in words(page)


def test_a_closed_page_leaves_no_work_and_no_widget(folder: Path) -> None:
    page = settled(ck.widgets.history(folder / "a"))
    page.close()
    for job in page.jobs:
        job.wait(SECONDS)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("Job")]
    assert page.part.slider.comm is None


def test_the_kit_is_imported_without_widgets_until_one_is_asked_for() -> None:
    lines = (
        "import sys, compaction_kit as ck",
        "assert 'ipywidgets' not in sys.modules",
        "ck.widgets.plan, ck.widgets.history, ck.workbench",
        "from compaction_kit import widgets, workbench",
        "assert widgets is ck.widgets and workbench is ck.workbench and callable(widgets.vacuum)",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=60)
