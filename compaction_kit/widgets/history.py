"""The versions of the open table: when each file lived, which can be read, restore, vacuum and its cost."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import ipywidgets as w
import pyarrow as pa

from compaction_kit import plots
from compaction_kit.history import first_rows
from compaction_kit.text import Html, as_html_table, format_count, joined, paragraph, shortened
from compaction_kit.times import in_zone, session_zone, show_time
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import Job, attempt
from compaction_kit.widgets.parts import FigureView, JobBar, Part, Slider, Text, fold, live
from compaction_kit.widgets.state import WorkbenchState

_MOST_ROWS, _LONGEST, _MOST_DAYS = 20, 60, 60
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
    latest: int


def restore_box(
    state: WorkbenchState, version: Callable[[], int | None], description: Callable[[], str]
) -> w.VBox:
    """Make a button that plans to restore a version, if there is one, and one that does what is planned."""
    planning, running = state.planning_restore, state.restoring

    def plan() -> Any:
        return planning.get(version())

    def explained() -> list[str]:
        return plan().explain().split("\n") if plan() else [""]

    def loss() -> str:
        # What other commits did comes first, if the restore takes it back.
        return explained()[0] if plan() and not plan().diff.same_content else ""

    def can_ask() -> bool:
        return version() is not None and not plan() and not running.running

    ask = parts.button("", "ck-ask-restore", lambda: state.plan_restore(version()))
    run = parts.button("Restore", "ck-restore", state.restore, style="danger")
    keep = parts.button("Keep the table as it is", "ck-keep-table", planning.forget)
    live(ask, can_ask, description=description, disabled=lambda: planning.running)
    live(
        run,
        description=lambda: f"Restore version {version()}",
        disabled=lambda: not (plan() and plan().can_run),
    )
    return w.VBox(
        [
            ask,
            Text("error", "restore-loss", loss),
            Text("warning", "restore-plan", lambda: "\n".join(explained()[bool(loss()) :])),
            Text("error", "restore-error", lambda: planning.error),
            live(w.HBox([run, keep]).add_class("ck-restore-choice"), lambda: plan() and not running.running),
            parts.outcome(state, running, "ck-restoring", "restored"),
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
        if table is None:
            return None
        versions = table.versions()
        found = Past(versions, table.history(), table.log.lifetimes()[1], versions["version"][-1].as_py())
        if files is state.files:
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
            words = f"Reading the first {_MOST_ROWS} rows of version {version}"
            progress = partial(job.report, 0.0, words)
            progress()
            return table and first_rows(table.handle, version, _MOST_ROWS, progress)

        sampling.ask(work, version, again=True)

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

    def readability() -> Any:
        return past() and (plots.readability, past().versions)

    def records() -> tuple[Any, ...]:
        if not past():
            return ()
        return sentence(), *(draw(*tables) for draw, *tables in (lifetimes(), readability()))

    state.observe(sampling.forget, "version")
    slider.observe(on_slide, "value")
    time.observe(on_time, "value")
    button = parts.button(f"Read the first {_MOST_ROWS} rows", "ck-read-rows", read_rows)
    live(button, disabled=lambda: sampling.running)
    rows = Text("text", "rows", lambda: sampling.value and _rows_table(sampling.value))
    folded = {
        "What differs from the latest version": Text("text", "diff", difference),
        "Rows of this version": w.VBox([button, JobBar(sampling, "ck-sampling"), rows]),
    }
    return Part(
        JobBar(state.reading, "ck-reading"),
        live(w.VBox([slider, time]), past),
        time_error,
        Text("text", "version-text", sentence),
        restore_box(state, earlier, lambda: f"Restore version {state.version} …"),
        FigureView("ck-lifetimes-figure", lifetimes),
        FigureView("ck-readable-figure", readability),
        fold(past, **folded),
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


def vacuum_part(state: WorkbenchState) -> Part:
    """Show which versions and files a vacuum would cost; it deletes once the table's name has been typed."""
    planning, running = state.planning_vacuum, state.vacuuming
    retention = parts.field("Retention", "as the table is set", "ck-retention", "300px", "96px")
    keep = parts.field("Keep versions", "such as 3, 7", "ck-keep", "300px", "96px")
    days = Slider(label="Preview on a later day", min=0, max=_MOST_DAYS).add_class("ck-days")
    parts.bind(state, retention=retention, keep=keep, days=days)
    live(days, text=lambda: f"in {state.days} days" if state.days else "now")
    name = parts.field("Type its name", "", "ck-confirm", "300px", "96px")
    live(name, placeholder=lambda: state.password).continuous_update = True
    # A name that was typed is for the plan that it was typed under, and for no other.
    planning.observe(lambda _: setattr(name, "value", ""), "answer")

    def delete() -> None:
        state.vacuum(name.value)
        name.value = ""

    def is_armed() -> bool:
        return state.can_vacuum and not running.running and name.value == state.password

    def cost() -> str:
        plan = planning.value
        return plan.explain().partition("\n")[0] if plan and plan.versions_lost else ""

    def explained() -> str:
        if (plan := planning.value) is not None:
            return plan.explain().removeprefix(cost()).lstrip("\n")
        looking = "Looking …" if state.table is not None else "No table is open."
        return "" if planning.error else looking

    def code() -> str:
        given = [f"retention={state.retention!r}"] if state.retention else []
        given += [f"keep_versions=[{state.keep}]"] if state.keep else []
        given += [f"at=datetime.now(UTC) + timedelta(days={state.days})"] if state.days else []
        return parts.python(
            f"table = ck.open_table({state.name!r})",
            f"vacuum = table.plan_vacuum({', '.join(given)})",
            "print(vacuum.explain())",
            *([] if state.days else ["vacuum.run(progress=True)  # deletes what the plan shows"]),
            imports=["from datetime import UTC, datetime, timedelta"] if state.days else [],
        )

    button = parts.button("Delete these files", "ck-vacuum", delete, style="danger")
    danger = w.HBox([name, live(button, disabled=lambda: not is_armed())]).add_class("ck-danger")
    return Part(
        parts.row(retention, keep, days),
        Text("error", "vacuum-error", lambda: planning.error),
        Text("warning", "vacuum-cost", cost),
        Text("text", "vacuum-plan", explained),
        FigureView("ck-vacuum-figure", lambda: planning.value and planning.value.plot),
        live(danger, lambda: planning.value and not planning.value.is_empty and not state.days),
        parts.outcome(state, running, "ck-vacuuming", "outcome"),
        on=[state, planning, running, name],
        title="Vacuum",
        code=code,
        records=lambda: [running.result if running.about == state.name else None, planning.value],
        prepare=state.plan_vacuum,
    )
