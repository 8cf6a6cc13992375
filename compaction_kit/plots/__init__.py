"""Figures: arrays, tables and plain values in, a matplotlib Figure out; nothing is computed but the drawing.

Every figure's title is its finding, and its label (`get_label()`) says the same for people who
can't see it.
"""

from compaction_kit.plots.comparisons import layouts, reads, survey
from compaction_kit.plots.history import history, lifetimes, manifest, readability, storage, vacuum
from compaction_kit.plots.sink_log import sink_log
from compaction_kit.plots.sizes import before_after, bins, file_sizes, plan
from compaction_kit.plots.style import LIVE, LOST, NEW, SMALL, TOMBSTONED, Chart, to_html, to_png, to_svg
from compaction_kit.plots.timeline import timeline, timelines

__all__ = ["LIVE", "LOST", "NEW", "SMALL", "TOMBSTONED", "Chart", "before_after", "bins", "file_sizes"]
__all__ += ["history", "layouts", "lifetimes", "manifest", "plan", "readability", "reads", "sink_log"]
__all__ += ["storage", "survey", "timeline", "timelines", "to_html", "to_png", "to_svg", "vacuum"]
