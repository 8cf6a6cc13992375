"""Which table is open: one that is found in a folder or schema, named, or picked from the survey."""

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import anywidget
import ipywidgets as w
from traitlets import List, Unicode

from compaction_kit.sql import name_parts
from compaction_kit.storage import is_folder
from compaction_kit.surveys.survey import HEAD, RANK, SMALL, cells, fewer_files
from compaction_kit.text import Html, as_html_table, format_count, format_size, visible
from compaction_kit.widgets import parts
from compaction_kit.widgets.recent import recent_tables, remember
from compaction_kit.widgets.state import WorkbenchState

# Columns of a survey that fit into the page; where the share of small files is among them.
_NAMES = ("table", "files", "small", "size", "median file", "after", "fewer files", "last OPTIMIZE")
_SHOWN = tuple(map(HEAD.index, _NAMES))
_SMALL = 2


class About(parts.Text):
    """A line about the files that are planned."""

    def __init__(self, state: WorkbenchState):
        super().__init__("text", "about")
        self.state = state
        self._seen: tuple[object, int, int] = (None, 0, 0)
        state.observe(self._render, "files")
        self._render()

    def _render(self, _: object = None) -> None:
        opened = self.state.opened
        files, about = opened.files, ""
        if files is not None:
            scope = f" where {opened.where}" if opened.where else ""
            partitions = format_count(files.stats().num_partitions, "partition")
            size = format_size(files.size_bytes)
            about = f"version {files.version} · {files.num_files:,} files{scope} · {size} · {partitions}"
            about += self._news(files.version)
        self.show(about)

    def _news(self, version: int) -> str:
        """What reading the same table again has brought."""
        table, former, refreshes = self._seen
        self._seen = (self.state.table, version, self.state.num_refreshes)
        if table is not self.state.table or (version == former and self._seen[2] == refreshes):
            return ""
        since = format_count(version - former, "version") if version > former else "no version"
        return f" · {since} since {former}"


class TablePicker(w.VBox):
    """Find tables in a folder, schema or catalog, or name one."""

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.root = parts.field("Folder or schema", "", "ck-root", "438px", "122px")
        self.root.tooltip = "A folder, a schema or catalog of the session, or a table"
        self.choice = parts.dropdown("Table", "ck-table", "460px", "50px")
        parts.bind(state, root=self.root)
        parts.set_by_choice(state, "name", self.choice)
        again = "Look again: for tables, and for what others have committed"
        self.refresh = parts.button("Refresh", "ck-refresh", state.refresh, tooltip=again)
        self.refresh.icon = "refresh"
        self.about = About(state)
        self.empty = parts.Text("hint", "empty")
        self.make = parts.button("Make the flights table", "ck-make", state.make_flights, style="primary")
        self.making = parts.JobBar(state.making, "ck-making")
        which = w.HBox([self.root, self.choice, self.refresh])
        super().__init__([which, self.about, self.empty, self.make, self.making])
        state.observe(self._render, ["tables", "name", "table", "error"])
        state.making.observe(self._render, "status")
        state.observe(self._remember, "files")
        self._render()

    def _render(self, _: object = None) -> None:
        state = self.state
        found = {os.path.abspath(name) for name in state.tables} | set(state.tables)
        others = sorted(set(recent_tables()) - found)
        options = [(name, name) for name in state.tables] + [(f"{name} (recent)", name) for name in others]
        parts.offer(self.choice, options if others else state.tables, state.name)
        nothing = not state.tables and state.table is None and not state.error
        self.empty.show(_no_table(state.root) if nothing else "")
        parts.show_if(nothing and not state.making.running, self.make)
        parts.show_if(state.making.status in ("running", "failed", "cancelled"), self.making)

    def _remember(self, _: object) -> None:
        if self.state.files is not None:
            remember(self.state.name)


def _no_table(root: str) -> str:
    if root and not is_folder(root):
        missing = f"Delta table in {root}" if name_parts(root) else root
        what = f"There is no {missing} yet: check the spelling, name"
    else:
        what = f"There is no Delta table under {root or 'the current folder'} yet. Name"
    return (
        f"{what} another folder, a schema or a table, or make one to practise on: 336,776 flights in 1,095 "
        "small files."
    )


class Grid(anywidget.AnyWidget):
    """A table that is sorted by a click on a column and filtered by words; a click or Enter opens a row."""

    _esm = parts.FOLDER / "grid.js"
    label = Unicode("", help="What is listed").tag(sync=True)
    columns = List(Unicode(), help="The headings").tag(sync=True)
    # Of each cell its text, what it is sorted by or None, and a share to draw, if any. The first one's
    # key is the name that opens the row.
    rows = List(List(), help="The cells of each row").tag(sync=True)

    def __init__(self, label: str, columns: Sequence[str], on_open: Callable[[str], object]):
        super().__init__(label=label, columns=list(columns))
        self.on_open = on_open
        self.on_msg(lambda _, content, __: on_open(content["open"]))

    def still(self) -> Html:
        """Its rows as they are ranked, for a page without a kernel."""
        return as_html_table(self.columns, ([cell[0] for cell in row] for row in self.rows))


class SurveyView(parts.Part):
    """The tables under the folder, ranked by what compaction would gain; a click opens one."""

    title = "Survey"

    def __init__(self, state: WorkbenchState, on_open: Callable[[str], object]):
        self.state = state
        self.sentence = parts.Text("text", "survey")
        self.bar = parts.JobBar(state.surveying, "ck-surveying")
        self.grid = Grid("Tables", [HEAD[number] for number in _SHOWN], on_open)
        self.hint = parts.Text("hint", "survey-hint")
        self.failures = parts.Text("warning", "survey-errors")
        super().__init__(self.sentence, self.bar, self.grid, self.hint, self.failures)
        self.watch(state, ["survey", "tables"])

    def _render(self) -> None:
        state, survey = self.state, self.state.survey
        rows = [] if survey is None else survey.to_arrow().to_pylist()
        self.grid.rows = [self._row(row) for row in rows]
        parts.show_if(bool(rows), self.grid)
        self.hint.show(f"{SMALL} {RANK}" if rows else "")
        self.failures.show("\n".join(f"{row['table']}: {row['error']}" for row in rows if row["error"]))
        if survey is not None:
            self.sentence.show(survey.summary().splitlines()[0])
            return
        many = format_count(len(state.tables), "table")
        self.sentence.show(f"{many} to look at." if state.tables else "No table was found.")
        state.look_around()

    def _row(self, row: dict[str, Any]) -> list[list[Any]]:
        name = row["table"]
        if row["error"]:
            made = [["", None] for _ in _SHOWN]
        else:
            texts, keys = cells(row), _keys(row)
            made = [[texts[number], keys[number]] for number in _SHOWN]
            made[_SMALL].append(keys[_SMALL])
        short = re.sub(r"^[/.]", "", name.removeprefix(self.state.root))
        return [[visible(short or name), name], *made[1:]]

    def _code(self) -> str:
        return f"ck.survey({self.state.root!r})"

    def _records(self) -> tuple[Any, ...]:
        return () if self.state.survey is None else (self.state.survey,)


def _keys(row: dict[str, Any]) -> tuple[Any, ...]:
    """What the cells of a survey are sorted by, in the order of its columns."""
    files, last = row["num_files"], row["last_optimize"]
    return (
        *(row["table"], files, row["num_small_files"] / files if files else 0),
        *(row["size_bytes"], row["median_size_bytes"], files - row["files_removed"] + row["files_added"]),
        *(row["bytes_rewritten"], fewer_files(row), row["overlap"], row["log_bytes"]),
        last and last.timestamp(),
    )
