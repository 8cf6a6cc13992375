"""All figures, and the sizes to place them; `compaction_kit.plots` has their names."""

from compaction_kit.plots.clustering import EXTENTS_HEIGHT, cubes, cubes_height, extents
from compaction_kit.plots.comparisons import layouts, reads, survey
from compaction_kit.plots.projections import forecast, sink_log
from compaction_kit.plots.sizes import BEFORE_AFTER_HEIGHT, before_after, bins, bins_height, file_sizes
from compaction_kit.plots.spans import timeline, timelines
from compaction_kit.plots.style import SIZES_WIDTH, Chart, Placed, stacked, to_html, to_png, to_svg
from compaction_kit.plots.versions import history, lifetimes, manifest, readability, storage, vacuum

__all__ = ["BEFORE_AFTER_HEIGHT", "EXTENTS_HEIGHT", "SIZES_WIDTH", "Chart", "Placed", "before_after", "bins"]
__all__ += ["bins_height", "cubes", "cubes_height", "extents", "file_sizes", "forecast", "history", "layouts"]
__all__ += ["lifetimes", "manifest", "readability", "reads", "sink_log", "stacked", "storage", "survey"]
__all__ += ["timeline", "timelines", "to_html", "to_png", "to_svg", "vacuum"]
