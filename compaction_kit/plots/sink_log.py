"""The figure of a log that compacts itself: how it grows."""

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes

from compaction_kit.plots import style
from compaction_kit.plots.style import INK, LIVE, LOST, NEW, TOMBSTONED, Chart
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
    projected = _compactions(batches)
    shorter = None if with_retention is None else _compactions(with_retention)
    figure = style.chart(style.WIDTH, 3.4, finding, *_sentences(removals, shorter))
    axis = figure.subplots()
    known = _compactions(files)
    _draw(axis, known, LIVE, "o", "-", "compaction file")
    # What is projected begins at the last one that is there.
    last = known.slice(max(len(known) - 1, 0))
    _draw(axis, pa.concat_tables([last, projected]), LIVE, "o", "--", "projected", hollow=True)
    if shorter is not None:
        _draw(axis, pa.concat_tables([last, shorter]), NEW, "D", ":", "with the retention", hollow=True)
    own = files.filter(pc.equal(files["kind"], "batch"))
    _draw(axis, own, TOMBSTONED, "s", "none", "a batch's own file")
    largest = max([*files["size_bytes"].to_pylist(), *projected["size_bytes"].to_pylist()], default=1)
    style.size_ticks(axis.yaxis, largest, _NUM_TICKS)
    axis.set_ylim(0, largest * 1.12)
    _draw_removals(axis, removals)
    if fails_at is not None:
        axis.axvline(fails_at, color=LOST, linewidth=1.5)
        _note(axis, fails_at, f"fails at batch {fails_at:,}", LOST)
    elif len(batches):
        latest = batches["batch"][0].as_py() - 0.5
        axis.axvline(latest, color=INK, linewidth=0.8, linestyle=":")
        _note(axis, latest, "now", INK)
    axis.set(xlabel="batch", ylabel="size of the file")
    style.count_ticks(axis.xaxis)
    style.calm(axis, "y")
    style.legend(figure, "outside lower left", ncols=3)
    return figure


def _compactions(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(rows["kind"], "compaction")).select(["batch", "size_bytes"])


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


def _note(axis: Axes, batch: float, text: str, color: str) -> None:
    style.note(axis, text, (batch, 1), (4, -2), color, xycoords=axis.get_xaxis_transform(), va="top")


def _sentences(removals: pa.Table, with_retention: pa.Table | None) -> list[str]:
    sentences = []
    if len(removals):
        first = pc.min(removals["batch"]).as_py()
        sentences.append(f"The cleanup removes {len(removals):,} files, from batch {first:,} on")
    if with_retention is not None and len(with_retention):
        size = format_size(with_retention["size_bytes"][-1].as_py())
        sentences.append(f"With the retention the compaction file would be about {size}")
    return sentences
