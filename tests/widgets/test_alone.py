"""Parts of the workbench by themselves."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import compaction_kit as ck
from compaction_kit import widgets
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import TableNotFoundError
from compaction_kit.widgets.page import PartPage, still_of
from tests.displayed import outputs_of
from tests.handmade import add, commit_path, metadata, write_log, write_sink_log
from tests.widgets.pages import at, folds, settle, words

WITHOUT_FIGURE = [widgets.verdict, widgets.run, widgets.query]
OF_TABLES = [widgets.files, widgets.plan, widgets.history, widgets.vacuum, *WITHOUT_FIGURE]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shaped_table(tmp_path_factory.mktemp("tables") / "a", partitions=2, files=5, rows=50))


@pytest.mark.parametrize("part", OF_TABLES)
def test_a_part_takes_a_table_or_its_name_and_says_what_is_wrong(
    part: Callable[..., PartPage], table: Path, tmp_path: Path
) -> None:
    opened = ck.open_table(table)
    pages = [settle(part(given)) for given in (str(table), table, opened)]
    assert pages[-1].state.table is opened
    assert len({len(words(page)) for page in pages}) == 1
    assert "No table" not in words(pages[0])
    assert ("<svg" in words(pages[0])) is (part not in WITHOUT_FIGURE)
    still = outputs_of(pages[0])[1]["text/html"]
    assert re.search(rf"version {opened.version} · 10\sfiles · [\d.]+\sKiB · 2 partitions", still)
    assert still.count("<svg") == words(pages[0]).count("<svg")
    with pytest.raises(TableNotFoundError):
        part(tmp_path / "nowhere")
    commit_path(write_log(tmp_path / "damaged", [metadata()]), 0).write_text("{")
    damaged = settle(part(tmp_path / "damaged"))
    assert damaged.state.opened.error
    assert damaged.state.opened.error[:20] in words(damaged)


def test_a_table_without_a_file_is_said_to_be_empty_once(tmp_path: Path) -> None:
    table = write_log(tmp_path, [metadata()])
    for part in (widgets.verdict, widgets.plan, widgets.run):
        assert words(settle(part(table))).count("The table is empty at version 0") == 1, part
    said = words(settle(ck.widgets.files(table)))
    assert "version 0 · 0 files · 0 B · not partitioned" in said
    assert "No file is live." in said


def test_partitions_that_are_not_shown_are_counted_with_their_most_files(tmp_path: Path) -> None:
    cities = [*[None] * 3, *[f"city {i % 13}" for i in range(26)], "last"]
    adds = [add(f"f{i}", partition={"city": city}) for i, city in enumerate(cities)]
    page = settle(ck.widgets.files(write_log(tmp_path, [metadata({"city": "string"}, ["city"]), *adds])))
    folds(page.part).selected_index = 0
    assert ">city IS NULL</td>" in at(page, "ck-partitions").value
    assert "and 5 more partitions with at most 2 files each" in at(page, "ck-partitions").value
    folds(page.part).selected_index = 1
    assert "no minimum and maximum of any column" in at(page, "ck-overlap").value


def test_columns_with_bounds_in_any_file_are_offered(tmp_path: Path) -> None:
    stats = {"minValues": {"id": 1}, "maxValues": {"id": 2}}
    for name, bounded in (("one of many", range(777, 778)), ("all but the first", range(300, 1_000))):
        adds = [add(f"f{i}") for i in range(1_000)]
        for i in bounded:
            adds[i]["add"]["stats"] = json.dumps(stats)
        page = settle(ck.widgets.files(write_log(tmp_path / name, [metadata(), *adds])))
        folds(page.part).selected_index = 1
        assert at(page, "ck-overlap-column").options == ("id",), name


def test_a_click_in_a_survey_alone_shows_the_files(table: Path, tmp_path: Path) -> None:
    assert ">10</td>" in still_of(settle(ck.widgets.survey(ck.open_table(table))).part)
    page = settle(ck.widgets.survey(table.parent))
    assert "10 files ·" not in words(page)
    assert [cell in still_of(page.part) for cell in (">a</td>", ">10</td>", ">8</td>")] == [True] * 3
    for _ in range(2):
        at(page, "ck-tables").on_open(str(table))
    settle(at(page, "ck-clicked"))
    assert "10 files ·" in words(page)
    later, listed, clicked = tmp_path / "later", at(page, "ck-tables"), at(page, "ck-clicked")
    listed.on_open(str(later))
    assert "later: the path does not exist" in words(clicked)
    assert "10 files ·" not in words(clicked)
    # A click on the same table reads it again.
    shaped_table(later, partitions=2, files=3, rows=20)
    listed.on_open(str(later))
    assert "6 files ·" in words(settle(clicked))


def test_the_log_of_a_stream_alone(tmp_path: Path) -> None:
    write_sink_log(tmp_path / "clicks", 5)
    assert "batch 4, 5 entries" in words(settle(ck.widgets.streams(tmp_path)))
