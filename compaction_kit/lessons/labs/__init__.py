"""The lessons' labs: each function gives a widget, which the last line of a cell shows."""

from compaction_kit.lessons.labs.files import feed, log, vacuum
from compaction_kit.lessons.labs.manifest import manifest
from compaction_kit.lessons.labs.packing import budget, packing
from compaction_kit.lessons.labs.races import race
from compaction_kit.lessons.labs.sink_log import sink_log
from compaction_kit.lessons.labs.slots import slots

__all__ = ["budget", "feed", "log", "manifest", "packing", "race", "sink_log", "slots", "vacuum"]
