"""Run the plan, watch it, cancel it, see what came of it."""

import ipywidgets as w

from compaction_kit.report import Section
from compaction_kit.widgets.parts import (
    FigureView,
    JobBar,
    Part,
    bind,
    button,
    of_another_table,
    show_text,
    text,
)
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.views.plan import no_plan, plan_code

_STRATEGIES = {
    "auto: arrow where it can, else OPTIMIZE": "auto",
    "arrow: one Spark job, by pyarrow": "arrow",
    "optimize: Delta's OPTIMIZE": "optimize",
    "rewrite: overwrite with dataChange=false": "rewrite",
}


class RunView(Part):
    """The only part that rewrites data files."""

    title = "Run"

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.sentence = text("text", "run-plan")
        self.strategy = w.Dropdown(
            options=list(_STRATEGIES.items()),
            description="Strategy",
            style={"description_width": "70px"},
            layout=w.Layout(width="400px"),
        )
        self.strategy.add_class("ck-strategy")
        bind(state, "strategy", self.strategy)
        self.verify = w.Checkbox(True, description="Prove that the content is the same", indent=False)
        self.verify.add_class("ck-verify")
        bind(state, "verify", self.verify)
        self.run_button = button("Run this plan", "ck-run", state.run, primary=True)
        self.other = text("warning", "other-table")
        self.bar = JobBar(state.running, "ck-progress")
        self.outcome = text("good", "outcome")
        self.image = FigureView("ck-result-figure")
        self.timeline = FigureView("ck-timeline-figure")
        self.more = w.Accordion([self.timeline], titles=("Where the time went",))
        controls = w.HBox([self.strategy, self.verify], layout=w.Layout(flex_flow="row wrap"))
        super().__init__(
            [
                *(self.sentence, controls, self.run_button, self.other, self.bar),
                *(self.outcome, self.image, self.more),
            ]
        )
        self.watch(state, ["plan", "result", "ran"])
        self.watch(state, ["pending"], lambda: state.plan is None)
        state.observe(self._arm, ["pending", "inputs"])
        self.watch(state.running, ["status"])

    def render(self) -> None:
        """See `Part.render`."""
        plan, running, result = self.state.plan, self.state.running.running, self.state.result
        done = result is not None and bool(result.versions)
        self.image.show(result.plot if done else None)
        self.timeline.show(result.plot_timeline if done else None)
        show_text(self.sentence, plan.explain() if plan is not None else no_plan(self.state))
        show_text(self.other, of_another_table(self.state.ran, self.state.name))
        self._arm()
        self.verify.disabled = self.strategy.disabled = running
        show_text(self.outcome, "" if result is None else result.summary())
        self.more.layout.display = "" if done else "none"

    def _arm(self, _: object = None) -> None:
        self.run_button.disabled = self.state.running.running or not self.state.can_run

    def as_code(self) -> str:
        """See `Part.as_code`."""
        options = {} if self.state.strategy == "auto" else {"strategy": self.state.strategy}
        verify = {} if self.state.verify else {"verify": False}
        given = "".join(f"{name}={value!r}, " for name, value in {**options, **verify}.items())
        return f"{plan_code(self.state)}\nresult = plan.run({given}progress=True)"

    def section(self) -> Section | None:
        """See `Part.section`."""
        result = self.state.result if self.state.ran == self.state.name else None
        return None if result is None else Section(self.title, (result,), self.as_code())
