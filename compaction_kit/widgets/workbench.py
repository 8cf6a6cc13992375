"""The workbench: one page to look at tables, plan their compaction and run it."""

from importlib.metadata import version
from pathlib import Path

import ipywidgets as w

from compaction_kit.session import get_spark
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.parts import STYLE, button, show_text, text
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.views import FilesView, PlanView, RunView, TablePicker


def workbench(root: str | Path = "data") -> "Workbench":
    """The workbench on a folder of tables; the last line of a cell shows it.

    Spark starts in the background meanwhile.

    Args:
        root: A folder on a local disk that holds Delta tables, or a table.
    """
    bench = Workbench(WorkbenchState(root))
    bench.session.start(lambda job: get_spark())
    return bench


class Workbench(w.VBox):
    """A header, a rail of parts, the part chosen, and the state in a line below."""

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.session = Job()
        self.spark = text("hint", "spark")
        self.picker = TablePicker(state)
        self.files = FilesView(state)
        self.plan = PlanView(state)
        self.run = RunView(state)
        self.to_run = button("Continue to run", "ck-to-run", self._on_to_run, primary=True)
        parts = {
            "Files": self.files,
            "Plan": w.VBox([self.plan, self.to_run]),
            "Run": self.run,
        }
        self.rail = w.ToggleButtons(options=list(parts), layout=w.Layout(width="110px"))
        self.rail.add_class("ck-rail")
        self.stack = w.Stack(list(parts.values()), selected_index=0, layout=w.Layout(flex="1 1 auto"))
        self.rail.observe(self._on_rail, "index")
        self.footer = text("text", "footer-text")
        header = w.VBox([w.HBox([w.HTML("<b>compaction workbench</b>"), self.spark]), self.picker])
        header.add_class("ck-header")
        body = w.HBox([self.rail, self.stack])
        body.add_class("ck-body")
        footer = w.Box([self.footer])
        footer.add_class("ck-footer")
        super().__init__([w.HTML(STYLE), header, body, footer])
        self.add_class("ck-workbench")
        self.session.observe(self._render, ["status"])
        state.observe(self._render, ["files", "plan", "result", "error"])
        state.running.observe(self._render, ["status", "message"])
        self._render()

    def _on_rail(self, _: object) -> None:
        self.stack.selected_index = self.rail.index

    def _on_to_run(self) -> None:
        self.rail.index = 2

    def _render(self, _: object = None) -> None:
        show_text(self.spark, self._session_sentence())
        plan = self.state.plan
        self.to_run.disabled = plan is None or plan.is_empty
        show_text(self.footer, self._status_sentence())

    def _session_sentence(self) -> str:
        if self.session.status == "done":
            master = self.session.result.sparkContext.master
            return f"Spark {version('pyspark')} · Delta {version('delta-spark')} · {master}"
        if self.session.status == "failed":
            return f"Spark is not available: {self.session.message}"
        return "Spark is starting …"

    def _status_sentence(self) -> str:
        running, result = self.state.running, self.state.result
        if running.running:
            return f"● running: {running.message}"
        if running.status == "cancelled":
            return f"○ cancelled: {running.message}"
        if running.status == "failed":
            return f"✕ failed: {running.message}"
        if result is not None and result.versions:
            proof = "content identical ✓" if result.verified else "content not compared"
            return (
                f"● done: version {result.versions[-1]} · {result.num_files_removed:,} → "
                f"{result.num_files_added:,} files · {result.seconds:.1f} s · {proof}"
            )
        if self.state.plan is not None:
            return "○ nothing has run yet; looking and planning change nothing"
        return "○ ready"
