"""What the parts of the workbench are made of: figures, progress bars, fields, sliders."""

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as w
from matplotlib.figure import Figure
from traitlets import Bool, HasTraits, Int, List, Unicode, observe

from compaction_kit.errors import CompactionKitError
from compaction_kit.plots import to_html
from compaction_kit.plots.style import as_css
from compaction_kit.report import Section
from compaction_kit.text import Html, element, folded, joined
from compaction_kit.widgets.job import Job, sentence_of

FOLDER = Path(__file__).parent
STYLE = element("style", Html(as_css() + (FOLDER / "workbench.css").read_text(encoding="utf-8")))
# What a screen reader says without being asked: errors at once, progress when it is idle.
_ARIA_ROLES = {"error": "alert", "status": "status"}


class Part(w.VBox):
    """A part of the page; it draws while it is on screen, and catches up when it comes back."""

    shown = Bool(False, help="Whether it is on screen")
    title = ""
    # Whether it says itself why a table can't be read, or planned; or why not with what is chosen.
    says_errors = says_input_errors = False

    def __init__(self, *children: w.Widget):
        self.failure = Text("error", "drawing-error")
        super().__init__([self.failure, *children])
        self.add_class(f"ck-part-{self.title.replace(' ', '-').lower()}")
        self._stale = True
        # Jobs draw too: one after another, so that the last drawing is of the latest state.
        self._drawing = threading.RLock()

    def watch(self, source: HasTraits, names: list[str], when: Callable[[], bool] = lambda: True) -> None:
        """Draw when something changes, if a condition holds then."""
        source.observe(lambda change: self._on_change() if when() else None, names)

    @property
    def others(self) -> tuple[object, ...]:
        """The states that it has beside its own; their work ends with the page."""
        return ()

    def as_code(self) -> str:
        """The Python lines that do what the part does; copied into a cell, they give the same."""
        needed = self._imports()
        kit = ["import compaction_kit as ck", *(line for line in needed if "compaction_kit" in line)]
        others = [line for line in needed if line not in kit]
        return "\n\n".join("\n".join(lines) for lines in (others, kit, [self._code()]) if lines)

    def section(self) -> Section | None:
        """The part's section of a report; None if there is nothing to show."""
        records = self._records()
        return Section(self.title, records, self.as_code()) if records else None

    def _render(self) -> None:
        raise NotImplementedError

    def _imports(self) -> tuple[str, ...]:
        """What the lines need beside the kit itself."""
        return ()

    def _code(self) -> str:
        raise NotImplementedError

    def _records(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _on_change(self) -> None:
        if self.shown:
            self._draw()
        else:
            self._stale = True

    @observe("shown")
    def _on_shown(self, _: object) -> None:
        if self.shown and self._stale:
            self._stale = False
            self._draw()

    def _draw(self) -> None:
        with self._drawing:
            try:
                self._render()
            except Exception as error:
                # Better no figure than that of an earlier state.
                for widget in within(self.children):
                    if isinstance(widget, Drawing):
                        widget.show(None)
                self.failure.show(f"This can't be shown: {sentence_of(error)}")
            else:
                self.failure.show("")


class Text(w.HTML):
    """A place for sentences, hidden while there is none: "text", "hint", "error", "warning" or "good"."""

    def __init__(self, kind: str = "text", role: str = ""):
        super().__init__()
        self._kind = ""
        self.turn(kind)
        if role:
            self.add_class(f"ck-{role}")
        self._aria_role = _ARIA_ROLES.get(kind) or _ARIA_ROLES.get(role)
        self.show("")

    def turn(self, kind: str) -> None:
        """Make it a place for sentences of another kind, which has another colour."""
        self.remove_class(f"ck-{self._kind}")
        self.add_class(f"ck-{kind}")
        self._kind = kind

    def show(self, sentence: str, details: str = "") -> None:
        """Show a sentence, with details folded below it, or hide the place if there is none."""
        shown = element("div", sentence, role=self._aria_role) if self._aria_role and sentence else sentence
        self.value = joined(shown, *([folded("Details", details)] if details else []))
        show_if(bool(sentence), self)


def show_if(condition: bool, *widgets: w.Widget) -> None:
    """Show widgets, or hide them."""
    for widget in widgets:
        widget.layout.display = "" if condition else "none"


class Drawing:
    """What a widget does that shows a figure as HTML, its `value`."""

    value: Any
    layout: Any

    def show(self, draw: Callable[[], Figure] | None) -> None:
        """Draw a figure; hide it if there is none. One that can't be drawn leaves no other in its place."""
        drawn = joined()
        try:
            if draw is not None:
                drawn = self._html(draw())
        except CompactionKitError as error:
            drawn = element("div", str(error), role="alert")
        finally:
            self.value = drawn
            show_if(bool(drawn), self)

    def _html(self, figure: Figure) -> Html:
        return to_html(figure)


class FigureView(Drawing, w.HTML):
    """A figure, with its label for people who can't see it."""

    def __init__(self, css_class: str):
        super().__init__()
        self.add_class(css_class)


class JobBar(w.VBox):
    """The progress of a job, a button that cancels it, and how it ended."""

    def __init__(self, job: Job, css_class: str):
        self.job = job
        self.bar = w.HTML().add_class("ck-progress-bar")
        self.cancel_button = w.Button(
            description="Cancel", icon="stop", tooltip="Stop; what is not committed is undone"
        )
        self.cancel_button.on_click(lambda _: job.cancel())
        self.message = Text("text", "status")
        self.error = Text("error")
        super().__init__([w.HBox([self.bar, self.cancel_button]), self.message, self.error])
        self.add_class(css_class)
        job.observe(self._render, ["status", "progress", "message"])
        self._render()

    def _render(self, _: object = None) -> None:
        job = self.job
        self.bar.value = element("progress", max="1", value=f"{job.progress:.4f}", aria_label="Progress")
        self.cancel_button.disabled = not job.running
        show_if(job.running, self.children[0])
        ended_badly = job.status in ("failed", "cancelled")
        self.error.show(job.message if ended_badly else "", job.details)
        self.message.show("" if ended_badly or job.status == "done" else job.message)


def row(*children: w.Widget) -> w.HBox:
    """Widgets side by side, in more lines where the page is narrow."""
    return w.HBox(children, layout=w.Layout(flex_flow="row wrap"))


def field(
    label: str, placeholder: str, css_class: str, width: str = "420px", label_width: str = "70px"
) -> w.Text:
    """A labelled field, whose value changes when Enter is pressed or the field is left."""
    style, layout = {"description_width": label_width}, w.Layout(width=width)
    made = w.Text(description=label, continuous_update=False, style=style, layout=layout)
    if placeholder:
        made.placeholder = placeholder
    return made.add_class(css_class)


def dropdown(
    label: str, css_class: str, width: str, label_width: str = "", options: Iterable[Any] = ()
) -> w.Dropdown:
    """A labelled dropdown of options, which are values or pairs of what is shown and its value."""
    style, layout = {"description_width": label_width}, w.Layout(width=width)
    made = w.Dropdown(options=list(options), description=label, style=style, layout=layout)
    return made.add_class(css_class)


def offer(widget: w.Dropdown, options: Iterable[Any], value: Any) -> None:
    """Put options into a dropdown and choose one, without choosing another meanwhile.

    ipywidgets chooses the first of new options by itself, unless none was chosen before.
    """
    offered = tuple(options)
    if widget.options != offered:
        widget.value = None
        widget.options = offered
    values = [option[1] if isinstance(option, tuple) else option for option in offered]
    widget.value = value if value in values else None


def button(
    description: str, css_class: str, act: Callable[[], object], *, style: str = "", tooltip: str = ""
) -> w.Button:
    """A button that calls `act`; its style is "primary" (filled), "danger" or none."""
    layout = w.Layout(width="auto")
    made = w.Button(description=description, layout=layout, button_style=style, tooltip=tooltip or None)
    made.on_click(lambda _: act())
    return made.add_class(css_class)


def within(widgets: Iterable[w.Widget]) -> Iterator[w.Widget]:
    """Widgets and all that they hold."""
    for widget in widgets:
        yield from within(getattr(widget, "children", ()))
        yield widget


def close_tree(widgets: Iterable[w.Widget]) -> None:
    """Close widgets and all that they hold."""
    for widget in within(widgets):
        widget.close()


def bind(state: HasTraits, trait: str = "value", **inputs: w.Widget) -> None:
    """Keep inputs of the state and a trait of their widgets equal, beginning with the state's values.

    Unlike traitlets' `link`, it does not ignore changes that come while it is at work: as long as a figure
    takes to draw.
    """
    for name, widget in inputs.items():
        setattr(widget, trait, getattr(state, name))
        state.observe(partial(_copy, widget, trait), name)
        widget.observe(partial(_copy, state, name), trait)


def _copy(target: HasTraits, trait: str, change: Any) -> None:
    setattr(target, trait, change.new)


def set_by_choice(state: HasTraits, name: str, widget: w.Dropdown) -> None:
    """Set an input of the state to what is chosen in a dropdown, whose choice is set by `offer`."""

    def on_choice(change: Any) -> None:
        # None while options are exchanged.
        if change.new:
            setattr(state, name, change.new)

    widget.observe(on_choice, "value")


def call(function: str, **options: object) -> str:
    """The Python code of a call with the options that are not None."""
    given = (f"{name}={value!r}" for name, value in options.items() if value is not None)
    return f"{function}({', '.join(given)})"


class Slider(anywidget.AnyWidget):
    """A labelled slider over whole numbers: the browser's own, in every notebook's front end.

    ipywidgets' sliders have no label that a screen reader reads.
    """

    _esm = FOLDER / "slider.js"
    label = Unicode("", help="What is chosen").tag(sync=True)
    value = Int(0, help="The chosen number").tag(sync=True)
    min = Int(0, help="Its left end").tag(sync=True)
    max = Int(100, help="Its right end").tag(sync=True)
    text = Unicode("", help="The value as text").tag(sync=True)
    stops = List(Int(), help="The values that it can be moved to; empty for all").tag(sync=True)
    shows_text = Bool(True, help="Whether the text is shown beside it").tag(sync=True)
    disabled = Bool(False, help="Whether it can't be moved").tag(sync=True)


class CopyButton(anywidget.AnyWidget):
    """A button that puts a text into the clipboard."""

    _esm = FOLDER / "copy.js"
    text = Unicode("", help="The text").tag(sync=True)


class Keys(anywidget.AnyWidget):
    """Nothing to see: it lets the page's controls be used by keys, ipywidgets' accordions among them."""

    _esm = FOLDER / "keys.js"
