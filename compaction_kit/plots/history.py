"""Figures of a table's history."""

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.ticker import FuncFormatter, MaxNLocator

from compaction_kit.plots.style import LIVE, NEW, SMALL, Chart, calm, short, titled


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
