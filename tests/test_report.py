from pathlib import Path

import pyarrow as pa
import pytest
from matplotlib.figure import Figure

import compaction_kit as ck
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.report import Section


def test_a_report_has_each_part_and_needs_no_other_file(shaped: Path, tmp_path: Path) -> None:
    table = ck.open_table(shaped)
    plan = table.plan_compaction()
    versions = pa.table({"version": [3], "operation": ["WRITE"]})
    lines, figure = "plan = table.plan_compaction(where='a < b')", Figure()
    figure.set_label("Words for it")
    written = ck.write_report(
        tmp_path / "report.html",
        "Sales & <returns>",
        Section("Plan", (plan, "Nothing < everything."), lines),
        Section("History", (versions,)),
        table.files().plot(),
        figure,
    )
    page = written.read_text(encoding="utf-8")
    assert "<h1>Sales &amp; &lt;returns&gt;</h1>" in page
    assert page.index("<h2>Plan</h2>") < page.index("<h2>History</h2>") < page.rindex("<svg")
    assert plan.explain().splitlines()[0] in page
    assert "Nothing &lt; everything." in page
    assert "where=&#x27;a &lt; b&#x27;" in page
    assert "WRITE</td>" in page
    assert "<script" not in page
    assert all(f'{name}="http' not in page for name in ("src", "href"))
    # Of matplotlib's own class.
    assert 'aria-label="Words for it"' in page


def test_what_cannot_be_drawn_or_written_gets_a_sentence_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="of type int can't be shown"):
        ck.write_report(tmp_path / "report.html", "Numbers", 7)
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(InvalidArgumentError, match="name a file in a folder that you may write to"):
        ck.write_report(tmp_path / "nowhere" / "report.html", "Title", "words")
