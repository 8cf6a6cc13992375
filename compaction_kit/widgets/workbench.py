"""The workbench: one page to look at tables, plan their compaction and run it."""

from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import ipywidgets as w
from IPython.core.getipython import get_ipython

from compaction_kit.execute.result import CompactionResult
from compaction_kit.session import delta_version, get_spark
from compaction_kit.text import element, format_count, format_size
from compaction_kit.vacuum.result import VacuumResult
from compaction_kit.widgets.export import ExportView
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.looking_back import HistoryState, VacuumState
from compaction_kit.widgets.parts import STYLE, Part, button, close_tree, show_text, text
from compaction_kit.widgets.slider import DropdownArrows
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.streams import StreamsState
from compaction_kit.widgets.views import (
    FilesView,
    HistoryView,
    PlanView,
    RunView,
    StreamsView,
    SurveyView,
    TablePicker,
    VacuumView,
)

_SIGNS = {"running": "●", "cancelled": "○", "failed": "✕"}
# A cell that is run again shows the workbench that it showed before, with the work that is under way.
_OF_CELLS: "WeakValueDictionary[str | None, Workbench]" = WeakValueDictionary()


def workbench(root: str | Path = "data") -> "Workbench":
    """The workbench on a folder of tables; the last line of a cell shows it.

    Spark starts in the background meanwhile. If the cell is run again, the workbench comes as it was,
    with the table that was open and a run that is under way, unless it was closed; another root is
    taken over.

    Args:
        root: A folder on a local disk that holds Delta tables, or a table.
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
    """The notebook's cell that is being run, if the front end tells."""
    shell: Any = get_ipython()
    request = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return request.get("metadata", {}).get("cellId")


class Workbench(w.VBox):
    """A header, a rail of parts, the part chosen, and the state in a line below."""

    def __init__(self, state: WorkbenchState):
        self.state = state
        # The root by the cell; another may be named in the page.
        self.given = state.root
        self.session = Job()
        self.spark = text("hint", "spark")
        self.picker = TablePicker(state)
        self.survey = SurveyView(state, self.open_table)
        self.files = FilesView(state)
        self.plan = PlanView(state)
        self.run = RunView(state)
        self.history = HistoryView(HistoryState(state))
        self.vacuum = VacuumView(VacuumState(state))
        self.streams = StreamsView(StreamsState(state))
        self.parts: tuple[Part, ...] = (
            *(self.survey, self.files, self.plan, self.run),
            *(self.history, self.vacuum, self.streams),
        )
        self.export = ExportView(state, lambda: self.parts)
        self.to_run = button("Continue to run", "ck-to-run", lambda: self.go_to(self.run), primary=True)
        self.plan.children = (*self.plan.children, self.to_run)
        self.rail = w.ToggleButtons(options=[part.title for part in self.parts], index=1)
        self.rail.add_class("ck-rail")
        self.stack = w.Stack(self.parts, layout=w.Layout(flex="1 1 auto", min_width="0"))
        self.rail.observe(self._on_rail, "index")
        self.code = w.HTML()
        self.code.add_class("ck-code")
        self.as_python = w.Accordion([self.code], titles=("As Python",))
        self.as_python.add_class("ck-as-python")
        self.as_python.observe(self._render_code, "selected_index")
        self.footer = text("text", "status")
        super().__init__([w.HTML(STYLE), self._header(), self._body(), self._footer()])
        self.add_class("ck-workbench")
        self.session.observe(self._render, ["status"])
        state.observe(self._render, ["files", "plan", "result", "error", "pending", "inputs", "ran"])
        for source in (state, self.history.state, self.vacuum.state, self.streams.state):
            source.observe(self._render_code)
        self.vacuum.state.observe(self._render, "result")
        for job in (state.running, self.vacuum.state.running):
            job.observe(self._render, ["status", "message"])
        self._on_rail()
        self._render()

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All work that it may have under way."""
        state, looking_back = self.state, (self.history.state.reading, self.vacuum.state.planning)
        return (
            *(state.loading, state.running, state.making, state.surveying, self.session, self.export.writing),
            *(*looking_back, self.vacuum.state.running, self.streams.state.reading),
        )

    def close(self) -> None:
        """Cancel what is under way, and take the page away."""
        for job in self.jobs:
            job.cancel()
        close_tree(self.children)
        super().close()

    def go_to(self, part: Part) -> None:
        """Show one of the parts."""
        self.rail.index = self.parts.index(part)

    def open_table(self, name: str) -> None:
        """Open a table and show its files."""
        self.state.name = name
        self.go_to(self.files)

    def _header(self) -> w.VBox:
        name = w.HTML("compaction workbench")
        name.add_class("ck-brand")
        header = w.VBox([w.HBox([name, self.spark]), self.picker, DropdownArrows()])
        header.add_class("ck-header")
        return header

    def _body(self) -> w.HBox:
        body = w.HBox([self.rail, w.VBox([self.stack, self.as_python], layout=w.Layout(flex="1 1 auto"))])
        body.add_class("ck-body")
        return body

    def _footer(self) -> w.HBox:
        footer = w.HBox([self.footer, self.export])
        footer.add_class("ck-footer")
        return footer

    def _on_rail(self, _: object = None) -> None:
        self.state.look()
        self.stack.selected_index = self.rail.index
        for i, part in enumerate(self.parts):
            part.shown = i == self.rail.index
        self._render_code()

    def _render_code(self, _: object = None) -> None:
        if self.as_python.selected_index is not None:
            self.code.value = element("pre", self.parts[self.rail.index].as_code())

    def _render(self, _: object = None) -> None:
        show_text(self.spark, self._session_sentence())
        self.to_run.disabled = not self.state.can_run
        if self.state.opened.pending:
            self.add_class("ck-pending")
        else:
            self.remove_class("ck-pending")
        show_text(self.footer, self._status_sentence())

    def _session_sentence(self) -> str:
        if self.session.status == "done":
            spark = self.session.result
            return f"Spark {spark.version} · Delta {delta_version(spark)} · {spark.sparkContext.master}"
        if self.session.status == "failed":
            return f"Spark is not available: {self.session.message}"
        return "Spark is starting …"

    def _status_sentence(self) -> str:
        vacuum = self.vacuum.state
        of_run = _told("run", self.state.running) or _told_of_run(self.state.result)
        of_vacuum = _told("vacuum", vacuum.running) or _told_of_vacuum(vacuum.result)
        told = [
            f"{words}{'' if ran in ('', self.state.name) else f', of {ran}'}"
            for words, ran in ((of_run, self.state.ran), (of_vacuum, vacuum.ran))
            if words
        ]
        return "\n".join(told) or "○ ready; looking and planning change nothing"


def _told(name: str, job: Job) -> str:
    """How a job is, unless it was never begun or its result tells."""
    sign = _SIGNS.get(job.status)
    return f"{sign} {name} {job.status}: {job.message}" if sign else ""


def _told_of_run(result: CompactionResult | None) -> str:
    if result is None or not result.versions:
        return ""
    proof = "content identical ✓" if result.verified else "content not compared"
    return (
        f"● run done: version {result.versions[-1]} · {result.num_files_removed:,} → "
        f"{result.num_files_added:,} files · {result.seconds:.1f} s · {proof}"
    )


def _told_of_vacuum(result: VacuumResult | None) -> str:
    if result is None:
        return ""
    freed = format_size(result.size_bytes)
    return f"● vacuum done: {format_count(result.num_files, 'file')} deleted, {freed} freed"
