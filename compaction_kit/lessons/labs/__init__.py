"""The lessons' labs: each function gives a widget, which the last line of a cell shows."""

from compaction_kit.lessons.labs.budget import budget
from compaction_kit.lessons.labs.feed import feed
from compaction_kit.lessons.labs.log import log
from compaction_kit.lessons.labs.manifest import manifest
from compaction_kit.lessons.labs.packing import packing
from compaction_kit.lessons.labs.races import race
from compaction_kit.lessons.labs.sink_log import sink_log
from compaction_kit.lessons.labs.slots import slots
from compaction_kit.lessons.labs.vacuum import vacuum

__all__ = ["budget", "feed", "log", "manifest", "packing", "race", "sink_log", "slots", "vacuum"]
