"""The rows that a reader of a manifest gets."""

import numpy as np
import pyarrow as pa

from compaction_kit.plots import style
from compaction_kit.plots.style import INK, LIVE, LOST, SMALL, SMALL_HATCH, TOMBSTONED, Chart

_ROW_LOOKS: dict[str, style.Look] = {
    "from live files": (LIVE, ""),
    "from compacted files": (TOMBSTONED, ""),
    "again, from compacted files": (SMALL, SMALL_HATCH),
    "missed": (LOST, "xxx"),
}
_MOST_NAMES = 12


def manifest_rows(groups: pa.Table, generated: int, finding: str) -> Chart:
    """The rows that a reader of a manifest gets of each group of files: once, twice, or not at all.

    Args:
        groups: One row per group: name, num_rows (int64, what the table has), old_rows and new_rows (int64,
            read from files before and after their compaction).
        generated: The number of groups on the left of the line at which the manifest was made.
        finding: The title.
    """
    total, old, new = (groups[name].to_numpy() for name in ("num_rows", "old_rows", "new_rows"))
    both = np.minimum(old, new)
    parts = {
        "from live files": new,
        "from compacted files": old - both,
        "again, from compacted files": both,
        "missed": total - np.maximum(old, new),
    }
    figure = style.chart(style.LAB_WIDTH, 3.2, finding)
    axis = figure.subplots()
    top, places = np.zeros(len(total)), np.arange(len(total))
    for name, counts in parts.items():
        axis.bar(places, counts, 0.8, top, linewidth=0, **style.fill(_ROW_LOOKS[name]))
        top = top + counts
    most = max(top.max(initial=0), 2 * total.max(initial=0), 1)
    axis.axvline(generated - 0.5, color=INK, linewidth=1, linestyle="--")
    style.note(axis, "GENERATE", (generated - 0.5, most * 1.16), va="top", annotation_clip=False)
    names = [style.short(name) for name in groups["name"].to_pylist()]
    step = -(-len(names) // _MOST_NAMES)
    axis.set_xticks(places[::step], names[::step])
    axis.set(ylabel="rows read", xlim=(-0.6, len(total) - 0.4), ylim=(0, most * 1.18))
    style.count_ticks(axis.yaxis, 5)
    style.calm(axis, "y")
    axis.tick_params(axis="x", length=0, labelsize=9)
    style.legend(figure, "outside lower left", _ROW_LOOKS, fontsize=9)
    return figure
