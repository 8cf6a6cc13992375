"""The parts that lead to a compaction: the verdict, the table's files, the plan for them, its run."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import ipywidgets as w
from matplotlib.figure import Figure

from compaction_kit.compaction import CompactionPlan
from compaction_kit.files import Files
from compaction_kit.plan.order import INGEST, SIZE
from compaction_kit.skipping import Overlap
from compaction_kit.text import (
    Html,
    as_html_table,
    element,
    format_count,
    format_partition,
    format_size,
    joined,
    paragraph,
)
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import attempt
from compaction_kit.widgets.restore import RestoreState, RestoreView
from compaction_kit.widgets.sizes import LinesFigure, SizeSlider, size_argument, stops
from compaction_kit.widgets.state import WorkbenchState

_MOST_PARTITIONS = 10
_STRATEGIES = {
    "auto: arrow where it can, else OPTIMIZE": "auto",
    "arrow: one Spark job, by pyarrow": "arrow",
    "optimize: Delta's OPTIMIZE": "optimize",
    "rewrite: overwrite with dataChange=false": "rewrite",
}
_BINS, _COMPARISON, _WHY = range(3)
# Of a plan's sentences, beside its figure: the title says the rest.
_LINES_IN_SIGHT = 2


class VerdictView(parts.Part):
    """What to know before anything else: what the table needs, or why nothing, or what the run has done."""

    title = "Verdict"
    says_errors = True

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.sentences = w.HTML().add_class("ck-verdict")
        super().__init__(self.sentences)
        self.watch(state, ["name", "files", "table_plan", "error", "pending", "result", "reads", "ran"])
        self.watch(state.running, ["status"])
        self.shown = True

    def _render(self) -> None:
        state = self.state
        verdict = None if state.opened.pending else state.verdict
        if verdict is not None:
            role = "alert" if verdict.kind == "error" else "status"
            drawn = Html(verdict._repr_html_())
            self.sentences.value = element("div", drawn, class_=f"ck-{verdict.kind}", role=role)
        elif state.table is None and not state.opened.pending:
            self.sentences.value = ""
        elif not self.sentences.value:
            # Otherwise the last one stays, greyed, until there is another.
            waiting = "Looking at the table …"
            self.sentences.value = element("div", waiting, class_="ck-hint", role="status")
        parts.show_if(bool(self.sentences.value), self.sentences)

    def _imports(self) -> tuple[str, ...]:
        return ("from compaction_kit.verdict import Verdict",)

    def _code(self) -> str:
        table = f"table = ck.open_table({self.state.name!r})\nplan = table.plan_compaction()"
        return f"{table}\nprint(Verdict.of(plan.source, plan))"

    def _records(self) -> tuple[Any, ...]:
        verdict = self.state.verdict
        return () if verdict is None else (verdict,)


class FilesView(parts.Part):
    """The live files of the latest version: their sizes, where they are, how much they overlap."""

    title = "Files"

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.sentence = parts.Text()
        self.image = parts.FigureView("ck-files-figure")
        self.partitions = w.HTML().add_class("ck-partitions")
        self.column = parts.dropdown("Column", "ck-overlap-column", "300px")
        self.overlap = parts.Text("text", "overlap")
        self.more = w.Accordion(
            [self.partitions, w.VBox([self.column, self.overlap])],
            titles=("Partitions", "Overlap: what data skipping is worth"),
        )
        super().__init__(self.sentence, self.image, self.more)
        self.watch(state, ["files"])
        self.watch(state, ["pending"], lambda: state.files is None)
        self.more.observe(self._render_more, "selected_index")
        self.column.observe(self._render_overlap, "value")

    def _render(self) -> None:
        files = self.state.files
        parts.show_if(files is not None and bool(files.num_files), self.more)
        if files is None:
            self.image.show(None)
            self.sentence.show("Reading the log …" if self.state.opened.pending else "No table is open.")
        else:
            self.image.show(files.plot if files.num_files else None)
            stats = files.stats()
            self.sentence.show(
                f"The median file has {format_size(stats.median_size_bytes)}, the largest "
                f"{format_size(stats.max_size_bytes)}. Readers read {format_size(stats.log_bytes)} of the "
                f"log, with {format_count(stats.num_commits, 'commit')} that no checkpoint has."
            )
            if self.column.options != files.data_columns:
                self.column.options = files.data_columns
                self.column.value = next(iter(files.data_columns), None)
        self._render_more()

    def _render_more(self, _: object = None) -> None:
        files, chosen = self.state.files, self.more.selected_index
        self.partitions.value = "" if files is None or chosen != 0 else _partitions(files)
        self._render_overlap()

    def _render_overlap(self, _: object = None) -> None:
        files, column = self.state.files, self.column.value
        if files is None or not column or self.more.selected_index != 1:
            self.overlap.show("")
            return
        found, error = attempt(partial(files.overlap, column))
        self.overlap.show(error if found is None else _overlap_sentence(column, found))

    def _code(self) -> str:
        files = parts.call("files", where=self.state.where or None)
        return (
            f"files = ck.open_table({self.state.name!r}).{files}\n"
            "files.plot()\n"
            "files.by_partition()\n"
            f"files.overlap({self.column.value!r})"
        )

    def _records(self) -> tuple[Any, ...]:
        files = self.state.files
        return () if files is None or not files.num_files else (files.stats(), files.plot())


def _overlap_sentence(column: str, found: Overlap) -> str:
    return (
        f"A query for one value of {column} opens {found.mean:,.1f} of "
        f"{format_count(found.num_files, 'file')} on average, {found.max:,} at most. Without minimum and "
        f"maximum in their statistics: {format_count(found.num_unknown, 'file')}."
    )


def _partitions(files: Files) -> Html:
    table, small = files.by_partition(), f"under {format_size(files.small_file_size())}"
    rows = [
        (
            format_partition(row) or "the table",
            f"{row['num_files']:,}",
            f"{row['num_small_files']:,}",
            format_size(row["size_bytes"]),
        )
        for row in table.slice(0, _MOST_PARTITIONS).to_pylist()
    ]
    # The partitions with the most files come first.
    rest = table["num_files"].to_pylist()[len(rows) :]
    notes = [paragraph(_further(rest))] if rest else []
    return joined(as_html_table(("partition", "files", small, "size"), rows), *notes)


def _further(num_files: Sequence[int]) -> str:
    most, each = format_count(num_files[0], "file"), " each" if len(num_files) > 1 else ""
    return f"and {format_count(len(num_files), 'more partition')} with at most {most}{each}"


class PlanView(parts.Part):
    """What a compaction would do: thresholds in, plan out, while a slider moves."""

    title = "Plan"
    says_input_errors = True

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.smaller = SizeSlider("Minimum file size", "ck-min")
        self.target = SizeSlider("Target file size", "ck-max")
        narrow = {"width": "auto", "label_width": "50px"}
        self.where = parts.field("Where", "such as origin = 'JFK'", "ck-where", **narrow)
        self.where.tooltip = "SQL over partition columns; empty for all files"
        self.order = parts.dropdown("Order", "ck-order", **narrow)
        self.budget = parts.field("Budget", "such as 10 GiB", "ck-budget", **narrow)
        parts.bind(state, "size_bytes", min_file_size=self.smaller, max_file_size=self.target)
        parts.bind(state, where=self.where, budget=self.budget)
        parts.set_by_choice(state, "order", self.order)
        self.error = parts.Text("error", "where-error")
        self.sentence = parts.Text("text", "plan")
        self.image = LinesFigure(self.smaller, self.target, "ck-plan-figure")
        self.bins = parts.FigureView("ck-bins-figure")
        self.comparison = parts.FigureView("ck-comparison-figure")
        self.why = parts.Text()
        self.more = w.Accordion(
            [self.bins, self.comparison, self.why],
            titles=("Bins", "Files that a query touches", "Why these files"),
        )
        inputs = (self.smaller, self.target, self.where, self.order, self.budget, self.error)
        self.controls = w.VBox(inputs).add_class("ck-controls")
        # Boxes keep their size while what they hold is drawn anew, or is hidden.
        places = [w.Box([self.image]).add_class("ck-place"), w.Box([self.sentence]).add_class("ck-says")]
        self._drawn: tuple[CompactionPlan | None, CompactionPlan | None] = (None, None)
        self._chart: Figure | None = None
        super().__init__(parts.row(self.controls, w.VBox(places).add_class("ck-beside")), self.more)
        self.watch(state, ["plan", "error"])
        self.watch(state, ["pending"], lambda: state.plan is None)
        state.observe(self._on_files, ["files", "order"])
        state.observe(self._on_planner, "planner")
        self.more.observe(self._render_more, "selected_index")
        self._on_files()
        self._on_planner()

    def _on_files(self, _: object = None) -> None:
        files = self.state.files
        names = {"size, as OPTIMIZE": SIZE, "ingestion": INGEST}
        names |= {name: name for name in (files.data_columns if files is not None else ())}
        parts.offer(self.order, names.items(), self.state.order)

    def _on_planner(self, _: object = None) -> None:
        planner = self.state.opened.planner
        if planner is not None and planner.files.num_files:
            offered = stops(planner.files.sizes, planner.largest_bin)
            self.image.stops = list(offered)
            for slider, powers in zip((self.smaller, self.target), offered, strict=True):
                slider.offer(powers)

    def _render(self) -> None:
        state, plan = self.state, self.state.plan
        self.error.show(state.input_error)
        if plan is None:
            self.image.show(None)
            self.sentence.show("" if state.error else _no_plan(state))
        else:
            self.image.show(partial(self._draw_sizes, plan) if plan.source.num_files else None)
            self.sentence.show("\n".join([*plan.explain().split("\n")[:_LINES_IN_SIGHT], *plan.warnings]))
        self._render_more()

    def _draw_sizes(self, plan: CompactionPlan) -> Figure:
        self._chart = plan.plot_sizes(self._former(plan), into=self._chart)
        return self._chart

    def _former(self, plan: CompactionPlan) -> CompactionPlan | None:
        """The plan of the same files that was drawn before this one."""
        former, drawn = self._drawn
        if drawn is not plan:
            former = drawn if drawn is not None and drawn.source is plan.source else None
            self._drawn = (former, plan)
        return former

    def _render_more(self, _: object = None) -> None:
        plan, chosen = self.state.plan, self.more.selected_index
        drawn = None if plan is None or plan.is_empty else plan
        self.bins.show(drawn.plot_bins if drawn and chosen == _BINS else None)
        self.comparison.show((lambda: drawn.compare().plot()) if drawn and chosen == _COMPARISON else None)
        why = "No plan yet." if plan is None else f"{plan.explain()}\n{plan.exact}"
        self.why.show(why if chosen == _WHY else "")

    def _code(self) -> str:
        return f"{plan_code(self.state)}\nplan.run()  # commits what the plan shows"

    def _records(self) -> tuple[Any, ...]:
        return () if self.state.plan is None else (self.state.plan,)


class RunView(parts.Part):
    """Run the plan, watch it, cancel it: the only part that rewrites data files."""

    title = "Run"

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.sentence = parts.Text("text", "run-plan")
        self.strategy = parts.dropdown("Strategy", "ck-strategy", "400px", "70px", _STRATEGIES.items())
        self.verify = w.Checkbox(True, description="Prove that the content is the same", indent=False)
        self.verify.add_class("ck-verify")
        parts.bind(state, strategy=self.strategy, verify=self.verify)
        self.run_button = parts.button("Run this plan", "ck-run", state.run, style="primary")
        self.other = parts.Text("warning", "other-table")
        self.bar = parts.JobBar(state.running, "ck-progress")
        self.outcome = parts.Text("good", "outcome")
        self.undo = RestoreView(RestoreState(state))
        self.image = parts.FigureView("ck-result-figure")
        self.timeline = parts.FigureView("ck-timeline-figure")
        self.more = w.Accordion([self.timeline], titles=("Where the time went",))
        super().__init__(
            *(self.sentence, parts.row(self.strategy, self.verify), self.run_button, self.other, self.bar),
            *(self.undo, self.outcome, self.image, self.more),
        )
        self.watch(state, ["plan", "result", "ran"])
        self.watch(state, ["pending"], lambda: state.plan is None)
        self.watch(state.running, ["status"])
        state.observe(self._arm, ["pending", "inputs"])

    @property
    def others(self) -> tuple[object, ...]:
        """See `Part.others`."""
        return (self.undo.state,)

    def _render(self) -> None:
        state, plan, result = self.state, self.state.plan, self.state.result
        done = result if result is not None and result.versions else None
        self.image.show(done.plot if done else None)
        self.timeline.show(done.plot_timeline if done else None)
        self.sentence.show(plan.explain() if plan is not None else _no_plan(state))
        self.other.show(state.of_another_table(state.name))
        self._arm()
        self.verify.disabled = self.strategy.disabled = state.running.running
        self.outcome.turn("warning" if result is not None and not result.as_planned else "good")
        self.outcome.show("" if result is None else result.summary())
        is_here = done is not None and state.ran == state.name and not state.running.running
        self.undo.offer(done.versions[0] - 1 if done and is_here else None, "Undo this run …")
        parts.show_if(done is not None, self.more)

    def _arm(self, _: object = None) -> None:
        self.run_button.disabled = self.state.running.running or not self.state.can_run

    def _code(self) -> str:
        state = self.state
        strategy = None if state.strategy == "auto" else state.strategy
        verify = None if state.verify else False
        run = parts.call("plan.run", strategy=strategy, verify=verify, progress=True)
        return f"{plan_code(state)}\nresult = {run}{self.undo.code()}"

    def _records(self) -> tuple[Any, ...]:
        state = self.state
        if state.ran != state.name:
            return ()
        return () if state.result is None else (state.result,)


def _no_plan(state: WorkbenchState) -> str:
    if state.opened.pending:
        return "Planning …"
    return state.error if state.table is not None else "No plan yet: open a table."


def plan_code(state: WorkbenchState) -> str:
    """The Python lines that make the plan on screen."""
    plan = parts.call(
        "table.plan_compaction",
        where=state.where or None,
        **_sizes_given(state),
        order=None if state.order == SIZE else state.order,
        budget=state.budget or None,
    )
    return f"table = ck.open_table({state.name!r})\nplan = {plan}"


def _sizes_given(state: WorkbenchState) -> dict[str, int | str]:
    """The thresholds of the plan, without those that come by themselves."""
    table, plan, given = state.table, state.plan, dict[str, int]()
    if table is None or plan is None:
        return {}
    names = "max_file_size", "min_file_size"
    for chosen in ((), names[:1], names[1:], names):
        given = {name: getattr(plan.thresholds, name) for name in chosen}
        made = table.thresholds(**given)
        if all(getattr(made, name) == getattr(plan.thresholds, name) for name in names):
            break
    return {name: size_argument(given[name]) for name in reversed(names) if name in given}
