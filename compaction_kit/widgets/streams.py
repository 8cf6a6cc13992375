"""The logs of file sinks and sources under the root: how they grow, what a retention would drop."""

from typing import Any

import ipywidgets as w
from traitlets import Instance, Int, Unicode, observe

from compaction_kit.sinklog import SinkLog, find_sink_logs, sink_log
from compaction_kit.sinklog.policy import Kind
from compaction_kit.text import arrow_as_html
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import Job, Watched, attempt
from compaction_kit.widgets.state import WorkbenchState

_FURTHEST = 500
_MOST_FILES = 12
_COLUMNS = ("name", "kind", "num_entries", "size_bytes", "needed", "removed_after")


class StreamsState(Watched):
    """The log that is looked at; `name`, `ahead` and `retention` are set by anybody."""

    name = Unicode("", help="The log to read, as sink_log() takes it; empty for none")
    ahead = Int(100, min=1, help="Batches to look ahead")
    retention = Unicode("", help='The sink\'s option of that name, such as "7 days"; empty for none')

    logs = Instance(list, allow_none=True, help="The names of the logs found; None before a look")
    log = Instance(SinkLog, allow_none=True, help="The log, or None")
    cost = Unicode("", help="What the retention drops at the next compaction, in one sentence")
    error = Unicode("", help="Why there is no log, or why the retention can't be used, in one sentence")

    def __init__(self, bench: WorkbenchState):
        super().__init__()
        self.bench = bench
        self.reading = Job()
        bench.observe(self._forget, ["root", "num_refreshes"])

    def _forget(self, change: Any) -> None:
        self.reading.cancel()
        self.logs = None
        if change.name == "root":
            self.name = ""

    def look_around(self) -> None:
        """Find the logs, in the background, unless that has been done."""
        if self.logs is None:
            self.reading.start_next(self._find)

    def _find(self, job: Job) -> None:
        if self.logs is not None:
            return
        root = self.bench.root
        found = find_sink_logs(root)
        if root == self.bench.root:
            self.logs = found
            if self.name in found:
                self._read()
            else:
                self.name = next(iter(found), "")

    @observe("name")
    def _open(self, _: object = None) -> None:
        self.log, self.retention = None, ""
        self._read()

    def _read(self) -> None:
        self.log, self.error = attempt(lambda: sink_log(self.name) if self.name else None)
        self._plan()

    @observe("retention")
    def _plan(self, _: object = None) -> None:
        log = self.log
        if log is not None:
            cost, self.error = attempt(
                lambda: log.explain_retention(self.retention) if self.retention else ""
            )
        self.cost = "" if log is None else cost or ""

    @property
    def is_sink(self) -> bool:
        """Whether the log is a sink's: only those can have a retention."""
        return self.log is not None and self.log.kind == Kind.SINK

    @property
    def planned_retention(self) -> str | None:
        """The retention, if it can be used."""
        return self.retention if self.cost else None


class StreamsView(parts.Part):
    """One log at a time: what it holds now and after the batches to come."""

    title = "Streams"

    def __init__(self, state: StreamsState):
        self.state = state
        self.choice = parts.dropdown("Log", "ck-log", "460px", "40px")
        self.ahead = parts.Slider(label="Look ahead", min=1, max=_FURTHEST).add_class("ck-ahead")
        self.retention = parts.field("Retention", "such as 7 days", "ck-sink-retention", "240px")
        parts.set_by_choice(state, "name", self.choice)
        parts.bind(state, ahead=self.ahead, retention=self.retention)
        self.bar = parts.JobBar(state.reading, "ck-finding-logs")
        self.error = parts.Text("error", "streams-error")
        self.sentence = parts.Text("text", "sink-log")
        self.cost = parts.Text("warning", "retention-cost")
        self.image = parts.FigureView("ck-sink-figure")
        self.files = w.HTML().add_class("ck-log-files")
        self.more = w.Accordion([self.files], titles=("Files of the log",))
        self.controls = parts.row(self.choice, self.ahead, self.retention)
        super().__init__(
            *(self.controls, self.bar, self.error, self.sentence, self.image, self.cost, self.more)
        )
        self.watch(state, ["logs", "log", "ahead", "cost", "error"])

    def _render(self) -> None:
        state, log = self.state, self.state.log
        if state.logs is None:
            state.look_around()
        parts.offer(self.choice, state.logs or (), state.name)
        parts.show_if(bool(state.logs), self.controls)
        parts.show_if(log is not None, self.more)
        self.retention.disabled = not state.is_sink
        self.ahead.text = f"{state.ahead} batches"
        self.error.show(state.error)
        self.cost.show(state.cost)
        if log is None:
            self.image.show(None)
            self.sentence.show(self._no_log())
            self.files.value = ""
            return
        self.image.show(lambda: log.plot(state.ahead, state.planned_retention))
        self.sentence.show(log.explain())
        files = log.files.select(_COLUMNS)
        self.files.value = arrow_as_html(files.slice(max(len(files) - _MOST_FILES, 0)))

    def _no_log(self) -> str:
        if self.state.logs is None or self.state.error:
            return ""
        return (
            f"No stream keeps a log of files under {self.state.bench.root or 'the current folder'}. One "
            "that writes Parquet, JSON or CSV files keeps it in _spark_metadata of its output folder; one "
            "that reads files, in sources/0 of its checkpoint. Delta tables need none: their log is in Files."
        )

    def _code(self) -> str:
        state, retention = self.state, self.state.planned_retention
        if not state.name:
            return f"ck.find_sink_logs({state.bench.root!r})"
        given = f", retention={retention!r}" if retention else ""
        plan = f"\nprint(log.explain_retention({retention!r}))" if retention else ""
        return (
            f"log = ck.sink_log({state.name!r})\nprint(log.explain())\nlog.plot({state.ahead}{given}){plan}"
        )

    def _records(self) -> tuple[Any, ...]:
        state, log = self.state, self.state.log
        if log is None:
            return ()
        cost = (state.cost,) if state.cost else ()
        return log.explain(), log.plot(state.ahead, state.planned_retention), *cost
