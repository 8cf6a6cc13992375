"""The workbench: one page to look at tables, plan their compaction and run it."""

import base64
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import ipywidgets as w
from IPython.core.getipython import get_ipython
from pyspark.sql import SparkSession

from compaction_kit.active import active_spark
from compaction_kit.compaction import PROOF_READERS, STRATEGIES
from compaction_kit.compat import delta_version, has_jvm
from compaction_kit.cost import RAN
from compaction_kit.execute import run_plan
from compaction_kit.execute.jobs import in_thread
from compaction_kit.report import write_report
from compaction_kit.session import get_spark, quiet_errors
from compaction_kit.sql import uri
from compaction_kit.table import Table, open_table
from compaction_kit.text import Html, element
from compaction_kit.widgets import parts
from compaction_kit.widgets.compaction import plan_part, query_part, run_part, verdict_part
from compaction_kit.widgets.history import history_part, vacuum_part
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.page import Page
from compaction_kit.widgets.parts import Part, Text, live
from compaction_kit.widgets.state import WorkbenchState, root_name
from compaction_kit.widgets.tables import about_text, files_part, picker, streams_part, survey_part

_SIGNS = {"running": "●", "done": "●", "cancelled": "○", "failed": "✕"}
# Facts of a result with a beginning that is shown in the line below.
_FACTS = {fact: f"{fact} {{}}" for fact in ("version", "deleted", "files", "seconds", "content")}
_FACTS["seconds"] = "{} s"
# A cell that is run again shows the same workbench as before, with its running jobs.
_OF_CELLS: "WeakValueDictionary[str | None, Workbench]" = WeakValueDictionary()


def workbench(root: str | Path | Table = "data") -> "Workbench":
    """Show the workbench on a folder of tables, as the last line of a cell.

    Spark starts in the background meanwhile, and compacts a scratch table in the temporary folder, so that
    the first run and the first query are quick. If the cell is run again, it shows the same workbench, with
    the open table and a running job, unless it was closed; another root is adopted.

    Args:
        root: A folder that holds Delta tables, a schema or catalog of the session, or a table.
    """
    shell: Any = get_ipython()
    # The id of the running cell, if the front end sends it.
    request = shell.get_parent() if hasattr(shell, "get_parent") else {}
    cell = request.get("metadata", {}).get("cellId")
    bench = _OF_CELLS.get(cell)
    if bench is None or bench.comm is None:
        bench = Workbench(WorkbenchState(root))
        if cell is not None:
            _OF_CELLS[cell] = bench
    elif bench.given != (given := root_name(root)):
        bench.given = bench.state.root = given
    else:
        bench.state.refresh()
    bench.session.start(_start_spark)
    return bench


def _start_spark(_: Job) -> SparkSession:
    is_new = active_spark() is None
    spark = get_spark()
    if is_new and has_jvm(spark):
        in_thread(spark, partial(_warm_up, spark))
    return spark


def _warm_up(spark: SparkSession) -> None:
    """Compact, query and restore a scratch table, because the first time takes many times as long.

    Errors are ignored here, because the user's own first run shows them.
    """
    cores = spark.sparkContext.defaultParallelism
    with quiet_errors(), tempfile.TemporaryDirectory(prefix="compaction-kit-") as scratch:
        folder = Path(scratch) / "table"
        # Two files per core, for one task on each core.
        rows = spark.range(0, 2 * cores, 1, 2).selectExpr("id", f"id % {cores} AS core")
        rows.write.format("delta").partitionBy("core").save(uri(folder))
        table = open_table(folder, spark)
        plan = table.plan_compaction()
        # `plan.run()` would keep the time for predictions.
        result = run_plan(plan.handle, plan, STRATEGIES, PROOF_READERS)
        RAN.add(result.strategy)
        table.plan_compaction().predict_reads("id = 0")
        table.plan_restore(0).run()


class Workbench(Page):
    """A header, a verdict, a rail of parts, the chosen part, and a line with the state below."""

    def __init__(self, state: WorkbenchState):
        # The root that the cell gave; the page may name another one.
        self.given = state.root
        self.session, self.writing = Job(), Job()
        self._export = partial(self.writing.start, self._write)
        # The report was about the previous table.
        state.observe(self.writing.forget, "name")
        self.verdict = verdict_part(state)
        to_run = parts.button("Continue to run", "ck-to-run", lambda: self.go_to("Run"), style="primary")
        live(to_run, disabled=lambda: not state.can_run)
        self.parts = (
            survey_part(state, self.open_table),
            *(files_part(state), plan_part(state, to_run), query_part(state), run_part(state)),
            *(history_part(state), vacuum_part(state), streams_part(state)),
        )
        self.rail = w.ToggleButtons(options=[part.title for part in self.parts], index=1).add_class("ck-rail")
        # Not `w.Stack`: it removes the previous part, and ipywidgets keeps removed parts in the browser.
        self.stack = w.Box(self.parts).add_class("ck-stack")
        self.rail.observe(self._on_rail, "index")
        self.code, self.copy = w.HTML().add_class("ck-code"), parts.CopyButton()
        self.as_python = w.Accordion([w.VBox([self.copy, self.code])], titles=("As Python",))
        self.as_python.add_class("ck-as-python").observe(self._render_code, "selected_index")
        brand = w.HTML("compaction workbench").add_class("ck-brand")
        spark = Part(Text("hint", "spark", self._about_spark), on=[self.session, *state.jobs], shown=True)
        above = w.HBox([brand, about_text(state), spark]).add_class("ck-above")
        header = w.VBox([above, picker(state)]).add_class("ck-header")
        body = w.HBox([self.rail, w.VBox([self.stack, self.as_python])]).add_class("ck-body")
        first = w.HBox([self.verdict, self._next_steps(state)]).add_class("ck-first")
        super().__init__(state, header, first, body, self._footer(state))
        self.session.observe(lambda change: state.meet_session() if change.new == "done" else None, "status")
        for source in (state, *state.jobs):
            source.observe(self._render_code)
        self.verdict.shown = True
        self._on_rail()

    def go_to(self, title: str) -> None:
        """Show the part with this title."""
        self.rail.value = title

    def open_table(self, name: str) -> None:
        """Open a table and show its files."""
        self.state.name = name
        self.go_to("Files")

    def _on_rail(self, _: object = None) -> None:
        self.state.reload_if_changed()
        for i, part in enumerate(self.parts):
            part.shown = i == self.rail.index
            parts.show_if(part.shown, part)
        self._render_code()

    def _render_code(self, _: object = None) -> None:
        if self.as_python.selected_index is not None:
            self.copy.text = self.parts[self.rail.index].as_code()
            self.code.value = element("pre", self.copy.text)

    def _about_spark(self) -> str:
        if spark := active_spark(self.session.result):
            return f"Spark {spark.version} · Delta {delta_version(spark)} · {spark.conf.get('spark.master')}"
        if self.session.error:
            return f"Spark is not available: {self.session.error}"
        return "Spark has ended: restart the kernel." if self.session.result else "Spark is starting …"

    def _next_steps(self, state: WorkbenchState) -> Part:
        def advises(compaction: bool) -> bool:
            plan, is_idle = state.opened.table_plan, state.result is None and not state.running.running
            return plan is not None and is_idle and plan.is_empty != compaction

        def style() -> str:
            # Only one button is filled: these parts have their own, and after a run no step is recommended.
            return "" if state.result or self.rail.value in ("Plan", "My query", "Run") else "primary"

        def undo() -> None:
            self.go_to("Run")
            state.plan_restore(state.before_run)

        def go(text: str, name: str, part: str, when: Callable[[], object]) -> w.Widget:
            made = parts.button(text, f"ck-next-{name}", lambda: self.go_to(part))
            # Disabled where it leads nowhere, because hiding it would move the verdict.
            return live(made, when, disabled=lambda: self.rail.value == part, button_style=style)

        return Part(
            go("Plan it →", "plan", "Plan", lambda: advises(True)),
            go("Look at its history →", "history", "History", lambda: advises(False)),
            go("My query", "query", "My query", lambda: state.result),
            live(parts.button("Undo …", "ck-next-undo", undo), lambda: state.result),
            live(parts.button("Report", "ck-next-report", self._export), lambda: state.result),
            go("Plan another", "another", "Plan", lambda: state.result),
            on=[state, state.running, self.rail],
            shown=True,
        ).add_class("ck-next")

    def _footer(self, state: WorkbenchState) -> Part:
        runs = {"run": state.running, "vacuum": state.vacuuming, "restore": state.restoring}
        writing = self.writing

        def status() -> str:
            lines = [_job_line(name, job, state.name) for name, job in runs.items()]
            return "\n".join(filter(None, lines)) or "○ ready; looking and planning change nothing"

        export = parts.button("Export report", "ck-export", self._export, tooltip="All parts as an HTML page")
        live(export, disabled=lambda: writing.running or not (state.files or state.surveying.value))
        line = [
            Text("text", "status", status),
            Text("text", "saved", lambda: writing.result or ""),
            Text("error", "export-error", lambda: writing.error),
            export,
        ]
        jobs = runs.values()
        on: list[Any] = [state, state.surveying, writing, *jobs, *((job, "message") for job in jobs)]
        return Part(w.HBox(line), on=on, shown=True).add_class("ck-footer")

    def _write(self, _: Job) -> Html:
        opened = None
        while opened is not self.state.opened:
            # Repeated until all sections are about one table.
            opened = self.state.opened
            sections = [one for part in (self.verdict, *self.parts) if (one := part.section()) is not None]
        file, title = "tables.html", "Tables"
        if opened.table is not None and opened.files is not None:
            name, version = opened.table.handle.folder_name, opened.files.version
            file, title = f"{name}-v{version}.html", f"{name}, version {version}"
        page = write_report(file, title, *sections)
        # Voilà often runs on another machine than the reader's, so the page contains the file itself.
        address = f"data:text/html;base64,{base64.b64encode(page.read_bytes()).decode()}"
        link = element("a", "download", download=page.name, href=address)
        return element("div", f"{page.name} is written · ", link, role="status")


def _job_line(name: str, job: Job, table: str) -> str:
    """Return a run's state or end, with its table if that isn't the open one; empty if it never began."""
    said, ended = (job.message, "") if job.running else ("", f" {job.status}")
    if job.status == "done" and job.result is not None:
        facts = job.result.facts()
        words = {fact: re.split(" [(]|:", facts[fact])[0] for fact in _FACTS if fact in facts}
        said = " · ".join(_FACTS[fact].format(word) for fact, word in words.items())
    elif job.status in ("idle", "done"):
        return ""
    # The reason of a failure is shown where the result would be.
    of_other = f" of {job.about}" if job.about not in ("", table) else ""
    return ": ".join(filter(None, (f"{_SIGNS[job.status]} {name}{of_other}{ended}", said)))
