"""Figures of a symlink manifest."""

import numpy as np
import pyarrow as pa
from matplotlib.ticker import MaxNLocator

from compaction_kit.plots.style import LIVE, LOST, NEW, Chart, calm, titled
from compaction_kit.text import format_count


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
    return titled(figure, _finding(by_version, version))


def _finding(by_version: pa.Table, version: int | None) -> str:
    last = by_version.slice(by_version.num_rows - 1).to_pylist()[0]
    if version == last["version"]:
        return f"The manifest lists the {format_count(last['num_live'], 'live file')} of the current version"
    which = "of no one version" if version is None else f"that of version {version}"
    return f"The manifest is {which}: it lists {last['num_listed']:,} of {last['num_live']:,} files live now"
