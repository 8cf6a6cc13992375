"""Tables whose names, columns and partitions are markup: shown as words, each under its own table alone."""

import json
import re
from pathlib import Path

import ipywidgets as w
import pytest

from compaction_kit.widgets.parts import STYLE, Drawing, within
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.workbench import Workbench
from tests import handmade
from tests.test_html import Reader

SECONDS = 60
# Each begins with a word of its own, which no sentence has.
NAMES = {
    "alpaca": "alpaca <img src=x onerror=alert(1)> \"'`quotes`'\" onclick='a()'",
    "tapir": "tapir {{7*7}} ${7*7} $x$ %s {0} </script><script>alert(1)</script>",
    "gecko": f"gecko \u202egnp.exe\u202c \U0001f525 {'long' * 45}",
}


def make_table(folder: Path, name: str) -> None:
    """Two versions of a table in whose log the name is wherever a name can be."""
    bounds = {name: 3}
    stats = {"numRecords": 10, "minValues": bounds, "maxValues": bounds, "nullCount": {name: 0}}
    adds = [handmade.add(f"{number}.parquet", partition={"p": name}) for number in range(4)]
    for action in adds:
        action["add"]["stats"] = json.dumps(stats)
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / action["add"]["path"]).write_bytes(b"x" * 1_000)
    told = {"timestamp": 1, "operation": name, "userMetadata": name, "engineInfo": name}
    first = [handmade.metadata({name: "long", "p": "string"}, ["p"]), *adds[:3]]
    handmade.write_log(folder / name, first, [{"commitInfo": told}, handmade.remove("0.parquet"), adds[3]])
    handmade.write_sink_log(folder / "sinks" / name, 3)


def settle(bench: Workbench) -> None:
    for job in bench.jobs * 2:
        job.wait(SECONDS)


def told(*widgets: w.Widget) -> str:
    """All HTML in widgets; each is read as a browser does, which fails if a name became markup."""
    texts = [one.value for one in within(widgets) if isinstance(one, (w.HTML, Drawing))]
    pages = [text for text in texts if text != STYLE]
    for page in pages:
        Reader(page)
    return " ".join(texts)


@pytest.mark.spark
def test_hostile_names_are_words_and_no_part_tells_of_another_table(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES.values():
        make_table(tmp_path / "tables", name)
    bench = Workbench(WorkbenchState(tmp_path / "tables"))
    bench.rail.value = "Survey"
    settle(bench)
    bench.as_python.selected_index = 0
    assert sorted(row[0][1] for row in bench.survey.grid.rows) == bench.state.tables
    assert [row[1][0] for row in bench.survey.grid.rows] == ["3"] * len(NAMES)
    for word, name in NAMES.items():
        bench.survey.grid.on_open(str(tmp_path / "tables" / name))
        for part in bench.parts[1:]:
            bench.rail.value = part.title
            settle(bench)
            if part is bench.history:
                part.slider.value = 0
                part.undo.ask_button.click()
            elif part is bench.query:
                part.query.value = f"`{name}` < 3"
                part.count_button.click()
            settle(bench)
            for folded in (one for one in within([part]) if isinstance(one, w.Accordion)):
                folded.selected_index = 0
                settle(bench)
            shown = told(part, bench.verdict, bench.picker, bench.code, bench.footer)
            assert part.failure.layout.display == "none", part.failure.value
            if part is bench.streams:
                # They are those of the folder, whichever table is open.
                assert "batch 2, 3 entries" in shown
            else:
                assert set(re.findall(rf"\b({'|'.join(NAMES)}) ", shown)) == {word}, (part.title, word)
        bench.export.export_button.click()
        settle(bench)
        (report,) = tmp_path.glob("*.html")
        Reader(report.read_text(encoding="utf-8"))
        report.unlink()
    bench.rail.value = "Run"
    bench.run.run_button.click()
    settle(bench)
    assert "ck-error" in bench.run.bar.error._dom_classes
    assert told(bench)
