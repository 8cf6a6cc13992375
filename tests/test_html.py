"""In HTML of objects and reports, no name becomes an element, an attribute or mathematics;
tests/widgets/test_hostile_names.py tests the workbench.
"""

from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from course.check import Checked
from matplotlib.figure import Figure

import compaction_kit as ck
from compaction_kit import records
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute.result import CompactionResult
from compaction_kit.execute.work import TIMELINE
from compaction_kit.interop import ManifestCheck
from compaction_kit.plots.style import Chart, titled
from compaction_kit.predict_reads import ReadPrediction
from compaction_kit.reads import ReadComparison
from compaction_kit.report import Section
from compaction_kit.text import element, paragraph
from compaction_kit.verdict import Verdict
from tests import handmade
from tests.ageing import age_file

# A hostile name, and the same name for a folder, without the slash and the escape character.
NAME = "\"'><pwned onclick='a()'><!--</div></style></td></svg><b>$x$ ${y} {0} %s &lt; [a](b) _c_ \x1b\u202e"
FOLDER = NAME.replace("/", "").replace("\x1b", "")
MARK = "<pwned"
COUNTS = dict.fromkeys(("num_files", "files_opened", "bytes_opened"), (9, 1))
LAYOUTS = pa.table({"layout": ["now", NAME]} | COUNTS)
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "p", "div", "br", "b"),
    *("table", "thead", "tbody", "tr", "th", "td", "ul", "li", "details", "summary", "pre", "img", "a"),
    *("progress", "svg", "g", "path", "text", "use", "defs", "clippath", "rect", "image", "pattern", "span"),
}
EMPTY = {"meta", "br", "img"}


class Reader(HTMLParser):
    """Reads HTML as a browser does; fails on elements and attributes that a name could bring into it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in ELEMENTS, tag
        for name, value in attributes:
            assert name.replace("-", "").replace(":", "").isalpha(), name
            assert not name.startswith("on"), name
            assert value is not None, name
            self.words.append(value)
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def make_table(folder: Path, name: str = NAME) -> Path:
    """Write a table with a name in all possible places of its log; a commit replaces one of three files."""
    told = {"timestamp": 1, "operation": name, "userMetadata": name, "engineInfo": name}
    first = [handmade.metadata({name: "long", "p": "string"}, ["p"]), *(_add(i, name) for i in range(3))]
    handmade.write_log(folder, first, [{"commitInfo": told}, handmade.remove("0.parquet"), _add(3, name)])
    for number in range(4):
        (folder / f"{number}.parquet").write_bytes(b"x" * 1_000)
    return folder


def _add(number: int, name: str = NAME) -> handmade.Action:
    bounds = {name: number}
    action = handmade.add(f"{number}.parquet", partition={"p": name}, bounds=(bounds, bounds))
    return action if number < 3 else handmade.unchanged(action)


def objects_with_hostile_names(root: Path) -> list[Any]:
    table = ck.open_table(make_table(root / FOLDER))
    # A file that no version knows.
    (root / FOLDER / f"orphan {FOLDER}.parquet").write_bytes(b"x" * 1_000)
    for file in (root / FOLDER).glob("*.parquet"):
        age_file(file, 20)
    where = "p <> '<pwned onclick=x>$x$'"
    plan = table.plan_compaction(where=where, order=NAME)
    told = {"operation": NAME, "engineInfo": NAME}
    rewritten = handmade.write_log(root / "rewritten" / FOLDER, [_add(0)], [{"commitInfo": told}, _add(3)])
    handmade.write_sink_log(root / "output" / FOLDER, 5)
    spans = {"step": [NAME, "rewrite"], "label": [NAME, NAME], "bin_id": [None, 0]}
    spans |= {"start": [0.0, 1.0], "seconds": [1.0, 9.0]}
    runs = pa.table({"version": [0, 1], "repeat": [0, 0], "seconds": [2.0, 1.0]})
    states = {"path": [NAME, "/b"], "partition": [NAME, ""], "size_bytes": [1, None]}
    states |= {"state": ["live, not listed", "listed, not live"]}
    by_version = pa.table({"version": [0, 1], "num_live": [2, 1], "num_listed": [1, 0]})
    return [
        table.files().overlap(NAME),
        plan,
        plan.compare(NAME),
        table.plan_restore(0),
        replace(table.plan_vacuum(), warning=NAME),
        Checked("Right", NAME),
        ck.survey([table.path, root / f"missing {FOLDER}"]),
        ck.audit([rewritten, root / f"missing {FOLDER}"]),
        replace(
            CompactionResult("none", "the plan is empty", np.array([1_000]), np.array([1_000])),
            reason=NAME,
            versions=(1,),
            strategy=NAME,
            refusals={0: NAME},
            timeline=pa.table(spans, schema=TIMELINE),
        ),
        Verdict.of(plan.source, plan),
        ReadComparison(NAME, (0, 1), 2.0, 1.0, 3, 1, 10, 10, runs, False, False),
        ReadPrediction(NAME, 0, LAYOUTS, NAME),
        ck.sink_log(root / "output" / FOLDER),
        ManifestCheck(1, None, pa.table(states), by_version, False, NAME),
        titled(Chart(), NAME),
    ]


@pytest.mark.usefixtures("spark")
def test_no_name_is_html_in_what_draws_itself_and_a_record_says_its_facts(tmp_path: Path) -> None:
    """`text.element` escapes names; tests/test_house.py names the modules that make HTML without it."""
    for one in objects_with_hostile_names(tmp_path):
        drawn = one._repr_html_()
        assert MARK in "".join(Reader(drawn).words), type(one)
        assert "mathjax_ignore" in drawn, type(one)
        assert not any(unseen in drawn for unseen in "\x1b\u202e"), type(one)
        if isinstance(one, records.Record):
            assert one.summary()
            assert all(f"{fact}  " in one.summary() for fact in one.facts())


def test_no_name_is_html_in_a_report(tmp_path: Path) -> None:
    # A lone surrogate can't be written as UTF-8.
    name = f"{NAME}\ud800"
    sections = [name, {name: name}, pa.table({NAME: [NAME]}), titled(Chart(), NAME), Section(name, ())]
    sections.append(Section("Code", (), name))
    page = ck.write_report(tmp_path / "page.html", name, *sections).read_text(encoding="utf-8")
    body = page[page.index("</style>") + len("</style>") :].removesuffix("</html>\n")
    read = Reader(body.replace("</head>", ""))
    # The title twice, words, facts, a table and its head, a figure's text and label, a heading, code.
    assert "".join(read.words).count(MARK) >= 10


def test_an_element_takes_html_as_it_is_and_text_that_was_made_of_html_not() -> None:
    bold = element("b", "a < b")
    assert element("p", bold, "&") == "<p><b>a &lt; b</b>&amp;</p>"
    assert element("p", f"{bold}!") == "<p>&lt;b&gt;a &amp;lt; b&lt;/b&gt;!</p>"
    assert element("img", alt=bold) == '<img alt="&lt;b&gt;a &amp;lt; b&lt;/b&gt;">'
    assert paragraph("a\nb") == "<p>a<br>b</p>"


def test_a_report_has_each_part_and_needs_no_other_file(shaped: Path, tmp_path: Path) -> None:
    plan, figure = ck.open_table(shaped).plan_compaction(), Figure()
    # A figure of matplotlib's own class.
    figure.set_label("Words for it")
    parts = plan, "Nothing < everything.", {"a < b": 7}
    section = Section("Plan", parts, "plan = table.plan_compaction(where='a < b')")
    versions = pa.table({"version": [3], "operation": ["WRITE"]})
    history, path = Section("History", (versions,)), tmp_path / "report.html"
    page = ck.write_report(path, "Sales & <returns>", section, history, figure).read_text(encoding="utf-8")
    words = ["<h1>Sales &amp; &lt;returns&gt;</h1>", "<h2>Plan</h2>", plan.explain().splitlines()[0]]
    words += ["Nothing &lt; everything.", "a &lt; b</th>", ">7</td>", "where=&#x27;a &lt; b&#x27;"]
    words += ["<h2>History</h2>", "WRITE</td>"]
    places = [page.rindex(part) for part in (*words, '<svg role="img" aria-label="Words for it"')]
    assert places == sorted(places)
    assert "<script" not in page
    assert all(f'{name}="http' not in page for name in ("src", "href"))


def test_times_lists_and_maps_are_text_in_a_report(tmp_path: Path) -> None:
    parameters = pa.array([[("mode", "Append"), ("description", None)]], pa.map_(pa.string(), pa.string()))
    timestamp = pa.array([datetime(2024, 5, 1, 12, 0, 1, 2, UTC)], pa.timestamp("us", "UTC"))
    rows = pa.table({"timestamp": timestamp, "parameters": parameters, "columns": [["a", "b"]]})
    page = ck.write_report(tmp_path / "report.html", "Title", rows).read_text(encoding="utf-8")
    assert all(f">{cell}</td>" in page for cell in ("2024-05-01 12:00:01+00:00", "mode=Append", "a, b"))


def test_what_cannot_be_drawn_or_written_gets_a_sentence_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="of type int can't be shown"):
        ck.write_report(tmp_path / "report.html", "Numbers", 7)
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(InvalidArgumentError, match="name a file in a folder that you may write to"):
        ck.write_report(tmp_path / "nowhere" / "report.html", "Title", "words")
