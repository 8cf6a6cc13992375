"""The figure of files' lives: from the version that added each to the one that removed it."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from compaction_kit.plots.style import INK, LIVE, NEW, SMALL, TOMBSTONED, Chart, calm, titled
from compaction_kit.text import format_count

# What added the files, by its operation's name; colour and hatch say the same.
_LOOKS = {
    "written": (LIVE, ""),
    "compacted": (NEW, ""),
    "changed": (SMALL, "///"),
    "restored": ("#56B4E9", "xxx"),
    "there before": (TOMBSTONED, "..."),
}
_KINDS = {"OPTIMIZE": "compacted", "REORG": "compacted", "RESTORE": "restored", "CLONE": "restored"}
_KINDS |= dict.fromkeys(("DELETE", "UPDATE", "MERGE"), "changed")
# Beyond so many, files with the same life share a bar.
_MOST_BARS = 60


def lifetimes(lives: pa.Table, history: pa.Table, version: int | None = None) -> Chart:
    """Each file from the version that added it to the one that removed it.

    Args:
        lives: path, added and removed of each life, as `TransactionLog.lifetimes` returns them.
        history: What `Table.history()` returns.
        version: One to mark by a line; None for none.
    """
    figure = Chart(figsize=(7.6, 4.0), layout="constrained")
    axis = figure.subplots()
    latest = max([*history["version"].to_pylist(), *lives["added"].to_pylist(), 0])
    groups = _groups(lives, latest + 1)
    kinds = _kinds_of(history)
    tops = np.cumsum([0, *(count for _, _, count in groups)])
    names = [kinds.get(added, "written") for added, _, _ in groups]
    is_fine = int(tops[-1]) > _MOST_BARS
    for name, (colour, hatch) in _LOOKS.items():
        boxes = [
            [(start, top), (start, top + count), (end, top + count), (end, top)]
            for (added, removed, count), top, kind in zip(groups, tops[:-1], names, strict=True)
            if kind == name
            for start, end in [(added - 0.5, removed - 0.5)]
        ]
        # Without an edge of their own, bars of less than a pixel let the paper through between them.
        edge = "white" if hatch or not is_fine else colour
        width = 0.4 if is_fine else 0.6
        axis.add_collection(
            PolyCollection(boxes, facecolors=colour, edgecolors=edge, linewidths=width, hatch=hatch or None)
        )
    if version is not None:
        axis.axvline(version, color=INK, linewidth=1, linestyle="--")
        axis.annotate(
            f"version {version}", (version, 0), xytext=(3, 3), textcoords="offset points", fontsize=8,
            color=INK, annotation_clip=False,
        )  # fmt: skip
    first = min(lives["added"].to_pylist(), default=0)
    axis.set(xlabel="version", ylabel="files, by when they were added", xlim=(first - 0.5, latest + 0.5))
    axis.set_ylim(max(int(tops[-1]), 1), 0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    calm(axis, "x")
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name)
        for name, (colour, hatch) in _LOOKS.items()
        if name in names
    ]
    figure.legend(
        handles=handles, loc="outside lower right", ncols=len(handles) or 1, frameon=False, fontsize=8
    )
    return titled(figure, _finding(lives, latest))


def _groups(lives: pa.Table, end: int) -> list[tuple[int, int, int]]:
    """From which version to which how many files were live: one a file, or few, if they are many."""
    spans = pa.table({"added": lives["added"], "removed": pc.fill_null(lives["removed"], end)})
    if len(spans) <= _MOST_BARS:
        return [(row["added"], row["removed"], 1) for row in _in_order(spans).to_pylist()]
    counted = spans.group_by(["added", "removed"]).aggregate([([], "count_all")])
    return [(row["added"], row["removed"], row["count_all"]) for row in _in_order(counted).to_pylist()]


def _in_order(spans: pa.Table) -> pa.Table:
    return spans.sort_by([("added", "ascending"), ("removed", "ascending")])


def _kinds_of(history: pa.Table) -> dict[int, str]:
    """What added the files of each version."""
    operations = zip(history["version"].to_pylist(), history["operation"].to_pylist(), strict=True)
    kinds = {version: _KINDS.get(operation or "", "written") for version, operation in operations}
    known = history.filter(history["num_files"].is_valid())["version"].to_pylist()
    # The first version that can be read back has what the cleaned up ones had added.
    return kinds | ({known[0]: "there before"} if known and known[0] > 0 else {})


def _finding(lives: pa.Table, latest: int) -> str:
    if not len(lives):
        return "No version has a file"
    live = lives["removed"].null_count
    return (
        f"{format_count(len(pc.unique(lives['path'])), 'file')} in {latest + 1:,} versions, {live:,} live now"
    )
