"""The parts of a lesson's lab: controls, and the sentence, figure and Python code that depend on them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ipywidgets as w
from matplotlib.figure import Figure

from compaction_kit.errors import InvalidArgumentError, show_value
from compaction_kit.text import element, format_list
from compaction_kit.widgets import parts
from compaction_kit.widgets.fields import Slider
from compaction_kit.widgets.page import show_with_still, still_of


@dataclass(frozen=True)
class Finding:
    """The result that a lab shows for the values of its controls: one to three sentences, and a figure.

    The figure keeps its size and axes while a control moves. `code` has the Python lines that make it; they
    may use variables of the notebook.
    """

    sentence: str
    figure: Figure
    code: str


def run(code: str, names: dict[str, Any] | None = None) -> Any:
    """Run the lines that a lab shows, and return the value of the last one, which is the lab's figure.

    `names` are the notebook's variables, such as `table`; the lines add their own variables.
    """
    names = {} if names is None else names
    lines, _, last = code.rpartition("\n")
    exec(lines, names)
    return eval(last, names)


class Control:
    """A labelled control with given values; its trait `trait` has the index of the chosen value."""

    def __init__(self, label: str, among: Iterable[Any], chosen: Any, trait: str) -> None:
        self._label, self._among, self._trait = label, tuple(among), trait
        self.chosen = chosen

    @property
    def chosen(self) -> Any:
        """The chosen value; setting a value that is not given raises InvalidArgumentError."""
        return self._among[getattr(self, self._trait)]

    @chosen.setter
    def chosen(self, value: Any) -> None:
        if value not in self._among:
            known = format_list(self._among, most=12)
            raise InvalidArgumentError(f"{self._label} can't be {show_value(value)}: choose one of {known}.")
        setattr(self, self._trait, self._among.index(value))


class Steps(Control, Slider):
    """A slider over values of any type and spacing; `show` formats a value as text."""

    def __init__(self, label: str, options: Iterable[Any], chosen: Any, show: Callable[[Any], str] = str):
        options = tuple(options)
        Slider.__init__(self, label=label, max=len(options) - 1)
        Control.__init__(self, label, options, chosen, "value")
        self.observe(lambda _: self.set_trait("text", show(self.chosen)), "value")
        self.text = show(self.chosen)


class Choice(Control, w.Dropdown):
    """A dropdown of names, each for a value."""

    def __init__(self, label: str, options: Mapping[str, Any], chosen: Any) -> None:
        style, layout = {"description_width": "220px"}, w.Layout(width="max-content")
        w.Dropdown.__init__(self, options=list(options), description=label, style=style, layout=layout)
        Control.__init__(self, label, options.values(), chosen, "index")


class Lab(parts.Part):
    """An experiment of a lesson: move a control, and read what changes.

    Args:
        compute: Returns the finding for the values of the controls, which are passed by name. It is called at
            each step of a slider, so it must take about a tenth of a second and change nothing. If it fails,
            `finding` is None, and the page shows the error's sentence.
        more: Further widgets below the controls.
        controls: The controls, by name.
    """

    finding: Finding | None = None

    def __init__(self, compute: Callable[..., Finding], *more: w.Widget, **controls: Steps | Choice) -> None:
        self.compute, self.more, self.controls = compute, more, controls
        self.sentence = parts.Text("text", "status")
        self.image = parts.FigureView("ck-lab-figure")
        self.code = w.HTML().add_class("ck-code")
        as_python = w.Accordion([self.code], titles=("As Python",)).add_class("ck-as-python")
        style = w.HBox([w.HTML(parts.STYLE), parts.Keys()])
        inputs = w.VBox([*controls.values(), *more])
        super().__init__()
        self.children = (style, inputs, self.failure, self.sentence, self.image, as_python)
        for name in ("ck-workbench", "ck-part", "ck-lab"):
            self.add_class(name)
        for control in controls.values():
            self.watch(control, ["value"])
        self.shown = True

    @property
    def values(self) -> dict[str, Any]:
        """The values of the controls, by name."""
        return {name: control.chosen for name, control in self.controls.items()}

    def _render(self) -> None:
        try:
            finding = self.finding = self.compute(**self.values)
        except Exception:
            self.finding, self.code.value = None, ""
            self.sentence.show("")
            raise
        self.sentence.show(finding.sentence)
        self.image.show(lambda: finding.figure)
        self.code.value = element("pre", finding.code)

    def _ipython_display_(self) -> None:
        show_with_still(self, lambda: still_of(self), self.finding.sentence if self.finding else "")
