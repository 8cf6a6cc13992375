"""The number of random examples of a test, and parameters that run only at night."""

from typing import Any

import pytest
from hypothesis import Phase, settings

_USUAL = 100


def examples(by_day: int, divided_by: int = 1) -> settings:
    """Run `by_day` examples (for 0, only explicit ones), or with --long a share of its many examples."""
    most = settings().max_examples
    if most <= _USUAL and not by_day:
        return settings(phases=[Phase.explicit])
    return settings(max_examples=most // divided_by if most > _USUAL else by_day)


def nightly(*values: Any) -> list[Any]:
    """Mark parameters as nightly; a tuple has a value for each parameter name."""
    sets = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*one, marks=pytest.mark.nightly) for one in sets]
