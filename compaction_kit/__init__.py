"""Plan, run and prove the compaction of Delta Lake tables."""

from typing import Any

from compaction_kit import interop
from compaction_kit.report import write_report
from compaction_kit.session import get_spark
from compaction_kit.sinklog import SinkLog, find_sink_logs, sink_log
from compaction_kit.survey import find_tables, survey
from compaction_kit.table import Table, open_table

__all__ = [
    "SinkLog",
    "Table",
    "find_sink_logs",
    "find_tables",
    "get_spark",
    "interop",
    "open_table",
    "sink_log",
    "survey",
    "widgets",
    "workbench",
    "write_report",
]


def __getattr__(name: str) -> Any:
    # Importing the widgets takes a second, which scripts don't need to spend.
    if name in ("widgets", "workbench"):
        from compaction_kit.widgets import workbench

        # The import has made the package an attribute of this module.
        return workbench if name == "workbench" else globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
