"""Thresholds in, plan out, while a slider moves."""

import ipywidgets as w

from compaction_kit.plan.order import INGEST, SIZE
from compaction_kit.report import Section
from compaction_kit.widgets.parts import FigureView, Part, bind, field, offer, show_text, text
from compaction_kit.widgets.slider import SizeSlider
from compaction_kit.widgets.state import WorkbenchState

_WIDE = {"description_width": "70px"}
_BINS, _COMPARISON, _WHY = range(3)


class PlanView(Part):
    """What a compaction would do."""

    title = "Plan"

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.smaller = SizeSlider("Files smaller than", "ck-min")
        self.target = SizeSlider("Fill bins up to", "ck-max")
        bind(state, "min_file_size", self.smaller, "size_bytes")
        bind(state, "max_file_size", self.target, "size_bytes")
        self.where = field("Where", "SQL over partition columns; empty for all", "ck-where")
        bind(state, "where", self.where)
        self.order = w.Dropdown(description="Order", style=_WIDE, layout=w.Layout(width="200px"))
        self.order.add_class("ck-order")
        self.order.observe(self._on_order, "value")
        self.budget = field("Budget", "such as 10 GiB", "ck-budget", "210px")
        bind(state, "budget", self.budget)
        self.error = text("error", "where-error")
        self.sentence = text("text", "plan")
        self.image = FigureView("ck-plan-figure")
        self.bins = FigureView("ck-bins-figure")
        self.comparison = FigureView("ck-comparison-figure")
        self.why = text()
        self.more = w.Accordion(
            [self.bins, self.comparison, self.why],
            titles=("Bins", "Files that a query touches", "Why these files"),
        )
        right = w.VBox([self.where, w.HBox([self.order, self.budget]), self.error])
        controls = w.HBox([w.VBox([self.smaller, self.target]), right], layout=w.Layout(flex_flow="row wrap"))
        super().__init__([controls, self.sentence, self.image, self.more])
        self.watch(state, ["plan", "error"])
        self.watch(state, ["pending"], lambda: state.plan is None)
        state.observe(self._on_files, ["files", "order"])
        self.more.observe(self._render_more, "selected_index")
        self._on_files()

    def _on_order(self, _: object) -> None:
        if self.order.value:
            self.state.order = self.order.value

    def _on_files(self, _: object = None) -> None:
        files = self.state.files
        names = {"size, as OPTIMIZE": SIZE, "ingestion": INGEST}
        names |= {name: name for name in (files.data_columns if files is not None else ())}
        offer(self.order, names.items(), self.state.order)

    def render(self) -> None:
        """See `Part.render`."""
        state = self.state
        show_text(self.error, state.error if state.table is not None else "")
        if state.plan is None:
            self.image.show(None)
            show_text(self.sentence, "" if state.error else no_plan(state))
        else:
            self.image.show(state.plan.plot_sizes if state.plan.source.num_files else None)
            show_text(self.sentence, state.plan.explain())
        self._render_more()

    def _render_more(self, _: object = None) -> None:
        plan, chosen = self.state.plan, self.more.selected_index
        drawn = plan is not None and not plan.is_empty
        self.bins.show(plan.plot_bins if drawn and chosen == _BINS else None)
        self.comparison.show((lambda: plan.compare().plot()) if drawn and chosen == _COMPARISON else None)
        why = "No plan yet." if plan is None else str(plan.exact)
        show_text(self.why, why if chosen == _WHY else "")

    def as_code(self) -> str:
        """See `Part.as_code`."""
        return plan_code(self.state)

    def section(self) -> Section | None:
        """See `Part.section`."""
        plan = self.state.plan
        return None if plan is None else Section(self.title, (plan,), self.as_code())


def no_plan(state: WorkbenchState) -> str:
    """What to say where there is no plan."""
    return "Planning …" if state.opened.pending else "No plan yet: open a table."


def plan_code(state: WorkbenchState) -> str:
    """The Python lines that make the plan on screen."""
    options = {"where": state.where} if state.where else {}
    if state.plan is not None:
        options |= {
            "min_file_size": state.plan.thresholds.min_file_size,
            "max_file_size": state.plan.thresholds.max_file_size,
        }
    options |= {"order": state.order} if state.order != SIZE else {}
    options |= {"budget": state.budget} if state.budget else {}
    arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return (
        "import compaction_kit as ck\n\n"
        f"table = ck.open_table({state.name!r})\n"
        f"plan = table.plan_compaction({arguments})"
    )
