"""The parts about the root: the open table and its files, the survey of all tables, logs of streams."""

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ipywidgets as w
import numpy as np

from compaction_kit import text
from compaction_kit.files import Files
from compaction_kit.session import cache_folder, keep
from compaction_kit.sinklog import SinkLog, sink_log
from compaction_kit.sinklog.log import look_for_sink_logs
from compaction_kit.sql import name_parts
from compaction_kit.storage import is_folder
from compaction_kit.surveys import RANK, SMALL, cells, fewer_files
from compaction_kit.widgets import fields, parts
from compaction_kit.widgets.fields import Grid, Slider
from compaction_kit.widgets.parts import FigureView, JobBar, Part, Text, absolute, call, fold, live, python
from compaction_kit.widgets.state import WorkbenchState

_TO_PRACTISE = "to practise on: 336,776 flights in 1,095 small files."
# Columns of a survey that fit into the page.
_SHOWN = ("table", "files", "small", "size", "median file", "after", "fewer files", "last OPTIMIZE")
_MOST_RECENT = 10
_FURTHEST, _MOST_FILES, _MOST_TRIED, _MOST_PARTITIONS = 500, 12, 200, 10
_NO_BOUNDS = "The log has no minimum and maximum of any column, so no file is skipped by its values."
_LOG_COLUMNS = ("name", "kind", "num_entries", "size_bytes", "needed", "removed_after")
_NO_LOG = (
    "No stream keeps a log of files under {}. One that writes Parquet, JSON or CSV files keeps it in "
    "_spark_metadata of its output folder; one that reads files, in sources/0 of its checkpoint. Delta "
    "tables need none: History shows their log."
)


def recent_tables() -> list[str]:
    """Return paths and names of the tables opened last, the latest first, without deleted local ones."""
    try:
        kept = json.loads((cache_folder() / "recent.json").read_text(encoding="utf-8"))
        return [name for name in kept if not name.startswith("/") or is_folder(name)]
    except (OSError, ValueError, TypeError, AttributeError):
        return []


def remember(name: str) -> None:
    """Put a local or catalog table before the others; URIs are left out: they may hold a password or key."""
    if "://" in name:
        return
    with suppress(OSError):
        name = absolute(name)
        names = [name, *(other for other in recent_tables() if other != name)][:_MOST_RECENT]
        keep(cache_folder() / "recent.json", json.dumps(names))


def about_text(state: WorkbenchState) -> Part:
    """Make a line about the files of the plan."""
    about = Text("text", "about", lambda: state.about)
    return Part(about, on=[(state, "about")], shown=True).add_class("ck-line")


def picker(state: WorkbenchState) -> Part:
    """Find tables in a folder, schema or catalog, or name one."""
    root = fields.field("Folder or schema", "", "ck-root", "438px", "122px")
    root.tooltip = "A folder, a schema or catalog of the session, or a table"
    choice = fields.dropdown("Table", "ck-table", "460px", "50px")
    fields.bind(state, root=root)
    fields.set_by_choice(state, "name", choice)
    again = "Look again: for tables, and for what others have committed"
    refresh = parts.button("Refresh", "ck-refresh", state.refresh, tooltip=again)
    refresh.icon = "refresh"

    def offer_tables() -> None:
        if state.files is not None and not state.opened.pending:
            remember(state.name)
        found = {os.path.abspath(name) for name in state.tables} | set(state.tables)
        others = sorted(set(recent_tables()) - found)
        options = [(name, name) for name in state.tables] + [(f"{name} (recent)", name) for name in others]
        fields.offer(choice, options if others else state.tables, state.name)

    def is_empty() -> bool:
        is_known = state.searching.status in ("idle", "done")
        return is_known and not (state.tables or state.table or state.opened.error)

    make = parts.button("Make the flights table", "ck-make", state.make_flights, style="primary")
    return Part(
        w.HBox([root, choice, refresh]),
        JobBar(state.searching, "ck-searching"),
        Text("warning", "skipped", lambda: state.skipped),
        Text("hint", "empty", lambda: _no_table(state.root) if is_empty() else ""),
        live(make, lambda: is_empty() and not state.making.running),
        live(JobBar(state.making, "ck-making"), lambda: state.making.running or state.making.error),
        on=[state.making, state.searching, *((state, name) for name in ("tables", "name", "opened"))],
        prepare=offer_tables,
        shown=True,
    )


def _no_table(root: str) -> str:
    missing, name = f"Delta table under {root or 'the current folder'}", ". Name"
    # Remote folders aren't checked, because drawing must not wait for a store.
    if root and "://" not in root and not is_folder(root):
        missing = f"Delta table in {root}" if name_parts(root) else root
        name = ": check the spelling, name"
    return f"There is no {missing} yet{name} another folder, a schema or a table, or make one {_TO_PRACTISE}"


def files_part(state: WorkbenchState) -> Part:
    """Show a table's live files: their sizes, the partitions with the most files, and their overlap."""

    def some() -> Any:
        return state.files if state.files is not None and state.files.num_files else None

    def sentence() -> str:
        if state.files is None:
            return state.no_table or "Reading the log …"
        if not state.files.num_files:
            return "No file is live." if not state.where else "No live file is selected."
        stats = state.files.stats()
        return (
            f"The median file has {text.format_size(stats.median_size_bytes)}, the largest "
            f"{text.format_size(stats.max_size_bytes)}. Readers read {text.format_size(stats.log_bytes)} of "
            f"the log, including {text.format_count(stats.num_commits, 'commit')} not in a checkpoint."
        )

    def code() -> str:
        files = call("files", where=state.where or None)
        table = f"files = ck.open_table({absolute(state.name)!r}).{files}"
        drawn = (f"files.overlap({column.value!r})", f"files.plot_extents({column.value!r})")
        # The columns to choose from may be those of the previous table.
        is_of_table = state.files is not None and column.value in state.files.data_columns
        return python(table, "files.plot()", "files.by_partition()", *(drawn if is_of_table else ()))

    column, ranges = ranges_by_column(
        state,
        "overlap",
        "extents",
        lambda name: some() and some().overlap(name)._repr_html_(),
        lambda name: some() and (Files.plot_extents, some(), name),
    )
    partitions = Text("text", "partitions", lambda: some() and _partitions(some()))
    return Part(
        Text("text", "files", sentence),
        FigureView("ck-files-figure", lambda: some() and some().plot),
        fold(some, **{"Partitions": partitions, "Overlap: what data skipping is worth": ranges}),
        on=[state, column],
        title="Files",
        code=code,
        records=lambda: (some().stats(), some().plot()) if some() else (),
    )


def ranges_by_column(
    state: WorkbenchState, role: str, drawn: str, say: Callable[[str], Any], draw: Callable[[str], Any]
) -> tuple[w.Dropdown, w.VBox]:
    """Make a dropdown of the columns with bounds, and a box with the dropdown, a text and a figure."""
    column, offered = fields.dropdown("Column", f"ck-{role}-column", "300px"), list[Files | None]([None])

    def chosen() -> Any:
        files = state.files
        if files is not None and files is not offered[0]:
            offered[:] = [files]
            # A sample of files usually has the columns; only all files can show that there are none.
            tried = np.linspace(0, files.num_files - 1, min(files.num_files, _MOST_TRIED)).astype(int)
            some = Files(files.snapshot, files.in_snapshot(tried))
            found = (list(filter(these.has_bounds, files.data_columns)) for these in (some, files))
            columns = next(filter(None, found), [])
            usual = (column.value, state.order, state.plan and state.plan.clustering_column, *columns)
            fields.offer(column, columns, next((name for name in usual if name in columns), None))
        return column.value

    said = Text("text", role, lambda: say(name) if (name := chosen()) else _NO_BOUNDS)
    figure = FigureView(f"ck-{drawn}-figure", lambda: draw(name) if (name := chosen()) else None)
    return column, w.VBox([column, said, figure])


def _partitions(files: Files) -> str:
    table, small = files.by_partition(), f"under {text.format_size(files.small_file_size())}"
    rows = table[:_MOST_PARTITIONS].to_pylist()
    names = [text.format_partition(row) or "the table" for row in rows]
    sizes = [text.format_size(row["size_bytes"]) for row in rows]
    counts = [[f"{row[name]:,}" for row in rows] for name in ("num_files", "num_small_files")]
    cells = zip(names, *counts, sizes, strict=True)
    drawn = text.as_html_table(("partition", "files", small, "size"), cells)
    # The partitions with the most files come first.
    rest = table["num_files"].to_pylist()[len(rows) :]
    if not rest:
        return drawn
    more, most = text.format_count(len(rest), "more partition"), text.format_count(rest[0], "file")
    each = " each" if len(rest) > 1 else ""
    return text.element("div", drawn, text.paragraph(f"and {more} with at most {most}{each}"))


def survey_part(state: WorkbenchState, on_open: Callable[[str], object]) -> Part:
    """Rank the tables under the folder by what compaction would gain; a click opens one."""
    surveying = state.surveying
    grid = Grid("Tables", _SHOWN, on_open).add_class("ck-tables")

    def rows() -> list[dict[str, Any]]:
        return [] if surveying.value is None else surveying.value.to_arrow().to_pylist()

    def sentence() -> str:
        if surveying.value is not None:
            return str(surveying.value.summary().splitlines()[0])
        if not state.tables:
            return state.searching.message if state.searching.running else "No table was found."
        return f"{text.format_count(len(state.tables), 'table')} found."

    def failures() -> str:
        return "\n".join(f"{row['table']}: {row['error']}" for row in rows() if row["error"])

    return Part(
        Text("text", "survey", sentence),
        JobBar(surveying, "ck-surveying"),
        live(grid, rows, all_rows=lambda: [_row(row, state.root) for row in rows()]),
        Text("hint", "survey-hint", lambda: f"{SMALL} {RANK}" if rows() else ""),
        Text("warning", "survey-errors", failures),
        on=[surveying, state.searching, (state, "tables")],
        title="Survey",
        code=lambda: python(f"ck.survey({absolute(state.root)!r})"),
        records=lambda: [surveying.value],
        prepare=state.survey,
    )


def _row(row: dict[str, Any], root: str) -> list[list[Any]]:
    name = row["table"]
    short = re.sub(r"^[/.]", "", name.removeprefix(root))
    first = [text.visible(short or name), name]
    if row["error"]:
        return [first, *(["see below" if name == "fewer files" else "", None] for name in _SHOWN[1:])]
    files, fewer, last, texts = row["num_files"], fewer_files(row), row["last_optimize"], cells(row)
    small = row["num_small_files"] / files if texts["small"] else None
    keys = [files, small, row["size_bytes"], row["median_size_bytes"], files - fewer, fewer]
    keys.append(last and last.timestamp())
    listed = [[texts[name], key] for name, key in zip(_SHOWN[1:], keys, strict=True)]
    # The share of small files is also drawn.
    listed[1].append(small)
    return [first, *listed]


def streams_part(state: WorkbenchState) -> Part:
    """Show the logs of file sinks and sources, and how they grow."""
    choice = fields.dropdown("Log", "ck-log", "460px", "40px")
    ahead = Slider(label="Look ahead", min=1, max=_FURTHEST).add_class("ck-ahead")
    fields.set_by_choice(state, "stream", choice)
    fields.bind(state, ahead=ahead)
    live(ahead, text=lambda: text.format_count(state.ahead, "batch"))
    finding, following = state.finding, state.following

    def prepare() -> None:
        finding.ask(lambda _: _find_streams(state), state.root)
        if state.stream:
            following.ask(lambda job: sink_log(state.stream), state.stream)
        fields.offer(choice, finding.value or (), state.stream)

    def log() -> Any:
        return following.get(state.stream)

    def sentence() -> str:
        if log():
            return str(log().explain(state.ahead))
        return _NO_LOG.format(state.root or "the current folder") if finding.value == [] else ""

    def files() -> Any:
        return log() and text.arrow_as_html(log().files.select(_LOG_COLUMNS)[-_MOST_FILES:])

    return Part(
        live(w.HBox([choice, ahead]), lambda: finding.value),
        JobBar(finding, "ck-finding-logs"),
        JobBar(following, "ck-reading-log"),
        Text("text", "sink-log", sentence),
        FigureView("ck-sink-figure", lambda: log() and (SinkLog.plot, log(), state.ahead)),
        fold(log, **{"Files of the log": Text("text", "log-files", files)}),
        on=[state, finding, following],
        title="Streams",
        code=lambda: _streams_code(state),
        records=lambda: (log().explain(state.ahead), log().plot(state.ahead)) if log() else (),
        prepare=prepare,
    )


def _find_streams(state: WorkbenchState) -> list[str]:
    root = state.root
    # Folders that can't be read are named elsewhere in the page.
    found, _ = look_for_sink_logs(root)
    if root == state.root and state.stream not in found:
        state.stream = next(iter(found), "")
    return found


def _streams_code(state: WorkbenchState) -> str:
    if not state.stream:
        return python(f"ck.find_sink_logs({absolute(state.root)!r})")
    log = f"log = ck.sink_log({absolute(state.stream)!r})"
    return python(log, f"print(log.explain({state.ahead}))", f"log.plot({state.ahead})")
