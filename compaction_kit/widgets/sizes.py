"""Sizes in bytes on a page: sliders in steps of two, and lines that are dragged over a figure."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import anywidget
import ipywidgets as w
import numpy as np
from matplotlib.figure import Figure
from traitlets import Float, Int, List, Unicode

from compaction_kit.text import GIB, KIB, Html, format_size, parse_size
from compaction_kit.widgets import parts
from compaction_kit.widgets.job import attempt

_SMALLEST, _LARGEST = KIB.bit_length() - 1, (4 * GIB).bit_length() - 1


class SizeSlider(w.VBox):
    """A size in bytes: a slider in steps of two, and a field to type "100 MB" in."""

    size_bytes = Int(1, min=1, allow_none=True, help="The size chosen; None if what is typed is no size")

    def __init__(self, label: str, css_class: str):
        self.label = label
        self.slider = parts.Slider(label=label, min=_SMALLEST, max=_LARGEST, shows_text=False)
        self.field = w.Text(
            placeholder="128 MiB",
            tooltip=f"{label}: a size such as 100 MB or 128 MiB",
            continuous_update=False,
            layout=w.Layout(width="84px"),
        )
        self.error = parts.Text("error")
        self._follow = True
        self.slider.observe(self._on_slide, "value")
        self.field.observe(self._on_type, "value")
        super().__init__([w.HBox([self.slider, self.field]), self.error])
        self.add_class(css_class)
        self.observe(self._on_size, "size_bytes")

    def offer(self, stops: Sequence[int]) -> None:
        """Let it be moved to two to these powers; a size beyond them can be typed."""
        self.slider.stops = list(stops)
        self.slider.min, self.slider.max = stops[0], stops[-1]
        self._on_size()

    def _on_slide(self, _: object) -> None:
        if self._follow:
            self.size_bytes = 2**self.slider.value

    def _on_type(self, _: object) -> None:
        if self._follow:
            size_bytes, error = attempt(lambda: parse_size(self.field.value, self.label))
            self.size_bytes = size_bytes
            self.error.show(error)

    def _on_size(self, _: object = None) -> None:
        """Bring slider and field to the size, without taking that for a new choice."""
        if self.size_bytes is None:
            return
        self._follow = False
        nearest = self.size_bytes.bit_length() - 1
        self.slider.value = min(max(nearest, self.slider.min), self.slider.max)
        self.slider.text = format_size(self.size_bytes)
        typed, _ = attempt(lambda: parse_size(self.field.value))
        if typed != self.size_bytes:
            self.field.value = self.slider.text
        self.error.show("")
        self._follow = True


class LinesFigure(parts.Drawing, anywidget.AnyWidget):
    """A figure of sizes, over which the lines of thresholds can be dragged.

    The first line is dragged over the upper half of the figure's axes, the second over the lower half.
    """

    _esm = parts.FOLDER / "lines.js"
    value = Unicode("", help="The figure as HTML").tag(sync=True)
    first = Float(help="The power of two at which the first line is").tag(sync=True)
    second = Float(help="The same of the second line").tag(sync=True)
    stops = List(List(Int()), [[], []], help="The powers of two to which each can be dragged").tag(sync=True)
    scale = List(Float(), [0.0, 1.0, 0.0, 1.0], help="The axis' ends: powers of two, shares").tag(sync=True)
    spans = List(List(Float()), [[0.0, 0.5], [0.5, 1.0]], help="Where each begins and ends").tag(sync=True)

    def __init__(self, first: SizeSlider, second: SizeSlider, css_class: str):
        super().__init__()
        self.add_class(css_class)
        for name, slider in (("first", first), ("second", second)):
            self.observe(partial(self._on_drag, slider), name)
            slider.observe(lambda change, name=name: self._follow(name, change.new), "size_bytes")
            self._follow(name, slider.size_bytes)

    def _follow(self, name: str, size_bytes: int | None) -> None:
        if size_bytes is not None:
            setattr(self, name, _power(size_bytes))

    def _on_drag(self, slider: SizeSlider, change: Any) -> None:
        if slider.size_bytes is None or change.new != _power(slider.size_bytes):
            slider.size_bytes = 2 ** round(change.new)

    def _html(self, figure: Figure) -> Html:
        # From above to below.
        boxes = sorted((axis.get_position() for axis in figure.axes), key=lambda box: -box.y1)
        halves = boxes[: len(boxes) // 2], boxes[len(boxes) // 2 :]
        self.scale = [*map(float, figure.axes[0].get_xlim()), float(boxes[0].x0), float(boxes[0].x1)]
        self.spans = [[float(1 - pair[0].y1), float(1 - pair[-1].y0)] for pair in halves]
        return super()._html(figure)


def stops(sizes: np.ndarray, largest: int) -> tuple[list[int], list[int]]:
    """The powers of two between which a plan differs, as minimum and as target size of files.

    Args:
        sizes: Bytes of each file.
        largest: Bytes of the largest bin that there could be.
    """
    powers = np.unique(np.frexp(np.maximum(sizes, 1).astype(float))[1])
    lowest = int(powers[0]) - 1
    return [lowest, *powers.tolist()], list(range(lowest, max(int(largest - 1).bit_length(), lowest + 1) + 1))


def size_argument(size_bytes: int) -> int | str:
    """A size as an argument in Python: "2 MiB" if that is exactly it, else bytes."""
    text = format_size(size_bytes)
    return text if parse_size(text) == size_bytes else size_bytes


def _power(size_bytes: int) -> float:
    return float(np.log2(size_bytes))
