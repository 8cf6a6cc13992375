"""The parts that all figures share: palette, titles, notes, legends and ticks, and the display in notebooks.

Colours are Okabe and Ito's; hatches carry the same meaning. A page shows figures as SVG, in which ink,
paper and lines follow its theme, light or dark.
"""

import base64
import io
import re
import textwrap
import threading
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from compaction_kit.text import Html, element, format_size, shown, unbroken, visible

LIVE, SMALL, NEW, TOMBSTONED, LOST = "#0072B2", "#E69F00", "#009E73", "#999999", "#D55E00"
# Colours for anything else, which the legend names.
OTHER, ORPHANED, PALE = "#56B4E9", "#CC79A7", "#CCCCCC"
INK, MUTED, PAPER = "#333333", "#777777", "#FFFFFF"
_GRID, _FRAME = "#DDDDDD", "#BBBBBB"
# Colours of texts on boxes: boxes keep their colours in a dark theme, unlike ink and paper.
ON_LIGHT, ON_DARK = "#222222", "#FEFEFE"
SMALL_HATCH = "///"
# In inches: the room in the workbench beside controls and without them, and in a lesson's lab, if the window
# is 1,280 pixels wide.
SIZES_WIDTH, WIDTH, LAB_WIDTH = 5.0, 7.0, 8.5
# In points (1/72 inch): 11 pixels of a page.
SMALLEST_TEXT = 8.25

# The names of theme colours in JupyterLab (and Voilà) and in VS Code.
_THEME = {
    INK: "var(--jp-ui-font-color1, var(--vscode-foreground, {}))",
    MUTED: "var(--jp-ui-font-color2, var(--vscode-descriptionForeground, {}))",
    PAPER: "var(--jp-layout-color1, var(--vscode-editor-background, {}))",
    _GRID: "var(--jp-border-color2, var(--vscode-panel-border, {}))",
    _FRAME: "var(--jp-border-color1, var(--vscode-panel-border, {}))",
}
_COLOUR = re.compile("|".join(_THEME), re.IGNORECASE)
# Matplotlib lays out text with DejaVu Sans; Verdana is as wide.
_FONT = re.compile(r"'DejaVu Sans'[^;\"]*")
_UNUSED_ID = re.compile(r' id="[a-zA-Z0-9.]+_\d+"')
# The texts of an SVG, which are not changed: a name may look like a colour.
_TEXTS = re.compile(r"(?<=>)([^<]+)(?=</text>)")
# Larger SVGs slow down a page more than pixels do.
_MOST_SVG_CHARACTERS = 512 << 10
# The longest name in a figure, in characters, and the most lines of a title.
_LONGEST_NAME, _MOST_LINES, _TITLE_CHARACTERS_AN_INCH = 36, 2, 10
# Matplotlib's settings belong to the process, and jobs draw too.
_DRAWING = threading.RLock()

F = TypeVar("F", bound=FigureBase)
Point = tuple[float, float]
# The height of a figure in inches, and a function that draws it in the part of a figure given as `figure`.
Placed = tuple[float, Callable[..., Any]]
# The colour and the hatch of an area, which have the same meaning.
Look = tuple[str, str]
Looks = Mapping[str, Look]


class Chart(Figure):
    """A matplotlib Figure that a notebook shows, with its label for people who can't see it.

    Its texts contain names, so no text is parsed as mathematics or TeX.
    """

    def draw(self, renderer: RendererBase) -> None:
        """See `Figure.draw`."""
        for text in self.findobj(Text):
            words = visible(text.get_text()).expandtabs(1)  # type: ignore[attr-defined]
            text.set(parse_math=False, usetex=False, text=words)
        with warnings.catch_warnings():
            # A page has fonts for these characters, and a PNG shows boxes instead.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            super().draw(renderer)

    def _repr_html_(self) -> str:
        return shown(to_html(self))


def as_css() -> str:
    """Return the colours with the same meaning in figures and beside them, as custom properties of CSS."""
    return f":root {{ --ck-small: {SMALL}; --ck-new: {NEW}; --ck-lost: {LOST}; }}\n"


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """Return a figure as a PNG image."""
    buffer = io.BytesIO()
    with _DRAWING:
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def to_svg(figure: Figure) -> Html:
    """Return a figure as an `svg` element for a page, drawn in the page's theme."""
    buffer = io.StringIO()
    # Ids must be unique in a page, so each figure gets its own.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": uuid.uuid4().hex}
    with _DRAWING:
        before = {name: mpl.rcParams[name] for name in settings}
        try:
            mpl.rcParams.update(settings)
            figure.savefig(buffer, format="svg", facecolor="none", metadata={"Date": None})
        finally:
            # Not by `rc_context`, which would also reset settings that the user changes meanwhile.
            mpl.rcParams.update(before)
    drawn = buffer.getvalue()
    body = drawn[drawn.index("</defs>", drawn.index("<style")) + len("</defs>") : drawn.rindex("</svg>")]
    parts = _TEXTS.split(body)
    parts[::2] = map(_themed, parts[::2])
    width, height = (72 * inches for inches in figure.get_size_inches())
    # For matplotlib, text without its own colour is black, and black is left out of the SVG.
    ink = _THEME[INK].format(INK)
    attributes = {
        "role": "img",
        "aria-label": str(figure.get_label()),
        "viewBox": f"0 0 {width:g} {height:g}",
        "width": f"{round(width * 96 / 72)}",
        "style": f"max-width: 100%; height: auto; fill: {ink}",
        "stroke-linejoin": "round",
        "stroke-linecap": "butt",
        "xmlns": "http://www.w3.org/2000/svg",
        "xmlns:xlink": "http://www.w3.org/1999/xlink",
    }
    return element("svg", Html("".join(parts)), **attributes)


def _themed(svg: str) -> str:
    """Return a part of an SVG with the page's fonts and colours."""
    svg = _FONT.sub("'DejaVu Sans', Verdana, sans-serif", _UNUSED_ID.sub("", svg))
    return _COLOUR.sub(lambda match: _THEME[match[0].upper()].format(match[0]), svg)


def to_html(figure: Figure) -> Html:
    """Return a figure as an element that needs no other file, with its label for people who can't see it."""
    drawn = to_svg(figure)
    if len(drawn) <= _MOST_SVG_CHARACTERS:
        return drawn
    data, width = base64.b64encode(to_png(figure)).decode(), f"{round(figure.get_figwidth() * 96)}"
    alt, source = str(figure.get_label()), f"data:image/png;base64,{data}"
    return element("img", alt=alt, style="max-width:100%", width=width, src=source)


def chart(width: float, height: float, title: str, *more: str) -> Chart:
    """Make a figure of a size in inches, laid out so that labels have room; see `titled`."""
    return titled(Chart(figsize=(width, height), layout="constrained"), title, *more)


def titled(figure: F, title: str, *more: str) -> F:
    """Set the finding as title and label of a figure, or of its part; the label continues with `more`."""
    most = int(figure.get_figure(root=True).get_figwidth() * _TITLE_CHARACTERS_AN_INCH)
    words = textwrap.fill(unbroken(visible(title)), most, max_lines=_MOST_LINES, placeholder=" …")
    figure.suptitle(words.replace("\xa0", " "), x=0.01, ha="left", fontsize=11, weight="bold", color=INK)
    figure.set_label(". ".join([title, *more]))
    return figure


def stacked(parts: Sequence[Placed]) -> Chart:
    """Make one figure of several, one below the other."""
    heights = [height for height, _ in parts]
    if len(parts) == 1:
        return parts[0][1]()
    figure = Chart(figsize=(WIDTH, sum(heights)), layout="constrained")
    places: Any = figure.subfigures(len(parts), 1, height_ratios=heights)
    drawn = [draw(figure=place) for place, (_, draw) in zip(places, parts, strict=True)]
    figure.set_label(". ".join(str(one.get_label()) for one in drawn))
    return figure


def calm(axis: Axes, grid: str) -> None:
    """Draw a grid along one axis, and the frame in grey; rows under a grid across ("x") need no marks."""
    axis.grid(axis=grid, color=_GRID, linewidth=0.6)  # type: ignore[arg-type]
    axis.set_axisbelow(True)
    axis.patch.set_visible(False)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_FRAME)
    axis.tick_params(labelsize=SMALLEST_TEXT, colors=INK, length=3, color=_FRAME)
    if grid == "x":
        axis.tick_params(axis="y", length=0)
    for label in (axis.xaxis.label, axis.yaxis.label):
        label.set(size=9, color=INK)


def size_ticks(axis: Axis, largest: float, count: int, with_zero: bool = True) -> None:
    """Set about `count` ticks at sizes that are round in binary units."""
    step = 2 ** int(np.ceil(np.log2(max(largest, count) / count)))
    ticks = np.arange(0 if with_zero else step, largest + 1, step)
    axis.set_ticks(ticks, [format_size(tick) for tick in ticks])


def count_ticks(axis: Axis, most: int = 10) -> None:
    """Set at most `most` ticks at whole numbers, written as "1,000"."""
    axis.set_major_locator(MaxNLocator(most, integer=True))
    axis.set_major_formatter("{x:,.0f}")


def note(axis: Axes, text: str, at: Point, offset: Point = (4, 0), color: str = INK, **how: Any) -> None:
    """Write a text beside a point in data units; `offset` is in points (1/72 inch), to the right and up."""
    how.setdefault("fontsize", SMALLEST_TEXT)
    axis.annotate(text, at, xytext=offset, textcoords="offset points", color=color, **how)


def remark(figure: Figure, text: str, color: str = INK, **how: Any) -> None:
    """Write a line below a figure."""
    figure.supxlabel(text, x=0.01, ha="left", fontsize=SMALLEST_TEXT, color=color, **how)


def rows(axis: Axes, names: Sequence[str], least: int = 0) -> None:
    """Give an axes one row per name, the first on top, with room for at least this many."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(max(len(names), least) - 0.4, -0.6)
    calm(axis, "x")


def packed(axis: Axes, names: Sequence[str], notes: Sequence[str], fullest: float, limit: float) -> float:
    """Lay out rows of bytes, with notes beside them, and a line at a limit if it isn't far beyond them.

    Returns the right end of the axes; a limit beyond it has no line.
    """
    rows(axis, names, 3)
    for row, text in enumerate(notes):
        note(axis, text, (1.01, row), (0, 0), xycoords=("axes fraction", "data"), va="center")
    right = max(fullest, min(limit, 4 * fullest)) * 1.02
    if limit <= right:
        axis.axvline(limit, color=INK, linestyle="--", linewidth=1)
    axis.set_xlim(0, right)
    size_ticks(axis.xaxis, right, 4)
    return right


def fill(look: Look) -> dict[str, Any]:
    """Return the arguments of matplotlib's patches for an area with a look."""
    return {"facecolor": look[0], "hatch": look[1], "edgecolor": "white"}


def legend(owner: Axes | Figure, loc: str, looks: Looks | None = None, **how: Any) -> None:
    """Add a legend without a frame, of these looks or else of the labels in the axes or the figure."""
    if looks is not None:
        how["handles"] = [Patch(label=name, **fill(look)) for name, look in looks.items()]
        how.setdefault("ncols", len(looks) or 1)
    texts = {"fontsize": SMALLEST_TEXT, "title_fontsize": SMALLEST_TEXT, "labelcolor": INK}
    owner.legend(**{"loc": loc, "frameon": False} | texts | how)


def boxes(
    axis: Axes, sides: Sequence[np.ndarray | float], look: Look, edge: str, width: float
) -> PolyCollection:
    """Draw boxes as one collection, several times as fast as one by one; the axes' limits don't change.

    `sides` are left, right, bottom and top of each; edges and hatch have a colour, edges a width in points.
    """
    left, right, bottom, top = np.broadcast_arrays(*sides)
    corners = np.array([[left, left, right, right], [bottom, top, top, bottom]]).T
    how: dict[str, Any] = {"edgecolors": edge, "linewidths": width, "hatch": look[1] or None}
    drawn = PolyCollection(list(corners), facecolors=look[0], **how)
    axis.add_collection(drawn, autolim=False)
    return drawn


def short(name: str, most: int = _LONGEST_NAME) -> str:
    """Put a name on one line, and cut the beginning of a long one."""
    line = " ".join(visible(name).split())
    return line if len(line) <= most else f"…{line[1 - most :]}"
