"""Write plans, results and figures as one HTML page that needs no other file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.plots import to_html
from compaction_kit.text import Html, element, folded, shown
from compaction_kit.times import now, show_time

_STYLE = Path(__file__).with_name("report.css")


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: The heading.
        records: The content, in this order: records of the kit, figures, small Arrow tables, sentences.
        code: Python that makes the records; may be empty.
    """

    title: str
    records: tuple[Any, ...]
    code: str = ""


def write_report(path: str | Path, title: str, *parts: Any) -> Path:
    """Write plans, results, figures and tables as one HTML page.

    The page needs no other file and no network, uses the browser's light or dark theme, and can be
    printed.

    Args:
        path: The file to write; an existing one is replaced.
        title: The page's heading.
        parts: The content, in this order: records of the kit such as plans and results, figures,
            small Arrow tables, sentences, or a `Section` with these.

    Returns:
        The path.

    Raises:
        InvalidArgumentError: A part can't be drawn, or the file can't be written.

    Examples:
        >>> table = ck.open_table("data/flights")
        >>> ck.write_report("flights.html", "The flights of 2013", table.files().stats()).name
        'flights.html'
    """
    try:
        Path(path).write_text(_page(title, parts), encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(
            f"{path} can't be written ({error.strerror}): name a file in a folder that you may write to."
        ) from None
    return Path(path)


def _page(title: str, parts: tuple[Any, ...]) -> str:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(_STYLE.read_text(encoding="utf-8"))),
    )
    made = f"Written by compaction_kit on {show_time(now())}"
    body = element("main", element("h1", title), element("p", made, class_="made"), *map(_part, parts))
    return f"<!DOCTYPE html>\n{element('html', head, element('body', body), lang='en')}\n"


def _part(part: Any) -> Html:
    if not isinstance(part, Section):
        return _record(part)
    lines = [folded("As Python", part.code)] if part.code else []
    return element("section", element("h2", part.title), *map(_record, part.records), *lines)


def _record(record: Any) -> Html:
    # A Figure's own _repr_html_ is for matplotlib's WebAgg server.
    part = to_html(record) if isinstance(record, Figure) else record
    return element("div", shown(part), class_="drawn")
