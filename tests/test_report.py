from pathlib import Path

import pyarrow as pa
import pytest
from matplotlib.figure import Figure

import compaction_kit as ck
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.report import Section


def test_a_report_has_each_part_and_needs_no_other_file(shaped: Path, tmp_path: Path) -> None:
    plan, figure = ck.open_table(shaped).plan_compaction(), Figure()
    # Of matplotlib's own class.
    figure.set_label("Words for it")
    section = Section("Plan", (plan, "Nothing < everything."), "plan = table.plan_compaction(where='a < b')")
    versions = pa.table({"version": [3], "operation": ["WRITE"]})
    history, path = Section("History", (versions,)), tmp_path / "report.html"
    page = ck.write_report(path, "Sales & <returns>", section, history, figure).read_text(encoding="utf-8")
    parts = ["<h1>Sales &amp; &lt;returns&gt;</h1>", "<h2>Plan</h2>", plan.explain().splitlines()[0]]
    parts += ["Nothing &lt; everything.", "where=&#x27;a &lt; b&#x27;", "<h2>History</h2>", "WRITE</td>"]
    places = [page.rindex(part) for part in (*parts, '<svg role="img" aria-label="Words for it"')]
    assert places == sorted(places)
    assert "<script" not in page
    assert all(f'{name}="http' not in page for name in ("src", "href"))


def test_what_cannot_be_drawn_or_written_gets_a_sentence_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="of type int can't be shown"):
        ck.write_report(tmp_path / "report.html", "Numbers", 7)
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(InvalidArgumentError, match="name a file in a folder that you may write to"):
        ck.write_report(tmp_path / "nowhere" / "report.html", "Title", "words")


def test_facts_may_have_numbers_as_values(tmp_path: Path) -> None:
    page = ck.write_report(tmp_path / "report.html", "Numbers", {"a < b": 7}).read_text(encoding="utf-8")
    assert "a &lt; b</th>" in page
    assert ">7</td>" in page
