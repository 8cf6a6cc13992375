"""How many random examples a test takes."""

from hypothesis import settings

_USUAL = 100


def examples(by_day: int, divided_by: int = 1) -> settings:
    """So many where that is fewer than usual; a part of what --long asks for."""
    most = settings().max_examples
    return settings(max_examples=most // divided_by if most > _USUAL else by_day)
