"""The lessons' labs: each function gives a widget, which the last line of a cell shows."""

from compaction_kit.lessons.labs.feed import feed

__all__ = ["feed"]
