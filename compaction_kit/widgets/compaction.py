"""The parts that lead to a compaction: the verdict, the plan, a query's files, the run."""

import re
from collections.abc import Callable
from typing import Any

import ipywidgets as w
import numpy as np

from compaction_kit.compaction import CompactionPlan
from compaction_kit.cost import cost_of
from compaction_kit.files import Files
from compaction_kit.plan import Planner
from compaction_kit.plan.order import INGEST, SIZE, order_by
from compaction_kit.sql import quoted
from compaction_kit.text import element, format_count
from compaction_kit.widgets import fields, parts
from compaction_kit.widgets.changes import WAITING
from compaction_kit.widgets.fields import SizeSlider
from compaction_kit.widgets.history import restore_box, restore_code
from compaction_kit.widgets.parts import FigureView, JobBar, Part, Text, fold, live
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.tables import ranges_by_column

_STRATEGIES = {
    "auto: arrow where it can, else OPTIMIZE": "auto",
    "arrow: one Spark job, by pyarrow": "arrow",
    "optimize: Delta's OPTIMIZE": "optimize",
    "rewrite: overwrite with dataChange=false": "rewrite",
}
_HINT = "Counts files without running your query; compactions are predicted with the sizes chosen in Plan."
_EXAMPLE = "SELECT count(*) FROM {{table}} WHERE {0}, or a condition alone: {0}"
# Names that Spark reads as columns without quotes, also in a query's condition.
_PLAIN = re.compile(r"(?!(?:select|with|true|false|null|current_path)$)[a-z_]\w*", re.ASCII | re.IGNORECASE)
_NOT_RUN = "Run the plan to time the query on this cluster, before and after."


def verdict_part(state: WorkbenchState) -> Part:
    """Show in a few sentences what a table needs, why it needs nothing, or what a run has done to it."""
    sentences = w.HTML().add_class("ck-verdict")

    def draw() -> None:
        pending, found = state.opened.pending, state.verdict
        if found is not None and not pending:
            role = "alert" if found.kind == "error" else "status"
            sentences.value = element("div", found._repr_html_(), class_=f"ck-{found.kind}", role=role)
        elif state.table is None and not pending:
            sentences.value = ""
        elif not sentences.value:
            # Otherwise the last verdict stays, greyed, until there is a new one.
            many = format_count(len(state.tables), "table")
            what = "at the table" if state.name else f"which of {many} gains the most from compaction"
            sentences.value = element("div", f"Looking {what} …", class_="ck-hint", role="status")
        parts.show_if(sentences.value, sentences)

    def code() -> str:
        imports, plan = ["from compaction_kit.verdict import Verdict"], "plan = table.plan_compaction()"
        return parts.python(open_code(state), plan, "print(Verdict.of(plan.source, plan))", imports=imports)

    on, records = (state, state.running, state.measuring), lambda: [state.verdict]
    return Part(sentences, on=on, title="Verdict", code=code, records=records, prepare=draw)


def plan_part(state: WorkbenchState, *below: w.Widget) -> Part:
    """Show what a compaction would do, with sliders for its thresholds, a predicate, an order and a budget.

    It changes nothing; `.state.plan` is the plan on screen after `.state.loading.wait()` returns.
    """
    controls, errors, offer = _plan_controls(state)
    column, folds = _plan_folds(state)

    def sentence() -> str:
        if (plan := state.plan) is None:
            return "" if state.input_error else _no_plan(state)
        # The figure's title says the rest.
        return "\n".join([*plan.explain().split("\n")[:2], *_takes(plan), *plan.warnings])

    # Boxes keep their size while their content is redrawn or hidden, so that no text moves a field.
    places = [
        w.VBox([*controls, *below]).add_class("ck-controls"),
        w.VBox([*errors, _sizes_figure(state)]).add_class("ck-place"),
        w.Box([Text("text", "plan", sentence)]).add_class("ck-says"),
    ]
    return Part(
        w.Box(places).add_class("ck-planning"),
        folds,
        on=[state, column],
        title="Plan",
        code=lambda: parts.python(plan_code(state), "plan.run()  # commits what the plan shows"),
        records=lambda: [state.plan],
        prepare=offer,
    )


def _plan_folds(state: WorkbenchState) -> tuple[w.Dropdown, w.Accordion]:
    """Fold away the bins, the files that a query on a chosen column opens, and the reasons."""

    def some() -> Any:
        return state.plan if state.plan is not None and not state.plan.is_empty else None

    def compare(plan: CompactionPlan, column: str) -> Any:
        return plan.compare(column).plot()

    def opened(column: str) -> Any:
        # OPTIMIZE sorts the rows of a clustered table, so no other layout can be compared.
        if state.is_clustered:
            return state.plan and (Files.plot_extents, state.plan.source, column)
        return some() and (compare, some(), column)

    def why() -> str:
        return f"{state.plan.explain()}\n{state.plan.exact}" if state.plan is not None else _no_plan(state)

    column, ranges = ranges_by_column(state, "opened", "comparison", lambda _: "", opened)
    bins = FigureView("ck-bins-figure", lambda: some() and some().plot_bins)
    empty = Text("hint", "no-bins", lambda: "" if some() else "No bin: no file is rewritten.")
    folded = {"Bins": w.VBox([bins, empty]), "Files that a query opens": ranges}
    return column, fold(lambda: True, **folded, **{"Why these files": Text("text", "why", why)})


def _sizes_figure(state: WorkbenchState) -> FigureView:
    def sizes() -> Any:
        plan, former = state.plan, figure.call[1] if figure.call else None
        if plan is None or not plan.source.num_files:
            return None
        if plan is former:
            return figure.call
        if plan.clustered_by:
            return CompactionPlan.plot_cubes, plan
        # An outline shows the previously drawn plan of the same files.
        return CompactionPlan.plot_sizes, plan, former if former and former.source is plan.source else None

    figure = FigureView("ck-plan-figure", sizes)
    return figure


def _plan_controls(state: WorkbenchState) -> tuple[list[w.Widget], list[w.Widget], Callable[[], None]]:
    """Make the sliders and fields of a plan, their errors, and a function that offers the table's values."""
    smaller, target = SizeSlider("Minimum file size", "ck-min"), SizeSlider("Target file size", "ck-max")
    narrow = {"width": "auto", "label_width": "50px"}
    where = fields.field("Where", "SQL", "ck-where", **narrow)
    where.tooltip = "SQL condition on partition columns; empty for all files"
    order = fields.dropdown("Order", "ck-order", **narrow)
    budget = fields.field("Budget", "such as 10 GiB", "ck-budget", **narrow)
    budget.tooltip = "The most bytes to rewrite, in bins that gain the most per byte; empty for no limit"
    fields.bind(state, "size_bytes", min_file_size=smaller, max_file_size=target)
    fields.set_by_choice(state, "order", order)
    by_output = w.Checkbox(True, description="Size of new files", indent=False).add_class("ck-by-output")
    by_output.tooltip = "On: the size of new files. Off: the size of bins, as OPTIMIZE's maxFileSize"
    full = w.Checkbox(False, description="OPTIMIZE … FULL", indent=False).add_class("ck-full")
    full.tooltip = "Also cluster again the files of other clustering columns"
    fields.bind(state, where=where, budget=budget, by_output=by_output, full=full)
    live(full, lambda: state.is_clustered)
    for widget in (smaller, by_output, where, order, budget):
        live(widget, lambda: not state.is_clustered)

    def offer() -> None:
        columns = () if state.files is None else state.files.data_columns
        names = [("size, as OPTIMIZE", SIZE), ("ingestion", INGEST)]
        fields.offer(order, [*names, *((name, order_by(name)) for name in columns)], state.order)
        is_split = state.files is None or state.files.partition_columns
        where.placeholder = f"such as {_condition(state.files)}" if is_split else "for partitioned tables"
        planner = state.opened.planner
        if planner is not None and planner.files.num_files:
            for slider, stops in zip((smaller, target), _stops(planner), strict=True):
                slider.offer(stops)

    def waiting() -> str:
        is_starting = state.where and state.table and state.table.handle.session is None
        return WAITING if is_starting and state.opened.pending else ""

    # A text that is not a size has its error at its own field.
    other = Text("error", "where-error", lambda: "" if None in state.inputs else state.input_error)
    errors = [Text("hint", "waiting", waiting), target.error, smaller.error, other]
    return [target, by_output, full, smaller, where, order, budget], errors, offer


def _stops(planner: Planner) -> tuple[list[int], list[int]]:
    """Return the powers of two that give different plans, for the minimum and for the target file size."""
    powers = np.unique(np.frexp(np.maximum(planner.files.sizes, 1).astype(float))[1])
    lowest, highest = int(powers[0]) - 1, int(planner.largest_bin - 1).bit_length()
    return [lowest, *powers.tolist()], list(range(lowest, max(highest, lowest + 1) + 1))


def _condition(files: Files | None) -> str:
    names = files and (files.partition_columns or files.data_columns)
    if files is None or not names:
        return "p = 1"
    column = names[0] if _PLAIN.fullmatch(names[0]) else quoted(names[0])
    if not files.partition_columns or not files.num_files:
        return f"{column} IS NOT NULL"
    value = files.partitions[f"partition.{names[0]}"][0].as_py()
    text = re.sub(r"['\\]", r"\\\g<0>", value or "")
    return f"{column} = '{text}'" if value else f"{column} IS NULL"


def _no_plan(state: WorkbenchState) -> str:
    if state.opened.pending:
        return "Planning …"
    return state.input_error or state.no_table or "No file is live, so there is no plan."


def plan_code(state: WorkbenchState) -> str:
    """Return the Python lines that make the plan on screen."""
    table, plan, given = state.table, state.plan, dict[str, object](where=state.where or None)
    if table is not None and plan is not None and plan.thresholds != table.thresholds(order=state.order):
        least, output = plan.thresholds.min_file_size, plan.thresholds.output_file_size
        if output is None or least != output // 2:
            given["min_file_size"] = parts.exact_size(least)
        name = "max_file_size" if output is None else "output_file_size"
        given[name] = parts.exact_size(plan.thresholds.target_file_size)
    given |= {"order": None if state.order == SIZE else state.order, "budget": state.budget or None}
    made = parts.call("table.plan_compaction", **given, full=state.full or None)
    return f"{open_code(state)}\nplan = {made}"


def open_code(state: WorkbenchState) -> str:
    """Return the Python line that opens the table."""
    return f"table = ck.open_table({parts.absolute(state.name)!r})"


def query_part(state: WorkbenchState) -> Part:
    """Show how many files a query opens, now and in layouts that a compaction could make.

    It changes nothing; `.state.query` is the query, `.state.predicting.value` what is on screen.
    """
    predicting, measuring = state.predicting, state.measuring
    query = w.Textarea(description="Query", rows=3, style={"description_width": "70px"}).add_class("ck-query")
    fields.bind(state, query=query)
    live(query, placeholder=lambda: _EXAMPLE.format(_condition(state.files)))
    count = parts.button("Count its files", "ck-count", state.predict, style="primary")
    time = parts.button("Measure before and after", "ck-measure", state.measure, tooltip="Runs it 12 times")
    live(count, disabled=lambda: state.plan is None or predicting.running or not state.query.strip())
    live(time, lambda: state.result, disabled=lambda: measuring.running or not state.query.strip())
    return Part(
        Text("hint", "query-hint", lambda: state.no_table or _HINT),
        query,
        w.HBox([count, time]),
        JobBar(predicting, "ck-predicting"),
        JobBar(measuring, "ck-measuring"),
        FigureView("ck-prediction-figure", lambda: predicting.value and predicting.value.plot),
        # The first line is the figure's title.
        Text("hint", "prediction", lambda: (p := predicting.value) and p.explain().partition("\n")[2]),
        Text("hint", "not-run", lambda: _NOT_RUN if predicting.value and state.can_run else ""),
        FigureView("ck-reads-figure", lambda: state.reads and state.reads.plot),
        on=[state, state.running, predicting, measuring],
        title="My query",
        code=lambda: _query_code(state),
        records=lambda: [predicting.value, state.reads],
    )


def _query_code(state: WorkbenchState) -> str:
    lines, imports = [plan_code(state), f"prediction = plan.predict_reads({state.sql!r})"], []
    lines += ["print(prediction.explain())", "prediction.plot()"]
    if state.reads is not None:
        (before, after), sql = state.reads.versions, state.reads.query
        lines.append(f"measure_reads(table.spark, table.location, {before}, {after}, {sql!r})")
        imports = ["from compaction_kit.reads import measure_reads"]
    return parts.python(*lines, imports=imports)


def _takes(plan: CompactionPlan, strategy: str = "auto", verify: bool = True) -> list[str]:
    return [] if plan.is_empty else [f"A run takes {cost_of(plan.handle, plan, strategy).in_words(verify)}."]


def run_part(state: WorkbenchState) -> Part:
    """Show a button that compacts a table, the progress, a button to cancel, the proof and the outcome.

    Nothing is changed before the click; `.state.result` is the result after it.
    """
    running = state.running
    strategy = fields.dropdown("Strategy", "ck-strategy", "400px", "70px", _STRATEGIES.items())
    verify = w.Checkbox(True, description="Prove that the content is the same", indent=False)
    fields.bind(state, strategy=strategy, verify=verify.add_class("ck-verify"))
    run = parts.button("Run this plan", "ck-run", state.run, style="primary")
    for widget in (strategy, verify):
        live(widget, disabled=lambda: running.running)

    def done() -> Any:
        # The result is shown even if another table is open by now.
        return running.result if getattr(running.result, "versions", ()) else None

    def code() -> str:
        strategy = None if state.strategy == "auto" else state.strategy
        run = parts.call("plan.run", strategy=strategy, verify=None if state.verify else False, progress=True)
        undo = restore_code(state, state.before_run)
        # Once an undo is planned, its code replaces the code of the run.
        lines = [open_code(state), *undo] if undo else [plan_code(state), f"result = {run}"]
        return parts.python(*lines)

    def sentence() -> str:
        plan = state.plan
        if plan is None:
            return _no_plan(state)
        return "\n".join([plan.explain(), *_takes(plan, state.strategy, state.verify)])

    undo = restore_box(state, lambda: state.before_run, lambda: "Undo this run …")
    timeline = FigureView("ck-timeline-figure", lambda: done() and done().plot_timeline)
    return Part(
        Text("text", "run-plan", sentence),
        w.HBox([strategy, verify]),
        live(run, disabled=lambda: running.running or not state.can_run),
        parts.outcome(state, running, "ck-progress", "outcome", undo),
        FigureView("ck-result-figure", lambda: done() and done().plot),
        fold(done, **{"Where the time went": timeline}),
        on=[state, running, state.restoring, state.planning_restore],
        title="Run",
        code=code,
        records=lambda: [state.result],
    )
