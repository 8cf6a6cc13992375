"""A table that is sorted by its columns, filtered by words, and shown a page at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import anywidget
from traitlets import Any as AnyTrait
from traitlets import Int, List, Unicode, observe

from compaction_kit.text import Html, as_html_table
from compaction_kit.widgets.parts import FOLDER


class Grid(anywidget.AnyWidget):
    """A table that is sorted by a click on a column and filtered by words; a click or Enter opens a row.

    Rows are sorted and filtered here, and a page of them is in the browser: 10,000 rows would take too long
    to send. A cell has its text, its key, which it is sorted by, or None, and a share to draw, if any. The
    key of a row's first cell is its name.
    """

    _esm = FOLDER / "grid.js"
    label = Unicode("", help="What is listed").tag(sync=True)
    columns = List(Unicode(), help="The headings").tag(sync=True)
    rows = List(List(), help="The cells of each row of the page").tag(sync=True)
    words = Unicode("", help="Words that rows have to contain").tag(sync=True)
    offered = List(Unicode(), help="Words to choose from").tag(sync=True)
    order = List(Int(), help="The column to sort by, and 1 or, if descending, -1; or empty").tag(sync=True)
    first = Int(0, help="The position of the page's first row among the rows found").tag(sync=True)
    counts = List(Int(), [0, 0], help="How many rows are found, and how many there are").tag(sync=True)
    chosen = AnyTrait(None, help="The name of the row that is open").tag(sync=True)
    ticked = List(AnyTrait(), help="The names of the rows that are ticked, at most two").tag(sync=True)
    page_size = Int(50, help="The most rows of a page").tag(sync=True)
    tick_label = Unicode("", help="What ticking a row is for; empty if rows can't be ticked").tag(sync=True)
    # Its elements are Any, so that 10,000 aren't checked at each drawing.
    all_rows: Any = List(AnyTrait(), help="All rows, as they are listed if no column is chosen")
    _texts: Sequence[str] = ()
    _found: Sequence[list[Any]] = ()

    def __init__(self, label: str, columns: Sequence[str], on_open: Callable[[Any], object], **traits: Any):
        super().__init__(label=label, columns=list(columns), **traits)
        self.on_open = on_open
        self.on_msg(lambda _, content, __: on_open(content["open"]))

    def still(self) -> Html:
        """Return the rows of its page, for a page without a kernel."""
        return as_html_table(self.columns, ([cell[0] for cell in row] for row in self.rows))

    @observe("all_rows")
    def _on_rows(self, _: object) -> None:
        self._texts = ["\n".join(cell[0] for cell in row).casefold() for row in self.all_rows]
        names = {row[0][1] for row in self.all_rows}
        self.ticked = [name for name in self.ticked if name in names]
        self._find()

    @observe("words", "order")
    def _find(self, _: object = None) -> None:
        words, rows = self.words.casefold().split(), zip(self.all_rows, self._texts, strict=True)
        found = [row for row, text in rows if all(word in text for word in words)]
        if self.order:
            column, sign = self.order
            found.sort(key=lambda row: _rank(row[column][1]), reverse=sign < 0)
            # What has no value is last, whatever comes first.
            found.sort(key=lambda row: row[column][1] is None)
        self._found = found
        with self.hold_sync():
            self.first, self.counts = 0, [len(found), len(self.all_rows)]
            self._turn()

    @observe("chosen")
    def _go_to_chosen(self, _: object) -> None:
        names = [row[0][1] for row in self._found]
        if self.chosen in names:
            self.first = names.index(self.chosen) // self.page_size * self.page_size

    @observe("first")
    def _turn(self, _: object = None) -> None:
        self.rows = list(self._found[self.first : self.first + self.page_size])


def _rank(key: Any) -> Any:
    """Return what sorts a key among the others of its column, small letters as capital ones."""
    return (key is not None, key.casefold() if isinstance(key, str) else key)
