"""The lessons' labs: each function gives a widget, which the last line of a cell shows."""

from compaction_kit.lessons.labs.feed import feed
from compaction_kit.lessons.labs.log import log
from compaction_kit.lessons.labs.packing import packing
from compaction_kit.lessons.labs.slots import slots

__all__ = ["feed", "log", "packing", "slots"]
