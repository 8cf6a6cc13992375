"""Draw arrays, tables and plain values as a matplotlib Figure; nothing but the drawing is computed.

Every figure's title is its finding, and its label (`get_label()`) says the same for people who
can't see it. Matplotlib is loaded with the first figure.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compaction_kit.plots.figures import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(import_module(f"{__name__}.figures"), name)
