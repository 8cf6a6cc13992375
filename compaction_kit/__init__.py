"""Plan, run and prove the compaction of Delta Lake tables."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import compaction_kit.interop as interop
    import compaction_kit.widgets as widgets
    from compaction_kit.audits import audit as audit
    from compaction_kit.discovery import find_tables as find_tables
    from compaction_kit.report import write_report as write_report
    from compaction_kit.session import get_spark as get_spark
    from compaction_kit.sinklog import SinkLog as SinkLog
    from compaction_kit.sinklog import find_sink_logs as find_sink_logs
    from compaction_kit.sinklog import sink_log as sink_log
    from compaction_kit.surveys import survey as survey
    from compaction_kit.table import Table as Table
    from compaction_kit.table import open_table as open_table
    from compaction_kit.widgets.workbench import workbench as workbench

__version__ = "0.1.0"

# The module of each name. It is imported at the first use, so that the log can be read without PySpark, and
# tables planned without Matplotlib and widgets.
_HOMES = {
    "audit": "audits",
    "find_sink_logs": "sinklog",
    "find_tables": "discovery",
    "get_spark": "session",
    "open_table": "table",
    "sink_log": "sinklog",
    "SinkLog": "sinklog",
    "survey": "surveys",
    "Table": "table",
    "workbench": "widgets",
    "write_report": "report",
}
__all__ = [*_HOMES, "interop", "widgets"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
