"""The files of a sink's log, by the batches whose entries they hold."""

import numpy as np
import pyarrow as pa
from matplotlib.patches import Patch

from compaction_kit.plots import style
from compaction_kit.plots.style import LIVE, TOMBSTONED, Chart

_MOST_LABELS = 8
_LOOKS: dict[str, style.Look] = {
    "a reader needs it": (LIVE, ""),
    "stands, not needed": (TOMBSTONED, ""),
    "removed": ("none", "..."),
}
# White edges tell neighbours apart; what is removed is all edge.
_EDGES = dict.fromkeys(_LOOKS, "white") | {"removed": TOMBSTONED}


def log_files(files: pa.Table, num_batches: int, num_compactions: int, finding: str) -> Chart:
    """The batches whose entries each file of a log holds: a row for the batches' own files, one a compaction.

    Args:
        files: One row per file, in order: name, first and batch (int64, the first and the last batch whose
            entries it holds), state ("a reader needs it", "stands, not needed" or "removed").
        num_batches: The batches that the axis has room for.
        num_compactions: The compactions that it has room for.
        finding: The title.
    """
    figure = style.chart(style.LAB_WIDTH, 3.2, finding)
    axis = figure.subplots()
    first, batch = files["first"].to_numpy(), files["batch"].to_numpy()
    states, names = np.array(files["state"].to_pylist(), str), np.array(files["name"].to_pylist(), str)
    compacted = np.char.endswith(names, ".compact")
    rows = np.where(compacted, np.cumsum(compacted), 0)
    for state, look in _LOOKS.items():
        mine = states == state
        sides = [side[mine] for side in (first - 0.5, batch + 0.5, rows + 0.1, rows + 0.9)]
        style.boxes(axis, sides, look, _EDGES[state], 0.6)
    step = -(-(num_compactions + 1) // _MOST_LABELS)
    labels = ["batches' own files", *names[compacted]]
    axis.set_yticks(np.arange(len(labels))[::step] + 0.5, labels[::step])
    axis.set(xlabel="batches whose entries the file holds", xlim=(-0.5, num_batches - 0.5))
    axis.set_ylim(num_compactions + 1, 0)
    style.count_ticks(axis.xaxis)
    style.calm(axis, "x")
    axis.tick_params(axis="y", length=0, labelsize=9)
    handles = [
        Patch(label=state, facecolor=colour, hatch=hatch, edgecolor=_EDGES[state])
        for state, (colour, hatch) in _LOOKS.items()
    ]
    style.legend(figure, "outside lower left", handles=handles, ncols=len(handles), fontsize=9)
    return figure
