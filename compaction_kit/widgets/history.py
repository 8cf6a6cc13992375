"""The versions of the open table: when each file lived, which versions can be read, what differs."""

from dataclasses import dataclass, replace
from typing import Any

import ipywidgets as w
import pyarrow as pa
from matplotlib.figure import Figure
from traitlets import Instance, Int, observe

from compaction_kit import plots
from compaction_kit.files import Files
from compaction_kit.history import Diff, FirstRows, first_rows
from compaction_kit.table import Table
from compaction_kit.text import Html, as_html_table, format_count, joined, paragraph, shortened
from compaction_kit.times import in_zone, session_zone, show_time
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import Job, Watched, attempt
from compaction_kit.widgets.restore import RestoreState, RestoreView
from compaction_kit.widgets.state import WorkbenchState

_MOST_ROWS = 20
_LONGEST = 60
_CAN = {
    "yes": "can be read",
    "blocked": "is refused by Delta, because it is older than the table keeps removed files",
    "unsupported": "is refused by Delta, because it doesn't support a change of a column's type",
    "missing files": "can't be read any more: files that it needs are gone",
    "log gone": "can't be read any more: its part of the log is gone",
}


@dataclass(frozen=True, eq=False)
class Past:
    """What is known of the versions of a table, which belongs together; replaced as a whole.

    Attributes:
        versions: What `Table.versions()` returns; None if it was not read.
        ledger: What `Table.history()` returns.
        lives: The files' lifetimes, as the log has them.
        diff: From the version looked at to the latest.
        error: Why the versions, or the one looked at, can't be read, in one sentence.
    """

    versions: Any = None
    ledger: Any = None
    lives: Any = None
    diff: Diff | None = None
    error: str = ""


class HistoryState(Watched):
    """The versions of the open table; `version` is set by anybody, `past` only here.

    The fields of `past` can be observed by their names.
    """

    version = Int(0, help="The version looked at")
    past = Instance(Past, (), help="The versions of the table")
    rows = Instance(FirstRows, allow_none=True, help="The rows read of the version looked at, or None")

    def __init__(self, bench: WorkbenchState):
        super().__init__()
        self.bench = bench
        self.reading = Job()
        self.sampling = Job()
        self.observe_fields("past")
        bench.observe(self._forget, ["table", "files"])

    def _forget(self, _: object = None) -> None:
        self.past, self.rows = Past(), None

    def read(self) -> None:
        """Read the history, in the background, unless that has been done."""
        opened = self.bench.opened
        table, files = opened.table, opened.files
        if self.past.versions is None and not self.past.error and table is not None:
            self.reading.start_next(lambda job: self._read(table, files))

    def _read(self, table: Table, files: Files | None) -> None:
        if self.past.versions is not None:
            return
        past, error = attempt(lambda: Past(table.versions(), table.history(), table.log.lifetimes()[1]))
        with self.bench.changing:
            if table is not self.bench.table or files is not self.bench.files:
                return
            if past is not None:
                self.version = past.versions["version"][-1].as_py()
            self.past = Past(error=error) if past is None else self._compared(past)

    @observe("version")
    def _compare(self, _: object = None) -> None:
        self.rows = None
        self.past = self._compared(self.past)

    def _compared(self, past: Past) -> Past:
        table = self.bench.table
        if past.versions is None or table is None:
            return past
        latest = past.versions["version"][-1].as_py()
        diff, error = attempt(lambda: table.diff(self.version, latest))
        return replace(past, diff=diff, error=error)

    def choose(self, time: str) -> str:
        """Choose the version that was the latest at a time; returns why there is none, or ""."""
        table = self.bench.table
        found, error = attempt(lambda: table and table.at(timestamp=time))
        if found is not None:
            self.version = found.version
        return error

    def read_rows(self) -> None:
        """Read the first rows of the version looked at, in the background."""
        table, version = self.bench.table, self.version
        if table is not None:
            self.sampling.start_next(lambda job: self._read_rows(job, table, version))

    def _read_rows(self, job: Job, table: Table, version: int) -> None:
        def progress() -> None:
            job.report(0.0, f"Reading the first {_MOST_ROWS} rows of version {version}")

        progress()
        rows = first_rows(table.handle, version, _MOST_ROWS, progress)
        with self.bench.changing:
            if table is self.bench.table and version == self.version:
                self.rows = rows

    def row(self) -> dict[str, Any]:
        """The row of `past.versions` of the version looked at."""
        versions = self.past.versions
        position = int(versions["version"].index(pa.scalar(self.version, pa.int64())).as_py())
        found: dict[str, Any] = versions.slice(position, 1).to_pylist()[0]
        return found


class HistoryView(parts.Part):
    """A slider over versions, and what the chosen version was."""

    title = "History"

    def __init__(self, state: HistoryState):
        self.state = state
        self.bar = parts.JobBar(state.reading, "ck-reading")
        self.slider = parts.Slider(label="Version").add_class("ck-version")
        self.time = parts.field("or time", "such as 2026-03-01 12:00", "ck-time", "380px", "136px")
        self.time_error = parts.Text("error", "time-error")
        self.sentence = parts.Text("text", "version-text")
        self.undo = RestoreView(RestoreState(state.bench))
        self.error = parts.Text("error")
        self.image = parts.FigureView("ck-lifetimes-figure")
        self.strip = parts.FigureView("ck-readable-figure")
        self.diff = w.HTML().add_class("ck-diff")
        self.read_button = parts.button(f"Read the first {_MOST_ROWS} rows", "ck-read-rows", state.read_rows)
        self.sampling = parts.JobBar(state.sampling, "ck-sampling")
        self.rows = w.HTML().add_class("ck-rows")
        self.more = w.Accordion(
            [self.diff, w.VBox([self.read_button, self.sampling, self.rows])],
            titles=("What differs from the latest version", "Rows of this version"),
        )
        self.chooser = w.VBox([self.slider, self.time])
        super().__init__(
            *(self.bar, self.chooser, self.time_error, self.sentence, self.undo),
            *(self.error, self.image, self.strip, self.more),
        )
        self.slider.observe(self._on_slide, "value")
        self.time.observe(self._on_time, "value")
        self.watch(state, ["versions", "diff", "error"])
        state.observe(self._render_rows, "rows")
        state.sampling.observe(self._render_rows, "status")
        self.watch(state.bench, ["files"])

    @property
    def others(self) -> tuple[object, ...]:
        """See `Part.others`."""
        return (self.undo.state,)

    def _on_slide(self, change: Any) -> None:
        if change.new != self.state.version:
            # It was not chosen by the time.
            self.time.value = ""
        self.state.version = change.new

    def _on_time(self, _: object) -> None:
        self.time_error.show(self.state.choose(self.time.value) if self.time.value else "")

    def _render(self) -> None:
        state, past = self.state, self.state.past
        known = past.versions is not None
        parts.show_if(known, self.chooser, self.more)
        earlier = known and state.version < past.versions["version"][-1].as_py()
        self.undo.offer(state.version if earlier else None, f"Restore version {state.version} …")
        self.error.show(past.error)
        self.diff.value = past.diff._repr_html_() if past.diff is not None else ""
        if not known:
            self.image.show(None)
            self.strip.show(None)
            self.sentence.show("" if state.bench.table is not None else "No table is open.")
            state.read()
            return
        versions = past.versions["version"].to_pylist()
        self.slider.min, self.slider.max = versions[0], versions[-1]
        self.slider.value, self.slider.text = state.version, f"version {state.version}"
        self.image.show(self._lifetimes)
        self.strip.show(self._readability)
        self.sentence.show(_sentence(state.row()))

    def _render_rows(self, _: object) -> None:
        self.read_button.disabled = self.state.sampling.running
        self.rows.value = "" if self.state.rows is None else _rows_table(self.state.rows)

    def _lifetimes(self) -> Figure:
        return plots.lifetimes(self.state.past.lives, self.state.past.ledger, self.state.version)

    def _readability(self) -> Figure:
        return plots.readability({"readable": self.state.past.versions})

    def _code(self) -> str:
        versions = self.state.past.versions
        latest = "table.version" if versions is None else versions["version"][-1]
        version = self.state.version
        rows = ""
        if self.state.rows is not None:
            rows = f'\ntable.spark.read.option("versionAsOf", {version}).format("delta")'
            rows += f".load(table.location).show({_MOST_ROWS})"
        return (
            f"table = ck.open_table({self.state.bench.name!r})\n"
            "table.versions()\n"
            f"table.diff({version}, {latest}){rows}{self.undo.code()}"
        )

    def _records(self) -> tuple[Any, ...]:
        if self.state.past.versions is None:
            return ()
        return _sentence(self.state.row()), self._lifetimes(), self._readability()


def _rows_table(found: FirstRows) -> Html:
    cells = [
        ["NULL" if value is None else shortened(str(value), _LONGEST) for value in row] for row in found.rows
    ]
    about = f"{format_count(len(cells), 'row')} of version {found.version}, those that Spark finds first"
    return joined(paragraph(about), as_html_table(found.columns, cells))


def _sentence(row: dict[str, Any]) -> str:
    zone = session_zone()
    when = f" of {show_time(in_zone(row['timestamp'], zone), 'milliseconds')}" if row["timestamp"] else ""
    operation, can = row["operation"] or "no commit", _CAN[row["readable"]]
    lines = [f"Version {row['version']}{when}, {operation}: it {can}."]
    if row["readable_until"]:
        until = show_time(in_zone(row["readable_until"], zone))
        lines.append(f"If VACUUM runs on schedule, it can be read until {until}.")
    if row["read_instead"] is not None:
        lines.append(f"By the log, its content can be read as version {row['read_instead']}.")
    elif row["same_content_as"] is not None:
        lines.append(f"Version {row['same_content_as']} has the same content: {row['same_content_by']}.")
    return "\n".join(lines)
