"""A query of the user's own: the files that it opens now and in other layouts, and how long it takes."""

import re
from typing import Any

import ipywidgets as w

from compaction_kit.query import with_table
from compaction_kit.sql import literal, quoted
from compaction_kit.widgets import parts
from compaction_kit.widgets.compaction import plan_code
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.parts import FigureView, JobBar, Part, Text, live
from compaction_kit.widgets.state import WorkbenchState

_EXAMPLE = "SELECT count(*) FROM {table} WHERE id < 3, or a condition alone: id < 3"
_HINT = "Spark plans the query and doesn't run it; compactions are planned with the thresholds of Plan."
_NOT_RUN = "Run the plan, and the query can be timed on this cluster, before and after."


def query_part(state: WorkbenchState) -> Part:
    """Show how many files a query opens, now and in layouts that a compaction could make.

    It changes nothing; `.state.query` is the query, `.state.predicting.value` what is on screen.
    """
    predicting, measuring = state.predicting, state.measuring
    style, layout = {"description_width": "70px"}, w.Layout(width="880px")
    query = w.Textarea(description="Query", placeholder=_EXAMPLE, rows=3, style=style, layout=layout)
    parts.bind(state, query=query.add_class("ck-query"))
    column = parts.dropdown("or a range", "ck-range-column", "250px", "70px")
    low = parts.field("from", "", "ck-low", "220px", "40px")
    high = parts.field("to", "", "ck-high", "220px", "30px")

    def text() -> str:
        table, sql = state.table, state.query.strip()
        return sql if table is None else str(with_table(sql, table.handle.store, table.name))

    def predict() -> None:
        plan, sql = state.plan, text()
        predicting.forget()
        predicting.ask(lambda job: plan and plan.predict_reads(sql, job.report), plan)

    def measure() -> None:
        result, sql = state.result, text()

        def work(job: Job) -> Any:
            job.report(0.0, "Running the query at both versions, several times")
            return result and result.measure_reads(sql)

        measuring.forget()
        measuring.ask(work, result)

    def write_range(_: object) -> None:
        if state.files is not None and column.value:
            kind = state.files.snapshot.metadata.column_types[column.value]
            name = column.value if re.fullmatch(r"\w+", column.value) else quoted(column.value)
            given = [(sign, field.value.strip()) for sign, field in ((">=", low), ("<=", high))]
            state.query = " AND ".join(
                f"{name} {sign} {literal(value, kind)}" for sign, value in given if value
            )

    def offer_columns() -> None:
        kinds = {} if state.files is None else state.files.snapshot.metadata.column_types
        simple = tuple(name for name, kind in kinds.items() if isinstance(kind, str))
        if column.options != simple:
            parts.offer(column, simple, next(iter(simple), None))
            low.value = high.value = ""

    def code() -> str:
        lines, imports = [plan_code(state), f"prediction = plan.predict_reads({text()!r})"], []
        lines += ["print(prediction.explain())", "prediction.plot()"]
        if state.reads is not None:
            (before, after), sql = state.reads.versions, state.reads.query
            lines.append(f"measure_reads(table.spark, table.location, {before}, {after}, {sql!r})")
            imports = ["from compaction_kit.reads import measure_reads"]
        return parts.python(*lines, imports=imports)

    for field in (low, high):
        field.observe(write_range, "value")
    count = parts.button("Count its files", "ck-count", predict, style="primary")
    time = parts.button("Measure before and after", "ck-measure", measure)
    live(count, disabled=lambda: state.plan is None or predicting.running)
    live(time, lambda: state.result, disabled=lambda: measuring.running)
    return Part(
        Text("hint", "query-hint", lambda: "No table is open." if state.table is None else _HINT),
        query,
        parts.row(column, low, high),
        parts.row(count, time),
        JobBar(predicting, "ck-predicting"),
        JobBar(measuring, "ck-measuring"),
        FigureView("ck-prediction-figure", lambda: predicting.value and predicting.value.plot),
        # The first line is the figure's title.
        Text(
            "hint", "prediction", lambda: predicting.value and predicting.value.explain().partition("\n")[2]
        ),
        Text("hint", "not-run", lambda: _NOT_RUN if predicting.value and not state.result else ""),
        FigureView("ck-reads-figure", lambda: state.reads and state.reads.plot),
        on=[state, state.running, predicting, measuring],
        title="My query",
        code=code,
        records=lambda: [predicting.value, state.reads],
        prepare=offer_columns,
    )
