"""Figures of the course: tables and plain values in, a matplotlib Figure out."""

from course.figures.labs import held_before, packing, reading, waiting
from course.figures.manifest import manifest_rows
from course.figures.races import concurrency
from course.figures.sink_log import log_files

__all__ = ["concurrency", "held_before", "log_files", "manifest_rows", "packing", "reading", "waiting"]
