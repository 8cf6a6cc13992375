"""What the table's files weigh, where they are, and how much they overlap."""

import ipywidgets as w

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.report import Section
from compaction_kit.text import Html, as_html_table, format_size, joined, paragraph
from compaction_kit.widgets.parts import FigureView, Part, show_text, text
from compaction_kit.widgets.state import WorkbenchState

_MOST_PARTITIONS = 10


class FilesView(Part):
    """The live files of the latest version."""

    title = "Files"

    def __init__(self, state: WorkbenchState):
        self.state = state
        self.sentence = text()
        self.image = FigureView("ck-files-figure")
        self.partitions = w.HTML()
        self.partitions.add_class("ck-partitions")
        self.column = w.Dropdown(description="Column", layout=w.Layout(width="300px"))
        self.column.add_class("ck-overlap-column")
        self.overlap = text("text", "overlap")
        self.more = w.Accordion(
            [self.partitions, w.VBox([self.column, self.overlap])],
            titles=("Partitions", "Overlap: what data skipping is worth"),
        )
        super().__init__([self.sentence, self.image, self.more])
        self.watch(state, ["files"])
        self.more.observe(self._render_more, "selected_index")
        self.column.observe(self._render_overlap, "value")

    def render(self) -> None:
        """See `Part.render`."""
        files = self.state.files
        self.more.layout.display = "none" if files is None or not files.num_files else ""
        if files is None:
            self.image.show(None)
            show_text(self.sentence, "No table is open.")
            self._render_more()
            return
        self.image.show(files.plot if files.num_files else None)
        stats = files.stats()
        show_text(
            self.sentence,
            f"Half of the files are under {format_size(stats.median_size_bytes)}, the largest has "
            f"{format_size(stats.max_size_bytes)}. The log takes {format_size(stats.log_bytes)} to read, "
            f"{stats.num_commits:,} commits since the checkpoint.",
        )
        if self.column.options != files.data_columns:
            self.column.options = files.data_columns
            self.column.value = next(iter(files.data_columns), None)
        self._render_more()

    def _render_more(self, _: object = None) -> None:
        files, chosen = self.state.files, self.more.selected_index
        self.partitions.value = "" if files is None or chosen != 0 else _partitions(files)
        self._render_overlap()

    def _render_overlap(self, _: object = None) -> None:
        files, column = self.state.files, self.column.value
        if files is None or not column or self.more.selected_index != 1:
            show_text(self.overlap, "")
            return
        try:
            found = files.overlap(column)
        except InvalidArgumentError as error:
            show_text(self.overlap, str(error))
            return
        show_text(
            self.overlap,
            f"A query for one value of {column} opens {found.mean:,.1f} of {found.num_files:,} files on "
            f"average, {found.max:,} at worst. {found.num_unknown:,} files don't say which values they hold.",
        )

    def as_code(self) -> str:
        """See `Part.as_code`."""
        where = f"where={self.state.where!r}" if self.state.where else ""
        return (
            "import compaction_kit as ck\n\n"
            f"files = ck.open_table({self.state.name!r}).files({where})\n"
            "files.plot()\n"
            "files.by_partition()\n"
            f"files.overlap({self.column.value!r})"
        )

    def section(self) -> Section | None:
        """See `Part.section`."""
        files = self.state.files
        if files is None or not files.num_files:
            return None
        return Section(self.title, (files.stats(), files.plot()), self.as_code())


def _partitions(files: Files) -> Html:
    table = files.by_partition()
    names = [name for name in table.column_names if name.startswith("partition.")]
    rows = [
        (
            ", ".join(f"{name.removeprefix('partition.')}={row[name]}" for name in names) or "the table",
            f"{row['num_files']:,}",
            f"{row['num_small_files']:,}",
            format_size(row["size_bytes"]),
        )
        for row in table.slice(0, _MOST_PARTITIONS).to_pylist()
    ]
    more = len(table) - len(rows)
    notes = [paragraph(f"and {more:,} partitions with fewer files")] if more else []
    return joined(as_html_table(("partition", "files", "small", "size"), rows), *notes)
