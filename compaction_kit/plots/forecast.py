"""Figure of a forecast: files on each day, and bytes stored."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.plots import style
from compaction_kit.plots.style import INK, LIVE, NEW, ORPHANED, OTHER, SMALL, TOMBSTONED, Chart

_OTHERS = [(color, line) for line in ("-", ":", "-.") for color in (LIVE, OTHER, ORPHANED, TOMBSTONED)]


def forecast(finding: str, days: pa.Table, chosen: str, max_files: int) -> Chart:
    """Draw `Forecast.days`, a line per schedule: files, with a bound, and beneath them the bytes stored.

    The schedules "never" and `chosen` are stressed.
    """
    figure = style.chart(style.WIDTH, 4.8, finding)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.6, 1))
    stressed, others = {chosen: (NEW, "-"), "never": (SMALL, "--")}, iter(_OTHERS)
    for name in pc.unique(days["schedule"]).to_pylist():
        rows = days.filter(pc.equal(days["schedule"], name))
        color, line = stressed.get(name) or next(others)
        how: dict[str, Any] = {"color": color, "linestyle": line, "linewidth": 2.2 if name in stressed else 1}
        # A compaction makes a step down at the end of its day.
        counts = np.column_stack([rows["files_before"], rows["num_files"]]).ravel()
        upper.plot(np.repeat(rows["day"], 2), counts, label=name, **how)
        lower.plot(rows["day"], rows["stored_bytes"], **how)
    upper.axhline(max_files, color=INK, linestyle=":", linewidth=1.5, label=f"bound: {max_files:,}")
    upper.set(ylabel="files that a full read opens", yscale="log")
    upper.yaxis.set_major_formatter("{x:,.0f}")
    largest = max(pc.max(days["stored_bytes"]).as_py(), 1)
    lower.set(ylabel="stored", xlabel="days from now", ylim=(0, largest * 1.05))
    style.size_ticks(lower.yaxis, largest, 4)
    for axis in (upper, lower):
        style.calm(axis, "y")
    style.legend(
        figure, "outside lower center", ncols=5, title="compacted", title_fontsize=style.SMALLEST_TEXT
    )
    return figure
