"""The button that keeps what the workbench shows as a page."""

import base64
from collections.abc import Callable, Sequence
from pathlib import Path

import ipywidgets as w

from compaction_kit.report import write_report
from compaction_kit.text import element
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.parts import Part, button, show_text, text
from compaction_kit.widgets.state import WorkbenchState


class ExportView(w.HBox):
    """Writes a report of all parts, and offers it as a download to those who are elsewhere."""

    def __init__(self, state: WorkbenchState, parts: Callable[[], Sequence[Part]]):
        self.state = state
        self.parts = parts
        self.writing = Job()
        self.export_button = button("Export report", "ck-export", self._on_export)
        self.export_button.tooltip = "Write what all parts show into one HTML page"
        self.saved = w.HTML()
        self.saved.add_class("ck-saved")
        self.error = text("error", "export-error")
        super().__init__([self.saved, self.error, self.export_button])
        state.observe(self._render, ["files", "survey"])
        self.writing.observe(self._render, ["status"])
        self._render()

    def _on_export(self) -> None:
        self.writing.start(lambda job: self._write())

    def _write(self) -> str:
        opened = None
        while opened is not self.state.opened:
            # All of it is of one table.
            opened = self.state.opened
            sections = [section for part in self.parts() if (section := part.section()) is not None]
        if opened.table is None or opened.files is None:
            return _saved(write_report("tables.html", "Tables", *sections))
        name, version = opened.table.path.name, opened.files.version
        return _saved(write_report(f"{name}-v{version}.html", f"{name}, version {version}", *sections))

    def _render(self, _: object = None) -> None:
        job = self.writing
        nothing = self.state.files is None and self.state.survey is None
        self.export_button.disabled = job.running or nothing
        show_text(self.error, job.message if job.status == "failed" else "", job.details)
        self.saved.value = job.result if job.status == "done" else ""


def _saved(page: Path) -> str:
    # A page by Voilà is often not on the machine that writes the file.
    address = f"data:text/html;base64,{base64.b64encode(page.read_bytes()).decode()}"
    link = element("a", "download", download=page.name, href=address)
    return element("div", f"{page.name} is written · ", link, role="status")
