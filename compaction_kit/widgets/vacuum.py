"""A vacuum of the open table: its cost, its plan, its run, which wants the table's name typed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import ipywidgets as w
from traitlets import Instance, Int, Unicode, observe

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.table import Table
from compaction_kit.vacuum import VacuumPlan, VacuumProgress, VacuumResult
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import Job, Runs, attempt
from compaction_kit.widgets.state import WorkbenchState

_NOTHING_DELETED = (
    "Nothing was deleted: the plan on screen was not the one for what is chosen now. Look at the new "
    "one, and type the table's name again."
)
_MOST_DAYS = 60
_NARROW = {"width": "300px", "label_width": "96px"}
Inputs = tuple[str, str, int]


@dataclass(frozen=True, eq=False)
class Planned:
    """A vacuum's plan with its inputs; replaced as a whole.

    Attributes:
        plan: The plan; None if there is none.
        files: The files of the table that was planned; None if there is no plan yet.
        inputs: The retention, versions and days that the plan is for.
        error: Why there is no plan, in one sentence.
    """

    plan: VacuumPlan | None = None
    files: Files | None = None
    inputs: Inputs | None = None
    error: str = ""


class VacuumState(Runs):
    """A vacuum of the open table; `retention`, `keep` and `days` are set by anybody.

    The fields of `planned` can be observed by their names.
    """

    retention = Unicode(
        "", help='How long removed files are kept, such as "7 days"; empty: as the table is set'
    )
    keep = Unicode("", help="Versions that must stay readable, such as 3, 7; empty for none")
    days = Int(0, min=0, help="In how many days it would run; 0 for now")
    planned = Instance(Planned, (), help="The plan and its inputs")
    result = Instance(VacuumResult, allow_none=True, help="The result of the last run, or None")

    def __init__(self, bench: WorkbenchState):
        super().__init__()
        self.bench = bench
        self.planning = Job()
        self.observe_fields("planned")
        bench.observe(self._forget, ["table", "files"])

    @property
    def plan(self) -> VacuumPlan | None:
        """The plan on screen, or None."""
        return self.planned.plan

    @property
    def inputs(self) -> Inputs:
        """The inputs that a plan is made for now."""
        return self.retention, self.keep, self.days

    @property
    def is_settled(self) -> bool:
        """Whether the plan is that of the table and the inputs on screen."""
        planned, opened = self.planned, self.bench.opened
        of_table = planned.files is not None and planned.files is opened.files and not opened.pending
        return of_table and planned.inputs == self.inputs

    def _forget(self, change: Any) -> None:
        self.planned = Planned()
        if change.name == "table":
            self.forget_run()

    @observe("retention", "keep", "days")
    def _on_input(self, _: object) -> None:
        self.look()

    def look(self) -> None:
        """Plan, in the background."""
        if self.bench.table is not None:
            self.planning.start_next(lambda job: self._look())

    def _look(self) -> None:
        opened, inputs = self.bench.opened, self.inputs
        table, files = opened.table, opened.files
        is_planned = self.planned.files is files and self.planned.inputs == inputs
        if table is None or files is None or is_planned:
            return
        plan, error = attempt(partial(_plan, table, *inputs))
        with self.bench.changing:
            if files is self.bench.files and inputs == self.inputs:
                self.planned = Planned(plan, files, inputs, error)

    @property
    def password(self) -> str:
        """The table's name, which has to be typed before anything is deleted."""
        return self.bench.table.handle.folder_name if self.bench.table is not None else ""

    def run(self, typed: str) -> bool:
        """Delete what the plan shows, in the background, if the table's name was typed."""
        with self.bench.changing:
            plan, table, is_wanted = self.plan, self.bench.table, self.is_settled
        if plan is None or table is None or plan.is_empty or self.days or typed != self.password:
            return False
        if not is_wanted:
            return self.refuse(_NOTHING_DELETED)
        return self.start_run(self.bench, table, lambda job: plan.run(progress=partial(_report, job)))


def _plan(table: Table, retention: str, keep: str, days: int) -> VacuumPlan:
    at = datetime.now(UTC) + timedelta(days=days) if days else None
    try:
        kept = [int(version) for version in keep.replace(",", " ").split()] or None
    except ValueError:
        raise InvalidArgumentError(f'keep_versions="{keep}" are not versions: write them as 3, 7.') from None
    return table.plan_vacuum(retention=retention or None, keep_versions=kept, at=at)


def _report(job: Job, progress: VacuumProgress) -> None:
    job.report(progress.fraction, str(progress))


class VacuumView(parts.Part):
    """Cost first, then bytes; the button is enabled when the table's name is typed."""

    title = "Vacuum"

    def __init__(self, state: VacuumState):
        self.state = state
        self.retention = parts.field("Retention", "as the table is set", "ck-retention", **_NARROW)
        self.keep = parts.field("Keep versions", "such as 3, 7", "ck-keep", **_NARROW)
        self.days = parts.Slider(label="In days from now", min=0, max=_MOST_DAYS).add_class("ck-days")
        parts.bind(state, retention=self.retention, keep=self.keep, days=self.days)
        self.error = parts.Text("error", "vacuum-error")
        self.cost = parts.Text("warning", "vacuum-cost")
        self.sentence = parts.Text("text", "vacuum-plan")
        self.image = parts.FigureView("ck-vacuum-figure")
        self.confirm = parts.field("Type its name", "", "ck-confirm", **_NARROW)
        self.confirm.continuous_update = True
        self.confirm.observe(self._arm, "value")
        self.run_button = parts.button("Delete these files", "ck-vacuum", self._on_run, style="danger")
        # From the beginning, and not only once a plan is drawn.
        self.run_button.disabled = True
        self.other = parts.Text("warning", "other-table")
        self.bar = parts.JobBar(state.running, "ck-vacuuming")
        self.outcome = parts.Text("good", "outcome")
        self.danger = w.HBox([self.confirm, self.run_button])
        inputs = parts.row(self.retention, self.keep, self.days)
        super().__init__(
            *(inputs, self.error, self.cost, self.sentence, self.image),
            *(self.danger, self.other, self.bar, self.outcome),
        )
        state.observe(self._forget_name, "plan")
        self.watch(state, ["plan", "result", "error", "ran"])
        self.watch(state.running, ["status"])
        state.observe(self._arm, ["retention", "keep", "days", "files", "inputs"])
        state.bench.observe(self._arm, "pending")
        self.watch(state.bench, ["files"])

    def _on_run(self) -> None:
        self.state.run(self.confirm.value)
        self.confirm.value = ""

    def _arm(self, _: object = None) -> None:
        state, typed = self.state, self.confirm.value
        ready = state.is_settled and not state.running.running
        self.run_button.disabled = not ready or not typed or typed != state.password

    def _forget_name(self, _: object) -> None:
        """A name that was typed is for the plan that it was typed under, and for no other."""
        self.confirm.value = ""

    def _render(self) -> None:
        state, plan, error = self.state, self.state.plan, self.state.planned.error
        self.days.text = f"in {state.days} days" if state.days else "now"
        self.error.show(error)
        self.other.show(state.of_another_table(state.bench.name))
        self.outcome.turn("warning" if state.result is not None and not state.result.as_planned else "good")
        self.outcome.show("" if state.result is None else str(state.result))
        self.image.show(None if plan is None else plan.plot)
        parts.show_if(not (plan is None or plan.is_empty or state.days), self.danger)
        if plan is None:
            self.cost.show("")
            nothing = "Looking …" if state.bench.table is not None else "No table is open."
            self.sentence.show("" if error else nothing)
            if not error:
                state.look()
            return
        first, _, rest = plan.explain().partition("\n")
        self.cost.show(first if plan.versions_lost else "")
        self.sentence.show(rest if plan.versions_lost else plan.explain())
        self.confirm.placeholder = state.password
        self._arm()

    def _imports(self) -> tuple[str, ...]:
        return ("from datetime import UTC, datetime, timedelta",) if self.state.days else ()

    def _code(self) -> str:
        state = self.state
        given = [f"retention={state.retention!r}"] if state.retention else []
        given += [f"keep_versions=[{state.keep}]"] if state.keep else []
        given += [f"at=datetime.now(UTC) + timedelta(days={state.days})"] if state.days else []
        run = "" if state.days else "\nvacuum.run(progress=True)  # deletes what the plan shows"
        return (
            f"table = ck.open_table({state.bench.name!r})\n"
            f"vacuum = table.plan_vacuum({', '.join(given)})\n"
            f"print(vacuum.explain()){run}"
        )

    def _records(self) -> tuple[Any, ...]:
        state = self.state
        result = state.result if state.ran == state.bench.name else None
        return tuple(record for record in (result, state.plan) if record is not None)
