from collections.abc import Iterator
from typing import Any

import pytest
from matplotlib.text import Text

from compaction_kit.plots import Chart
from compaction_kit.plots.style import LAB_WIDTH


@pytest.fixture(autouse=True)
def _every_text_is_legible(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No figure is wider than its place on a page, and none has a text of less than 11 pixels there."""
    made: list[Chart] = []
    begin = Chart.__init__

    def record(self: Chart, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(Chart, "__init__", record)
    yield
    for figure in made:
        texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
        small = [text.get_text() for text in texts if float(text.get_fontsize()) * 96 / 72 < 11]
        assert not small, (figure.get_suptitle(), small)
        assert figure.get_figwidth() <= LAB_WIDTH, figure.get_suptitle()
