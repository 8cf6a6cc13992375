"""The workbench: one page to look at tables, plan their compaction and run it."""

import base64
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import ipywidgets as w
from IPython.core.getipython import get_ipython

from compaction_kit.compat import delta_version
from compaction_kit.report import write_report
from compaction_kit.session import get_spark
from compaction_kit.text import Html, element, format_count, format_size
from compaction_kit.widgets import parts
from compaction_kit.widgets.compaction import files_part, plan_part, run_part, verdict_part
from compaction_kit.widgets.history import history_part
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.page import Page
from compaction_kit.widgets.parts import Part, Text, live
from compaction_kit.widgets.query import query_part
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.streams import streams_part
from compaction_kit.widgets.tables import about_text, picker, survey_part
from compaction_kit.widgets.vacuum import vacuum_part

_SIGNS = {"running": "●", "cancelled": "○", "failed": "✕"}
# A cell that is run again shows the workbench that it showed before, with the work that is under way.
_OF_CELLS: "WeakValueDictionary[str | None, Workbench]" = WeakValueDictionary()


def workbench(root: str | Path = "data") -> "Workbench":
    """Show the workbench on a folder of tables, as the last line of a cell.

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
        self.session, self.writing = Job(), Job()
        self.verdict = verdict_part(state)
        to_run = parts.button("Continue to run", "ck-to-run", lambda: self.go_to("Run"), style="primary")
        live(to_run, disabled=lambda: not state.can_run)
        self.parts = (
            survey_part(state, self.open_table),
            *(files_part(state), plan_part(state, to_run), query_part(state), run_part(state)),
            *(history_part(state), vacuum_part(state), streams_part(state)),
        )
        self.rail = w.ToggleButtons(options=[part.title for part in self.parts], index=1).add_class("ck-rail")
        self.stack = w.Stack(self.parts, layout=w.Layout(flex="1 1 auto", min_width="0"))
        self.rail.observe(self._on_rail, "index")
        self.code, self.copy = w.HTML().add_class("ck-code"), parts.CopyButton()
        self.as_python = w.Accordion([w.VBox([self.copy, self.code])], titles=("As Python",))
        self.as_python.add_class("ck-as-python").observe(self._render_code, "selected_index")
        brand = w.HTML("compaction workbench").add_class("ck-brand")
        spark = Part(Text("hint", "spark", self._session_sentence), on=[self.session])
        above = w.HBox([brand, about_text(state), spark])
        header = w.VBox([above, picker(state)]).add_class("ck-header")
        part = w.VBox([self.stack, self.as_python], layout=w.Layout(flex="1 1 auto"))
        body = w.HBox([self.rail, part]).add_class("ck-body")
        runs = (state.running, state.vacuuming, state.restoring)
        footer = Part(self._footer(), on=[state, state.surveying, self.writing, *runs]).add_class("ck-footer")
        for job in runs:
            footer.watch(job, "message")
        super().__init__(state, header, self.verdict, body, footer)
        self.session.observe(self._on_session, "status")
        for source in (state, *state.jobs):
            source.observe(self._render_code)
        spark.shown = footer.shown = self.verdict.shown = True
        self._on_rail()

    def go_to(self, title: str) -> None:
        """Show the part with this title."""
        self.rail.value = title

    def open_table(self, name: str) -> None:
        """Open a table and show its files."""
        self.state.name = name
        self.go_to("Files")

    def _on_session(self, _: object) -> None:
        if self.session.status == "done":
            self.state.meet_session()

    def _on_rail(self, _: object = None) -> None:
        self.state.look()
        self.stack.selected_index = self.rail.index
        for i, part in enumerate(self.parts):
            part.shown = i == self.rail.index
        self._render_code()

    def _render_code(self, _: object = None) -> None:
        if self.as_python.selected_index is not None:
            self.copy.text = self.parts[self.rail.index].as_code()
            self.code.value = element("pre", self.copy.text)

    def _session_sentence(self) -> str:
        if self.session.status == "done":
            spark = self.session.result
            return f"Spark {spark.version} · Delta {delta_version(spark)} · {spark.conf.get('spark.master')}"
        error = self.session.error
        return f"Spark is not available: {error}" if error else "Spark is starting …"

    def _footer(self) -> w.HBox:
        about = "Write what all parts show into one HTML page"
        export = parts.button("Export report", "ck-export", self._export, tooltip=about)
        writing = self.writing

        def nothing() -> bool:
            return self.state.files is None and self.state.surveying.value is None

        return w.HBox(
            [
                Text("text", "status", self._status),
                Text("text", "saved", lambda: writing.result or ""),
                Text("error", "export-error", lambda: writing.error),
                live(export, disabled=lambda: writing.running or nothing()),
            ]
        )

    def _status(self) -> str:
        state = self.state
        runs = (("run", state.running), ("vacuum", state.vacuuming), ("restore", state.restoring))
        lines = [
            line + (f", of {job.about}" if job.about not in ("", state.name) else "")
            for name, job in runs
            if (line := _job_line(name, job))
        ]
        return "\n".join(lines) or "○ ready; looking and planning change nothing"

    def _export(self) -> None:
        self.writing.start(lambda job: self._write())

    def _write(self) -> Html:
        opened = None
        while opened is not self.state.opened:
            # All sections are of one table.
            opened = self.state.opened
            sections = [one for part in (self.verdict, *self.parts) if (one := part.section()) is not None]
        file, title = "tables.html", "Tables"
        if opened.table is not None and opened.files is not None:
            name, version = opened.table.handle.folder_name, opened.files.version
            file, title = f"{name}-v{version}.html", f"{name}, version {version}"
        page = write_report(file, title, *sections)
        # Voilà is often not on the reader's machine, so that the page holds the file itself.
        address = f"data:text/html;base64,{base64.b64encode(page.read_bytes()).decode()}"
        link = element("a", "download", download=page.name, href=address)
        return element("div", f"{page.name} is written · ", link, role="status")


def _job_line(name: str, job: Job) -> str:
    """How a run is or ended; empty if it never began."""
    result = job.result
    if job.status != "done":
        sign = _SIGNS.get(job.status)
        # How it ended badly is said where its result would be.
        return f"{sign} {name} {job.status}{f': {job.message}' if job.running else ''}" if sign else ""
    if result is None:
        return ""
    if name == "vacuum":
        deleted = f"{format_count(result.num_files, 'file')} deleted, {format_size(result.size_bytes)} freed"
        return f"● vacuum done: {deleted}"
    if name == "restore":
        return f"● restore done: version {result.version} has the content of version {result.restored}"
    if not result.versions:
        return ""
    return (
        f"● run done: version {result.versions[-1]} · {result.num_files_removed:,} → "
        f"{result.num_files_added:,} files · {result.seconds:.1f} s · "
        f"{'content identical ✓' if result.verified else 'content not compared'}"
    )
