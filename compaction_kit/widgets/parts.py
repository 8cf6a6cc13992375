"""The elements of the workbench's parts: texts, figures, progress bars, and their Python code."""

import gc
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as w
from matplotlib.figure import Figure
from traitlets import All, Bool, Dict, HasTraits, Unicode, observe

from compaction_kit.plots import to_html
from compaction_kit.plots.style import as_css
from compaction_kit.report import Section
from compaction_kit.storage import is_folder
from compaction_kit.text import Html, element, folded, format_size, joined, parse_size, prose, shown
from compaction_kit.widgets.job import Job, same, sentence_of

_FOLDER = Path(__file__).parent
STYLE = element("style", Html(as_css() + (_FOLDER / "workbench.css").read_text(encoding="utf-8")))
# Traits of jobs and fields that a part shows.
_DRAWN = ("status", "answer", "value")
_KINDS = ("text", "hint", "error", "warning", "good")
# A screen reader announces these by itself: errors at once, progress when it is idle.
_ARIA_ROLES = {"error": "alert", "status": "status", "waiting": "status"}


class Part(w.VBox):
    """Widgets that show a state; drawn while they are on screen, and when they return to the screen.

    Args:
        children: Widgets; those with a `refresh` update themselves at each drawing.
        on: Objects to watch: a state, jobs, fields, or one of these with the name of a trait.
        title: The part's name.
        code: Returns the Python lines that do the same as the part; they can be copied into a cell.
        records: Returns the records for a report, with None for missing ones.
        prepare: Called before each drawing.
        shown: Whether the part is always on screen.
    """

    shown = Bool(False, help="Whether it is on screen")

    def __init__(
        self,
        *children: w.Widget,
        on: Iterable[HasTraits | tuple[HasTraits, str]] = (),
        title: str = "",
        code: Callable[[], str] = str,
        records: Callable[[], Iterable[Any]] = tuple,
        prepare: Callable[[], object] = tuple,
        shown: bool = False,
    ):
        self.title, self.as_code, self._records, self._prepare = title, code, records, prepare
        self.failure = Text("error", "drawing-error")
        super().__init__([self.failure, *children])
        self.add_class(f"ck-part-{title.replace(' ', '-').lower()}")
        self._stale = True
        # Jobs draw too, one after another, so that the last drawing shows the latest state.
        self._drawing = threading.RLock()
        folds = [(one, "selected_index") for one in within(children) if isinstance(one, w.Accordion)]
        for one in (*on, *folds):
            source, names = one if isinstance(one, tuple) else (one, None)
            # All traits of a state are watched.
            self.watch(source, names or [name for name in _DRAWN if source.has_trait(name)] or All)
        self.shown = shown

    def watch(self, source: HasTraits, names: Any, when: Callable[[], bool] = lambda: True) -> None:
        """Draw when something changes, if a condition holds at that time."""
        source.observe(lambda _: self._on_change() if when() else None, names)

    def section(self) -> Section | None:
        """Return the part's section of a report; None if there is nothing to show."""
        records = tuple(record for record in self._records() if record is not None)
        return Section(self.title, records, self.as_code()) if records else None

    def _on_change(self) -> None:
        self._stale = True
        self._on_shown()

    @observe("shown")
    def _on_shown(self, _: object = None) -> None:
        if not self.shown or not self._stale:
            return
        self._stale = False
        with self._drawing:
            try:
                self._render()
            except Exception as error:
                # No figure is better than a figure of an earlier state.
                for widget in within(self.children):
                    if isinstance(widget, FigureView):
                        widget.show(None)
                self.failure.show(f"This can't be shown: {sentence_of(error)}")
            else:
                self.failure.show("")

    def _render(self) -> None:
        self._prepare()
        # Figures are drawn first, so that new texts are never beside an old figure.
        widgets = sorted(_unfolded(self.children), key=lambda one: not isinstance(one[0], FigureView))
        for widget, is_open in widgets:
            if hasattr(widget, "refresh"):
                widget.refresh(is_open)


def _unfolded(widgets: Iterable[w.Widget], is_open: bool = True) -> Iterator[tuple[w.Widget, bool]]:
    """Yield widgets and all widgets in them, and whether these are visible or folded away."""
    for widget in widgets:
        chosen = widget.selected_index if isinstance(widget, w.Accordion) else ...
        for index, child in enumerate(getattr(widget, "children", ())):
            yield from _unfolded([child], is_open and chosen in (..., index))
        yield widget, is_open


def within(widgets: Iterable[w.Widget]) -> Iterator[w.Widget]:
    """Yield widgets and all widgets in them."""
    return (widget for widget, _ in _unfolded(widgets))


class Text(w.HTML):
    """A place for sentences, hidden while there is none; `get` returns them at each drawing of the part.

    Its kind is "text", "hint", "error", "warning" or "good"; its role names it in the page.
    """

    def __init__(
        self, kind: str | Callable[[], str] = "text", role: str = "", get: Callable[[], Any] | None = None
    ):
        super().__init__()
        self._kind, self._role, self._get = kind, role, get
        if role:
            self.add_class(f"ck-{role}")
        self.show("")

    def show(self, sentence: str, details: str = "") -> None:
        """Show a sentence, with details folded below it, or hide the place if there is none."""
        kind = self._kind() if callable(self._kind) else self._kind
        for other in _KINDS:
            (self.add_class if other == kind else self.remove_class)(f"ck-{other}")
        sentence = sentence if isinstance(sentence, Html) else prose(sentence)
        aria_role = _ARIA_ROLES.get(kind) or _ARIA_ROLES.get(self._role)
        drawn = element("div", sentence, role=aria_role) if aria_role and sentence else sentence
        self.value = joined(drawn, *([folded("Details", details)] if details else []))
        show_if(sentence, self)

    def refresh(self, is_open: bool) -> None:
        """Show the current sentences."""
        if self._get is not None:
            self.show((self._get() if is_open else "") or "")


class FigureView(w.HTML):
    """A figure, with its label for people who can't see it; hidden while there is none.

    `get` returns a function and its arguments, or a method of a record, that draws the figure, or None. At
    each drawing of the part this is called, unless it is the same as before.
    """

    def __init__(self, css_class: str, get: Callable[[], Any] | None = None):
        super().__init__()
        self.add_class(css_class)
        self._get = get
        self.show(None)

    def show(self, draw: Callable[[], Figure] | None) -> None:
        """Draw a figure; hide it if there is none. If drawing fails, no earlier figure stays in its place."""
        drawn = joined()
        self.call: tuple[Any, ...] = ()
        # A figure leaves 100,000 objects behind. Collecting them at once avoids a delay at a later move.
        gc.disable()
        try:
            if draw is not None:
                drawn = to_html(draw())
        finally:
            gc.enable()
            gc.collect(0)
            self.value = drawn
            show_if(drawn, self)

    def refresh(self, is_open: bool) -> None:
        """Draw the current figure, if it has changed."""
        if self._get is not None:
            found = (self._get() if is_open else None) or ()
            call = found if isinstance(found, tuple) else (found.__func__, found.__self__)
            if not call or not same(call, self.call):
                self.show((lambda: call[0](*call[1:])) if call else None)
                self.call = call


def show_if(condition: object, widget: w.Widget) -> None:
    """Show a widget, or hide it."""
    widget.layout.display = "" if condition else "none"


def live(widget: w.Widget, when: Callable[[], object] | None = None, **traits: Callable[[], Any]) -> w.Widget:
    """Have a part set traits of a widget at each drawing, and hide it unless a condition holds."""

    def refresh(_: bool) -> None:
        for name, get in traits.items():
            setattr(widget, name, get())
        if when is not None:
            show_if(when(), widget)

    widget.refresh = refresh
    return widget


class JobBar(w.VBox):
    """The progress of a job, a button that cancels it, and how it ended."""

    def __init__(self, job: Job, css_class: str):
        self.job = job
        self.bar = w.HTML().add_class("ck-progress-bar")
        self.cancel_button = button("Cancel", "ck-cancel", job.cancel, tooltip=job.stops)
        self.cancel_button.icon = "stop"
        self.message, self.error = Text("text", "status"), Text("error")
        super().__init__([w.HBox([self.bar, self.cancel_button]), self.message, self.error])
        self.add_class(css_class)
        job.observe(self._render, ["status", "progress", "message"])
        self._render()

    def _render(self, _: object = None) -> None:
        # The bar moves to and fro while the share is unknown.
        share = {"value": f"{self.job.progress:.4f}"} if self.job.progress else {}
        self.bar.value = element("progress", max="1", aria_label="Progress", **share)
        self.cancel_button.disabled = not self.job.running
        show_if(self.job.running, self.children[0])
        self.error.show(self.job.error, self.job.details)
        self.message.show(self.job.message if self.job.running else "")


def outcome(state: Any, job: Job, bar: str, role: str, *between: w.Widget) -> w.VBox:
    """Show a run: its table, its progress and its result, with a warning if the result isn't as planned.

    `bar` and `role` name the progress and the result in the page; `between` is shown above the result.
    """

    def other_table() -> str:
        is_other = job.about not in ("", state.name)
        return f"This is about {job.about}, the table that was open when it began." if is_other else ""

    def kind() -> str:
        return "good" if getattr(job.result, "as_planned", True) else "warning"

    result = Text(kind, role, lambda: "" if job.result is None else shown(job.result.facts()))
    # If the table can't be read, the reason is shown above all parts.
    progress = live(JobBar(job, bar), lambda: not job.error or job.error != state.opened.error)
    return w.VBox([Text("warning", "other-table", other_table), progress, *between, result])


def button(
    description: str, css_class: str, act: Callable[[], object], *, style: str = "", tooltip: str = ""
) -> w.Button:
    """Make a button that calls `act`; its style is "primary" (filled), "danger" or ""."""
    made = w.Button(description=description, layout={"width": "auto"}, button_style=style, tooltip=tooltip)
    made.on_click(lambda _: act())
    return made.add_class(css_class)


def fold(when: Callable[[], object], **places: w.Widget) -> w.Accordion:
    """Fold widgets away under their titles; hidden unless a condition holds."""
    return live(w.Accordion(list(places.values()), titles=tuple(places)), when)


def script(name: str) -> str:
    """Return the text of a script; with a path, anywidget would keep each widget in memory forever."""
    return (_FOLDER / name).read_text(encoding="utf-8")


class CopyButton(anywidget.AnyWidget):
    """A button that copies a text to the clipboard."""

    _esm = script("copy.js")
    text = Unicode("", help="The text").tag(sync=True)


class Keys(anywidget.AnyWidget):
    """Lets keys use the page's controls and accordions; it sends a message once the page is on screen."""

    _esm = script("keys.js")
    tips = Dict(help="The tooltip of each field, by the first class that it was given").tag(sync=True)


def absolute(name: str) -> str:
    """Return a folder's absolute path, so that code runs in any folder; other names are unchanged."""
    path = os.path.abspath(name)
    return path if is_folder(path) else name


def exact_size(size_bytes: int) -> str | int:
    """Return a size as text if the text is exact, else in bytes."""
    text = format_size(size_bytes)
    return text if parse_size(text) == size_bytes else size_bytes


def call(function: str, **options: object) -> str:
    """Return the Python code of a call with the options that are not None."""
    given = (f"{name}={value!r}" for name, value in options.items() if value is not None)
    return f"{function}({', '.join(given)})"


def python(*lines: str, imports: Iterable[str] = ()) -> str:
    """Return lines of Python after the imports of the kit and `imports`."""
    kit = ["import compaction_kit as ck", *(line for line in imports if "compaction_kit" in line)]
    others = [line for line in imports if line not in kit]
    return "\n\n".join("\n".join(block) for block in (others, kit, lines) if block)
