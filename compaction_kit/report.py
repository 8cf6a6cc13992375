"""Write plans, results and figures as one HTML page that needs no other file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from compaction_kit.errors import InvalidArgumentError, show_value
from compaction_kit.plots import to_html
from compaction_kit.text import Html, element, folded, shown
from compaction_kit.times import now, show_time

_STYLE = Path(__file__).with_name("report.css")


@dataclass(frozen=True)
class Section:
    """A part of a report: a heading, its records as `write_report` takes them, and Python that makes them."""

    title: str
    records: tuple[Any, ...]
    code: str = ""


def write_report(path: str | Path, title: str, *parts: Any) -> Path:
    """Write plans, results, figures and tables as one HTML page, and return its path.

    The page needs no other file and no network, uses the browser's light or dark theme, and can be printed.

    Args:
        path: The file to write; an existing one is replaced.
        title: The page's heading.
        parts: The content, in this order: records of the kit such as plans and results, figures, small Arrow
            tables, sentences, or a `Section` with these.

    Raises:
        InvalidArgumentError: The title isn't text, a part can't be drawn, or the file can't be written.

    Examples:
        >>> table = ck.open_table("data/flights")
        >>> ck.write_report("flights.html", "The flights of 2013", table.files().stats()).name
        'flights.html'
    """
    if not isinstance(title, str):
        raise InvalidArgumentError(f"title={show_value(title)} is not text: give a heading, then parts.")

    def record(part: Any) -> Html:
        # A Figure's own _repr_html_ is for matplotlib's WebAgg server.
        return element("div", shown(to_html(part) if isinstance(part, Figure) else part), class_="drawn")

    def section(part: Any) -> Html:
        if not isinstance(part, Section):
            return record(part)
        code = [folded("As Python", part.code)] if part.code else []
        return element("section", element("h2", part.title), *map(record, part.records), *code)

    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(_STYLE.read_text(encoding="utf-8"))),
    )
    made = element("p", f"Written by compaction_kit on {show_time(now())}", class_="made")
    body = element("body", element("main", element("h1", title), made, *map(section, parts)))
    page = f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"
    try:
        file = Path(path)
        file.write_text(page, encoding="utf-8")
    except (OSError, TypeError, ValueError) as error:
        why = f"path={path!r} can't be written ({getattr(error, 'strerror', error)})"
        raise InvalidArgumentError(f"{why}: name a file in a folder that you may write to.") from None
    return file
