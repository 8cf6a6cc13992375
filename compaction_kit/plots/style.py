"""What all figures share: the palette, the axes' looks, how a notebook shows them.

Colours are Okabe and Ito's; hatches carry the same meaning. A page shows figures as SVG, in which ink,
paper and lines follow its theme, light or dark.
"""

import base64
import html
import io
import re
import uuid
from typing import TypeVar

import matplotlib as mpl
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
MUTED = "#777777"
PAPER = "#FFFFFF"
SMALL_HATCH = "///"

_GRID, _FRAME = "#DDDDDD", "#BBBBBB"
# What JupyterLab (and Voilà with it) and VS Code call the colours of their themes.
_THEME = {
    INK: "var(--jp-ui-font-color1, var(--vscode-foreground, {}))",
    MUTED: "var(--jp-ui-font-color2, var(--vscode-descriptionForeground, {}))",
    PAPER: "var(--jp-layout-color1, var(--vscode-editor-background, {}))",
    _GRID: "var(--jp-border-color2, var(--vscode-panel-border, {}))",
    _FRAME: "var(--jp-border-color1, var(--vscode-panel-border, {}))",
}
_COLOUR = re.compile("|".join(_THEME), re.IGNORECASE)
# DejaVu Sans is what matplotlib lays text out with; Verdana is as wide.
_FONT = re.compile(r"'DejaVu Sans'[^;\"]*")
_FONTS = "'DejaVu Sans', Verdana, sans-serif"
_UNUSED_ID = re.compile(r' id="[a-zA-Z0-9.]+_\d+"')
# Larger ones slow a page down more than pixels do.
_MOST_SVG_CHARACTERS = 512 << 10

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


def to_svg(figure: Figure) -> str:
    """The figure as an `svg` element for a page, in whose theme it is drawn."""
    buffer = io.StringIO()
    # Ids count for the whole page: each figure gets its own.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": uuid.uuid4().hex}):
        figure.savefig(buffer, format="svg", facecolor="none", metadata={"Date": None})
    drawn = buffer.getvalue()
    body = drawn[drawn.index("</defs>", drawn.index("<style")) + len("</defs>") : drawn.rindex("</svg>")]
    body = _FONT.sub(_FONTS, _UNUSED_ID.sub("", body))
    body = _COLOUR.sub(lambda match: _THEME[match[0].upper()].format(match[0]), body)
    width, height = (72 * inches for inches in figure.get_size_inches())
    label = html.escape(str(figure.get_label()), quote=True)
    # Text without a colour of its own is black to matplotlib, which then leaves the colour out.
    ink = _THEME[INK].format(INK)
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {width:g} {height:g}" '
        f'width="{round(width * 96 / 72)}" style="max-width: 100%; height: auto; fill: {ink}" '
        'stroke-linejoin="round" stroke-linecap="butt" xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink">{body}</svg>'
    )


def to_html(figure: Figure) -> str:
    """The figure as an element that needs no other file, with its words for people who can't see it."""
    drawn = to_svg(figure)
    if len(drawn) <= _MOST_SVG_CHARACTERS:
        return drawn
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
    axis.grid(axis=grid, color=_GRID, linewidth=0.6)  # type: ignore[arg-type]
    axis.set_axisbelow(True)
    axis.patch.set_visible(False)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_FRAME)
    axis.tick_params(labelsize=8, colors=INK, length=3, color=_FRAME)
    axis.xaxis.label.set(size=9, color=INK)
    axis.yaxis.label.set(size=9, color=INK)


def titled(figure: F, title: str) -> F:
    """Give a figure, or a part of one, its finding as a title and as words for people who can't see it."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    figure.set_label(title)
    return figure
