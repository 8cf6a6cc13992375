"""The figure of one query at two versions of a table."""

from collections.abc import Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from compaction_kit.plots.style import INK, LIVE, MUTED, NEW, Chart, calm, titled
from compaction_kit.text import format_count, format_seconds, format_size

_LONGEST_QUERY = 110


def reads(
    query: str,
    finding: str,
    versions: tuple[int, int],
    runs: Sequence[Sequence[float]],
    files_read: Sequence[int],
    bytes_read: Sequence[int | None],
) -> Chart:
    """Median seconds as bars with the single runs as points, and the files read, before and after.

    Args:
        query: The query.
        finding: The title.
        versions: Those that were read.
        runs: For each version the seconds of each run.
        files_read: How many files each reads.
        bytes_read: The bytes of these files; None where they are not known.
    """
    figure = Chart(figsize=(7.2, 2.3), layout="constrained")
    seconds, files = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    _draw_seconds(seconds, runs)
    _draw_files(files, files_read, bytes_read)
    seconds.set_yticks([0, 1], [f"version {version}" for version in versions])
    seconds.set_ylim(1.55, -0.55)
    for axis in (seconds, files):
        axis.tick_params(axis="y", length=0)
    query = " ".join(query.split())
    shown = query if len(query) <= _LONGEST_QUERY else f"{query[: _LONGEST_QUERY - 1]}…"
    figure.supxlabel(shown, x=0.01, ha="left", fontsize=8, color=MUTED, family="monospace")
    titled(figure, finding)
    figure.set_label(f"{finding}. The query is {query}")
    return figure


def _draw_seconds(axis: Axes, runs: Sequence[Sequence[float]]) -> None:
    medians = [median(times) for times in runs]
    _bars(axis, medians)
    for row, times in enumerate(runs):
        # One above another where they would hide each other.
        offsets = [row + 0.36 * ((i + 0.5) / len(times) - 0.5) for i in range(len(times))]
        axis.scatter(times, offsets, s=14, color="white", edgecolors=INK, linewidths=0.8, zorder=3)
    ends = [max(times) for times in runs]
    _labels(axis, ends, [f"median {format_seconds(value)}" for value in medians])
    axis.set(xlim=(0, max(ends) * 1.35), xlabel="seconds, with each run")
    axis.xaxis.set_major_locator(MaxNLocator(5))
    calm(axis, "x")


def _draw_files(axis: Axes, counts: Sequence[int], sizes: Sequence[int | None]) -> None:
    _bars(axis, counts)
    texts = [
        format_count(count, "file") + ("" if size is None else f", {format_size(size)}")
        for count, size in zip(counts, sizes, strict=True)
    ]
    _labels(axis, counts, texts)
    axis.set(xlim=(0, max([*counts, 1]) * 1.75), xlabel="files read")
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    calm(axis, "x")


def _bars(axis: Axes, values: Sequence[float]) -> None:
    axis.barh([0, 1], values, color=[LIVE, NEW], height=0.6)


def _labels(axis: Axes, ends: Sequence[float], texts: Sequence[str]) -> None:
    for row, (end, text) in enumerate(zip(ends, texts, strict=True)):
        axis.annotate(
            text,
            (end, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            fontweight="bold",
            color=INK,
        )
