"""A query of the user's own: the files that it opens now and in other layouts, and how long it takes."""

import re
from typing import Any

import ipywidgets as w
from traitlets import Instance, Unicode

from compaction_kit.predict_reads import ReadPrediction
from compaction_kit.query import with_table
from compaction_kit.sql import literal, quoted
from compaction_kit.widgets import parts
from compaction_kit.widgets.compaction import plan_code
from compaction_kit.widgets.job import Job, Watched
from compaction_kit.widgets.state import WorkbenchState

_EXAMPLE = "SELECT count(*) FROM {table} WHERE id < 3, or a condition alone: id < 3"
_HINT = "Spark plans the query and doesn't run it; compactions are planned with the thresholds of Plan."
_NOT_RUN = "Run the plan, and the query can be timed on this cluster, before and after."


class QueryState(Watched):
    """A query and what is predicted of it; `query` is set by anybody."""

    query = Unicode("", help="SQL with {table} or the table's own name, or a condition")
    prediction = Instance(ReadPrediction, allow_none=True, help="The files that it opens, or None")

    def __init__(self, bench: WorkbenchState):
        super().__init__()
        self.bench = bench
        self.predicting = Job()
        bench.observe(self._forget, ["table", "plan"])

    def _forget(self, change: Any) -> None:
        self.prediction = None
        if change.name == "table":
            self.query = ""
            self.predicting.cancel()
        self.predicting.reset()

    @property
    def text(self) -> str:
        """The query with {table} for the open table's own name."""
        table, sql = self.bench.table, self.query.strip()
        return sql if table is None else str(with_table(sql, table.handle.store, table.name))

    def predict(self) -> bool:
        """Count the files that it opens, in the background; returns whether it began."""
        plan, query = self.bench.plan, self.text
        if plan is None:
            return False

        def work(job: Job) -> None:
            self.prediction = None
            prediction = plan.predict_reads(query, job.report)
            with self.bench.changing:
                if plan is self.bench.plan:
                    self.prediction = prediction

        return self.predicting.start(work)


class QueryView(parts.Part):
    """A query in, files opened out; measured before and after a run, when asked for."""

    title = "My query"

    def __init__(self, state: QueryState):
        self.state = state
        self.hint = parts.Text("hint", "query-hint")
        self.query = w.Textarea(
            description="Query",
            placeholder=_EXAMPLE,
            rows=3,
            style={"description_width": "70px"},
            layout=w.Layout(width="880px"),
        ).add_class("ck-query")
        parts.bind(state, query=self.query)
        self.column = parts.dropdown("or a range", "ck-range-column", "250px", "70px")
        self.low = parts.field("from", "", "ck-low", "220px", "40px")
        self.high = parts.field("to", "", "ck-high", "220px", "30px")
        for field in (self.low, self.high):
            field.observe(self._on_range, "value")
        self.count_button = parts.button("Count its files", "ck-count", state.predict, style="primary")
        self.bar = parts.JobBar(state.predicting, "ck-predicting")
        self.sentence = parts.Text("hint", "prediction")
        self.image = parts.FigureView("ck-prediction-figure")
        self.measure_button = parts.button("Measure before and after", "ck-measure", self._measure)
        self.not_run = parts.Text("hint", "not-run")
        self.measuring = parts.JobBar(state.bench.measuring, "ck-measuring")
        self.reads = parts.FigureView("ck-reads-figure")
        super().__init__(
            *(self.hint, self.query, parts.row(self.column, self.low, self.high)),
            *(parts.row(self.count_button, self.measure_button), self.bar, self.measuring),
            *(self.image, self.sentence, self.not_run, self.reads),
        )
        self.watch(state, ["prediction"])
        self.watch(state.bench, ["files", "plan", "result", "reads", "ran"])
        for job in (state.predicting, state.bench.measuring):
            self.watch(job, ["status"])

    def _on_range(self, _: object) -> None:
        """Write the range as a condition, into the query's field."""
        files, name = self.state.bench.files, self.column.value
        if files is None or not name:
            return
        kind = files.snapshot.metadata.column_types[name]
        column = name if re.fullmatch(r"\w+", name) else quoted(name)
        given = [(sign, field.value.strip()) for sign, field in ((">=", self.low), ("<=", self.high))]
        limits = [f"{column} {sign} {literal(value, kind)}" for sign, value in given if value]
        self.state.query = " AND ".join(limits)

    def _measure(self) -> None:
        self.state.bench.measure(self.state.text)

    def _render(self) -> None:
        state, bench, found = self.state, self.state.bench, self.state.prediction
        kinds = {} if bench.files is None else bench.files.snapshot.metadata.column_types
        simple = [name for name, kind in kinds.items() if isinstance(kind, str)]
        if self.column.options != tuple(simple):
            parts.offer(self.column, simple, next(iter(simple), None))
            self.low.value = self.high.value = ""
        self.hint.show(_HINT if bench.table is not None else "No table is open.")
        self.count_button.disabled = bench.plan is None or state.predicting.running
        # The first line is the figure's title.
        self.sentence.show("" if found is None else found.explain().partition("\n")[2])
        self.image.show(None if found is None else found.plot)
        has_run = bench.result is not None and bool(bench.result.versions) and bench.ran == bench.name
        parts.show_if(has_run, self.measure_button)
        self.measure_button.disabled = bench.measuring.running
        self.not_run.show("" if has_run or found is None else _NOT_RUN)
        self.reads.show(bench.reads.plot if bench.reads is not None and has_run else None)

    def _imports(self) -> tuple[str, ...]:
        measured = self.state.bench.reads is not None
        return ("from compaction_kit.reads import measure_reads",) if measured else ()

    def _code(self) -> str:
        reads, query = self.state.bench.reads, self.state.text
        lines = [plan_code(self.state.bench), f"prediction = plan.predict_reads({query!r})"]
        lines += ["print(prediction.explain())", "prediction.plot()"]
        if reads is not None:
            before, after = reads.versions
            lines.append(f"measure_reads(table.spark, table.location, {before}, {after}, {reads.query!r})")
        return "\n".join(lines)

    def _records(self) -> tuple[Any, ...]:
        bench = self.state.bench
        reads = bench.reads if bench.ran == bench.name else None
        return tuple(record for record in (self.state.prediction, reads) if record is not None)
