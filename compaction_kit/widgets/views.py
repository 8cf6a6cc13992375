"""The parts of the workbench: each shows some of the state and sets its inputs, no more."""

import html

import ipywidgets as w
from traitlets import link

from compaction_kit import plots
from compaction_kit.files import SMALL_FILE_SIZE
from compaction_kit.sizes import format_size
from compaction_kit.widgets.parts import FigureView, JobBar, SizeSlider, button, show_text, text
from compaction_kit.widgets.state import WorkbenchState

_WIDE = {"description_width": "120px"}


class TablePicker(w.VBox):
    """Find tables under a folder, or name one."""

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.root = w.Text(
            value=state.root,
            description="Folder or table",
            continuous_update=False,
            style=_WIDE,
            layout=w.Layout(width="420px"),
        )
        self.root.add_class("ck-root")
        self.choice = w.Dropdown(
            description="Table", style={"description_width": "50px"}, layout=w.Layout(width="420px")
        )
        self.choice.add_class("ck-table")
        self.about = text("text", "about")
        self.empty = text("hint", "empty")
        self.make = button("Make the flights table", "ck-make", state.make_flights, primary=True)
        self.making = JobBar(state.making, "ck-making")
        self.error = text("error", "table-error")
        link((self.root, "value"), (state, "root"))
        self.choice.observe(self._on_choice, "value")
        super().__init__(
            [w.HBox([self.root, self.choice]), self.about, self.empty, self.make, self.making, self.error]
        )
        state.observe(self._render, ["tables", "name", "table", "files", "error"])
        state.making.observe(self._render, "status")
        self._render()

    def _on_choice(self, _: object) -> None:
        if self.choice.value:
            self.state.name = self.choice.value

    def _render(self, _: object = None) -> None:
        state = self.state
        if self.choice.options != tuple(state.tables):
            self.choice.options = tuple(state.tables)
        self.choice.value = state.name if state.name in state.tables else None
        nothing = not state.tables and not state.name
        show_text(
            self.empty,
            f"There is no Delta table under {state.root or 'the current folder'} yet. Name another folder "
            "or a table, or make one to practise on: 336,776 flights in 1,095 small files."
            if nothing
            else "",
        )
        self.make.layout.display = "" if nothing and not state.making.running else "none"
        self.making.layout.display = (
            "" if state.making.status in ("running", "failed", "cancelled") else "none"
        )
        show_text(self.error, state.error)
        show_text(self.about, self._about())

    def _about(self) -> str:
        files = self.state.files
        if self.state.table is None or files is None:
            return ""
        stats = files.stats()
        count = f"{stats.num_partitions:,} partition{'s' if stats.num_partitions != 1 else ''}"
        scope = f" where {self.state.where}" if self.state.where else ""
        size = format_size(files.size_bytes)
        return f"version {files.version} · {files.num_files:,} files{scope} · {size} · {count}"


class FilesView(w.VBox):
    """What the table's files weigh."""

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.sentence = text()
        self.image = FigureView("ck-files-figure")
        super().__init__([self.sentence, self.image])
        state.observe(self._render, ["files"])
        self._render()

    def _render(self, _: object = None) -> None:
        files = self.state.files
        if files is None:
            show_text(self.sentence, "No table is open.")
            self.image.show(None)
            return
        stats = files.stats()
        show_text(
            self.sentence,
            f"{stats.num_small_files:,} of {stats.num_files:,} files are under "
            f"{format_size(stats.small_file_size)}. Half of all are under "
            f"{format_size(stats.median_size_bytes)}, the largest has {format_size(stats.max_size_bytes)}.",
        )
        self.image.show(plots.file_sizes(files.histogram(), SMALL_FILE_SIZE) if files.num_files else None)


class PlanView(w.VBox):
    """Thresholds in, plan out, while a slider moves."""

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.smaller = SizeSlider("Files smaller than", "ck-min")
        self.target = SizeSlider("Fill bins up to", "ck-max")
        link((state, "min_file_size"), (self.smaller, "size_bytes"))
        link((state, "max_file_size"), (self.target, "size_bytes"))
        self.where = w.Text(
            description="Where",
            placeholder="SQL over partition columns; empty for all",
            continuous_update=False,
            style=_WIDE,
            layout=w.Layout(width="448px"),
        )
        self.where.add_class("ck-where")
        link((state, "where"), (self.where, "value"))
        self.where_error = text("error", "where-error")
        self.sentence = text("text", "plan")
        self.image = FigureView("ck-plan-figure")
        self.bins = FigureView("ck-bins-figure")
        self.code = text("code")
        self.more = w.Accordion([self.bins, self.code], titles=("Bins", "As Python"))
        controls = w.HBox([w.VBox([self.smaller, self.target]), w.VBox([self.where, self.where_error])])
        super().__init__([controls, self.sentence, self.image, self.more])
        state.observe(self._render, ["plan", "error", "where"])
        self.more.observe(self._render_more, "selected_index")
        self._render()

    def _render(self, _: object = None) -> None:
        state = self.state
        show_text(self.where_error, state.error if state.where else "")
        if state.plan is None:
            show_text(self.sentence, "" if state.error else "No plan yet: open a table.")
            self.image.show(None)
        else:
            show_text(self.sentence, state.plan.explain())
            self.image.show(state.plan.plot_sizes() if state.plan.source.num_files else None)
        self._render_more()

    def _render_more(self, _: object = None) -> None:
        plan = self.state.plan
        if self.more.selected_index == 0:
            drawn = plan is not None and not plan.is_empty
            self.bins.show(plan.plot_bins() if drawn else None)
        elif self.more.selected_index == 1:
            self.code.value = f"<pre>{html.escape(self.state.as_code())}</pre>"


class RunView(w.VBox):
    """Run the plan, watch it, cancel it, see what came of it."""

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.sentence = text("text", "run-plan")
        self.verify = w.Checkbox(True, description="Prove that the content is the same", indent=False)
        self.verify.add_class("ck-verify")
        self.run_button = button("Run this plan", "ck-run", self._on_run, primary=True)
        self.bar = JobBar(state.running, "ck-progress")
        self.outcome = text("good", "outcome")
        self.image = FigureView("ck-result-figure")
        super().__init__([self.sentence, self.verify, self.run_button, self.bar, self.outcome, self.image])
        state.observe(self._render, ["plan", "result"])
        state.running.observe(self._render, "status")
        self._render()

    def _on_run(self) -> None:
        self.state.run(self.verify.value)

    def _render(self, _: object = None) -> None:
        plan, running, result = self.state.plan, self.state.running.running, self.state.result
        show_text(self.sentence, plan.explain() if plan is not None else "No plan yet: open a table.")
        self.run_button.disabled = running or plan is None or plan.is_empty
        self.verify.disabled = running
        if result is None:
            show_text(self.outcome, "")
            self.image.show(None)
        else:
            show_text(self.outcome, result.summary())
            self.image.show(result.plot() if result.versions else None)
