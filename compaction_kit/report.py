"""A report: records with their words and figures on one page that needs no other file."""

import html
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from matplotlib.figure import Figure

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.markup import arrow_as_html
from compaction_kit.plots import to_html

_STYLE = Path(__file__).with_name("report.css")


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: Its heading.
        records: What it shows, in turn: records of the kit, figures, small Arrow tables, sentences.
        code: The lines of Python that lead to the records, if any.
    """

    title: str
    records: tuple[Any, ...]
    code: str = ""


def write_report(path: str | Path, title: str, *parts: Any) -> Path:
    """Write records with their words and figures into one HTML page.

    The page needs no other file and no network, follows its reader's light or dark theme, and prints.

    Args:
        path: The file to write; one that is there is replaced.
        title: The page's heading.
        parts: What it shows, in turn: records that draw themselves, such as plans and results,
            figures, small Arrow tables, sentences, or `Section`s of such.

    Returns:
        The path.

    Raises:
        InvalidArgumentError: A part can't be drawn, or the file can't be written.
    """
    try:
        Path(path).write_text(_page(title, parts), encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(
            f"{path} can't be written ({error.strerror}): name a file in a folder that you may write to."
        ) from error
    return Path(path)


def _page(title: str, parts: tuple[Any, ...]) -> str:
    body = "\n".join(map(_part, parts))
    now = datetime.now(UTC)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE.read_text(encoding='utf-8')}</style></head>\n"
        f"<body><main><h1>{html.escape(title)}</h1>"
        f'<p class="made">Written by compaction_kit on {now:%Y-%m-%d %H:%M} UTC</p>\n'
        f"{body}</main></body></html>\n"
    )


def _part(part: Any) -> str:
    if not isinstance(part, Section):
        return _record(part)
    code = html.escape(part.code)
    lines = f"<details><summary>As Python</summary><pre>{code}</pre></details>" if code else ""
    return (
        f"<section><h2>{html.escape(part.title)}</h2>{''.join(map(_record, part.records))}{lines}</section>"
    )


def _record(record: Any) -> str:
    if isinstance(record, str):
        return f'<p class="words">{html.escape(record)}</p>'
    if isinstance(record, pa.Table):
        drawn = arrow_as_html(record)
    elif isinstance(record, Figure):
        drawn = to_html(record)
    elif hasattr(record, "_repr_html_"):
        drawn = record._repr_html_()
    else:
        raise InvalidArgumentError(
            f"What is of type {type(record).__name__} can't be drawn: give records of the kit, figures, "
            "small Arrow tables or sentences."
        )
    return f'<div class="drawn">{drawn}</div>'
