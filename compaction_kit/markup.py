"""Facts for people: as lines of text, and as HTML. All HTML of the kit is made here.

Text is escaped where it is put into an element; only `Html` is taken as it is, and only this module,
the figures and a stylesheet make some.
"""

import html
import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from compaction_kit.errors import InvalidArgumentError

_EMPTY_ELEMENTS = frozenset({"br", "img", "meta"})
# Controls but for tab and line feed, what turns the direction of text, and what isn't Unicode.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Html(str):
    """Text that is HTML. What is added to it, formatted or replaced gives plain text again."""

    __slots__ = ()


def visible(text: str) -> str:
    """Text with what can't be seen written out, as Python writes it; a name may hold any character."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def element(name: str, /, *children: str, **attributes: str) -> Html:
    r"""An element of HTML.

    Args:
        name: What it is.
        children: What is in it, in turn: text, which is escaped, or Html.
        attributes: Its attributes' values, which are escaped. A "_" in a name stands for "-", and one at
            the end for nothing.

    >>> element("p", "a < b", class_='"')
    '<p class="&quot;">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items()
    )
    if name in _EMPTY_ELEMENTS:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str) -> Html:
    """Text, which is escaped, and Html, one after another."""
    return Html("".join(child if isinstance(child, Html) else _escaped(child) for child in children))


def paragraph(text: str) -> Html:
    """A paragraph with a line a line of the text."""
    first, *rest = text.split("\n")
    return element("p", first, *(joined(element("br"), line) for line in rest))


def folded(summary: str, lines: str) -> Html:
    """Lines as they are, such as code or the details of an error, behind a summary that unfolds them."""
    return element("details", element("summary", summary), element("pre", lines))


def shown(*parts: object) -> Html:
    """Parts of a record, one below another, as notebooks and reports show it.

    Args:
        parts: Sentences, facts (names and values), small Arrow tables, Html, and what draws itself, such
            as figures.

    Raises:
        InvalidArgumentError: A part is none of these.
    """
    # A notebook's MathJax would take what is between two $ for mathematics.
    return element("div", *map(_shown, parts), class_="mathjax_ignore tex2jax_ignore")


def as_text(facts: Mapping[str, str]) -> str:
    """One line a fact, names and values aligned."""
    width = max(map(len, facts), default=0) + 4
    return "\n".join(f"{name:<{width}}{value}" for name, value in facts.items())


def as_html(facts: Mapping[str, str]) -> Html:
    """A table with a row a fact."""
    left = "text-align:left"
    rows = (
        element("tr", element("th", name, style=left), element("td", value, style=left))
        for name, value in facts.items()
    )
    return element("table", element("tbody", *rows))


def as_html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table with a row a thing: its name on the left, then what there is to say of it."""
    body = (element("tr", *_cells("td", row)) for row in rows)
    return element("table", element("thead", element("tr", *_cells("th", head))), element("tbody", *body))


def arrow_as_html(rows: pa.Table) -> Html:
    """A small Arrow table as it is, a row a row; nulls are left empty."""
    head = [name.replace("_", " ") for name in rows.column_names]
    texts = (["" if value is None else str(value) for value in row.values()] for row in rows.to_pylist())
    return as_html_table(head, texts)


def _escaped(text: str) -> str:
    return html.escape(visible(text))


def _shown(part: object) -> Html:
    if isinstance(part, Html):
        return part
    if isinstance(part, str):
        return paragraph(part)
    if isinstance(part, Mapping):
        return as_html(part)
    if isinstance(part, pa.Table):
        return arrow_as_html(part)
    if hasattr(part, "_repr_html_"):
        return Html(part._repr_html_())
    raise InvalidArgumentError(
        f"What is of type {type(part).__name__} can't be drawn: give records of the kit, figures, small "
        "Arrow tables or sentences."
    )


def _cells(kind: str, texts: Sequence[str]) -> list[Html]:
    styles = ["text-align:left", *["text-align:right"] * (len(texts) - 1)]
    if kind == "td":
        styles = [f"{style};white-space:nowrap" for style in styles]
    return [element(kind, text, style=style) for style, text in zip(styles, texts, strict=True)]
