"""How many random examples a test takes, and which of its parameters are for the night alone."""

from typing import Any

import pytest
from hypothesis import Phase, settings

_USUAL = 100


def examples(by_day: int, divided_by: int = 1) -> settings:
    """So many where that is fewer than usual, for 0 those that a test names; a part of those of --long."""
    most = settings().max_examples
    if most <= _USUAL and not by_day:
        return settings(phases=[Phase.explicit])
    return settings(max_examples=most // divided_by if most > _USUAL else by_day)


def nightly(*values: Any) -> list[Any]:
    """Parameters for the night alone; a tuple has one for each name."""
    sets = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*one, marks=pytest.mark.nightly) for one in sets]
