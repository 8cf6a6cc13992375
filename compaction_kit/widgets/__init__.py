"""The workbench, and its parts by themselves; they only look at the records that the package returns.

Each function takes a table, or its path or name, and returns a widget, which the last line of a cell shows.
It raises what `open_table` raises.

    import compaction_kit as ck
    ck.widgets.plan("data/flights")
"""

from collections.abc import Callable
from pathlib import Path

import ipywidgets as w

from compaction_kit.table import Table, open_table
from compaction_kit.widgets import parts
from compaction_kit.widgets.compaction import files_part, plan_part, run_part, verdict_part
from compaction_kit.widgets.history import history_part
from compaction_kit.widgets.job import attempt
from compaction_kit.widgets.page import PartPage
from compaction_kit.widgets.query import query_part
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.streams import streams_part
from compaction_kit.widgets.tables import survey_part
from compaction_kit.widgets.vacuum import vacuum_part
from compaction_kit.widgets.workbench import Workbench, workbench

__all__ = ["Workbench", "files", "history", "plan", "query", "run", "streams", "survey", "vacuum", "verdict"]
__all__ += ["workbench"]


def _alone(
    name: str, part: Callable[[WorkbenchState], parts.Part]
) -> Callable[[Table | str | Path], PartPage]:
    def show(table: Table | str | Path) -> PartPage:
        state = WorkbenchState(table=table if isinstance(table, Table) else open_table(table))
        return PartPage(state, part(state))

    show.__name__, show.__qualname__, show.__doc__ = name, name, part.__doc__
    return show


# Last, because some have the names of modules.
verdict, files = _alone("verdict", verdict_part), _alone("files", files_part)
plan, run = _alone("plan", plan_part), _alone("run", run_part)
query, history, vacuum = (  # type: ignore[assignment]
    *(_alone("query", query_part), _alone("history", history_part), _alone("vacuum", vacuum_part)),
)


def streams(root: str | Path) -> PartPage:  # type: ignore[no-redef]
    """Show the logs of file sinks and sources under a folder: how they grow, what a retention would drop."""
    state = WorkbenchState(root)
    return PartPage(state, streams_part(state))


def survey(root: str | Path) -> PartPage:
    """Show the tables of a folder or schema, ranked by what compaction would gain; a click shows one."""
    state, clicked, error = WorkbenchState(root), w.VBox(), parts.Text("error", "survey-error")

    def show(name: str) -> None:
        page, sentence = attempt(lambda: files(name))
        error.show(sentence)
        parts.close_all(clicked.children)
        clicked.children = () if page is None else (page,)

    return PartPage(state, survey_part(state, show), error, clicked.add_class("ck-clicked"))
