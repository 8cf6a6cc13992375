"""Fields, dropdowns, sliders and tables, and their connection to a state."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import anywidget
import ipywidgets as w
from traitlets import Any as AnyTrait
from traitlets import HasTraits, Int, List, Unicode, observe

from compaction_kit.text import GIB, KIB, Html, as_html_table, format_size, parse_size
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import attempt

_SMALLEST, _LARGEST = KIB.bit_length() - 1, (4 * GIB).bit_length() - 1


def field(
    label: str, placeholder: str, css_class: str, width: str = "420px", label_width: str = "70px"
) -> w.Text:
    """Make a labelled field, whose value changes when Enter is pressed or the field is left."""
    style, layout = {"description_width": label_width}, {"width": width}
    how = {"placeholder": placeholder, "continuous_update": False, "style": style, "layout": layout}
    return w.Text(description=label, **how).add_class(css_class)


def dropdown(
    label: str, css_class: str, width: str, label_width: str = "", options: Iterable[Any] = ()
) -> w.Dropdown:
    """Make a labelled dropdown of options, which are values or pairs of a label and a value."""
    style, layout = {"description_width": label_width}, w.Layout(width=width)
    return w.Dropdown(options=[*options], description=label, style=style, layout=layout).add_class(css_class)


def offer(widget: w.Dropdown, options: Iterable[Any], value: Any) -> None:
    """Put options into a dropdown and choose one, without another choice in between.

    ipywidgets chooses the first of new options by itself, unless none was chosen before.
    """
    offered = tuple(options)
    if widget.options != offered:
        widget.value, widget.options = None, offered
    values = [option[1] if isinstance(option, tuple) else option for option in offered]
    widget.value = value if value in values else None


def bind(state: HasTraits, trait: str = "value", **inputs: w.Widget) -> None:
    """Keep inputs of the state equal to a trait of their widgets, starting with the state's values.

    Unlike traitlets' `link`, this does not ignore changes during the drawing of a figure.
    """
    for name, widget in inputs.items():
        setattr(widget, trait, getattr(state, name))
        state.observe(partial(_copy, widget, trait), name)
        widget.observe(partial(_copy, state, name), trait)


def _copy(target: HasTraits, trait: str, change: Any) -> None:
    setattr(target, trait, change.new)


def set_by_choice(state: HasTraits, name: str, widget: w.Dropdown) -> None:
    """Set an input of the state to the choice in a dropdown; `offer` sets the choice itself."""
    # The value is None while options are exchanged.
    widget.observe(lambda change: setattr(state, name, change.new) if change.new else None, "value")


class Slider(anywidget.AnyWidget):
    """A slider over whole numbers: the browser's, because ipywidgets' has no label for screen readers."""

    _esm = parts.script("slider.js")
    label = Unicode("", help="What is chosen").tag(sync=True)
    value = Int(0, help="The chosen number").tag(sync=True)
    min = Int(0, help="Its left end").tag(sync=True)
    max = Int(100, help="Its right end").tag(sync=True)
    text = Unicode("", help="The value as text").tag(sync=True)
    stops = List(Int(), help="The values that it can be moved to; empty for all").tag(sync=True)


class SizeSlider(w.VBox):
    """A size in bytes: a slider over powers of two, a field for text such as "100 MB", and its `error`."""

    size_bytes = Int(1, min=1, allow_none=True, help="The size chosen; None if what is typed is no size")

    def __init__(self, label: str, css_class: str):
        self.slider = Slider(label=label, min=_SMALLEST, max=_LARGEST)
        about = f"{label}: a size such as 100 MB or 128 MiB"
        self.field = w.Text(placeholder="128 MiB", tooltip=about, continuous_update=False)
        self.field.layout.width = "84px"
        self.error = parts.Text("error")
        super().__init__([w.HBox([self.slider, self.field])])
        self.add_class(css_class)
        self.slider.observe(self._on_slide, "value")
        self.field.observe(self._on_type, "value")
        self.observe(self._on_size, "size_bytes")

    def offer(self, stops: Sequence[int]) -> None:
        """Let the slider stop at two to these powers; other sizes can be typed."""
        if self.slider.stops != list(stops):
            self.slider.stops, self.slider.min, self.slider.max = list(stops), stops[0], stops[-1]
            self._on_size()

    def _on_slide(self, change: Any) -> None:
        # Not if the slider only followed the size.
        if change.new != self._place():
            self.size_bytes = 2**change.new

    def _on_type(self, _: object) -> None:
        self.size_bytes, error = attempt(lambda: parse_size(self.field.value, self.slider.label))
        self.error.show(error)

    def _on_size(self, _: object = None) -> None:
        if self.size_bytes is not None:
            self.slider.value = self._place() or 0
            self.slider.text = format_size(self.size_bytes)
            if attempt(lambda: parse_size(self.field.value))[0] != self.size_bytes:
                self.field.value = self.slider.text
            self.error.show("")

    def _place(self) -> int | None:
        if self.size_bytes is None:
            return None
        return min(max(self.size_bytes.bit_length() - 1, self.slider.min), self.slider.max)


class Grid(anywidget.AnyWidget):
    """A table that is sorted by a click on a column and filtered by words; a click or Enter opens a row.

    Rows are sorted and filtered here, and only a page of them is sent to the browser, because 10,000 rows
    would take too long. A cell has its text, its sort key or None, and a share to draw, if any. The key of a
    row's first cell is the row's name.
    """

    _esm = parts.script("grid.js")
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
    # The elements are Any, so that traitlets doesn't check 10,000 of them at each drawing.
    all_rows: Any = List(AnyTrait(), help="All rows, as they are listed if no column is chosen")
    _texts: Sequence[str] = ()
    _found: Sequence[list[Any]] = ()

    def __init__(self, label: str, columns: Sequence[str], on_open: Callable[[Any], object], **traits: Any):
        super().__init__(label=label, columns=list(columns), **traits)
        self.on_open = on_open
        self.on_msg(lambda _, content, __: on_open(content["open"]))

    def still(self) -> Html:
        """Return the rows of the current page, for a notebook without a kernel."""
        return as_html_table(self.columns, ([cell[0] for cell in row] for row in self.rows))

    @observe("all_rows")
    def _on_rows(self, _: object) -> None:
        self._texts = ["\n".join(cell[0] for cell in row).casefold() for row in self.all_rows]
        names = {row[0][1] for row in self.all_rows}
        self.ticked = [name for name in self.ticked if name in names]
        self._find()
        self._go_to_chosen()

    @observe("words", "order")
    def _find(self, _: object = None) -> None:
        words, rows = self.words.casefold().split(), zip(self.all_rows, self._texts, strict=True)
        found = [row for row, text in rows if all(word in text for word in words)]
        if self.order:
            column, sign = self.order
            found.sort(key=lambda row: _rank(row[column][1]), reverse=sign < 0)
            # Rows without a value are last in both orders.
            found.sort(key=lambda row: row[column][1] is None)
        self._found = found
        with self.hold_sync():
            self.first, self.counts = 0, [len(found), len(self.all_rows)]
            self._turn()

    @observe("chosen")
    def _go_to_chosen(self, _: object = None) -> None:
        names = [row[0][1] for row in self._found]
        if self.chosen in names:
            self.first = names.index(self.chosen) // self.page_size * self.page_size

    @observe("first")
    def _turn(self, _: object = None) -> None:
        self.rows = list(self._found[self.first : self.first + self.page_size])


def _rank(key: Any) -> Any:
    """Return a sort key for a key of a column, without regard to case."""
    return (key is not None, key.casefold() if isinstance(key, str) else key)
