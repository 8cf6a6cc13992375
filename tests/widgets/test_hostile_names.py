"""Tables with markup as names, columns and partitions: it is shown as text, and only for its own table."""

import re
from pathlib import Path

import ipywidgets as w
import pytest

from compaction_kit.widgets.parts import STYLE, within
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.workbench import Workbench
from tests.handmade import write_sink_log
from tests.test_html import Reader, make_table
from tests.widgets.pages import at, click, enter, settle, show

# Each name begins with a word of its own, which no sentence contains.
NAMES = {
    "alpaca": "alpaca <img src=x onerror=alert(1)> \"'`quotes`'\" onclick='a()'",
    "tapir": "tapir {{7*7}} ${7*7} $x$ %s {0} </script><script>alert(1) \u202egnp.exe\u202c \U0001f525 "
    + "long" * 30,
}


def read(*widgets: w.Widget) -> str:
    """Return all HTML in widgets; parse each, which fails if a name became markup."""
    for one in within(widgets):
        assert not isinstance(one, w.HTMLMath)
        assert not getattr(one, "description_allow_html", False)
    texts = [one.value for one in within(widgets) if isinstance(one, w.HTML) and one.value != STYLE]
    for page in texts:
        Reader(page)
    return " ".join(texts)


@pytest.mark.usefixtures("spark")
def test_hostile_names_are_words_and_no_part_speaks_of_another_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES.values():
        make_table(tmp_path / "tables" / name, name)
        write_sink_log(tmp_path / "tables" / "sinks" / name, 3)
    bench = Workbench(WorkbenchState(tmp_path / "tables"))
    show(bench, "Survey")
    bench.as_python.selected_index = 0
    grid = at(bench, "ck-tables")
    assert sorted(row[0][1] for row in grid.rows) == bench.state.tables
    assert [row[1][0] for row in grid.rows] == ["3"] * len(NAMES)
    for word, name in NAMES.items():
        grid.on_open(str(tmp_path / "tables" / name))
        for part in bench.parts[1:]:
            show(bench, part.title)
            if part.title == "History":
                at(bench, "ck-versions").on_open(0)
                click(bench, "ck-ask-restore", "History")
            elif part.title == "My query":
                at(bench, "ck-query").value = f"`{name}` < 3"
                click(bench, "ck-count")
            for folded in (one for one in within([part]) if isinstance(one, w.Accordion)):
                folded.selected_index = 0
                settle(bench)
            shown = read(part, *bench.children[1:3], bench.code, at(bench.children[-1], "ck-status"))
            assert part.failure.layout.display == "none", part.failure.value
            if part.title == "Streams":
                # The streams are those of the folder, whichever table is open.
                assert "batch 2, 3 entries" in shown
            else:
                assert set(re.findall(rf"\b({'|'.join(NAMES)}) ", shown)) == {word}, (part.title, word)
        click(bench, "ck-export")
        (report,) = tmp_path.glob("*.html")
        page = report.read_text(encoding="utf-8")
        Reader(page)
        # All parts except Run, which has not run, and the query if Delta can't plan it.
        assert page.count("<h2>") >= 7
        report.unlink()
    for field in ("ck-where", "ck-budget"):
        enter(bench, field, name)
        read(bench)
        enter(bench, field, "")
    show(bench, "Run")
    click(bench, "ck-run")
    assert at(bench, "ck-progress").error.layout.display == ""
    assert read(bench)
