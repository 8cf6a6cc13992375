"""Which table is open: one that is found in a folder or schema, named, or picked from the survey."""

import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import anywidget
import ipywidgets as w
from traitlets import List, Unicode

from compaction_kit.errors import CompactionKitError
from compaction_kit.session import cache_folder
from compaction_kit.sql import name_parts
from compaction_kit.storage import is_folder, local_path
from compaction_kit.surveys import HEAD, RANK, SMALL, Survey, cells, fewer_files, survey
from compaction_kit.text import Html, as_html_table, format_count, format_size, visible
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.parts import JobBar, Part, Text, live
from compaction_kit.widgets.state import WorkbenchState

# Columns of a survey that fit into the page; where the share of small files is among them.
_NAMES = ("table", "files", "small", "size", "median file", "after", "fewer files", "last OPTIMIZE")
_SHOWN = tuple(map(HEAD.index, _NAMES))
_SMALL = 2
_MOST_RECENT = 10
_MAY_HOLD_A_SECRET = re.compile(r"://[^/]*:[^/]*@|\?")


def recent_tables() -> list[str]:
    """Return paths and names of the tables opened last, the latest first, but local ones that are gone."""
    try:
        kept = json.loads((cache_folder() / "recent.json").read_text(encoding="utf-8"))
        return [name for name in kept if not name.startswith("/") or is_folder(name)]
    except (OSError, ValueError, TypeError, AttributeError):
        return []


def remember(name: str) -> None:
    """Put a table, by its path or name, before the others; not if its address may hold a password or key."""
    if _MAY_HOLD_A_SECRET.search(name):
        return
    with suppress(CompactionKitError):  # it is not on a local disk
        path = os.path.abspath(local_path(name))
        name = path if is_folder(path) else name
    names = [name, *(other for other in recent_tables() if other != name)][:_MOST_RECENT]
    with suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        written = cache_folder() / f"recent.json.{os.getpid()}"
        written.write_text(json.dumps(names), encoding="utf-8")
        written.replace(cache_folder() / "recent.json")


def about_text(state: WorkbenchState) -> Part:
    """Make a line about the files that are planned."""
    known: list[Any] = [None, None, 0, ""]

    def about() -> str:
        """The line, with what reading the same table again has brought."""
        opened, (table, former, refreshes, line) = state.opened, known
        if (files := opened.files) is None:
            return ""
        if files is not former:
            scope = f" where {opened.where}" if opened.where else ""
            partitions = format_count(files.stats().num_partitions, "partition")
            size = format_size(files.size_bytes)
            line = f"version {files.version} · {files.num_files:,} files{scope} · {size} · {partitions}"
            if table is opened.table and (files.version, refreshes) != (former.version, state.num_refreshes):
                more = files.version - former.version
                line += (
                    f" · {format_count(more, 'version') if more > 0 else 'no version'} since {former.version}"
                )
            known[:] = opened.table, files, state.num_refreshes, line
        return str(line)

    part = Part(Text("text", "about", about))
    part.watch(state, "opened")
    part.shown = True
    return part.add_class("ck-line")


def picker(state: WorkbenchState) -> Part:
    """Find tables in a folder, schema or catalog, or name one."""
    root = parts.field("Folder or schema", "", "ck-root", "438px", "122px")
    root.tooltip = "A folder, a schema or catalog of the session, or a table"
    choice = parts.dropdown("Table", "ck-table", "460px", "50px")
    parts.bind(state, root=root)
    parts.set_by_choice(state, "name", choice)
    again = "Look again: for tables, and for what others have committed"
    refresh = parts.button("Refresh", "ck-refresh", state.refresh, tooltip=again)
    refresh.icon = "refresh"

    def offer_tables() -> None:
        if state.files is not None and not state.opened.pending:
            remember(state.name)
        found = {os.path.abspath(name) for name in state.tables} | set(state.tables)
        others = sorted(set(recent_tables()) - found)
        options = [(name, name) for name in state.tables] + [(f"{name} (recent)", name) for name in others]
        parts.offer(choice, options if others else state.tables, state.name)

    def is_empty() -> bool:
        return not state.tables and state.table is None and not state.opened.error

    make = parts.button("Make the flights table", "ck-make", state.make_flights, style="primary")
    part = Part(
        w.HBox([root, choice, refresh]),
        Text("hint", "empty", lambda: _no_table(state.root) if is_empty() else ""),
        live(make, lambda: is_empty() and not state.making.running),
        live(JobBar(state.making, "ck-making"), lambda: state.making.running or state.making.error),
        on=[state.making],
        prepare=offer_tables,
    )
    part.watch(state, ["tables", "name", "opened"])
    part.shown = True
    return part


def _no_table(root: str) -> str:
    if root and not is_folder(root):
        missing = f"Delta table in {root}" if name_parts(root) else root
        what = f"There is no {missing} yet: check the spelling, name"
    else:
        what = f"There is no Delta table under {root or 'the current folder'} yet. Name"
    return (
        f"{what} another folder, a schema or a table, or make one to practise on: 336,776 flights in 1,095 "
        "small files."
    )


class Grid(anywidget.AnyWidget):
    """A table that is sorted by a click on a column and filtered by words; a click or Enter opens a row."""

    _esm = parts.FOLDER / "grid.js"
    label = Unicode("", help="What is listed").tag(sync=True)
    columns = List(Unicode(), help="The headings").tag(sync=True)
    # Of each cell its text, what it is sorted by or None, and a share to draw, if any. The first one's
    # key is the name that opens the row.
    rows = List(List(), help="The cells of each row").tag(sync=True)

    def __init__(self, label: str, columns: Sequence[str], on_open: Callable[[str], object]):
        super().__init__(label=label, columns=list(columns))
        self.on_open = on_open
        self.on_msg(lambda _, content, __: on_open(content["open"]))

    def still(self) -> Html:
        """Return its rows as they are ranked, for a page without a kernel."""
        return as_html_table(self.columns, ([cell[0] for cell in row] for row in self.rows))


def survey_part(state: WorkbenchState, on_open: Callable[[str], object]) -> Part:
    """Rank the tables under the folder by what compaction would gain; a click opens one."""
    grid = Grid("Tables", [HEAD[number] for number in _SHOWN], on_open).add_class("ck-tables")

    def look(job: Job) -> Survey:
        def report(done: int, total: int, name: str) -> None:
            job.report(done / total, f"Surveyed {done} of {total} tables")

        return survey(list(state.tables), progress=report)

    def prepare() -> None:
        if state.tables:
            state.surveying.ask(look, "\n".join(state.tables))

    def rows() -> list[dict[str, Any]]:
        return [] if surveying.value is None else surveying.value.to_arrow().to_pylist()

    def sentence() -> str:
        if surveying.value is not None:
            return str(surveying.value.summary().splitlines()[0])
        many = format_count(len(state.tables), "table")
        return f"{many} to look at." if state.tables else "No table was found."

    def failures() -> str:
        return "\n".join(f"{row['table']}: {row['error']}" for row in rows() if row["error"])

    surveying = state.surveying
    part = Part(
        Text("text", "survey", sentence),
        JobBar(surveying, "ck-surveying"),
        live(grid, rows, rows=lambda: [_row(row, state.root) for row in rows()]),
        Text("hint", "survey-hint", lambda: f"{SMALL} {RANK}" if rows() else ""),
        Text("warning", "survey-errors", failures),
        on=[surveying],
        title="Survey",
        code=lambda: parts.python(f"ck.survey({state.root!r})"),
        records=lambda: [surveying.value],
        prepare=prepare,
    )
    part.watch(state, "tables")
    return part


def _row(row: dict[str, Any], root: str) -> list[list[Any]]:
    name = row["table"]
    made: list[list[Any]] = [["", None] for _ in _SHOWN]
    if not row["error"]:
        files, after, last = row["num_files"], row["files_added"] - row["files_removed"], row["last_optimize"]
        # In the order of a survey's columns.
        keys = (
            *(name, files, row["num_small_files"] / files if files else 0),
            *(row["size_bytes"], row["median_size_bytes"], files + after),
            *(row["bytes_rewritten"], fewer_files(row), row["overlap"], row["log_bytes"]),
            last and last.timestamp(),
        )
        made = [[cells(row)[number], keys[number]] for number in _SHOWN]
        made[_SMALL].append(keys[_SMALL])
    short = re.sub(r"^[/.]", "", name.removeprefix(root))
    return [[visible(short or name), name], *made[1:]]
