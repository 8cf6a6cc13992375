"""Facts for people: as lines of text, and as HTML."""

import html
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa


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


def as_html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a row a thing: its name on the left, then what there is to say of it."""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def arrow_as_html(rows: pa.Table) -> str:
    """A small Arrow table as it is, a row a row; nulls are left empty."""
    head = [name.replace("_", " ") for name in rows.column_names]
    texts = (["" if value is None else str(value) for value in row.values()] for row in rows.to_pylist())
    return as_html_table(head, texts)


def _cells(kind: str, texts: Sequence[str]) -> str:
    styles = ["text-align:left", *["text-align:right"] * (len(texts) - 1)]
    if kind == "td":
        styles = [f"{style};white-space:nowrap" for style in styles]
    return "".join(
        f'<{kind} style="{style}">{html.escape(text)}</{kind}>'
        for style, text in zip(styles, texts, strict=True)
    )
