"""The versions of the open table: lifetimes of files, readable versions, restore, vacuum and its cost."""

from collections.abc import Callable
from datetime import tzinfo
from functools import partial
from typing import Any, NamedTuple

import ipywidgets as w
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit import plots, text
from compaction_kit.errors import shortened
from compaction_kit.files import Files
from compaction_kit.history import first_rows
from compaction_kit.table import Table
from compaction_kit.times import in_zone, millis, session_zone, show_time
from compaction_kit.widgets import fields, parts
from compaction_kit.widgets.changes import spark_of
from compaction_kit.widgets.fields import Grid, Slider
from compaction_kit.widgets.job import Job, attempt
from compaction_kit.widgets.parts import FigureView, JobBar, Part, Text, absolute, call, fold, live, python
from compaction_kit.widgets.state import WorkbenchState

_MOST_ROWS, _LONGEST, _MOST_DAYS, _MOST_ACTIONS, _LONGEST_ACTION = 20, 60, 60, 100, 400
_COLUMNS = ("version", "time", "operation", "files ±", "bytes ±", "rows ±", "content")
_CONTENT = (
    "Content says why a version has the same rows as the version before, or as the version named: proved "
    "by a fingerprint of the rows, identical files, or row counts agree. Unknown: only the commit claims it."
)
_GONE = {
    "missing files": "can't be read any more: files that it needs are gone",
    "log gone": "can't be read any more: its part of the log is gone",
}
_CAN = {
    "yes": "can be read",
    "blocked": "is refused by Delta, because it is older than the table's retention",
    **_GONE,
}
_Say = Callable[[], str]
_HINT = "A click or Enter shows a version; tick two of them, or press Space, to compare them."


class Past(NamedTuple):
    """The results of `Table.versions()` and of the log's `lifetimes()`, and the rows of the list."""

    versions: pa.Table
    lives: pa.Table
    rows: list[list[list[Any]]]
    latest: int


def restore_box(
    state: WorkbenchState, version: Callable[[], int | None], description: _Say, refusal: _Say = str
) -> w.VBox:
    """Make a button that plans to restore a version, unless this is refused, and one that runs the plan."""
    planning, running = state.planning_restore, state.restoring

    def plan() -> Any:
        return planning.get(version())

    def explained() -> list[str]:
        lines = plan().explain().split("\n") if plan() else []
        # If the restore undoes other commits, they come first.
        return lines if plan() and not plan().diff.same_content else ["", *lines]

    def can_ask() -> bool:
        return version() is not None and not plan() and not running.running

    ask = parts.button("", "ck-ask-restore", lambda: state.plan_restore(version()))
    run = parts.button("", "ck-restore", state.restore, style="danger")
    keep = parts.button("Keep the table as it is", "ck-keep-table", planning.forget)
    live(ask, can_ask, description=description, disabled=lambda: planning.running or refusal() != "")
    live(
        run,
        description=lambda: f"Restore version {version()}",
        disabled=lambda: not (plan() and plan().can_run),
    )
    said = [
        Text("hint", "restore-refusal", refusal),
        Text("error", "restore-loss", lambda: explained()[0]),
        Text("warning", "restore-plan", lambda: "\n".join(explained()[1:])),
        live(JobBar(planning, "ck-planning-restore"), lambda: planning.asked == (version(),)),
    ]
    done = parts.outcome(state, running, "ck-restoring", "restored")
    # The reason of a failure is shown where its version is offered.
    live(done, lambda: not running.error or state.restored == version())
    choice = live(w.HBox([run, keep]).add_class("ck-restore-choice"), lambda: plan() and not running.running)
    return w.VBox([ask, *said, choice, done])


def restore_code(state: WorkbenchState, version: int | None) -> list[str]:
    """Return the lines of Python that restore a version; none if its plan isn't on screen."""
    lines = [f"restore = table.plan_restore({version})", "print(restore.explain())"]
    lines.append("restore.run()  # commits a version with that content")
    return lines if state.planning_restore.get(version) is not None else []


def history_part(state: WorkbenchState) -> Part:
    """List the versions of a table below the lifetimes of its files: what each commit did, and differences.

    A click on a row shows its commit, restores it, or reads its rows; two ticked rows are compared.
    """

    def past() -> Any:
        return state.reading.value if state.files is not None else None

    def earlier() -> int | None:
        return state.version if past() and state.version < past().latest else None

    def shown() -> int:
        # A later version may just have been made, while the list is being read again.
        return min(state.version, past().latest)

    def sentence() -> str:
        return _version_sentence(past().versions, shown()) if past() else ""

    def refusal() -> str:
        is_it = pc.field("version") == state.version
        can = "" if earlier() is None else past().versions.filter(is_it)["readable"][0].as_py()
        return f"Version {state.version} {_GONE[can]}." if can in _GONE else ""

    def lifetimes() -> Any:
        return past() and (plots.lifetimes, past().lives, past().versions, shown())

    def records() -> tuple[Any, ...]:
        if past():
            # If this part isn't on screen, the list may be from before a run.
            _ask(state, with_actions=False)
            state.reading.wait()
        figures = (lifetimes(), (plots.readability, past().versions)) if past() else ()
        return (sentence() or None, *(draw(*tables) for draw, *tables in figures))

    (time, time_error), folds = _time_field(state), _commit_folds(state, past)
    # The bar is beside the figure, so that it moves nothing.
    reading = JobBar(state.reading, "ck-reading")
    details = w.VBox([time, time_error, reading, Text("text", "version-text", sentence)])
    figure, listed = FigureView("ck-lifetimes-figure", lifetimes), live(_version_list(state, time), past)
    return Part(
        Text("text", "no-table", lambda: state.no_table),
        live(w.Box([figure, listed, details]).add_class("ck-past"), lambda: state.files is not None),
        # Below the list, so that the list keeps its place.
        live(restore_box(state, earlier, lambda: f"Restore version {state.version} …", refusal), past),
        folds,
        FigureView("ck-readable-figure", lambda: past() and (plots.readability, past().versions)),
        on=[state, *state.jobs],
        title="History",
        code=lambda: _history_code(state, earlier()),
        records=records,
        prepare=lambda: _ask(state, folds.selected_index == 0),
    )


def _ask(state: WorkbenchState, with_actions: bool) -> None:
    table, files, version, pair = state.table, state.files, state.version, sorted(state.compared)
    if table is None or files is None:
        return
    state.reading.ask(lambda job: _read_past(state, table, files, job), files)
    if state.reading.value and len(pair) == 2:
        state.comparing.ask(lambda job: table.diff(pair[0], pair[1]), *pair)
    if state.reading.value and with_actions:
        state.quoting.ask(lambda job: _actions_text(table.log.actions(version)), version)


def _read_past(state: WorkbenchState, table: Table, files: Files, job: Job) -> Past:
    versions = table.versions()
    job.report(0.5, f"Read {text.format_count(len(versions), 'version')}; reading when each file lived")
    rows = [*map(partial(_cells, session_zone()), reversed(versions.to_pylist()))]
    found = Past(versions, table.log.lifetimes()[1], rows, versions["version"][-1].as_py())
    former, listed = state.reading.value, versions["version"].to_pylist()
    # A chosen version stays as long as the log lists it; the latest version is followed.
    stays = former is not None and state.version != former.latest and state.version in listed
    if files is state.files and not stays:
        state.version = found.latest
    return found


def _history_code(state: WorkbenchState, earlier: int | None) -> str:
    lines = [f"table = ck.open_table({absolute(state.name)!r})", "table.versions()"]
    lines.append(f'table.log.actions({state.version})["fields"].to_pylist()')
    if len(state.compared) == 2:
        lines.append(call("table.diff", start=min(state.compared), end=max(state.compared)))
    if state.sampling.value is not None:
        read = f'table.spark.read.option("versionAsOf", {state.version}).format("delta")'
        lines.append(f"{read}.load(table.location).show({_MOST_ROWS})")
    return python(*lines, *restore_code(state, earlier))


def _time_field(state: WorkbenchState) -> tuple[w.Text, Text]:
    """Make a field for a time, which chooses the version of that time, and the place for its error."""
    time = fields.field("Version at", "such as 2026-03-01 12:00", "ck-time", "100%", "80px")
    error = Text("error", "time-error")

    def on_time(_: object) -> None:
        found, sentence = attempt(lambda: state.table and time.value and state.table.at(timestamp=time.value))
        past = state.reading.value
        if found and past and found.version > past.latest:
            sentence = f"Version {found.version} is newer than this list: press Refresh."
        elif found:
            state.version = found.version
        error.show(sentence)

    time.observe(on_time, "value")
    # The time was for the versions that were listed before.
    state.reading.observe(lambda _: setattr(time, "value", ""), "answer")
    return time, error


def _version_list(state: WorkbenchState, time: w.Text) -> w.VBox:
    """List the versions; a click chooses one, and below is the difference between two ticked ones."""
    reading, comparing = state.reading, state.comparing

    def rows() -> Any:
        return reading.value.rows if reading.value else []

    def choose(version: int) -> None:
        # The version was not chosen by a time.
        time.value, state.version = "", version

    def difference() -> Any:
        if len(state.compared) == 1:
            return f"Tick another version to compare it with version {state.compared[0]}."
        found = comparing.get(*sorted(state.compared))
        return found._repr_html_() if found else ""

    def begin(_: object) -> None:
        # Words and order were chosen for another table's history.
        grid.words, grid.order = "", [0, -1]

    grid = Grid("Versions", _COLUMNS, choose, order=[0, -1], tick_label=_HINT).add_class("ck-versions")
    fields.bind(state, "ticked", compared=grid)
    state.observe(begin, "name")
    state.observe(comparing.forget, "compared")
    live(
        grid,
        all_rows=rows,
        offered=lambda: sorted({row[2][0] for row in rows()}),
        chosen=lambda: state.version,
    )
    hint = Text("hint", "content-hint", lambda: _CONTENT if reading.value else "")
    below = [JobBar(comparing, "ck-comparing"), Text("text", "diff", difference)]
    return w.VBox([grid, hint, *below]).add_class("ck-listed")


def _commit_folds(state: WorkbenchState, past: Callable[[], Any]) -> w.Accordion:
    """Fold away the actions of the chosen version's commit, and the first rows of the version."""
    sampling, quoting = state.sampling, state.quoting

    def read_rows() -> None:
        table, version = state.table, state.version

        def work(job: Job) -> Any:
            progress = partial(job.report, 0.0, f"Reading the first {_MOST_ROWS} rows of version {version}")
            progress()
            return table and spark_of(table, job) and first_rows(table.handle, version, _MOST_ROWS, progress)

        sampling.ask(work, version, again=True)

    state.observe(sampling.forget, "version")
    button = parts.button(f"Read the first {_MOST_ROWS} rows", "ck-read-rows", read_rows)
    live(button, disabled=lambda: sampling.running)
    actions = Text("text", "actions", lambda: quoting.get(state.version))
    rows = Text("text", "rows", lambda: sampling.value and _rows_table(sampling.value))
    folds = {
        "Actions of this commit": w.VBox([JobBar(quoting, "ck-quoting"), actions]),
        "Rows of this version": w.VBox([button, JobBar(sampling, "ck-sampling"), rows]),
    }
    return fold(past, **folds)


def _rows_table(found: Any) -> text.Html:
    cells = [["NULL" if x is None else shortened(str(x), _LONGEST) for x in row] for row in found.rows]
    about = f"{text.format_count(len(cells), 'row')} of version {found.version}, those that Spark finds first"
    return text.joined(text.paragraph(about), text.as_html_table(found.columns, cells))


def _cells(zone: tzinfo | None, row: dict[str, Any]) -> list[list[Any]]:
    version, time, change = row["version"], row["timestamp"], row["records_change"]
    operation, content = text.visible(row["operation"] or ""), _content(row)
    when = time and show_time(in_zone(time, zone).replace(tzinfo=None), "milliseconds")
    other = row["same_content_as"] if content == row["same_content_by"] else None
    return [
        [str(version), version],
        [when or "", time and millis(time)],
        [operation, operation or None],
        _change(row["num_added"], row["num_removed"], "{:,}".format),
        _change(row["bytes_added"], row["bytes_removed"], text.format_size),
        ["" if change is None else f"{change:+,}".replace("-", "−") if change else "0", change],
        [content if other in (None, version - 1) else f"{content}, as {other}", content or None],
    ]


def _change(added: int | None, removed: int | None, show: Callable[[int], str]) -> list[Any]:
    if added is None or removed is None:
        return ["", None]
    signed = [f"{sign}{show(number)}" for sign, number in (("+", added), ("−", removed)) if number]
    return [" ".join(signed) or "0", added - removed]


def _content(row: dict[str, Any]) -> str:
    """Return the evidence that a commit kept the content, or whether it changed the content."""
    if row["same_content_as"] is not None and row["same_content_as"] < row["version"]:
        return str(row["same_content_by"])
    if row["num_added"] is None:
        return ""
    has_files = row["num_added"] or row["num_removed"]
    return "unknown" if has_files and not row["data_change"] and not row["records_change"] else "changed"


def _version_sentence(versions: pa.Table, version: int) -> str:
    """Say when a version was committed, whether and until when it can be read, and the same content."""
    (row,), zone = versions.filter(pc.field("version") == version).to_pylist(), session_zone()
    when = f" of {show_time(in_zone(row['timestamp'], zone), 'milliseconds')}" if row["timestamp"] else ""
    unnamed = "no operation named" if row["timestamp"] else "no commit"
    operation, can = row["operation"] or unnamed, _CAN[row["readable"]]
    lines = [f"Version {row['version']}{when}, {operation}: it {can}."]
    if row["readable_until"]:
        until = show_time(in_zone(row["readable_until"], zone))
        lines.append(f"From {until} on VACUUM may delete its files, or Delta may refuse it.")
    if row["read_instead"] is not None:
        lines.append(f"Version {row['read_instead']} has the same content and can be read.")
    elif row["same_content_as"] is not None:
        lines.append(f"Version {row['same_content_as']} has the same content: {row['same_content_by']}.")
    return "\n".join(lines)


def _actions_text(actions: pa.Table) -> text.Html:
    """Write the actions of a commit as JSON, one per line; long lines and long commits are cut."""
    lines = [shortened(line, _LONGEST_ACTION) for line in actions["fields"][:_MOST_ACTIONS].to_pylist()]
    if more := len(actions) - len(lines):
        lines.append(f"… and {text.format_count(more, 'more action')}")
    return text.element("pre", "\n".join(lines))


def vacuum_part(state: WorkbenchState) -> Part:
    """Show which versions and files a vacuum would cost; run it after the table's name has been typed."""
    planning, running = state.planning_vacuum, state.vacuuming
    retention = fields.field("Retention", "as the table is set", "ck-retention", "250px", "96px")
    keep = fields.field("Keep versions", "such as 3, 7", "ck-keep", "250px", "96px")
    days = Slider(label="Preview on a later day", min=0, max=_MOST_DAYS).add_class("ck-days")
    fields.bind(state, retention=retention, keep=keep, days=days)
    live(days, text=lambda: f"in {text.format_count(state.days, 'day')}" if state.days else "now")
    name = fields.field("Type its name", "", "ck-confirm", "300px", "96px")
    live(name, placeholder=lambda: state.password).continuous_update = True
    # A typed name applies only to the plan under which it was typed.
    planning.observe(lambda _: setattr(name, "value", ""), "answer")

    def explained() -> list[str]:
        if (plan := planning.value) is None:
            return ["", "" if planning.error else state.no_table or "Looking …"]
        # The first line is the cost, if there is one.
        return plan.explain().split("\n") if plan.versions_lost else ["", plan.explain()]

    button = parts.button("Delete these files", "ck-vacuum", lambda: state.vacuum(name.value), style="danger")
    live(button, disabled=lambda: running.running or not state.can_vacuum or name.value != state.password)
    danger = w.HBox([name, button]).add_class("ck-danger")
    return Part(
        w.HBox([retention, keep, days]),
        Text("error", "vacuum-error", lambda: planning.error),
        # Above the sentences, so that it keeps its place, however many there are.
        FigureView("ck-vacuum-figure", lambda: planning.value and planning.value.plot),
        Text("warning", "vacuum-cost", lambda: explained()[0]),
        Text("text", "vacuum-plan", lambda: "\n".join(explained()[1:])),
        live(danger, lambda: planning.value and not planning.value.is_empty and not state.days),
        parts.outcome(state, running, "ck-vacuuming", "outcome"),
        on=[state, planning, running, name],
        title="Vacuum",
        code=lambda: _vacuum_code(state),
        records=lambda: [running.result if running.about == state.name else None, planning.value],
        prepare=state.plan_vacuum,
    )


def _vacuum_code(state: WorkbenchState) -> str:
    given = [f"retention={state.retention!r}"] if state.retention else []
    given += [f"keep_versions=[{', '.join(state.keep.replace(',', ' ').split())}]"] if state.keep else []
    given += [f"at=datetime.now(UTC) + timedelta(days={state.days})"] if state.days else []
    return python(
        f"table = ck.open_table({absolute(state.name)!r})",
        f"vacuum = table.plan_vacuum({', '.join(given)})",
        "print(vacuum.explain())",
        *([] if state.days else ["vacuum.run(progress=True)  # deletes what the plan shows"]),
        imports=["from datetime import UTC, datetime, timedelta"] if state.days else [],
    )
