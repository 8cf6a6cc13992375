"""No name becomes an element, an attribute or mathematics: every object that draws itself and every section
of a report, with names that try; tests/widgets/test_hostile_names.py has the workbench.
"""

import importlib
import json
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from course.check import Checked
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

import compaction_kit as ck
from compaction_kit import records
from compaction_kit.execute.result import CompactionResult
from compaction_kit.execute.work import TIMELINE
from compaction_kit.history import RestoreResult
from compaction_kit.interop import ConversionResult, ConvertPlan, ManifestCheck, ParquetPlan
from compaction_kit.plan import plan as bins
from compaction_kit.plots.style import Chart, titled
from compaction_kit.predict_reads import ReadPrediction
from compaction_kit.reads import ReadComparison
from compaction_kit.report import Section
from compaction_kit.text import element, paragraph, shown
from compaction_kit.vacuum import VacuumResult
from compaction_kit.verdict import Verdict
from compaction_kit.verify import Fingerprint
from tests import handmade
from tests.ageing import age_file

# What a folder can't be called, and what it can: all but the slash.
NAME = "\"'><pwned onclick='a()'><!--</div></style></td></svg><b>$x$ ${y} {0} %s &lt; [a](b) _c_ \x1b\u202e"
FOLDER = NAME.replace("/", "").replace("\x1b", "")
MARK = "<pwned"
COUNTS = dict.fromkeys(("num_files", "files_opened", "bytes_opened"), (9, 1))
LAYOUTS = pa.table({"layout": ["now", NAME]} | COUNTS)
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "p", "div", "br", "b"),
    *("table", "thead", "tbody", "tr", "th", "td", "ul", "li", "details", "summary", "pre", "img", "a"),
    *("progress", "svg", "g", "path", "text", "use", "defs", "clippath", "rect", "image", "pattern"),
}
EMPTY = {"meta", "br", "img"}


class Reader(HTMLParser):
    """Reads HTML as a browser does, and minds what names could bring into it."""

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


# What others are made from.
_BASES = (records.__name__, bins.__name__)


def classes_that_draw_themselves() -> dict[str, type]:
    found = {}
    for module in pkgutil.walk_packages(ck.__path__, "compaction_kit."):
        for name, one in vars(importlib.import_module(module.name)).items():
            is_own = isinstance(one, type) and one.__module__ == module.name not in _BASES
            if is_own and hasattr(one, "_repr_html_"):
                found[name] = one
    return found


def make_table(folder: Path, name: str) -> Path:
    """A table in whose log a name is wherever one can be: of four files, a commit replaced one by another."""
    told = {"timestamp": 1, "operation": name, "userMetadata": name, "engineInfo": name}
    first = [handmade.metadata({name: "long", "p": "string"}, ["p"]), *(_add(i, name) for i in range(3))]
    handmade.write_log(folder, first, [{"commitInfo": told}, handmade.remove("0.parquet"), _add(3, name)])
    for number in range(4):
        (folder / f"{number}.parquet").write_bytes(b"x" * 1_000)
    return folder


def _add(number: int, name: str = NAME) -> handmade.Action:
    action = handmade.add(f"{number}.parquet", partition={"p": name})
    bounds = {name: number}
    stats = {"numRecords": 10, "minValues": bounds, "maxValues": bounds, "nullCount": {name: 0}}
    action["add"] |= {"stats": json.dumps(stats), "dataChange": number < 3}
    return action


def objects_with_hostile_names(root: Path) -> list[object]:
    table = ck.open_table(make_table(root / FOLDER, NAME))
    # One that no version knows.
    (root / FOLDER / f"orphan {FOLDER}.parquet").write_bytes(b"x" * 1_000)
    for file in (root / FOLDER).glob("*.parquet"):
        age_file(file, 20)
    where = "p <> '<pwned onclick=x>$x$'"
    plan = table.plan_compaction(where=where, order=NAME)
    told = {"operation": NAME, "engineInfo": NAME}
    rewritten = handmade.write_log(root / "rewritten" / FOLDER, [_add(0)], [{"commitInfo": told}, _add(3)])
    handmade.write_sink_log(root / "output" / FOLDER, 5)
    sink = ck.sink_log(root / "output" / FOLDER)
    vacuum = table.plan_vacuum()
    spans = {"step": [NAME, "rewrite"], "label": [NAME, NAME], "bin_id": [None, 0]}
    spans |= {"start": [0.0, 1.0], "seconds": [1.0, 9.0]}
    proof = Fingerprint(10, (1, 2))
    schema = StructType([StructField(NAME, LongType())])
    paths = pa.table({"path": [NAME, "b"], "size_bytes": [1, 2]})
    to_parquet = ParquetPlan(table, 1, paths, paths, root / FOLDER, schema)
    folders = pa.table({"path": [NAME], "size_bytes": [1]})
    left = folders.append_column("why", [[NAME]])
    convert = ConvertPlan(root / FOLDER, folders, schema, (NAME,))
    runs = pa.table({"version": [0, 1], "repeat": [0, 0], "seconds": [2.0, 1.0]})
    states = {"path": [NAME, "/b"], "partition": [NAME, ""], "size_bytes": [1, None]}
    states |= {"state": ["live, not listed", "listed, not live"]}
    by_version = pa.table({"version": [0, 1], "num_live": [2, 1], "num_listed": [1, 0]})
    return [
        table.files().stats(),
        table.files().overlap(NAME),
        plan,
        plan.cost,
        plan.compare(NAME),
        table.diff(0, 1),
        table.plan_restore(0),
        replace(table.auto_compaction(), enabled_by=NAME),
        table.forecast(days=3),
        RestoreResult(2, 0, 1, 1, 1, 1, True, 1.0),
        replace(vacuum, warning=NAME),
        VacuumResult(
            paths, left, (NAME,), (2, 3), [0], False, 1.0
        ),
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
        sink,
        ManifestCheck(1, None, pa.table(states), by_version, False, NAME),
        to_parquet,
        ConversionResult(to_parquet, table, proof, 1.0, root / FOLDER),
        convert,
        titled(Chart(), NAME),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def hostile(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, object]:
    objects = objects_with_hostile_names(tmp_path_factory.mktemp("hostile"))
    return {type(one).__name__: one for one in objects}


# These tell numbers alone.
_NAMELESS = {"Cost", "Diff", "FileStats", "Forecast", "RestoreResult"}


@pytest.mark.parametrize("name", classes_that_draw_themselves())
def test_no_name_is_html_in_what_draws_itself(name: str, hostile: Mapping[str, object]) -> None:
    assert name in hostile, f"put a {name} into objects_with_hostile_names, or its names go unread"
    drawn = hostile[name]._repr_html_()  # type: ignore[attr-defined]
    read = Reader(drawn)
    assert (MARK in "".join(read.words)) == (name not in _NAMELESS)
    assert drawn.count("mathjax_ignore") >= 1
    assert not any(unseen in drawn for unseen in "\x1b\u202e")


@pytest.mark.parametrize("name", classes_that_draw_themselves())
def test_a_record_says_facts_or_sentences(name: str, hostile: Mapping[str, object]) -> None:
    if isinstance(record := hostile[name], records.Record):
        assert record.summary()
        assert all(f"{fact}  " in record.summary() for fact in record.facts())


def test_no_name_is_html_in_a_report(tmp_path: Path) -> None:
    sections = [NAME, {NAME: NAME}, pa.table({NAME: [NAME]}), titled(Chart(), NAME), Section(NAME, ())]
    sections.append(Section("Code", (), NAME))
    page = ck.write_report(tmp_path / "page.html", NAME, *sections).read_text(encoding="utf-8")
    body = page[page.index("</style>") + len("</style>") :].removesuffix("</html>\n")
    read = Reader(body.replace("</head>", ""))
    # The title twice, words, facts, a table and its head, a figure's text and label, a heading, code.
    assert "".join(read.words).count(MARK) >= 10


_TEXT = st.text(st.characters())


@settings(max_examples=40)
@given(_TEXT, _TEXT, st.text())
def test_text_stays_text(text: str, value: str, cell: str) -> None:
    parts = (text, {value: text}, pa.table({"a": [cell]}))
    made = element("section", shown(*parts), value, title=value)
    Reader(made)
    made.encode("utf-8")


def test_an_element_takes_html_as_it_is_and_text_that_was_made_of_html_not() -> None:
    bold = element("b", "a < b")
    assert element("p", bold, "&") == "<p><b>a &lt; b</b>&amp;</p>"
    assert element("p", f"{bold}!") == "<p>&lt;b&gt;a &amp;lt; b&lt;/b&gt;!</p>"
    assert element("img", alt=bold) == '<img alt="&lt;b&gt;a &amp;lt; b&lt;/b&gt;">'
    assert paragraph("a\nb") == "<p>a<br>b</p>"
