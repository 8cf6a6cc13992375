"""The workbench's parts by themselves: `ck.widgets.plan("data/flights")` in a cell shows one."""

from pathlib import Path

import ipywidgets as w

from compaction_kit.table import Table, open_table
from compaction_kit.widgets import parts
from compaction_kit.widgets.compaction import FilesView, PlanView, RunView, VerdictView
from compaction_kit.widgets.history import HistoryState, HistoryView
from compaction_kit.widgets.job import attempt
from compaction_kit.widgets.page import PartPage
from compaction_kit.widgets.query import QueryState, QueryView
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.streams import StreamsState, StreamsView
from compaction_kit.widgets.tables import SurveyView
from compaction_kit.widgets.vacuum import VacuumState, VacuumView

# As `open_table` takes them; all of its errors can be raised.
AnyTable = Table | str | Path


def verdict(table: AnyTable) -> PartPage:
    """Show in a few sentences what a table needs, or why it needs nothing.

    Args:
        table: A table, or its path or name.
    """
    state = _open(table)
    return PartPage(state, VerdictView(state))


def files(table: AnyTable) -> PartPage:
    """Show a table's live files: their sizes, the partitions with the most, how much they overlap.

    Args:
        table: A table, or its path or name.
    """
    state = _open(table)
    return PartPage(state, FilesView(state))


def plan(table: AnyTable) -> PartPage:
    """Show what a compaction would do, with sliders for its thresholds, a predicate, an order and a budget.

    It changes nothing; `.state.plan` is the plan on screen.

    Args:
        table: A table, or its path or name.

    Examples:
        >>> page = ck.widgets.plan("data/flights")
        >>> page.state.loading.wait()
        >>> page.state.max_file_size = 2 * 1024**2
        >>> page.state.plan.num_files_added
        11
    """
    state = _open(table)
    return PartPage(state, PlanView(state))


def query(table: AnyTable) -> PartPage:
    """Show how many files a query opens, now and in layouts that a compaction could make.

    It changes nothing; `.part.state.query` is the query, `.part.state.prediction` what is on screen.

    Args:
        table: A table, or its path or name.
    """
    state = _open(table)
    return PartPage(state, QueryView(QueryState(state)))


def run(table: AnyTable) -> PartPage:
    """Show a button that compacts a table, its progress, a button to cancel it, the proof and the outcome.

    Nothing is changed before the click; `.state.result` is the result after it.

    Args:
        table: A table, or its path or name.
    """
    state = _open(table)
    return PartPage(state, RunView(state))


def history(table: AnyTable) -> PartPage:
    """Show a slider over a table's versions: when each file lived, which versions can be read, what differs.

    Args:
        table: A table, or its path or name.
    """
    state = _open(table)
    return PartPage(state, HistoryView(HistoryState(state)))


def vacuum(table: AnyTable) -> PartPage:
    """Show which versions and files a vacuum would cost; it deletes once the table's name has been typed.

    Args:
        table: A table, or its path or name.
    """
    state = _open(table)
    return PartPage(state, VacuumView(VacuumState(state)))


def survey(root: str | Path) -> PartPage:
    """Show the tables of a folder or schema, ranked by what compaction would gain; a click shows one's files.

    Args:
        root: A folder that holds Delta tables, or a schema or catalog of the session.
    """
    state, clicked, error = WorkbenchState(root), w.VBox(), parts.Text("error", "table-error")

    def show(name: str) -> None:
        page, sentence = attempt(lambda: files(name))
        error.show(sentence)
        parts.close_tree(clicked.children)
        clicked.children = () if page is None else (page,)

    return PartPage(state, SurveyView(state, show), error, clicked)


def streams(root: str | Path) -> PartPage:
    """Show the logs of file sinks and sources: how they grow, and what a retention would drop.

    Args:
        root: A folder under which streams write or read files.
    """
    state = WorkbenchState(root)
    return PartPage(state, StreamsView(StreamsState(state)))


def _open(table: AnyTable) -> WorkbenchState:
    return WorkbenchState(table=table if isinstance(table, Table) else open_table(table))
