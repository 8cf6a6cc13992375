"""Sliders that tell what they are: ipywidgets' own have no words for people who can't see them."""

from pathlib import Path

import anywidget
import ipywidgets as w
from traitlets import Bool, Int, Unicode

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.text import GIB, KIB, format_size, parse_size
from compaction_kit.widgets.parts import show_text, text

_SMALLEST, _LARGEST = KIB.bit_length() - 1, (4 * GIB).bit_length() - 1


class Slider(anywidget.AnyWidget):
    """A labelled slider over whole numbers: the browser's own, in every notebook's front end."""

    _esm = Path(__file__).with_name("slider.js")
    label = Unicode("", help="What is chosen").tag(sync=True)
    value = Int(0, help="Where it stands").tag(sync=True)
    min = Int(0, help="Its left end").tag(sync=True)
    max = Int(100, help="Its right end").tag(sync=True)
    text = Unicode("", help="The value in words").tag(sync=True)
    tells = Bool(True, help="Whether these words stand beside it").tag(sync=True)
    disabled = Bool(False, help="Whether it can't be moved").tag(sync=True)


class DropdownArrows(anywidget.AnyWidget):
    """Nothing to see: where it is on the page, the workbench's dropdowns can be moved by arrows."""

    _esm = Path(__file__).with_name("arrows.js")


class SizeSlider(w.VBox):
    """A size in bytes: a slider in steps of two, and a field to type "100 MB" in."""

    size_bytes = Int(1, min=1, help="The size chosen")

    def __init__(self, label: str, css_class: str):
        self.slider = Slider(label=label, min=_SMALLEST, max=_LARGEST, tells=False)
        self.field = w.Text(continuous_update=False, layout=w.Layout(width="100px"))
        self.field.placeholder = "128 MiB"
        self.field.tooltip = f"{label}: a size such as 100 MB or 128 MiB"
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
        self.slider.text = format_size(self.size_bytes)
        if not self._says(self.size_bytes):
            self.field.value = format_size(self.size_bytes)
        show_text(self.error, "")
        self._follow = True

    def _says(self, size_bytes: int) -> bool:
        try:
            return parse_size(self.field.value) == size_bytes
        except InvalidArgumentError:
            return False
