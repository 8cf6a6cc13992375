"""The figure of a vacuum: what it costs, and what it frees."""

from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from compaction_kit.plots.style import INK, LIVE, LOST, TOMBSTONED, Chart, calm, size_ticks, titled
from compaction_kit.plots.versions import ORPHANED, STATUSES
from compaction_kit.text import format_count, format_size

_STATUSES = {
    "readable": STATUSES["yes"],
    "lost": (LOST, "xxx"),
    "blocked": STATUSES["blocked"],
    "gone before": STATUSES["log gone"],
}
_KINDS = {"live": (LIVE, ""), "tombstoned": (TOMBSTONED, ""), "orphaned": ORPHANED}


def vacuum(storage: pa.Table, versions: pa.Table, finding: str) -> Chart:
    """The versions that can be read now and after, and the storage now and after.

    Args:
        storage: Bytes by kind: kind, size_bytes, size_bytes_after; see `VacuumPlan.storage`.
        versions: version, readable, readable_after; see `VacuumPlan.versions`.
        finding: The title.
    """
    figure = Chart(figsize=(7.2, 3.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=(1, 1.25))
    lost = _draw_versions(upper, versions)
    _draw_storage(lower, storage)
    titled(figure, finding)
    figure.set_label(". ".join([finding, lost, _storage_in_words(storage)]))
    return figure


def _draw_versions(axis: Axes, versions: pa.Table) -> str:
    """A cell a version, now above and after below; returns the same in words."""
    numbers = versions["version"].to_numpy()
    before, after = (np.array(versions[name].to_pylist()) for name in ("readable", "readable_after"))
    now, then = before == "yes", after == "yes"
    lost = now & ~then
    masks = {
        "readable": (now, then),
        "lost": (np.zeros_like(lost), lost),
        "blocked": (before == "blocked", (after == "blocked") & ~lost),
    }
    told = [np.any(row, axis=0) for row in zip(*masks.values(), strict=True)]
    masks["gone before"] = (~told[0], ~told[1])
    for name, rows in masks.items():
        for row, mask in enumerate(rows):
            spans = [(numbers[start] - 0.5, end - start) for start, end in _runs(mask)]
            if spans:
                axis.broken_barh(spans, (row - 0.35, 0.7), **_look(*_STATUSES[name]))
    axis.set(yticks=[0, 1], ylim=(1.5, -0.5), xlim=(numbers[0] - 0.5, numbers[-1] + 0.5), xlabel="version")
    axis.set_yticklabels(["now", "after"])
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    calm(axis, "x")
    axis.grid(False)
    axis.tick_params(axis="y", length=0)
    _legend(axis, {name: _STATUSES[name] for name, rows in masks.items() if np.any(rows)})
    return (
        f"{format_count(int(now.sum()), 'version')} can be read now, {int(then.sum()):,} after, "
        f"{int(lost.sum()):,} are lost"
    )


def _draw_storage(axis: Axes, storage: pa.Table) -> None:
    """Two bars, a segment a kind."""
    rows = storage.to_pylist()
    totals = [sum(row[name] for row in rows) for name in ("size_bytes", "size_bytes_after")]
    left = [0, 0]
    for row in rows:
        sizes = [row["size_bytes"], row["size_bytes_after"]]
        axis.barh([0, 1], sizes, left=left, height=0.7, **_look(*_KINDS[row["kind"]]))
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    for position, total in enumerate(totals):
        axis.annotate(
            format_size(total),
            (total, position),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
        )
    axis.set(yticks=[0, 1], ylim=(1.5, -0.5), xlim=(0, max(*totals, 1) * 1.12), xlabel="stored")
    axis.set_yticklabels(["now", "after"])
    size_ticks(axis.xaxis, max(*totals, 1), 8)
    calm(axis, "x")
    axis.tick_params(axis="y", length=0)
    _legend(axis, {row["kind"]: _KINDS[row["kind"]] for row in rows if row["size_bytes"]})


def _look(colour: str, hatch: str) -> dict[str, Any]:
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}


def _legend(axis: Axes, styles: dict[str, tuple[str, str]]) -> None:
    handles = [Patch(label=name, **_look(*style)) for name, style in styles.items()]
    if not handles:
        return
    axis.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=len(handles),
        fontsize=8,
        frameon=False,
        labelcolor=INK,
        borderaxespad=0,
    )


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Where a mask is true: the start and end of each run."""
    edges = np.flatnonzero(np.diff(np.r_[False, mask, False].astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def _storage_in_words(storage: pa.Table) -> str:
    parts = [
        f"{row['kind']} {format_size(row['size_bytes'])} now and {format_size(row['size_bytes_after'])} after"
        for row in storage.to_pylist()
    ]
    return f"Stored: {', '.join(parts)}"
