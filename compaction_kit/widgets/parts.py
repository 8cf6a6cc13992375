"""Small widgets that the views are made of."""

import html
from collections.abc import Callable

import ipywidgets as w
from matplotlib.figure import Figure
from traitlets import Int

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.plots import to_html
from compaction_kit.sizes import GIB, KIB, format_size, parse_size
from compaction_kit.widgets.job import Job

STYLE = """<style>
.ck-workbench { border: 1px solid var(--jp-border-color1, #ccc); border-radius: 6px; max-width: 1120px; }
.ck-header, .ck-footer { padding: 6px 12px; background: var(--jp-layout-color2, #f5f5f5); }
.ck-header { border-radius: 6px 6px 0 0; border-bottom: 1px solid var(--jp-border-color2, #ddd); }
.ck-footer { border-radius: 0 0 6px 6px; border-top: 1px solid var(--jp-border-color2, #ddd); }
.ck-body { padding: 10px 14px; min-height: 500px; }
.ck-text { line-height: 1.45; font-size: 13px; }
.ck-error { border-left: 4px solid #D55E00; padding: 6px 10px; background: #D55E0014; line-height: 1.45; }
.ck-hint { color: var(--jp-ui-font-color2, #666); line-height: 1.45; }
.ck-good { border-left: 4px solid #009E73; padding: 6px 10px; background: #009E7314; line-height: 1.45; }
.ck-workbench .widget-html-content { line-height: 1.45; }
.ck-text .widget-html-content, .ck-error .widget-html-content { white-space: pre-line; }
.ck-workbench button.mod-primary { align-self: flex-start; padding: 0 24px; }
.ck-outcome .widget-html-content { white-space: pre; font-family: var(--jp-code-font-family, monospace); }
.ck-code pre { font-size: 12px; line-height: 1.4; }
.ck-rail button { width: 96px; text-align: left; }
</style>"""
_SMALLEST, _LARGEST = KIB.bit_length() - 1, (4 * GIB).bit_length() - 1


def text(kind: str = "text", role: str = "") -> w.HTML:
    """A place for words: kind "text", "hint", "error" or "good"."""
    place = w.HTML()
    place.add_class(f"ck-{kind}")
    if role:
        place.add_class(f"ck-{role}")
    return place


def show_text(place: w.HTML, sentence: str, details: str = "") -> None:
    """Put a sentence in a place made by `text`, or hide the place if there is none."""
    folded = (
        f"<details><summary>Details</summary><pre>{html.escape(details)}</pre></details>" if details else ""
    )
    place.value = html.escape(sentence) + folded
    place.layout.display = "" if sentence else "none"


class FigureView(w.HTML):
    """A figure, with its words for people who can't see it (the Image widget has no place for them)."""

    def __init__(self, css_class: str):
        super().__init__()
        self.add_class(css_class)

    def show(self, figure: Figure | None) -> None:
        """Draw the figure; hide it if there is none."""
        self.layout.display = "none" if figure is None else ""
        if figure is not None:
            self.value = to_html(figure)


class SizeSlider(w.VBox):
    """A size in bytes: a slider in steps of two, and a field to type "100 MB" in."""

    size_bytes = Int(1, min=1, help="The size chosen")

    def __init__(self, description: str, css_class: str):
        self.slider = w.IntSlider(
            min=_SMALLEST,
            max=_LARGEST,
            description=description,
            readout=False,
            style={"description_width": "120px"},
            layout=w.Layout(width="340px"),
        )
        self.field = w.Text(continuous_update=False, layout=w.Layout(width="100px"))
        self.field.placeholder = "128 MiB"
        self.field.tooltip = f"{description}: a size such as 100 MB or 128 MiB"
        self.error = text("error")
        show_text(self.error, "")
        self._follow = True
        self.slider.observe(self._on_slide, "value")
        self.field.observe(self._on_type, "value")
        super().__init__([w.HBox([self.slider, self.field]), self.error])
        self.add_class(css_class)
        self.observe(self._on_size, "size_bytes")

    def _on_slide(self, _: object) -> None:
        if self._follow:
            self.size_bytes = 2**self.slider.value

    def _on_type(self, _: object) -> None:
        if not self._follow:
            return
        try:
            size_bytes = parse_size(self.field.value, "size")
        except InvalidArgumentError as error:
            show_text(self.error, str(error))
            return
        show_text(self.error, "")
        self.size_bytes = size_bytes

    def _on_size(self, _: object) -> None:
        """Bring slider and field to the size, without taking that for a new choice."""
        self._follow = False
        nearest = self.size_bytes.bit_length() - 1
        self.slider.value = min(max(nearest, _SMALLEST), _LARGEST)
        if not self._says(self.size_bytes):
            self.field.value = format_size(self.size_bytes)
        show_text(self.error, "")
        self._follow = True

    def _says(self, size_bytes: int) -> bool:
        try:
            return parse_size(self.field.value) == size_bytes
        except InvalidArgumentError:
            return False


class JobBar(w.VBox):
    """The progress of a job, a button that cancels it, and how it ended."""

    def __init__(self, job: Job, css_class: str):
        self.job = job
        self.bar = w.FloatProgress(min=0, max=1, layout=w.Layout(width="420px"))
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
        self.bar.value = job.progress
        self.bar.bar_style = {"failed": "danger", "cancelled": "warning", "done": "success"}.get(
            job.status, ""
        )
        self.cancel_button.disabled = not job.running
        self.children[0].layout.visibility = "hidden" if job.status == "idle" else "visible"
        ended_badly = job.status in ("failed", "cancelled")
        show_text(self.error, job.message if ended_badly else "", job.details)
        show_text(self.message, "" if ended_badly else job.message)


def button(description: str, css_class: str, act: Callable[[], object], *, primary: bool = False) -> w.Button:
    """A button that calls `act`; the primary one is filled."""
    made = w.Button(description=description, layout=w.Layout(width="auto"))
    made.button_style = "primary" if primary else ""
    made.add_class(css_class)
    made.on_click(lambda _: act())
    return made
