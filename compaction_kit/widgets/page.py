"""The common base of the workbench and of single parts, and the page of one part."""

import time
from collections.abc import Callable

import ipywidgets as w
from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from compaction_kit.text import Html, element, joined, shown
from compaction_kit.widgets import parts
from compaction_kit.widgets.fields import Grid
from compaction_kit.widgets.job import Job, Lookup
from compaction_kit.widgets.parts import Part, Text
from compaction_kit.widgets.state import WorkbenchState
from compaction_kit.widgets.tables import about_text

# Without height for a moment: otherwise the page would jump until a live widget has hidden the still.
_LATE = element("style", Html("@keyframes ck-still{from,99%{max-height:0;overflow:hidden}}"))
_AGAIN = element("p", element("i", "This was shown last. To use it, run this cell again."), class_="ck-again")
# Traits that change what is on screen.
_SEEN = ("value", "rows", "selected_index", "children")


def show_with_still(widget: w.DOMWidget, still: Callable[[], Html], text: str = "") -> DisplayHandle | None:
    """Show a widget, and after it HTML for pages without a kernel, which CSS hides while the widget lives.

    `still` returns the widget's texts and figures, without its controls, once it is on screen; `text` is for
    a terminal. Returns the handle that replaces the still; None outside IPython.
    """
    view = {"application/vnd.jupyter.widget-view+json": widget.get_view_spec()}
    display(view | {"text/html": "", "text/plain": ""}, raw=True)  # type: ignore[no-untyped-call]
    data = {"text/html": _left(still()), "text/plain": text}
    handle: DisplayHandle | None = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    return handle


def _left(still: Html) -> Html:
    return element("div", _LATE, _AGAIN, shown(still), class_="ck-still", style="animation: ck-still 1.5s")


def still_of(widget: w.Widget) -> Html:
    """Return the sentences and figures of a widget as they are on screen now."""
    unseen = widget.layout.display == "none" or getattr(widget, "value", "") == parts.STYLE
    if unseen or (isinstance(widget, w.Accordion) and widget.selected_index is None):
        return joined()
    if isinstance(widget, Grid):
        return widget.still()
    if isinstance(widget, w.HTML):
        return element("div", Html(widget.value), style="white-space: pre-line")
    return joined(*map(still_of, getattr(widget, "children", ())))


class Page(w.VBox):
    """Widgets that show one state, greyed while its table is read again."""

    def __init__(self, state: WorkbenchState, *children: w.Widget):
        self.state = state
        self.keeping = Job()
        self._place: DisplayHandle | None = None
        fields = [one for one in parts.within(children) if one._dom_classes and not isinstance(one, w.Button)]
        keys = parts.Keys(tips={one._dom_classes[0]: one.tooltip for one in fields if one.tooltip})
        keys.on_msg(self._send_again)
        super().__init__([w.HBox([w.HTML(parts.STYLE), keys]), *children])
        self.add_class("ck-workbench")
        state.observe(self._grey, "opened")
        self._grey()

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All jobs that may be running for the page."""
        return (*self.state.jobs, *(value for value in vars(self).values() if isinstance(value, Job)))

    def close(self) -> None:
        """Cancel running jobs, and remove the page."""
        for job in self.jobs:
            job.cancel()
        self._place = None
        for widget in parts.within(self.children):
            _close(widget)
        super().close()
        self.layout.close()

    def _ipython_display_(self) -> None:
        for job in self.state.jobs:
            if job is self.state.loading or (isinstance(job, Lookup) and job is not self.state.surveying):
                job.wait(seconds=2)
        self._place = show_with_still(self, lambda: still_of(self), self.state.root or self.state.name)
        # In a terminal, stills aren't updated, because it would print them once more.
        if hasattr(get_ipython(), "kernel"):
            for widget in parts.within(self.children):
                if names := [name for name in _SEEN if widget.has_trait(name)]:
                    # One bound method, which traitlets calls once, even if the page is shown several times.
                    widget.observe(self._on_seen, names)

    def _on_seen(self, _: object) -> None:
        self.keeping.start_next(self._keep)

    def _keep(self, job: Job) -> None:
        """Make the still again after a second, so that a saved notebook has what is on screen."""
        time.sleep(1)
        if self._place is not None:
            self._place.update({"text/html": _left(still_of(self))}, raw=True)  # type: ignore[no-untyped-call]

    def _send_again(self, *_: object) -> None:
        """Send the state of all widgets again: Voilà's page requests it once, before it receives changes."""
        for widget in parts.within([self]):
            widget.layout.send_state()
            widget.send_state()

    def _grey(self, _: object = None) -> None:
        (self.add_class if self.state.opened.pending else self.remove_class)("ck-pending")


def _close(widget: w.DOMWidget) -> None:
    """Close a widget with its layout and style, which ipywidgets keeps."""
    widget.close()
    for name in ("layout", "style"):
        if widget.has_trait(name):
            getattr(widget, name).close()


class PartPage(Page):
    """One `part` without the workbench, below a line that names the table, folder or schema that it shows.

    The inputs of its `state` can be set, and the state's `plan` and `result` read.
    """

    def __init__(self, state: WorkbenchState, part: Part, *below: w.Widget):
        self.part = part

        def error() -> str:
            # With many tables under a root, the part is not about the open table.
            of_another = bool(state.root) and state.table is not None
            # A verdict shows the error itself, as do a plan and a run for errors in the inputs.
            by_part = part.title == "Verdict" or (part.title in ("Plan", "Run") and state.input_error)
            return "" if of_another or by_part else state.opened.error

        name = Part(Text("text", "name", lambda: state.root or state.name), on=[state], shown=True)
        failure = Part(Text("error", "table-error", error), on=[state], shown=True)
        header = w.HBox([name, *([] if state.root else [about_text(state)])]).add_class("ck-header")
        super().__init__(state, header, w.VBox([failure, part, *below]).add_class("ck-part"))
        part.shown = True
