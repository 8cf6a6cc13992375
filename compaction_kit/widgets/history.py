"""The versions of the open table: when each file lived, which versions can be read, what differs; undo."""

from collections.abc import Callable
from typing import Any, NamedTuple

import ipywidgets as w
import pyarrow as pa

from compaction_kit import plots
from compaction_kit.history import first_rows
from compaction_kit.text import Html, as_html_table, format_count, joined, paragraph, shortened
from compaction_kit.times import in_zone, session_zone, show_time
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import Job, attempt
from compaction_kit.widgets.parts import FigureView, JobBar, Part, Slider, Text, live
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


class Past(NamedTuple):
    """The tables that `Table.versions()`, `Table.history()` and the log's `lifetimes()` return."""

    versions: pa.Table
    ledger: pa.Table
    lives: pa.Table

    @property
    def latest(self) -> int:
        """The latest version."""
        return int(self.versions["version"][-1].as_py())


def restore_box(
    state: WorkbenchState, version: Callable[[], int | None], description: Callable[[], str]
) -> w.VBox:
    """Make a button that shows what a restore of a version would do, and beside that plan one that does it.

    Args:
        state: The state.
        version: Gives the version; None to offer none.
        description: Gives the first button's text.
    """
    planning, running = state.planning_restore, state.restoring

    def plan() -> Any:
        return planning.get(version())

    def explained(part: int) -> str:
        # What other commits did comes first, if the restore takes it back.
        lines = plan().explain().split("\n") if plan() else []
        first = 0 if not lines or plan().diff.same_content else 1
        return "\n".join((lines[:first], lines[first:])[part])

    def outcome(result: Any) -> str:
        return (
            f"Version {result.version} has the content of version {result.restored}: "
            f"{result.num_files_added:,} files are back, {result.num_files_removed:,} were taken out, "
            f"{'as planned' if result.as_planned else 'NOT as planned'}, in {result.seconds:.1f} s."
        )

    ask = parts.button("", "ck-ask-restore", lambda: state.plan_restore(version()))
    run = parts.button("Restore", "ck-restore", state.restore, style="danger")
    keep = parts.button("Keep the table as it is", "ck-keep-table", planning.forget)
    live(
        ask,
        lambda: version() is not None and not plan() and not running.running,
        description=description,
        disabled=lambda: planning.running,
    )
    live(
        run,
        description=lambda: f"Restore version {version()}",
        disabled=lambda: not (plan() and plan().can_run),
    )
    return w.VBox(
        [
            ask,
            Text("error", "restore-loss", lambda: explained(0)),
            Text("warning", "restore-plan", lambda: explained(1)),
            Text("error", "restore-error", lambda: planning.error),
            live(w.HBox([run, keep]).add_class("ck-restore-choice"), lambda: plan() and not running.running),
            JobBar(running, "ck-restoring"),
            parts.outcome(running, "restored", outcome),
        ]
    )


def restore_code(state: WorkbenchState, version: int | None) -> list[str]:
    """Return the lines of Python that restore a version; none if its plan isn't on screen."""
    if state.planning_restore.get(version) is None:
        return []
    run = "restore.run()  # commits a version with that content"
    return [f"restore = table.plan_restore({version})", "print(restore.explain())", run]


def history_part(state: WorkbenchState) -> Part:
    """Show a slider over a table's versions: when each file lived, what can be read, what differs."""
    slider = Slider(label="Version").add_class("ck-version")
    time = parts.field("or time", "such as 2026-03-01 12:00", "ck-time", "380px", "136px")
    time_error = Text("error", "time-error")
    sampling = state.sampling

    def past() -> Any:
        return state.reading.value

    def read(job: Job) -> Any:
        table, files = state.table, state.files
        found = table and Past(table.versions(), table.history(), table.log.lifetimes()[1])
        if found and files is state.files:
            state.version = found.latest
        return found

    def prepare() -> None:
        if state.files is not None:
            state.reading.ask(read, state.files)
        if past():
            slider.min, slider.max = past().versions["version"][0].as_py(), past().latest
            slider.value, slider.text = state.version, f"version {state.version}"

    def on_slide(change: Any) -> None:
        if change.new != state.version:
            # It was not chosen by the time.
            time.value = ""
        state.version = change.new

    def on_time(_: object) -> None:
        found, error = attempt(lambda: state.table and time.value and state.table.at(timestamp=time.value))
        if found:
            state.version = found.version
        time_error.show(error)

    def read_rows() -> None:
        table, version = state.table, state.version

        def work(job: Job) -> Any:
            def progress() -> None:
                job.report(0.0, f"Reading the first {_MOST_ROWS} rows of version {version}")

            progress()
            return table and first_rows(table.handle, version, _MOST_ROWS, progress)

        sampling.forget()
        sampling.ask(work, version)

    def sentence() -> str:
        if past():
            return _sentence(past().versions, state.version)
        return "" if state.table is not None else "No table is open."

    def earlier() -> int | None:
        return state.version if past() and state.version < past().latest else None

    def difference() -> Html | str:
        table = state.table
        if table is None or not past():
            return ""
        found, error = attempt(lambda: table.diff(state.version, past().latest))
        return error if found is None else Html(found._repr_html_())

    def code() -> str:
        latest = past().latest if past() else "table.version"
        table = f"table = ck.open_table({state.name!r})"
        lines = [table, "table.versions()", f"table.diff({state.version}, {latest})"]
        if sampling.value is not None:
            read = f'table.spark.read.option("versionAsOf", {state.version}).format("delta")'
            lines.append(f"{read}.load(table.location).show({_MOST_ROWS})")
        return parts.python(*lines, *restore_code(state, earlier()))

    def lifetimes() -> Any:
        return past() and (plots.lifetimes, past().lives, past().ledger, state.version)

    def records() -> tuple[Any, ...]:
        return (
            (sentence(), lifetimes()[0](*lifetimes()[1:]), plots.readability(past().versions))
            if past()
            else ()
        )

    state.observe(sampling.forget, "version")
    slider.observe(on_slide, "value")
    time.observe(on_time, "value")
    button = parts.button(f"Read the first {_MOST_ROWS} rows", "ck-read-rows", read_rows)
    rows = Text("text", "rows", lambda: sampling.value and _rows_table(sampling.value))
    sample = [live(button, disabled=lambda: sampling.running), JobBar(sampling, "ck-sampling"), rows]
    titles = ("What differs from the latest version", "Rows of this version")
    more = w.Accordion([Text("text", "diff", difference), w.VBox(sample)], titles=titles)
    return Part(
        JobBar(state.reading, "ck-reading"),
        live(w.VBox([slider, time]), past),
        time_error,
        Text("text", "version-text", sentence),
        restore_box(state, earlier, lambda: f"Restore version {state.version} …"),
        FigureView("ck-lifetimes-figure", lifetimes),
        FigureView("ck-readable-figure", lambda: past() and (plots.readability, past().versions)),
        live(more, past),
        on=[state, state.reading, sampling, state.planning_restore, state.restoring],
        title="History",
        code=code,
        records=records,
        prepare=prepare,
    )


def _rows_table(found: Any) -> Html:
    cells = [
        ["NULL" if value is None else shortened(str(value), _LONGEST) for value in row] for row in found.rows
    ]
    about = f"{format_count(len(cells), 'row')} of version {found.version}, those that Spark finds first"
    return joined(paragraph(about), as_html_table(found.columns, cells))


def _sentence(versions: pa.Table, version: int) -> str:
    position = versions["version"].index(pa.scalar(version, pa.int64())).as_py()
    (row,), zone = versions.slice(position, 1).to_pylist(), session_zone()
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
