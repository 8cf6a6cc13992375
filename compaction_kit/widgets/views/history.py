"""The versions of the table: when each file lived, which versions can be read, what differs."""

from typing import Any

import ipywidgets as w
from matplotlib.figure import Figure

from compaction_kit import plots
from compaction_kit.report import Section
from compaction_kit.times import in_zone, session_zone, show_time
from compaction_kit.widgets.looking_back import HistoryState
from compaction_kit.widgets.parts import FigureView, JobBar, Part, show_text, text
from compaction_kit.widgets.slider import Slider

_CAN = {
    "yes": "can be read",
    "blocked": "is refused by Delta, for it is older than the table keeps removed files",
    "missing files": "can't be read any more: files that it needs are gone",
    "log gone": "can't be read any more: its part of the log is gone",
}


class HistoryView(Part):
    """A slider over versions, and what the version under it was."""

    title = "History"

    def __init__(self, state: HistoryState):
        self.state = state
        self.bar = JobBar(state.reading, "ck-reading")
        self.slider = Slider(label="Version")
        self.slider.add_class("ck-version")
        self.sentence = text("text", "version-text")
        self.error = text("error")
        self.image = FigureView("ck-lifetimes-figure")
        self.strip = FigureView("ck-readable-figure")
        self.diff = w.HTML()
        self.diff.add_class("ck-diff")
        self.more = w.Accordion([self.diff], titles=("What differs from the latest version",))
        super().__init__(
            [self.bar, self.slider, self.sentence, self.error, self.image, self.strip, self.more]
        )
        self.slider.observe(self._on_slide, "value")
        self.watch(state, ["versions", "diff", "error"])
        self.watch(state.bench, ["files"])

    def _on_slide(self, _: object) -> None:
        self.state.version = self.slider.value

    def render(self) -> None:
        """See `Part.render`."""
        state = self.state
        known = state.versions is not None
        for part in (self.slider, self.more):
            part.layout.display = "" if known else "none"
        show_text(self.error, state.past.error)
        if not known:
            self.image.show(None)
            self.strip.show(None)
            self.diff.value = ""
            show_text(self.sentence, "" if state.bench.table is not None else "No table is open.")
            state.read()
            return
        versions = state.versions["version"].to_pylist()
        self.slider.min, self.slider.max = versions[0], versions[-1]
        self.slider.value, self.slider.text = state.version, f"version {state.version}"
        self.image.show(self._lifetimes)
        self.strip.show(self._readability)
        show_text(self.sentence, _sentence(state.row()))
        self.diff.value = state.past.diff._repr_html_() if state.past.diff is not None else ""

    def _lifetimes(self) -> Figure:
        return plots.lifetimes(self.state.past.lives, self.state.past.ledger, self.state.version)

    def _readability(self) -> Figure:
        return plots.readability({"readable": self.state.versions})

    def as_code(self) -> str:
        """See `Part.as_code`."""
        latest = "table.version" if self.state.versions is None else self.state.versions["version"][-1]
        return (
            "import compaction_kit as ck\n\n"
            f"table = ck.open_table({self.state.bench.name!r})\n"
            "table.versions()\n"
            f"table.diff({self.state.version}, {latest})"
        )

    def section(self) -> Section | None:
        """See `Part.section`."""
        state = self.state
        if state.versions is None:
            return None
        drawn = (_sentence(state.row()), self._lifetimes(), self._readability())
        return Section(self.title, drawn, self.as_code())


def _sentence(row: dict[str, Any]) -> str:
    zone = session_zone()
    when = f" of {show_time(in_zone(row['timestamp'], zone), 'seconds')}" if row["timestamp"] else ""
    operation, can = row["operation"] or "no commit", _CAN[row["readable"]]
    lines = [f"Version {row['version']}{when}, {operation}: it {can}."]
    if row["readable_until"]:
        until = show_time(in_zone(row["readable_until"], zone))
        lines.append(f"If VACUUM runs on schedule, it can be read until {until}.")
    if row["read_instead"] is not None:
        lines.append(f"By the log, its content can be read as version {row['read_instead']}.")
    elif row["same_content_as"] is not None:
        lines.append(f"Version {row['same_content_as']} has the same content: {row['same_content_by']}.")
    if row["content_claim"]:
        lines.append(f"That it changed no data is {row['content_claim']}.")
    return "\n".join(lines)
