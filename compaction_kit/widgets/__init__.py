"""Widgets that wrap the package; they only look at the records that it returns."""

from compaction_kit.widgets.workbench import Workbench, workbench

__all__ = ["Workbench", "workbench"]
