"""Undo: an earlier version restored, by a click on its plan; below a run, and below the history's slider."""

from functools import partial
from typing import Any

import ipywidgets as w
from traitlets import Instance, Unicode

from compaction_kit.files import Files
from compaction_kit.history import RestorePlan, RestoreResult
from compaction_kit.table import Table
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import Job, Runs, attempt
from compaction_kit.widgets.state import WorkbenchState


class RestoreState(Runs):
    """A restore of the open table: planned when asked for, and forgotten when the table is another."""

    plan = Instance(RestorePlan, allow_none=True, help="The plan on screen, or None")
    error = Unicode("", help="Why there is no plan, in one sentence")
    result = Instance(RestoreResult, allow_none=True, help="The result of the last restore, or None")

    def __init__(self, bench: WorkbenchState):
        super().__init__()
        self.bench = bench
        self.planning = Job()
        bench.observe(self._on_table, ["table", "files"])

    def _on_table(self, change: Any) -> None:
        self.forget()
        if change.name == "table":
            self.forget_run()

    def forget(self) -> None:
        """Take the plan away; nothing was changed."""
        self.plan, self.error = None, ""

    def ask(self, version: int) -> None:
        """Plan to restore a version, in the background."""
        table, files = self.bench.table, self.bench.files
        if table is not None:
            self.forget_run()
            self.planning.start_next(lambda job: self._plan(table, files, version))

    def _plan(self, table: Table, files: Files | None, version: int) -> None:
        plan, error = attempt(partial(table.plan_restore, version))
        with self.bench.changing:
            if table is self.bench.table and files is self.bench.files:
                self.plan, self.error = plan, error

    def run(self) -> bool:
        """Restore as planned, in the background; returns whether it began."""
        with self.bench.changing:
            plan, table = self.plan, self.bench.table
        if plan is None or table is None or not plan.can_run:
            return False

        def run(job: Job) -> RestoreResult:
            result = plan.run(progress=lambda: job.report(0.0, f"Restoring version {plan.target}"))
            # What the compaction did is no longer so.
            self.bench.forget_run()
            self.bench.survey = None
            return result

        return self.start_run(self.bench, table, run)


class RestoreView(w.VBox):
    """A button that shows what a restore would do, and the button beside that plan that does it."""

    def __init__(self, state: RestoreState):
        self.state = state
        self.version: int | None = None
        self.ask_button = parts.button("", "ck-ask-restore", self._on_ask)
        self.loss = parts.Text("error", "restore-loss")
        self.sentence = parts.Text("warning", "restore-plan")
        self.error = parts.Text("error", "restore-error")
        self.run_button = parts.button("Restore", "ck-restore", state.run, style="danger")
        self.keep_button = parts.button("Keep the table as it is", "ck-keep-table", state.forget)
        self.choice = w.HBox([self.run_button, self.keep_button])
        self.bar = parts.JobBar(state.running, "ck-restoring")
        self.outcome = parts.Text("good", "restored")
        super().__init__(
            (self.ask_button, self.loss, self.sentence, self.error, self.choice, self.bar, self.outcome),
        )
        state.observe(self._render, ["plan", "error", "result"])
        for job in (state.running, state.planning):
            job.observe(self._render, ["status"])
        self._render()

    def offer(self, version: int | None, description: str = "") -> None:
        """Offer to restore a version, or none."""
        if version != self.version:
            self.version = version
            self.state.forget()
        self.ask_button.description = description
        self._render()

    def _on_ask(self) -> None:
        if self.version is not None:
            self.state.ask(self.version)

    def _render(self, _: object = None) -> None:
        state, plan = self.state, self.state.plan
        busy = state.running.running
        parts.show_if(plan is not None and not busy, self.choice)
        parts.show_if(plan is None and self.version is not None and not busy, self.ask_button)
        self.ask_button.disabled = state.planning.running
        lines = [] if plan is None else plan.explain().split("\n")
        # What other commits did comes first, if the restore takes it back.
        first = 0 if plan is None or plan.diff.same_content else 1
        self.loss.show("\n".join(lines[:first]))
        self.sentence.show("\n".join(lines[first:]))
        self.error.show(state.error)
        if plan is not None:
            self.run_button.description = f"Restore version {plan.target}"
            self.run_button.disabled = not plan.can_run
        result = state.result
        told = result and (
            f"Version {result.version} has the content of version {result.restored}: "
            f"{result.num_files_added:,} files are back, {result.num_files_removed:,} were taken out, "
            f"{'as planned' if result.as_planned else 'NOT as planned'}, in {result.seconds:.1f} s."
        )
        self.outcome.turn("warning" if result is not None and not result.as_planned else "good")
        self.outcome.show(told or "")

    def code(self) -> str:
        """The lines of Python that restore the version; empty if that isn't on screen."""
        if self.state.plan is None:
            return ""
        run = "restore.run()  # commits a version with that content"
        return f"\nrestore = table.plan_restore({self.state.plan.target})\nprint(restore.explain())\n{run}"
