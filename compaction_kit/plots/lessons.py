"""Figures of the lessons' labs."""

from collections.abc import Mapping

from compaction_kit.plots import style
from compaction_kit.plots.style import LIVE, NEW, Chart
from compaction_kit.text import format_count, format_seconds

_DAY = 24 * 60 * 60.0
_TICKS = {1e-3: "1 ms", 1.0: "1 s", 60.0: "1 min", 3_600.0: "1 h", _DAY: "1 day", 365 * _DAY: "1 year"}
_SHORTEST, _LONGEST = 1e-3, 3_650 * _DAY


def waiting(tables: Mapping[str, tuple[int, float]]) -> Chart:
    """How long a reader waits until all files of a table are open, on one scale for all settings.

    Args:
        tables: The number of files, and the seconds until they are open, by what the table is; at least
            two, of which the last is the compacted table.
    """
    texts = {
        name: f"{format_count(files, 'file')}, {_wait(seconds)}" for name, (files, seconds) in tables.items()
    }
    sentences = [f"{name}: {text}" for name, text in texts.items()]
    title = f"{sentences[-2].capitalize()} until open; {sentences[-1]}"
    figure = style.chart(9.0, 1.0 + 0.32 * len(tables), title, *sentences)
    axis = figure.subplots()
    axis.set_xscale("log")
    axis.set_xlim(_SHORTEST, _LONGEST)
    ends = [max(seconds, _SHORTEST) for _, seconds in tables.values()]
    axis.barh(list(texts), ends, 0.7, left=_SHORTEST, color=[*[LIVE] * (len(texts) - 1), NEW])
    for row, (end, text) in enumerate(zip(ends, texts.values(), strict=True)):
        style.note(axis, text, (end, row), va="center", fontsize=9)
    axis.set_xticks(list(_TICKS), list(_TICKS.values()))
    axis.minorticks_off()
    axis.invert_yaxis()
    axis.set_xlabel("until all files are open")
    style.calm(axis, "x")
    axis.tick_params(labelsize=9)
    axis.tick_params(axis="y", length=0)
    return figure


def _wait(seconds: float) -> str:
    """Write seconds, and more than two days as days."""
    return f"{seconds / _DAY:,.0f} days" if seconds > 2 * _DAY else format_seconds(seconds)
