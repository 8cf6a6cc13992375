"""Small widgets that the views are made of."""

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as w
from matplotlib.figure import Figure
from traitlets import Bool, HasTraits, observe

from compaction_kit.errors import CompactionKitError
from compaction_kit.plots import to_html
from compaction_kit.report import Section
from compaction_kit.text import Html, element, folded, joined
from compaction_kit.widgets.job import Job, sentence_of

STYLE = element("style", Html(Path(__file__).with_name("workbench.css").read_text(encoding="utf-8")))
# What a screen reader says of a place by itself: errors at once, how work goes when it is idle.
_ROLES = {"error": "alert", "status": "status"}


class Part(w.VBox):
    """A part of the page; it draws while it is on screen, and catches up when it comes back."""

    shown = Bool(False, help="Whether it is on screen")
    title = ""

    def __init__(self, children: Sequence[w.Widget]):
        self.failure = text("error", "drawing-error")
        show_text(self.failure, "")
        super().__init__([self.failure, *children])
        self._stale = True
        # Jobs draw too: one after another, each what is there by then, or an old state would come last.
        self._drawing = threading.RLock()

    def watch(self, source: HasTraits, names: list[str], when: Callable[[], bool] = lambda: True) -> None:
        """Draw when something changes, if a condition holds then."""
        source.observe(lambda change: self._on_change(change) if when() else None, names)

    def render(self) -> None:
        """Draw what there is."""
        raise NotImplementedError

    def as_code(self) -> str:
        """The Python lines that do what the part does."""
        raise NotImplementedError

    def section(self) -> Section | None:
        """What of it belongs into a report; None if there is nothing to show."""
        raise NotImplementedError

    def _on_change(self, _: object) -> None:
        if not self.shown:
            self._stale = True
            return
        self._draw()

    @observe("shown")
    def _on_shown(self, _: object) -> None:
        if self.shown and self._stale:
            self._stale = False
            self._draw()

    def _draw(self) -> None:
        with self._drawing:
            try:
                self.render()
            except Exception as error:
                # Better no figure than one of what was there before.
                for child in self.children:
                    if isinstance(child, FigureView):
                        child.show(None)
                show_text(self.failure, f"This can't be shown: {sentence_of(error)}")
            else:
                show_text(self.failure, "")


def text(kind: str = "text", role: str = "") -> w.HTML:
    """A place for words: kind "text", "hint", "error", "warning" or "good"."""
    place = w.HTML()
    place.add_class(f"ck-{kind}")
    if role:
        place.add_class(f"ck-{role}")
    return place


def show_text(place: w.HTML, sentence: str, details: str = "") -> None:
    """Put a sentence in a place made by `text`, or hide the place if there is none."""
    classes = set(place._dom_classes)
    role = next((role for kind, role in _ROLES.items() if f"ck-{kind}" in classes), "")
    words = element("div", sentence, role=role) if role and sentence else sentence
    place.value = joined(words, *([folded("Details", details)] if details else []))
    place.layout.display = "" if sentence else "none"


def of_another_table(ran: str, name: str) -> str:
    """What to say of work that was begun before another table was opened, if it was."""
    return "" if ran in ("", name) else f"What follows is of {ran}, which was open when it began."


class FigureView(w.HTML):
    """A figure, with its words for people who can't see it."""

    def __init__(self, css_class: str):
        super().__init__()
        self.add_class(css_class)

    def show(self, draw: Callable[[], Figure] | None) -> None:
        """Draw a figure; hide it if there is none. One that can't be drawn leaves no other in its place."""
        drawn = joined()
        try:
            if draw is not None:
                drawn = to_html(draw())
        except CompactionKitError as error:
            drawn = element("div", str(error), role="alert")
        finally:
            self.value = drawn
            self.layout.display = "" if drawn else "none"


class JobBar(w.VBox):
    """The progress of a job, a button that cancels it, and how it ended."""

    def __init__(self, job: Job, css_class: str):
        self.job = job
        self.bar = w.HTML()
        self.bar.add_class("ck-progress-bar")
        self.cancel_button = w.Button(
            description="Cancel", icon="stop", tooltip="Stop; what is not committed is undone"
        )
        self.cancel_button.on_click(lambda _: job.cancel())
        self.message = text("text", "status")
        self.error = text("error")
        super().__init__([w.HBox([self.bar, self.cancel_button]), self.message, self.error])
        self.add_class(css_class)
        job.observe(self._render, ["status", "progress", "message"])
        self._render()

    def _render(self, _: object = None) -> None:
        job = self.job
        self.bar.value = element("progress", max="1", value=f"{job.progress:.4f}", aria_label="Progress")
        self.cancel_button.disabled = not job.running
        self.children[0].layout.display = "" if job.running else "none"
        ended_badly = job.status in ("failed", "cancelled")
        show_text(self.error, job.message if ended_badly else "", job.details)
        show_text(self.message, "" if ended_badly or job.status == "done" else job.message)


def field(
    description: str, placeholder: str, css_class: str, width: str = "420px", label_width: str = "70px"
) -> w.Text:
    """A labelled field that tells what was typed when Enter is pressed or the field is left."""
    made = w.Text(
        description=description,
        placeholder=placeholder,
        continuous_update=False,
        style={"description_width": label_width},
        layout=w.Layout(width=width),
    )
    made.add_class(css_class)
    return made


def offer(dropdown: w.Dropdown, options: Iterable[Any], value: Any) -> None:
    """Put options into a dropdown and choose one, without choosing another meanwhile.

    ipywidgets chooses the first of new options by itself, unless none was chosen before.
    """
    offered = tuple(options)
    if dropdown.options != offered:
        dropdown.value = None
        dropdown.options = offered
    values = [option[1] if isinstance(option, tuple) else option for option in offered]
    dropdown.value = value if value in values else None


def button(description: str, css_class: str, act: Callable[[], object], *, primary: bool = False) -> w.Button:
    """A button that calls `act`; the primary one is filled."""
    made = w.Button(description=description, layout=w.Layout(width="auto"))
    made.button_style = "primary" if primary else ""
    made.add_class(css_class)
    made.on_click(lambda _: act())
    return made


def close_tree(widgets: Iterable[w.Widget]) -> None:
    """Close widgets and all that they hold."""
    for widget in widgets:
        close_tree(getattr(widget, "children", ()))
        widget.close()


def bind(state: HasTraits, name: str, widget: w.Widget, trait: str = "value") -> None:
    """Keep an input of the state and what a widget says of it the same, beginning with the state's.

    Unlike traitlets' `link`, which passes over what changes while it is at work: as long as a figure
    takes to draw.
    """
    setattr(widget, trait, getattr(state, name))
    state.observe(lambda change: setattr(widget, trait, change.new), name)
    widget.observe(lambda change: setattr(state, name, change.new), trait)
