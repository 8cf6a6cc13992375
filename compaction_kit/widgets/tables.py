"""Which table is open: one that is found in a folder or schema, named, or picked from the survey."""

from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as w

from compaction_kit.sql import name_parts
from compaction_kit.storage import is_folder
from compaction_kit.survey.survey import GAIN
from compaction_kit.text import format_count, format_size
from compaction_kit.widgets import parts
from compaction_kit.widgets.state import WorkbenchState

_MOST_ROWS = 30


class About(parts.Text):
    """A line about the files that are planned."""

    def __init__(self, state: WorkbenchState):
        super().__init__("text", "about")
        self.state = state
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
        self.show(about)


class TablePicker(w.VBox):
    """Find tables in a folder, schema or catalog, or name one."""

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.root = parts.suggesting("Folder or schema", "ck-root")
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
        for job in (state.making, state.finding):
            job.observe(self._render, "status")
        state.observe(self._offer_schemas, "schemas")
        self._render()

    def _render(self, _: object = None) -> None:
        state = self.state
        parts.offer(self.choice, state.tables, state.name)
        asking = state.finding.running
        nothing = not state.tables and state.table is None and not state.error
        self.empty.show(_no_table(state.root, asking) if nothing else "")
        parts.show_if(nothing and not asking and not state.making.running, self.make)
        parts.show_if(state.making.status in ("running", "failed", "cancelled"), self.making)

    def _offer_schemas(self, _: object) -> None:
        self.root.options = tuple(self.state.schemas)


def _no_table(root: str, is_asking: bool) -> str:
    if is_asking:
        return f"The catalog is asked for the tables of {root} …"
    if root and not is_folder(root):
        missing = f"Delta table in {root}" if name_parts(root) else root
        what = f"There is no {missing} yet: check the spelling, name"
    else:
        what = f"There is no Delta table under {root or 'the current folder'} yet. Name"
    return (
        f"{what} another folder, a schema or a table, or make one to practise on: 336,776 flights in 1,095 "
        "small files."
    )


class SurveyView(parts.Part):
    """The tables under the folder, ranked by what compaction would gain; a click opens one."""

    title = "Survey"

    def __init__(self, state: WorkbenchState, on_open: Callable[[str], object]):
        self.state = state
        self._on_open = on_open
        self.sentence = parts.Text("text", "survey")
        self.bar = parts.JobBar(state.surveying, "ck-surveying")
        self.rows = w.VBox()
        self.image = parts.FigureView("ck-survey-figure")
        self.failures = parts.Text("warning", "survey-errors")
        super().__init__(self.sentence, self.bar, self.rows, self.image, self.failures)
        self.watch(state, ["survey", "tables"])

    def _render(self) -> None:
        state, survey = self.state, self.state.survey
        if survey is None:
            many = format_count(len(state.tables), "table")
            self.sentence.show(f"{many} to look at." if state.tables else "No table was found.")
            self.rows.children = ()
            self.image.show(None)
            self.failures.show("")
            state.look_around()
            return
        rows = survey.to_arrow().to_pylist()
        good = [row for row in rows if row["num_files"] is not None]
        self.image.show(survey.plot if good else None)
        self.sentence.show(GAIN if good else survey.summary().splitlines()[0])
        self.rows.children = [self._row(row) for row in good[:_MOST_ROWS]]
        self.failures.show("\n".join(row["error"] for row in rows if row["error"]))

    def _row(self, row: dict[str, Any]) -> w.HBox:
        name = row["table"]
        opener = parts.button(name, "ck-open", partial(self._on_open, name), tooltip=f"Open {name}")
        gain = f"gain {format_size(row['gain'])}" if row["gain"] else "nothing to gain"
        small = f"{row['num_small_files']:,} of {row['num_files']:,} files are small"
        about = parts.Text()
        about.show(f"{small} · {format_size(row['size_bytes'])} · {gain}")
        return w.HBox([opener, about]).add_class("ck-survey-row")

    def _code(self) -> str:
        return f"ck.survey({self.state.root!r})"

    def _records(self) -> tuple[Any, ...]:
        return () if self.state.survey is None else (self.state.survey,)
