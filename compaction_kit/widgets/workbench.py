"""The workbench: one page to look at tables, plan their compaction and run it."""

import base64
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import ipywidgets as w
from IPython.core.getipython import get_ipython
from traitlets import HasTraits

from compaction_kit.compat import delta_version
from compaction_kit.execute import CompactionResult
from compaction_kit.history import RestoreResult
from compaction_kit.report import write_report
from compaction_kit.session import get_spark
from compaction_kit.text import element, format_count, format_size
from compaction_kit.vacuum import VacuumResult
from compaction_kit.widgets import parts
from compaction_kit.widgets.compaction import FilesView, PlanView, RunView, VerdictView
from compaction_kit.widgets.history import HistoryState, HistoryView
from compaction_kit.widgets.job import Job, Runs
from compaction_kit.widgets.page import Page
from compaction_kit.widgets.query import QueryState, QueryView
from compaction_kit.widgets.restore import RestoreState
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.streams import StreamsState, StreamsView
from compaction_kit.widgets.tables import SurveyView, TablePicker
from compaction_kit.widgets.vacuum import VacuumState, VacuumView

_SIGNS = {"running": "●", "cancelled": "○", "failed": "✕"}
# A cell that is run again shows the workbench that it showed before, with the work that is under way.
_OF_CELLS: "WeakValueDictionary[str | None, Workbench]" = WeakValueDictionary()


def workbench(root: str | Path = "data") -> "Workbench":
    """The workbench on a folder of tables; the last line of a cell shows it.

    Spark starts in the background meanwhile. If the cell is run again, it shows the same workbench, with the
    table that was open and a run that is under way, unless it was closed; another root is taken over.

    Args:
        root: A folder that holds Delta tables, a schema or catalog of the session, or a table.
    """
    cell = _current_cell()
    bench = _OF_CELLS.get(cell)
    if bench is None or bench.comm is None:
        bench = Workbench(WorkbenchState(root))
        if cell is not None:
            _OF_CELLS[cell] = bench
    elif bench.given != str(root):
        bench.given = bench.state.root = str(root)
    else:
        bench.state.refresh()
    bench.session.start(lambda job: get_spark())
    return bench


def _current_cell() -> str | None:
    """The notebook's cell that is being run, if the front end sends its id."""
    shell: Any = get_ipython()
    request = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return request.get("metadata", {}).get("cellId")


class Workbench(Page):
    """A header, a verdict, a rail of parts, the part chosen, and the state in a line below."""

    def __init__(self, state: WorkbenchState):
        # The root by the cell; another may be named in the page.
        self.given = state.root
        self.session = Job()
        self.spark = parts.Text("hint", "spark")
        self.picker = TablePicker(state)
        self.verdict = VerdictView(state)
        self.survey = SurveyView(state, self.open_table)
        self.files = FilesView(state)
        self.plan = PlanView(state)
        self.query = QueryView(QueryState(state))
        self.run = RunView(state)
        self.history = HistoryView(HistoryState(state))
        self.vacuum = VacuumView(VacuumState(state))
        self.streams = StreamsView(StreamsState(state))
        self.parts: tuple[parts.Part, ...] = (
            *(self.survey, self.files, self.plan, self.query, self.run),
            *(self.history, self.vacuum, self.streams),
        )
        self.export = ExportView(state, lambda: (self.verdict, *self.parts))
        go = partial(self.go_to, self.run)
        self.to_run = parts.button("Continue to run", "ck-to-run", go, style="primary")
        self.plan.controls.children = (*self.plan.controls.children, self.to_run)
        titles = [part.title for part in self.parts]
        self.rail = w.ToggleButtons(options=titles, index=1).add_class("ck-rail")
        self.stack = w.Stack(self.parts, layout=w.Layout(flex="1 1 auto", min_width="0"))
        self.rail.observe(self._on_rail, "index")
        self.code = w.HTML().add_class("ck-code")
        self.copy = parts.CopyButton()
        lines = w.VBox([self.copy, self.code])
        self.as_python = w.Accordion([lines], titles=("As Python",)).add_class("ck-as-python")
        self.as_python.observe(self._render_code, "selected_index")
        self.footer = parts.Text("text", "status")
        brand = w.HTML().add_class("ck-brand")
        brand.value = "compaction workbench"
        about = self.picker.about
        self.picker.children = tuple(child for child in self.picker.children if child is not about)
        above = w.HBox([brand, about, self.spark])
        header = w.VBox([above, self.picker]).add_class("ck-header")
        part = w.VBox([self.stack, self.as_python], layout=w.Layout(flex="1 1 auto"))
        body = w.HBox([self.rail, part]).add_class("ck-body")
        footer = w.HBox([self.footer, self.export]).add_class("ck-footer")
        super().__init__(state, header, self.verdict, body, footer)
        self.session.observe(self._render, ["status"])
        self.session.observe(self._on_session, ["status"])
        state.observe(self._render, ["files", "plan", "result", "error", "pending", "inputs", "ran"])
        for source in (state, *self._others):
            source.observe(self._render_code)
        for runs in (self.vacuum.state, *self._undos):
            runs.observe(self._render, "result")
        for runs in (state, self.vacuum.state, *self._undos):
            runs.running.observe(self._render, ["status", "message"])
        self._on_rail()
        self._render()

    @property
    def holders(self) -> tuple[object, ...]:
        """See `Page.holders`."""
        return (self, self.state, self.export, *self._others)

    @property
    def _others(self) -> tuple[HasTraits, ...]:
        """The states of the parts that have their own."""
        having = (self.query, self.history, self.vacuum, self.streams)
        return (*(part.state for part in having), *self._undos)

    @property
    def _undos(self) -> tuple[RestoreState, ...]:
        return self.run.undo.state, self.history.undo.state

    def go_to(self, part: parts.Part) -> None:
        """Show one of the parts."""
        self.rail.index = self.parts.index(part)

    def open_table(self, name: str) -> None:
        """Open a table and show its files."""
        self.state.name = name
        self.go_to(self.files)

    def _on_rail(self, _: object = None) -> None:
        self.state.look()
        self.stack.selected_index = self.rail.index
        for i, part in enumerate(self.parts):
            part.shown = i == self.rail.index
        self._render_code()

    def _on_session(self, _: object) -> None:
        if self.session.status == "done":
            self.state.meet_session()

    def _render_code(self, _: object = None) -> None:
        if self.as_python.selected_index is not None:
            self.copy.text = self.parts[self.rail.index].as_code()
            self.code.value = element("pre", self.copy.text)

    def _render(self, _: object = None) -> None:
        self.spark.show(self._session_sentence())
        self.to_run.disabled = not self.state.can_run
        self.footer.show(self._status_sentence())

    def _session_sentence(self) -> str:
        if self.session.status == "done":
            spark = self.session.result
            return f"Spark {spark.version} · Delta {delta_version(spark)} · {spark.conf.get('spark.master')}"
        if self.session.status == "failed":
            return f"Spark is not available: {self.session.message}"
        return "Spark is starting …"

    def _status_sentence(self) -> str:
        state, vacuum = self.state, self.vacuum.state
        lines = [
            f"{line}{'' if runs.ran in ('', state.name) else f', of {runs.ran}'}"
            for runs, line in (
                (state, _job_line("run", state) or _run_line(state.result)),
                (vacuum, _job_line("vacuum", vacuum) or _vacuum_line(vacuum.result)),
                *((undo, _job_line("restore", undo) or _undo_line(undo.result)) for undo in self._undos),
            )
            if line
        ]
        return "\n".join(lines) or "○ ready; looking and planning change nothing"


def _job_line(name: str, runs: Runs) -> str:
    """How a run's job is; empty if it never began, or is done: its result says more."""
    job = runs.running
    sign = _SIGNS.get(job.status)
    # How it ended badly is told where its result would be.
    step = f": {job.message}" if job.running else ""
    return f"{sign} {name} {job.status}{step}" if sign else ""


def _run_line(result: CompactionResult | None) -> str:
    if result is None or not result.versions:
        return ""
    proof = "content identical ✓" if result.verified else "content not compared"
    return (
        f"● run done: version {result.versions[-1]} · {result.num_files_removed:,} → "
        f"{result.num_files_added:,} files · {result.seconds:.1f} s · {proof}"
    )


def _vacuum_line(result: VacuumResult | None) -> str:
    if result is None:
        return ""
    freed = format_size(result.size_bytes)
    return f"● vacuum done: {format_count(result.num_files, 'file')} deleted, {freed} freed"


def _undo_line(result: RestoreResult | None) -> str:
    if result is None:
        return ""
    return f"● restore done: version {result.version} has the content of version {result.restored}"


class ExportView(w.HBox):
    """A button that writes a report of all parts, which it offers as a download too."""

    def __init__(self, state: WorkbenchState, get_parts: Callable[[], Sequence[parts.Part]]):
        self.state = state
        self.get_parts = get_parts
        self.writing = Job()
        about = "Write what all parts show into one HTML page"
        self.export_button = parts.button("Export report", "ck-export", self._on_export, tooltip=about)
        self.saved = w.HTML().add_class("ck-saved")
        self.error = parts.Text("error", "export-error")
        super().__init__([self.saved, self.error, self.export_button])
        state.observe(self._render, ["files", "survey"])
        self.writing.observe(self._render, ["status"])
        self._render()

    def _on_export(self) -> None:
        self.writing.start(lambda job: self._write())

    def _write(self) -> str:
        opened = None
        while opened is not self.state.opened:
            # All sections are of one table.
            opened = self.state.opened
            sections = [section for part in self.get_parts() if (section := part.section()) is not None]
        if opened.table is None or opened.files is None:
            return _link_to(write_report("tables.html", "Tables", *sections))
        name, version = opened.table.handle.folder_name, opened.files.version
        return _link_to(write_report(f"{name}-v{version}.html", f"{name}, version {version}", *sections))

    def _render(self, _: object = None) -> None:
        job = self.writing
        nothing = self.state.files is None and self.state.survey is None
        self.export_button.disabled = job.running or nothing
        self.error.show(job.message if job.status == "failed" else "", job.details)
        self.saved.value = job.result if job.status == "done" else ""


def _link_to(page: Path) -> str:
    # Voilà is often not on the reader's machine, so that the page holds the file itself.
    address = f"data:text/html;base64,{base64.b64encode(page.read_bytes()).decode()}"
    link = element("a", "download", download=page.name, href=address)
    return element("div", f"{page.name} is written · ", link, role="status")
