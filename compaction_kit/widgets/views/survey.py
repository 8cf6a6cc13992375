"""All tables found, ranked by what compaction would gain."""

from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as w

from compaction_kit.report import Section
from compaction_kit.survey.survey import GAIN
from compaction_kit.text import format_count, format_size
from compaction_kit.widgets.parts import FigureView, JobBar, Part, button, show_text, text
from compaction_kit.widgets.state import WorkbenchState

_MOST_ROWS = 30


class SurveyView(Part):
    """The tables under the folder, the sickest first; a click opens one."""

    title = "Survey"

    def __init__(self, state: WorkbenchState, on_open: Callable[[str], object]):
        self.state = state
        self._on_open = on_open
        self.sentence = text("text", "survey")
        self.bar = JobBar(state.surveying, "ck-surveying")
        self.rows = w.VBox()
        self.image = FigureView("ck-survey-figure")
        self.failures = text("warning", "survey-errors")
        super().__init__([self.sentence, self.bar, self.rows, self.image, self.failures])
        self.watch(state, ["survey", "tables"])

    def render(self) -> None:
        """See `Part.render`."""
        state, survey = self.state, self.state.survey
        if survey is None:
            many = format_count(len(state.tables), "table")
            show_text(self.sentence, f"{many} to look at." if state.tables else "No table was found.")
            self.rows.children = ()
            self.image.show(None)
            show_text(self.failures, "")
            state.look_around()
            return
        rows = survey.to_arrow().to_pylist()
        good = [row for row in rows if row["num_files"] is not None]
        self.image.show(survey.plot if good else None)
        show_text(self.sentence, GAIN if good else survey.summary().splitlines()[0])
        self.rows.children = [self._row(row) for row in good[:_MOST_ROWS]]
        show_text(self.failures, "\n".join(row["error"] for row in rows if row["error"]))

    def _row(self, row: dict[str, Any]) -> w.HBox:
        opener = button(row["table"], "ck-open", partial(self._on_open, row["table"]))
        opener.tooltip = f"Open {row['table']}"
        words = text()
        gain = f"gain {format_size(row['gain'])}" if row["gain"] else "nothing to gain"
        small = f"{row['num_small_files']:,} of {row['num_files']:,} files are small"
        show_text(words, f"{small} · {format_size(row['size_bytes'])} · {gain}")
        line = w.HBox([opener, words])
        line.add_class("ck-survey-row")
        return line

    def as_code(self) -> str:
        """See `Part.as_code`."""
        return f"import compaction_kit as ck\n\nck.survey({self.state.root!r})"

    def section(self) -> Section | None:
        """See `Part.section`."""
        survey = self.state.survey
        return None if survey is None else Section(self.title, (survey,), self.as_code())
