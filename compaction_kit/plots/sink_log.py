"""The figure of a log that compacts itself: how it grows."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
    """Draw the size of the compaction file over batches, as it is and as projected; removals as ticks below.

    Args:
        files: What `SinkLog.files` returns.
        batches: Those to come: batch, kind, size_bytes; see `Projection.batches`.
        removals: What the cleanup removes: batch; see `Projection.removals`.
        finding: The title.
        fails_at: The batch that fails; None if none does.
        with_retention: The batches to come with a retention, to be drawn beside.
    """
    known, projected = _of_kind(files, "compaction"), _of_kind(batches, "compaction")
    shorter = None if with_retention is None else _of_kind(with_retention, "compaction")
    removed = pc.unique(removals["batch"]).to_pylist()
    more = [f"The cleanup removes {len(removals):,} files, from batch {min(removed):,} on"] if removed else []
    if shorter is not None and len(shorter):
        size = format_size(shorter["size_bytes"][-1].as_py())
        more.append(f"With the retention the compaction file would be about {size}")
    figure = style.chart(style.WIDTH, 3.4, finding, *more)
    axis = figure.subplots()
    # What is projected begins at the last one that is there.
    last = known.slice(max(len(known) - 1, 0))
    lines = [
        (known, LIVE, "o", "-", "compaction file"),
        (pa.concat_tables([last, projected]), LIVE, "o", "--", "projected"),
    ]
    if shorter is not None:
        lines.append((pa.concat_tables([last, shorter]), NEW, "D", ":", "with the retention"))
    lines.append((_of_kind(files, "batch"), TOMBSTONED, "s", "none", "a batch's own file"))
    for rows, colour, marker, line, label in lines:
        if len(rows):
            axis.plot(
                *(rows["batch"].to_numpy(), rows["size_bytes"].to_numpy()),
                color=colour,
                marker=marker,
                markersize=_MARKER if line != "none" else _MARKER / 2,
                markerfacecolor="white" if line in ("--", ":") else colour,
                linestyle=line,
                linewidth=1.5,
                label=label,
                zorder=2 if line in ("--", ":") else 3,
            )
    largest = max([*files["size_bytes"].to_pylist(), *projected["size_bytes"].to_pylist()], default=1)
    style.size_ticks(axis.yaxis, largest, _NUM_TICKS)
    axis.set_ylim(0, largest * 1.12)
    across = axis.get_xaxis_transform()
    if removed:
        ticks: dict[str, Any] = {
            "marker": "|",
            "markersize": 9,
            "markeredgewidth": 1.5,
            "linestyle": "none",
            "clip_on": False,
        }
        label = "cleanup removes files"
        axis.plot(removed, [0.02] * len(removed), transform=across, color=LOST, label=label, **ticks)
    if fails_at is not None or len(batches):
        at, text, colour = batches["batch"][0].as_py() - 0.5 if len(batches) else 0, "now", INK
        if fails_at is not None:
            at, text, colour = fails_at, f"fails at batch {fails_at:,}", LOST
        axis.axvline(
            at,
            color=colour,
            linewidth=1.5 if colour is LOST else 0.8,
            linestyle="-" if colour is LOST else ":",
        )
        style.note(axis, text, (at, 1), (4, -2), colour, xycoords=across, va="top")
    axis.set(xlabel="batch", ylabel="size of the file")
    style.count_ticks(axis.xaxis)
    style.calm(axis, "y")
    style.legend(figure, "outside lower left", ncols=3)
    return figure


def _of_kind(rows: pa.Table, kind: str) -> pa.Table:
    return rows.filter(pc.equal(rows["kind"], kind)).select(["batch", "size_bytes"])
