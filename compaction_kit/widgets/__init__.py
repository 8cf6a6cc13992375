"""The workbench, and its parts by themselves; they only look at the records that the package returns.

Each function gives a widget, which the last line of a cell shows.

    import compaction_kit as ck
    ck.widgets.plan("data/flights")
"""

from compaction_kit.widgets.workbench import Workbench, workbench

# Last, for some have the names of modules.
from compaction_kit.widgets.alone import (  # isort: skip
    files,
    history,
    plan,
    query,
    run,
    streams,
    survey,
    vacuum,
    verdict,
)

__all__ = [
    "Workbench",
    "files",
    "history",
    "plan",
    "query",
    "run",
    "streams",
    "survey",
    "vacuum",
    "verdict",
    "workbench",
]
