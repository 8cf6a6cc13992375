from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from matplotlib.backend_bases import RendererBase
from matplotlib.text import Text

from compaction_kit.plots import Chart
from compaction_kit.plots.style import LAB_WIDTH


@pytest.fixture(autouse=True)
def _every_text_is_legible(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that no figure is too wide, and that no text is under 11 pixels, cut off or over another text."""
    made: list[Chart] = []
    drawn: list[Text] = []
    begin, draw = Chart.__init__, Text.draw

    def record(self: Chart, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        made.append(self)

    def draw_and_record(self: Text, renderer: RendererBase) -> None:
        drawn.extend([self] * (self.get_visible() and bool(self.get_text().strip())))
        draw(self, renderer)

    monkeypatch.setattr(Chart, "__init__", record)
    yield
    for figure in made:
        texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
        small = [text.get_text() for text in texts if float(text.get_fontsize()) * 96 / 72 < 11]
        assert not small, (figure.get_suptitle(), small)
        assert figure.get_figwidth() <= LAB_WIDTH, figure.get_suptitle()
    monkeypatch.setattr(Text, "draw", draw_and_record)
    for figure in made:
        drawn.clear()
        figure.draw_without_rendering()
        boxes = {text: text.get_window_extent().padded(-0.75) for text in drawn}
        page = figure.bbox.padded(1)
        cut = [
            text.get_text()
            for text, box in boxes.items()
            if not (page.contains(*box.min) and page.contains(*box.max))
        ]
        over = [
            (a.get_text(), b.get_text()) for a, b in combinations(boxes, 2) if boxes[a].overlaps(boxes[b])
        ]
        assert (cut, over) == ([], []), figure.get_suptitle()
