"""Figures of predictions: files and bytes by a forecast, and the growth of a log that compacts itself."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

import compaction_kit.plots.style as style
from compaction_kit.plots.style import INK, LIVE, LOST, NEW, ORPHANED, OTHER, SMALL, TOMBSTONED, Chart
from compaction_kit.text import format_count

_OTHERS = [(color, line) for line in ("-", ":", "-.") for color in (LIVE, OTHER, ORPHANED, TOMBSTONED)]


def forecast(finding: str, days: pa.Table, chosen: str, max_files: int) -> Chart:
    """Draw `Forecast.days`, a line per schedule: files, with a bound, and beneath them the bytes stored.

    The schedules "never" and `chosen` are emphasised.
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
    upper.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    upper.yaxis.set_major_formatter("{x:,.0f}")
    upper.yaxis.set_minor_formatter(NullFormatter())
    largest = max(pc.max(days["stored_bytes"]).as_py(), 1)
    lower.set(ylabel="stored", xlabel="days from now", ylim=(0, largest * 1.05))
    style.size_ticks(lower.yaxis, largest, 4)
    style.count_ticks(lower.xaxis)
    for axis in (upper, lower):
        style.calm(axis, "y")
    style.legend(figure, "outside lower center", ncols=5, title="compacted")
    return figure


def sink_log(files: pa.Table, batches: pa.Table, removals: pa.Table, finding: str) -> Chart:
    """Draw the size of the compaction file over batches, as it is and as projected; removals as ticks below.

    `files` come from a `SinkLog`; `batches` and `removals` from a `Projection`.
    """
    known, projected = _of_kind(files, "compaction"), _of_kind(batches, "compaction")
    # The projected line begins at the last compaction file on disk.
    last, more = known.slice(max(len(known) - 1, 0)), []
    lines = [(known, LIVE, "o", "-", "compaction file")]
    lines.append((pa.concat_tables([last, projected]), LIVE, "o", "--", "projected"))
    if len(removals):
        what, first = format_count(len(removals), "file"), pc.min(removals["batch"]).as_py()
        more.append(f"The cleanup removes {what}, from batch {first:,} on")
    lines.append((_of_kind(files, "batch"), TOMBSTONED, "s", "none", "a batch's own file"))
    figure = style.chart(style.WIDTH, 3.4, finding, *more)
    axis = figure.subplots()
    for line in lines:
        _draw_line(axis, *line)
    largest = max([*files["size_bytes"].to_pylist(), *projected["size_bytes"].to_pylist()], default=1)
    style.size_ticks(axis.yaxis, largest, 5)
    _mark_batches(axis, batches, pc.unique(removals["batch"]).to_pylist())
    axis.set(xlabel="batch", ylabel="size of the file", ylim=(0, largest * 1.12))
    style.count_ticks(axis.xaxis)
    style.calm(axis, "y")
    style.legend(figure, "outside lower left", ncols=3)
    return figure


def _mark_batches(axis: Axes, batches: pa.Table, removed: list[int]) -> None:
    """Mark the batches whose cleanup removes files, and the current batch."""
    across = axis.get_xaxis_transform()
    if removed:
        tick: dict[str, Any] = {"color": LOST, "markersize": 9, "markeredgewidth": 1.5, "clip_on": False}
        places = [0.02] * len(removed)
        axis.plot(removed, places, "|", label="cleanup removes files", transform=across, **tick)
    if len(batches):
        begin = batches["batch"][0].as_py() - 0.5
        axis.axvline(begin, color=INK, linewidth=0.8, linestyle=":")
        style.note(axis, "now", (begin, 1), (4, -2), xycoords=across, va="top")


def _draw_line(axis: Axes, rows: pa.Table, colour: str, marker: str, line: str, label: str) -> None:
    """Draw sizes over batches; projected sizes have hollow points."""
    is_known = line != "--"
    if len(rows):
        points, face = 2.25 if line == "none" else 4.5, colour if is_known else "white"
        look: dict[str, Any] = {"color": colour, "markersize": points, "markerfacecolor": face}
        batch, size = rows["batch"].to_numpy(), rows["size_bytes"].to_numpy()
        axis.plot(batch, size, linestyle=line, marker=marker, label=label, zorder=2 + is_known, **look)


def _of_kind(rows: pa.Table, kind: str) -> pa.Table:
    return rows.filter(pc.equal(rows["kind"], kind)).select(["batch", "size_bytes"])
