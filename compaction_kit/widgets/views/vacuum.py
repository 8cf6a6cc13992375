"""What a vacuum would take and what it costs; a typed name before anything is deleted."""

import ipywidgets as w

from compaction_kit.report import Section
from compaction_kit.widgets.looking_back import VacuumState
from compaction_kit.widgets.parts import (
    FigureView,
    JobBar,
    Part,
    bind,
    button,
    field,
    of_another_table,
    show_text,
    text,
)
from compaction_kit.widgets.slider import Slider

_MOST_DAYS = 60
_NARROW = {"width": "300px", "label_width": "96px"}


class VacuumView(Part):
    """Cost first, then bytes; the button arms when the table's name is typed."""

    title = "Vacuum"

    def __init__(self, state: VacuumState):
        self.state = state
        self.retention = field("Retention", "as the table is set", "ck-retention", **_NARROW)
        self.keep = field("Keep versions", "such as 3, 7", "ck-keep", **_NARROW)
        self.days = Slider(label="In days from now", min=0, max=_MOST_DAYS)
        self.days.add_class("ck-days")
        bind(state, "retention", self.retention)
        bind(state, "keep", self.keep)
        bind(state, "days", self.days)
        self.error = text("error", "vacuum-error")
        self.cost = text("warning", "vacuum-cost")
        self.sentence = text("text", "vacuum-plan")
        self.image = FigureView("ck-vacuum-figure")
        self.confirm = field("Type its name", "", "ck-confirm", **_NARROW)
        self.confirm.continuous_update = True
        self.confirm.observe(self._arm, "value")
        self.run_button = button("Delete these files", "ck-vacuum", self._on_run)
        self.run_button.button_style = "danger"
        # From the beginning, and not only once a plan is drawn.
        self.run_button.disabled = True
        self.other = text("warning", "other-table")
        self.bar = JobBar(state.running, "ck-vacuuming")
        self.outcome = text("good", "outcome")
        controls = w.HBox([self.retention, self.keep, self.days], layout=w.Layout(flex_flow="row wrap"))
        self.danger = w.HBox([self.confirm, self.run_button])
        super().__init__(
            [
                *(controls, self.error, self.cost, self.sentence, self.image),
                *(self.danger, self.other, self.bar, self.outcome),
            ]
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

    def render(self) -> None:
        """See `Part.render`."""
        state, plan = self.state, self.state.plan
        self.days.text = f"in {state.days} days" if state.days else "now"
        show_text(self.error, state.error)
        show_text(self.other, of_another_table(state.ran, state.bench.name))
        show_text(self.outcome, "" if state.result is None else str(state.result))
        if plan is None:
            self.image.show(None)
            show_text(self.cost, "")
            show_text(self.sentence, "Looking …" if state.bench.table is not None else "No table is open.")
            self.danger.layout.display = "none"
            if state.error:
                show_text(self.sentence, "")
            else:
                state.look()
            return
        self.image.show(plan.plot)
        first, _, rest = plan.explain().partition("\n")
        show_text(self.cost, first if plan.versions_lost else "")
        show_text(self.sentence, rest if plan.versions_lost else plan.explain())
        self.danger.layout.display = "none" if plan.is_empty or state.days else ""
        self.confirm.placeholder = state.password
        self._arm()

    def as_code(self) -> str:
        """See `Part.as_code`."""
        state = self.state
        options = {"retention": state.retention} if state.retention else {}
        given = [f"{name}={value!r}" for name, value in options.items()]
        given += [f"keep_versions=[{state.keep}]"] if state.keep else []
        given += [f"at=datetime.now(UTC) + timedelta(days={state.days})"] if state.days else []
        times = "from datetime import UTC, datetime, timedelta\n\n" if state.days else ""
        run = "" if state.days else "\nvacuum.run(progress=True)  # deletes what the plan shows"
        return (
            f"{times}import compaction_kit as ck\n\n"
            f"table = ck.open_table({state.bench.name!r})\n"
            f"vacuum = table.plan_vacuum({', '.join(given)})\n"
            f"print(vacuum.explain()){run}"
        )

    def section(self) -> Section | None:
        """See `Part.section`."""
        plan = self.state.plan
        result = self.state.result if self.state.ran == self.state.bench.name else None
        records = tuple(record for record in (result, plan) if record is not None)
        return Section(self.title, records, self.as_code()) if records else None
