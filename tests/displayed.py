"""What a cell whose last line is a widget leaves in its notebook."""

from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from IPython.utils.capture import capture_output


def outputs_of(shown: object) -> list[dict[str, Any]]:
    """The outputs of a cell that shows something, by type."""
    InteractiveShell.instance()  # without one, everything is printed
    try:
        with capture_output() as captured:
            display(shown)  # type: ignore[no-untyped-call]
    finally:
        InteractiveShell.clear_instance()
    return [output.data for output in captured.outputs]
