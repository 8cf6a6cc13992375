"""The lessons' labs: each function returns a widget, which the last line of a cell shows."""

from course.labs.files import feed, log, vacuum
from course.labs.manifest import manifest
from course.labs.packing import budget, packing
from course.labs.races import race
from course.labs.sink_log import sink_log
from course.labs.slots import slots

__all__ = ["budget", "feed", "log", "manifest", "packing", "race", "sink_log", "slots", "vacuum"]
