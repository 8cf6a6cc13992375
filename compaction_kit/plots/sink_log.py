"""The figure of a log that compacts itself."""

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from compaction_kit.plots.style import INK, LIVE, LOST, NEW, TOMBSTONED, Chart, calm, size_ticks, titled
from compaction_kit.streaming.growth import Projection
from compaction_kit.text import format_size

_NUM_TICKS = 5
_MARKER = 4.5


def sink_log(
    files: pa.Table, projection: Projection, finding: str, with_retention: Projection | None = None
) -> Chart:
    """The size of the compaction file over batches, as it is and as projected; removals as ticks below.

    Args:
        files: What `SinkLog.files` returns.
        projection: What `SinkLog.project` returns.
        finding: The title.
        with_retention: The same with a retention, to be drawn beside.
    """
    figure = Chart(figsize=(7.2, 3.4), layout="constrained")
    axis = figure.subplots()
    known = files.filter(pc.equal(files["kind"], "compaction"))
    own = files.filter(pc.equal(files["kind"], "batch"))
    projected = _from_last(known, projection.compactions)
    _draw(axis, known, LIVE, "o", "-", "compaction file")
    _draw(axis, projected, LIVE, "o", "--", "projected", hollow=True)
    if with_retention is not None:
        rows = _from_last(known, with_retention.compactions)
        _draw(axis, rows, NEW, "D", ":", "with the retention", hollow=True)
    _draw(axis, own, TOMBSTONED, "s", "none", "a batch's own file")
    sizes = [*files["size_bytes"].to_pylist(), *projection.compactions["size_bytes"].to_pylist()]
    size_ticks(axis.yaxis, max(sizes, default=1), _NUM_TICKS)
    axis.set_ylim(0, max(sizes, default=1) * 1.12)
    _draw_removals(axis, projection.removals)
    if projection.fails_at is not None:
        axis.axvline(projection.fails_at, color=LOST, linewidth=1.5)
        _note(axis, projection.fails_at, f"fails at batch {projection.fails_at:,}", LOST)
    elif len(projection.batches):
        latest = projection.batches["batch"][0].as_py() - 0.5
        axis.axvline(latest, color=INK, linewidth=0.8, linestyle=":")
        _note(axis, latest, "now", INK)
    axis.set(xlabel="batch", ylabel="size of the file")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda batch, _: f"{batch:,.0f}"))
    calm(axis, "y")
    figure.legend(loc="outside lower left", ncols=5, frameon=False, fontsize=8, labelcolor=INK)
    titled(figure, finding)
    figure.set_label(". ".join([finding, *_in_words(projection, with_retention)]))
    return figure


def _draw(
    axis: Axes, rows: pa.Table, colour: str, marker: str, line: str, label: str, hollow: bool = False
) -> None:
    if len(rows):
        axis.plot(
            rows["batch"].to_numpy(),
            rows["size_bytes"].to_numpy(),
            color=colour,
            marker=marker,
            markersize=_MARKER if line != "none" else _MARKER / 2,
            markerfacecolor="white" if hollow else colour,
            linestyle=line,
            linewidth=1.5,
            label=label,
            zorder=2 if hollow else 3,
        )


def _from_last(known: pa.Table, projected: pa.Table) -> pa.Table:
    """The projected compactions, after the last one that is there."""
    columns = ["batch", "size_bytes"]
    return pa.concat_tables([known.slice(max(len(known) - 1, 0)).select(columns), projected.select(columns)])


def _draw_removals(axis: Axes, removals: pa.Table) -> None:
    """A tick below the axis for each batch after which files are removed."""
    batches = pc.unique(removals["batch"]).to_pylist()
    if batches:
        axis.plot(
            batches,
            [0.02] * len(batches),
            transform=axis.get_xaxis_transform(),
            color=LOST,
            marker="|",
            markersize=9,
            markeredgewidth=1.5,
            linestyle="none",
            label="cleanup removes files",
            clip_on=False,
        )


def _note(axis: Axes, batch: float, text: str, colour: str) -> None:
    axis.annotate(
        text,
        (batch, 1),
        xycoords=axis.get_xaxis_transform(),
        xytext=(4, -2),
        textcoords="offset points",
        fontsize=8,
        color=colour,
        va="top",
    )


def _in_words(projection: Projection, with_retention: Projection | None) -> list[str]:
    lines = []
    if len(projection.removals):
        first = pc.min(projection.removals["batch"]).as_py()
        lines.append(f"The cleanup removes {len(projection.removals):,} files, from batch {first:,} on")
    if with_retention is not None and len(with_retention.compactions):
        size = with_retention.compactions["size_bytes"][-1].as_py()
        lines.append(f"With the retention the compaction file would be about {format_size(size)}")
    return lines
