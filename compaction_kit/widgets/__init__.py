"""The workbench, and its single parts, which show the records that the package returns.

Each function takes a table, or its path or name, and returns a widget, which the last line of a cell shows.
It raises the errors of `open_table`; `streams` and `survey`, which also take a folder, show them in the page.

    import compaction_kit as ck
    ck.widgets.plan("data/flights")
"""

from collections.abc import Callable
from pathlib import Path

from compaction_kit.table import Table, open_table
from compaction_kit.widgets import compaction, parts, tables
from compaction_kit.widgets.history import history_part, vacuum_part
from compaction_kit.widgets.page import PartPage
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.workbench import Workbench, workbench

__all__ = ["Workbench", "files", "history", "plan", "query", "run", "streams", "survey", "vacuum", "verdict"]
__all__ += ["workbench"]


def _alone(part: Callable[[WorkbenchState], parts.Part]) -> Callable[[Table | str | Path], PartPage]:
    def show(table: Table | str | Path) -> PartPage:
        state = WorkbenchState(table=open_table(table))
        return PartPage(state, part(state))

    show.__name__ = show.__qualname__ = part.__name__.removesuffix("_part")
    show.__doc__ = part.__doc__
    return show


verdict, files, plan = map(_alone, (compaction.verdict_part, tables.files_part, compaction.plan_part))
query, run, vacuum = map(_alone, (compaction.query_part, compaction.run_part, vacuum_part))
# This replaces the module of the same name.
history = _alone(history_part)  # type: ignore[assignment]


def streams(root: str | Path | Table) -> PartPage:
    """Show the logs of file sinks and sources under a folder: their growth, and the effect of a retention."""
    state = WorkbenchState(root)
    return PartPage(state, tables.streams_part(state))


def survey(root: str | Path | Table) -> PartPage:
    """Show the tables of a folder or schema, ranked by what compaction would gain; a click shows one."""
    state, clicked = WorkbenchState(root), WorkbenchState()
    shown = PartPage(clicked, tables.files_part(clicked)).add_class("ck-clicked")
    parts.show_if(False, shown)

    def show(name: str) -> None:
        # A second click on a table reads it again.
        clicked.name = ""
        clicked.name = name
        parts.show_if(True, shown)

    return PartPage(state, tables.survey_part(state, show), shown)
