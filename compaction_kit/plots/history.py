"""Figures of a table's past: the files of each version, when each file was live, which a manifest lists."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from compaction_kit.plots.style import INK, LIVE, LOST, NEW, SMALL, TOMBSTONED, Chart, calm, short, titled
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


def history(ledger: pa.Table) -> Chart:
    """Live files after each version, with the versions marked that changed no data.

    Args:
        ledger: What `Table.history()` returns.
    """
    known = ledger.filter(ledger["num_files"].is_valid())
    versions, counts = known["version"].to_numpy(), known["num_files"].to_numpy()
    small = known["num_small_files"].to_numpy()
    figure = Chart(figsize=(7.2, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.fill_between(versions, counts, step="post", color=LIVE, alpha=0.25, linewidth=0)
    axis.step(versions, counts, where="post", color=LIVE, linewidth=1.5, label="live files")
    axis.step(versions, small, where="post", color=SMALL, linewidth=1.5, linestyle="--", label="small files")
    for row in known.filter(pc.invert(known["data_change"])).to_pylist():
        if row["num_removed"]:
            label = f"{short(row['operation'] or '')}\nversion {row['version']}".strip()
            axis.axvline(row["version"], color=NEW, linewidth=1, linestyle=":")
            axis.annotate(
                label,
                (row["version"], counts.max() * 1.12),
                xytext=(4, 0),
                textcoords="offset points",
                fontsize=8,
                color=NEW,
                va="top",
                annotation_clip=False,
            )
    axis.set(xlabel="version", ylabel="files", ylim=(0, counts.max(initial=1) * 1.15))
    axis.margins(x=0.08)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axis.legend(loc="upper left", frameon=False, fontsize=8)
    calm(axis, "y")
    last = int(counts[-1]) if len(counts) else 0
    return titled(figure, f"Up to {int(counts.max(initial=0)):,} live files, {last:,} now")


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


def manifest(by_version: pa.Table, version: int | None) -> Chart:
    """How many of each version's live files a manifest lists; at its own version all of them.

    Args:
        by_version: One row a version: version, num_live, num_listed.
        version: The one whose files are exactly those listed; None for none.
    """
    versions = by_version["version"].to_numpy()
    live, listed = by_version["num_live"].to_numpy(), by_version["num_listed"].to_numpy()
    figure = Chart(figsize=(7.2, 2.8), layout="constrained")
    axis = figure.subplots()
    # Each version's count holds from half a step before it to half a step after.
    edges = np.append(versions - 0.5, versions[-1] + 0.5)
    axis.stairs(live, edges, baseline=listed, fill=True, color=LOST, alpha=0.2)
    axis.stairs(live, edges, baseline=None, color=LIVE, linewidth=1.5, label="live")
    axis.stairs(
        listed, edges, baseline=None, color=NEW, linewidth=1.5, linestyle="--", label="of them listed"
    )
    if version is not None:
        axis.axvline(version, color=NEW, linewidth=1, linestyle=":")
        on_left = version > versions.mean()
        axis.annotate(
            f"the manifest's version: {version}",
            (version, live.max(initial=1) * 1.3),
            xytext=(-4 if on_left else 4, 0),
            textcoords="offset points",
            ha="right" if on_left else "left",
            va="top",
            fontsize=8,
            color=NEW,
        )
    axis.set(xlabel="version", ylabel="files", ylim=(0, live.max(initial=1) * 1.35))
    axis.margins(x=0.08)
    for ticks in (axis.xaxis, axis.yaxis):
        ticks.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    calm(axis, "y")
    axis.legend(loc="upper left", frameon=False, fontsize=8)
    return titled(figure, _manifest_finding(by_version, version))


def _manifest_finding(by_version: pa.Table, version: int | None) -> str:
    last = by_version.slice(by_version.num_rows - 1).to_pylist()[0]
    if version == last["version"]:
        return f"The manifest lists the {format_count(last['num_live'], 'live file')} of the current version"
    which = "of no one version" if version is None else f"that of version {version}"
    return f"The manifest is {which}: it lists {last['num_listed']:,} of {last['num_live']:,} files live now"
