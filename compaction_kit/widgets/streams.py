"""The logs of file sinks and sources under the root, and how they grow."""

from typing import Any

import ipywidgets as w

from compaction_kit.sinklog import SinkLog, find_sink_logs, sink_log
from compaction_kit.text import arrow_as_html
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.parts import FigureView, JobBar, Part, Slider, Text, live
from compaction_kit.widgets.state import WorkbenchState

_FURTHEST = 500
_MOST_FILES = 12
_COLUMNS = ("name", "kind", "num_entries", "size_bytes", "needed", "removed_after")
_NO_LOG = (
    "No stream keeps a log of files under {}. One that writes Parquet, JSON or CSV files keeps it in "
    "_spark_metadata of its output folder; one that reads files, in sources/0 of its checkpoint. Delta "
    "tables need none: their log is in Files."
)


def streams_part(state: WorkbenchState) -> Part:
    """Show the logs of file sinks and sources, and how they grow."""
    choice = parts.dropdown("Log", "ck-log", "460px", "40px")
    ahead = Slider(label="Look ahead", min=1, max=_FURTHEST).add_class("ck-ahead")
    parts.set_by_choice(state, "stream", choice)
    parts.bind(state, ahead=ahead)

    def find(job: Job) -> list[str]:
        root = state.root
        found = find_sink_logs(root)
        if root == state.root and state.stream not in found:
            state.stream = next(iter(found), "")
        return found

    def prepare() -> None:
        state.finding.ask(find, state.root)
        if state.stream:
            state.following.ask(lambda job: sink_log(state.stream), state.stream)
        parts.offer(choice, state.finding.value or (), state.stream)

    def log() -> Any:
        return state.following.get(state.stream)

    def sentence() -> str:
        if log():
            return str(log().explain())
        return _NO_LOG.format(state.root or "the current folder") if state.finding.value == [] else ""

    def code() -> str:
        if not state.stream:
            return parts.python(f"ck.find_sink_logs({state.root!r})")
        log = f"log = ck.sink_log({state.stream!r})"
        return parts.python(log, "print(log.explain())", f"log.plot({state.ahead})")

    def records() -> tuple[Any, ...]:
        return (log().explain(), log().plot(state.ahead)) if log() else ()

    live(ahead, text=lambda: f"{state.ahead} batches")
    files = Text(
        "text", "log-files", lambda: log() and arrow_as_html(log().files.select(_COLUMNS)[-_MOST_FILES:])
    )
    return Part(
        live(parts.row(choice, ahead), lambda: state.finding.value),
        JobBar(state.finding, "ck-finding-logs"),
        JobBar(state.following, "ck-reading-log"),
        Text("text", "sink-log", sentence),
        FigureView("ck-sink-figure", lambda: log() and (SinkLog.plot, log(), state.ahead)),
        live(w.Accordion([files], titles=("Files of the log",)), log),
        on=[state, state.finding, state.following],
        title="Streams",
        code=code,
        records=records,
        prepare=prepare,
    )
