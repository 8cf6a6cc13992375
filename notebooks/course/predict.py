"""Predict, then look: a question whose answer is shown once the student has guessed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
from traitlets import Any as AnyValue
from traitlets import Bool, List, Unicode

from compaction_kit.errors import InvalidArgumentError, show_value
from compaction_kit.plots.style import as_css
from compaction_kit.text import Html, element, format_list, joined
from compaction_kit.widgets.page import show_with_still

_FOLDER = Path(__file__).parent


class Prediction(anywidget.AnyWidget):
    """A question, a field for a guess, and the answer after the guess. It all runs in the browser."""

    _esm = _FOLDER / "predict.js"
    _css = as_css() + (_FOLDER / "predict.css").read_text(encoding="utf-8")
    question = Unicode(help="What is asked").tag(sync=True)
    answer: Any = AnyValue(help="A number, or one of the choices").tag(sync=True)
    choices = List(Unicode(), help="What can be chosen; empty for a number").tag(sync=True)
    unit = Unicode(help="What is counted or measured").tag(sync=True)
    why = Unicode(help="What explains the answer").tag(sync=True)
    guess: Any = AnyValue(None, help="The student's guess; None before it").tag(sync=True)
    revealed = Bool(False, help="Whether the answer is shown").tag(sync=True)

    def _ipython_display_(self) -> None:
        show_with_still(self, self._still, self.question)

    def _still(self) -> Html:
        """Return the question with the answer folded below it, for places where the widget doesn't run."""
        text = f"{self.answer:,.15g}" if not self.choices else self.answer
        answer = element("p", f"{text} {self.unit}".strip() + (f": {self.why}" if self.why else "."))
        choices = [element("ul", *(element("li", choice) for choice in self.choices))] if self.choices else []
        folded = element("details", element("summary", "The answer"), answer)
        return joined(element("p", element("b", self.question)), *choices, folded)


def predict(question: str, answer: float | str, choices: Sequence[str] = (), **more: Any) -> Prediction:
    """Ask for a guess, a number or one of the choices, before the answer is shown.

    Fold the cell (`"jupyter": {"source_hidden": true}` in its metadata), and let the cell that computes the
    answer `assert` that it equals the prediction's `answer`. `more` are unit and why; see `Prediction`.

    Raises:
        InvalidArgumentError: The answer is not one of the choices, or not a number if there are no choices.
    """
    is_number = isinstance(answer, (int, float)) and not isinstance(answer, bool)
    if not (answer in choices if choices else is_number):
        wanted = f"one of {format_list(choices)}" if choices else "one number, or choices"
        raise InvalidArgumentError(f"The answer {show_value(answer)} can't be given: give {wanted}.")
    return Prediction(question=question, answer=answer, choices=list(choices), **more)
