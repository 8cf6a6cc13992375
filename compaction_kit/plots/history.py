"""Figures of a table's past: the files of each version, when each file was live, which a manifest lists."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.ticker import MaxNLocator

from compaction_kit.plots import style
from compaction_kit.plots.style import INK, LIVE, LOST, NEW, SMALL, SMALL_HATCH, Chart
from compaction_kit.text import format_count

# By what added a file: the kind of the version's operation.
_LOOKS: dict[str, style.Look] = {
    "written": (LIVE, ""),
    "compacted": (NEW, ""),
    "changed": (SMALL, SMALL_HATCH),
    "restored": (style.OTHER, "xxx"),
    "there before": (LIVE, "..."),
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
    last, most = int(counts[-1]) if len(counts) else 0, counts.max(initial=0)
    figure = style.chart(style.WIDTH, 3.2, f"Up to {most:,} live files, {last:,} now")
    axis = figure.subplots()
    axis.fill_between(versions, counts, step="post", color=LIVE, alpha=0.25, linewidth=0)
    axis.step(versions, counts, where="post", color=LIVE, linewidth=1.5, label="live files")
    small = known["num_small_files"].to_numpy()
    axis.step(versions, small, where="post", color=SMALL, linewidth=1.5, linestyle="--", label="small files")
    for row in known.filter(pc.invert(known["data_change"])).to_pylist():
        if row["num_removed"]:
            text = f"{style.short(row['operation'] or '')}\nversion {row['version']}".strip()
            axis.axvline(row["version"], color=NEW, linewidth=1, linestyle=":")
            style.note(axis, text, (row["version"], most * 1.12), color=NEW, va="top", annotation_clip=False)
    axis.set(xlabel="version", ylabel="files", ylim=(0, max(most, 1) * 1.15))
    axis.margins(x=0.08)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_formatter("{x:,.0f}")
    style.legend(axis, "upper left")
    style.calm(axis, "y")
    return figure


def lifetimes(lives: pa.Table, history: pa.Table, version: int | None = None) -> Chart:
    """Each file from the version that added it to the one that removed it.

    Args:
        lives: path, added and removed of each life, as `TransactionLog.lifetimes` returns them.
        history: What `Table.history()` returns.
        version: One to mark by a line; None for none.
    """
    latest = max([*history["version"].to_pylist(), *lives["added"].to_pylist(), 0])
    figure = style.chart(style.WIDTH, 4.0, _finding(lives, latest))
    axis = figure.subplots()
    added, removed, counts = _groups(lives, latest + 1)
    bottom = np.cumsum(counts)
    num_files = int(counts.sum())
    kinds = _kinds_of(history)
    names = np.array([kinds.get(version, "written") for version in added.tolist()], str)
    is_fine = num_files > _MOST_BARS
    for name, look in _LOOKS.items():
        mine = names == name
        sides = [side[mine] for side in (added - 0.5, removed - 0.5, bottom - counts, bottom)]
        # Without an edge of their own, bars of less than a pixel let the paper through between them.
        edge = look[0] if is_fine and not look[1] else "white"
        style.boxes(axis, sides, look, edge, 0.4 if is_fine else 0.6)
    if version is not None:
        axis.axvline(version, color=INK, linewidth=1, linestyle="--")
        style.note(axis, f"version {version}", (version, 0), (3, 3), annotation_clip=False)
    first = min(lives["added"].to_pylist(), default=0)
    axis.set(xlabel="version", ylabel="files, by when they were added", xlim=(first - 0.5, latest + 0.5))
    axis.set_ylim(max(num_files, 1), 0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.count_ticks(axis.yaxis)
    style.calm(axis, "x")
    style.legend(
        figure, "outside lower right", {name: look for name, look in _LOOKS.items() if name in names}
    )
    return figure


def _groups(lives: pa.Table, end: int) -> list[np.ndarray]:
    """From which version to which how many files were live: one file each, or more, if there are many."""
    spans = pa.table({"added": lives["added"], "removed": pc.fill_null(lives["removed"], end)})
    if len(spans) <= _MOST_BARS:
        counted = spans.append_column("count_all", pa.array(np.ones(len(spans), np.int64)))
    else:
        counted = spans.group_by(["added", "removed"]).aggregate([([], "count_all")])
    counted = counted.sort_by([("added", "ascending"), ("removed", "ascending")])
    return [counted[name].to_numpy() for name in ("added", "removed", "count_all")]


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
    figure = style.chart(style.WIDTH, 2.8, _manifest_finding(by_version, version))
    axis = figure.subplots()
    # Each version's count holds from half a step before it to half a step after.
    edges = np.append(versions - 0.5, versions[-1] + 0.5)
    axis.stairs(live, edges, baseline=listed, fill=True, color=LOST, alpha=0.2)
    axis.stairs(live, edges, baseline=None, color=LIVE, linewidth=1.5, label="live")
    how: dict[str, Any] = {"color": NEW, "linewidth": 1.5, "linestyle": "--"}
    axis.stairs(listed, edges, baseline=None, label="of them listed", **how)
    if version is not None:
        axis.axvline(version, color=NEW, linewidth=1, linestyle=":")
        at, text = (version, live.max(initial=1) * 1.3), f"the manifest's version: {version}"
        x, side = (-4, "right") if version > versions.mean() else (4, "left")
        style.note(axis, text, at, (x, 0), NEW, ha=side, va="top")
    axis.set(xlabel="version", ylabel="files", ylim=(0, live.max(initial=1) * 1.35))
    axis.margins(x=0.08)
    for ticks in (axis.xaxis, axis.yaxis):
        ticks.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    style.calm(axis, "y")
    style.legend(axis, "upper left")
    return figure


def _manifest_finding(by_version: pa.Table, version: int | None) -> str:
    last = by_version.slice(by_version.num_rows - 1).to_pylist()[0]
    if version == last["version"]:
        return f"The manifest lists the {format_count(last['num_live'], 'live file')} of the current version"
    which = "of no one version" if version is None else f"that of version {version}"
    return f"The manifest is {which}: it lists {last['num_listed']:,} of {last['num_live']:,} files live now"
