"""The logs that streams keep of files: how they grow, what a retention would drop."""

import ipywidgets as w

from compaction_kit.report import Section
from compaction_kit.text import arrow_as_html
from compaction_kit.widgets.parts import FigureView, JobBar, Part, bind, field, offer, show_text, text
from compaction_kit.widgets.slider import Slider
from compaction_kit.widgets.streams import StreamsState

_FURTHEST = 500
_MOST_FILES = 12
_COLUMNS = ("name", "kind", "num_entries", "size_bytes", "needed", "removed_after")


class StreamsView(Part):
    """One log at a time: what it holds now and after the batches to come."""

    title = "Streams"

    def __init__(self, state: StreamsState):
        self.state = state
        self.choice = w.Dropdown(
            description="Log", style={"description_width": "40px"}, layout=w.Layout(width="460px")
        )
        self.choice.add_class("ck-log")
        self.choice.observe(self._on_choice, "value")
        self.ahead = Slider(label="Look ahead", min=1, max=_FURTHEST)
        self.ahead.add_class("ck-ahead")
        bind(state, "ahead", self.ahead)
        self.retention = field("Retention", "such as 7 days", "ck-sink-retention", "240px")
        bind(state, "retention", self.retention)
        self.bar = JobBar(state.reading, "ck-finding-logs")
        self.error = text("error", "streams-error")
        self.sentence = text("text", "sink-log")
        self.cost = text("warning", "retention-cost")
        self.image = FigureView("ck-sink-figure")
        self.files = w.HTML()
        self.files.add_class("ck-log-files")
        self.more = w.Accordion([self.files], titles=("Files of the log",))
        self.controls = w.HBox(
            [self.choice, self.ahead, self.retention], layout=w.Layout(flex_flow="row wrap")
        )
        super().__init__(
            [self.controls, self.bar, self.error, self.sentence, self.image, self.cost, self.more]
        )
        self.watch(state, ["logs", "log", "ahead", "dropped", "error"])

    def _on_choice(self, _: object) -> None:
        if self.choice.value:
            self.state.name = self.choice.value

    def render(self) -> None:
        """See `Part.render`."""
        state, log = self.state, self.state.log
        if state.logs is None:
            state.look_around()
        offer(self.choice, state.logs or (), state.name)
        self.controls.layout.display = "" if state.logs else "none"
        self.more.layout.display = "none" if log is None else ""
        self.retention.disabled = not state.is_sink
        self.ahead.text = f"{state.ahead} batches"
        show_text(self.error, state.error)
        show_text(self.cost, "" if state.dropped is None else state.dropped.explain())
        if log is None:
            self.image.show(None)
            show_text(self.sentence, self._nothing())
            self.files.value = ""
            return
        self.image.show(lambda: log.plot(state.ahead, self._retention()))
        show_text(self.sentence, log.explain())
        files = log.files.select(_COLUMNS)
        self.files.value = arrow_as_html(files.slice(max(len(files) - _MOST_FILES, 0)))

    def _nothing(self) -> str:
        if self.state.logs is None or self.state.error:
            return ""
        return (
            f"No stream keeps a log of files under {self.state.bench.root or 'the current folder'}. One "
            "that writes Parquet, JSON or CSV files keeps it in _spark_metadata of its output folder; one "
            "that reads files, in sources/0 of its checkpoint. Delta tables need none: their log is in Files."
        )

    def _retention(self) -> str | None:
        return self.state.retention if self.state.dropped is not None else None

    def as_code(self) -> str:
        """See `Part.as_code`."""
        state = self.state
        if not state.name:
            return f"import compaction_kit as ck\n\nck.find_sink_logs({state.bench.root!r})"
        given = f", retention={state.retention!r}" if self._retention() else ""
        plan = f"\nlog.plan_retention({state.retention!r})" if self._retention() else ""
        return (
            "import compaction_kit as ck\n\n"
            f"log = ck.sink_log({state.name!r})\n"
            "print(log.explain())\n"
            f"log.plot({state.ahead}{given}){plan}"
        )

    def section(self) -> Section | None:
        """See `Part.section`."""
        state, log = self.state, self.state.log
        if log is None:
            return None
        dropped = () if state.dropped is None else (state.dropped.explain(),)
        figure = log.plot(state.ahead, self._retention())
        return Section(self.title, (log.explain(), figure, *dropped), self.as_code())
