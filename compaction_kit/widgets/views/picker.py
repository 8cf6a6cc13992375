"""Which table is open."""

from pathlib import Path

import ipywidgets as w

from compaction_kit.text import format_count, format_size
from compaction_kit.widgets.parts import JobBar, bind, button, offer, show_text, text
from compaction_kit.widgets.state import WorkbenchState


class TablePicker(w.VBox):
    """Find tables under a folder, or name one."""

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.root = w.Text(
            value=state.root,
            description="Folder or table",
            continuous_update=False,
            style={"description_width": "104px"},
            layout=w.Layout(width="420px"),
        )
        self.root.add_class("ck-root")
        self.choice = w.Dropdown(
            description="Table", style={"description_width": "50px"}, layout=w.Layout(width="460px")
        )
        self.choice.add_class("ck-table")
        self.refresh = button("Refresh", "ck-refresh", state.refresh)
        self.refresh.icon = "refresh"
        self.refresh.tooltip = "Look again: for tables, and for what others have committed"
        self.about = text("text", "about")
        self.empty = text("hint", "empty")
        self.make = button("Make the flights table", "ck-make", state.make_flights, primary=True)
        self.making = JobBar(state.making, "ck-making")
        self.error = text("error", "table-error")
        bind(state, "root", self.root)
        self.choice.observe(self._on_choice, "value")
        super().__init__(
            [
                w.HBox([self.root, self.choice, self.refresh]),
                self.about,
                self.empty,
                self.make,
                self.making,
                self.error,
            ]
        )
        state.observe(self._render, ["tables", "name", "table", "error"])
        state.observe(self._render_about, "files")
        state.making.observe(self._render, "status")
        self._render()
        self._render_about()

    def _on_choice(self, _: object) -> None:
        if self.choice.value:
            self.state.name = self.choice.value

    def _render(self, _: object = None) -> None:
        state = self.state
        offer(self.choice, state.tables, state.name)
        nothing = not state.tables and state.table is None and not state.error
        show_text(self.empty, _nothing(state.root) if nothing else "")
        self.make.layout.display = "" if nothing and not state.making.running else "none"
        self.making.layout.display = (
            "" if state.making.status in ("running", "failed", "cancelled") else "none"
        )
        show_text(self.error, state.error)

    def _render_about(self, _: object = None) -> None:
        show_text(self.about, self._about())

    def _about(self) -> str:
        opened = self.state.opened
        files = opened.files
        if files is None:
            return ""
        scope = f" where {opened.where}" if opened.where else ""
        partitions = format_count(files.stats().num_partitions, "partition")
        size = format_size(files.size_bytes)
        return f"version {files.version} · {files.num_files:,} files{scope} · {size} · {partitions}"


def _nothing(root: str) -> str:
    if root and not Path(root).is_dir():
        what = f"There is no {root} yet: check the spelling, name"
    else:
        what = f"There is no Delta table under {root or 'the current folder'} yet. Name"
    return (
        f"{what} another folder or a table, or make one to practise on: 336,776 flights in 1,095 small files."
    )
