"""The outputs of a notebook's cell whose last line is a widget."""

from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from IPython.utils.capture import capture_output


def outputs_of(shown: object) -> list[dict[str, Any]]:
    """Return the outputs of a cell that shows an object, by MIME type."""
    InteractiveShell.instance()  # without one, everything is printed
    try:
        with capture_output() as captured:
            display(shown)  # type: ignore[no-untyped-call]
    finally:
        InteractiveShell.clear_instance()
    return [output.data for output in captured.outputs]
