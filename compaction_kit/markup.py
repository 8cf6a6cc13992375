"""Facts for people: as lines of text, and as HTML."""

import html
from collections.abc import Mapping


def as_text(facts: Mapping[str, str]) -> str:
    """One line a fact, names and values aligned."""
    width = max(map(len, facts), default=0) + 4
    return "\n".join(f"{name:<{width}}{value}" for name, value in facts.items())


def as_html(facts: Mapping[str, str]) -> str:
    """A table with a row a fact."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table><tbody>{rows}</tbody></table>"
