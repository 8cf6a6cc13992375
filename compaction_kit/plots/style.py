"""What all figures share: the palette, the axes' looks, how a notebook shows them.

Colours are Okabe and Ito's; hatches carry the same meaning.
"""

import base64
import html
import io
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, FigureBase

from compaction_kit.sizes import format_size

LIVE = "#0072B2"
SMALL = "#E69F00"
NEW = "#009E73"
TOMBSTONED = "#999999"
LOST = "#D55E00"
INK = "#333333"
SMALL_HATCH = "///"

F = TypeVar("F", bound=FigureBase)


class Chart(Figure):
    """A matplotlib Figure that a notebook shows as it is, with its words for people who can't see it."""

    def _repr_html_(self) -> str:
        return to_html(self)


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG image."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def to_html(figure: Figure) -> str:
    """The figure as an `img` element that needs no other file, with its words for people who can't see it."""
    data = base64.b64encode(to_png(figure)).decode()
    width = round(figure.get_figwidth() * 96)
    alt = html.escape(str(figure.get_label()), quote=True)
    return f'<img alt="{alt}" style="max-width:100%" width="{width}" src="data:image/png;base64,{data}">'


def size_ticks(axis: Axis, largest: float, count: int) -> None:
    """Ticks at about so many sizes that are round in binary units."""
    step = 2 ** int(np.ceil(np.log2(max(largest, count) / count)))
    ticks = np.arange(0, largest + 1, step)
    axis.set_ticks(ticks, [format_size(tick) for tick in ticks])


def calm(axis: Axes, grid: str) -> None:
    """Draw a grid along one axis, and the frame in grey."""
    axis.grid(axis=grid, color="#DDDDDD", linewidth=0.6)  # type: ignore[arg-type]
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#BBBBBB")
    axis.tick_params(labelsize=8, colors=INK, length=3, color="#BBBBBB")
    axis.xaxis.label.set(size=9, color=INK)
    axis.yaxis.label.set(size=9, color=INK)


def titled(figure: F, title: str) -> F:
    """Give a figure, or a part of one, its finding as a title and as words for people who can't see it."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    figure.set_label(title)
    return figure
