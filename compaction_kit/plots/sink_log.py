"""The figure of a log that compacts itself."""

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from compaction_kit.plots.style import INK, LIVE, LOST, NEW, TOMBSTONED, Chart, calm, size_ticks, titled
from compaction_kit.text import format_size

_NUM_TICKS = 5
_MARKER = 4.5


def sink_log(
    files: pa.Table,
    batches: pa.Table,
    removals: pa.Table,
    finding: str,
    fails_at: int | None = None,
    with_retention: pa.Table | None = None,
) -> Chart:
    """The size of the compaction file over batches, as it is and as projected; removals as ticks below.

    Args:
        files: What `SinkLog.files` returns.
        batches: Those to come: batch, kind, size_bytes; see `Projection.batches`.
        removals: What the cleanup removes: batch; see `Projection.removals`.
        finding: The title.
        fails_at: The batch that fails; None if none does.
        with_retention: The batches to come with a retention, to be drawn beside.
    """
    figure = Chart(figsize=(7.2, 3.4), layout="constrained")
    axis = figure.subplots()
    known = files.filter(pc.equal(files["kind"], "compaction"))
    own = files.filter(pc.equal(files["kind"], "batch"))
    compactions = _compactions(batches)
    projected = _from_last(known, compactions)
    _draw(axis, known, LIVE, "o", "-", "compaction file")
    _draw(axis, projected, LIVE, "o", "--", "projected", hollow=True)
    if with_retention is not None:
        rows = _from_last(known, _compactions(with_retention))
        _draw(axis, rows, NEW, "D", ":", "with the retention", hollow=True)
    _draw(axis, own, TOMBSTONED, "s", "none", "a batch's own file")
    sizes = [*files["size_bytes"].to_pylist(), *compactions["size_bytes"].to_pylist()]
    size_ticks(axis.yaxis, max(sizes, default=1), _NUM_TICKS)
    axis.set_ylim(0, max(sizes, default=1) * 1.12)
    _draw_removals(axis, removals)
    if fails_at is not None:
        axis.axvline(fails_at, color=LOST, linewidth=1.5)
        _note(axis, fails_at, f"fails at batch {fails_at:,}", LOST)
    elif len(batches):
        latest = batches["batch"][0].as_py() - 0.5
        axis.axvline(latest, color=INK, linewidth=0.8, linestyle=":")
        _note(axis, latest, "now", INK)
    axis.set(xlabel="batch", ylabel="size of the file")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda batch, _: f"{batch:,.0f}"))
    calm(axis, "y")
    figure.legend(loc="outside lower left", ncols=5, frameon=False, fontsize=8, labelcolor=INK)
    titled(figure, finding)
    figure.set_label(". ".join([finding, *_in_words(removals, with_retention)]))
    return figure


def _compactions(batches: pa.Table) -> pa.Table:
    return batches.filter(pc.equal(batches["kind"], "compaction"))


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


def _in_words(removals: pa.Table, with_retention: pa.Table | None) -> list[str]:
    lines = []
    if len(removals):
        first = pc.min(removals["batch"]).as_py()
        lines.append(f"The cleanup removes {len(removals):,} files, from batch {first:,} on")
    compactions = [] if with_retention is None else _compactions(with_retention)["size_bytes"].to_pylist()
    if compactions:
        size = compactions[-1]
        lines.append(f"With the retention the compaction file would be about {format_size(size)}")
    return lines
