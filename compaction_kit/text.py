"""Parse and format sizes, lengths of time, lists and HTML; only figures make other HTML."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from compaction_kit.errors import InvalidArgumentError, one_line, show_value
from compaction_kit.times import show_time

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_FACTORS = {"": 1, "b": 1}
_FACTORS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", start=1)}
_FACTORS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", start=1)}
_SIZE = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
_LARGEST = 2**63 - 1
_PARTITION = "partition."
# The space between a number and its unit; predicates don't match.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|(?:[KMGTP]iB|B|ms|s|min|h|files?|rows?|times)\b)")
_DATE = re.compile(r"\b(\d{4}-\d\d-\d\d)\b", re.ASCII)
_EMPTY_ELEMENTS = frozenset({"br", "img", "meta"})
# Control characters except tab and line feed, marks of text direction, and surrogates.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def parse_size(value: int | float | str, name: str = "size") -> int:
    """Parse a number of bytes, or text such as "128 MiB" (binary) or "100 MB" (decimal), into bytes.

    Raises:
        InvalidArgumentError: The value is not a size, below 1, or above 2^63 - 1; the message has `name`.
    """
    size_bytes: Any = None
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        factor = _FACTORS.get(match[2].lower()) if match else None
        if match and factor:
            size_bytes = (float(match[1]) if "." in match[1] else int(match[1])) * factor
    elif isinstance(value, Real) and not isinstance(value, bool) and value % 1 == 0:
        size_bytes = value
    if size_bytes is None:
        raise InvalidArgumentError(
            f'{name}={show_value(value)} is not a size: give a whole number of bytes or text such as "1 GiB".'
        )
    if not 1 <= size_bytes <= _LARGEST:
        raise InvalidArgumentError(f"{name}={show_value(value)} is out of range: give 1 byte to under 8 EiB.")
    return int(size_bytes)


def parse_count(value: Any, name: str, least: int = 1, most: int = _LARGEST) -> int:
    """Return a value that is a whole number from `least` to `most`; see `parse_number`."""
    return int(parse_number(value, name, least, most, Integral))


def parse_number(value: Any, name: str, least: int = 0, most: int = _LARGEST, kind: type = Real) -> Any:
    """Return a value that is a number of a kind, Real or Integral, from `least` to `most`.

    Raises:
        InvalidArgumentError: The value is not such a number; the message has `name`.
    """
    is_one = isinstance(value, kind) and not isinstance(value, bool)
    if not is_one or not least <= value <= most:
        noun = "a number" if kind is Real else "a whole number"
        what, end = "out of range" if is_one else f"not {noun}", "on" if most == _LARGEST else f"to {most:,}"
        raise InvalidArgumentError(f"{name}={show_value(value)} is {what}: give {noun} from {least} {end}.")
    return value


def parse_spark_size(value: str, name: str) -> int:
    """Parse a size of the Spark setting or Delta property `name`: "134217728", "128m", "128 MB".

    In Spark every unit is binary (JavaUtils.byteStringAs).

    Raises:
        InvalidArgumentError: The text is not a size.
    """
    match = _SIZE.fullmatch(value)
    letter = match[2].lower().removesuffix("b") if match else "?"
    if match is None or letter not in ("", *"kmgtp"):
        raise InvalidArgumentError(f'{name}={show_value(value)} is not a size: set it to one such as "128m".')
    number = float(match[1]) if "." in match[1] else int(match[1])
    # Spark's sizes have 64 bits.
    return min(int(number * 1024 ** ("kmgtp".index(letter) + 1 if letter else 0)), _LARGEST)


def format_size(size_bytes: float) -> str:
    """Format a size in bytes: "0 B", "512 B", "1.5 KiB", "128 MiB"."""
    amount, unit = float(size_bytes), _BINARY[0]
    for unit in _BINARY:
        if abs(amount) < 999.5 or unit == _BINARY[-1]:
            break
        amount /= 1024
    digits = 0 if unit == "B" or amount >= 99.95 or amount == int(amount) else 1
    return f"{amount:,.{digits}f} {unit}"


def format_count(number: int, noun: str) -> str:
    """Format a count: "1 file", "2,000 files", "2 batches", "2 entries"."""
    if number == 1:
        return f"{number:,} {noun}"
    if noun.endswith("try"):
        return f"{number:,} {noun.removesuffix('y')}ies"
    return f"{number:,} {noun}es" if noun.endswith("ch") else f"{number:,} {noun}s"


def format_files(number: int, size_bytes: float, about: str = "") -> str:
    """Format files and their bytes: "1 file (2 MiB)", "3 files (about 6 MiB in total)"."""
    total = " in total" if number != 1 else ""
    return f"{format_count(number, 'file')} ({about}{format_size(size_bytes)}{total})"


def format_partition(row: Mapping[str, Any]) -> str:
    """Format the columns partition.<column> of a row, and no other: "origin=JFK, day IS NULL".

    Delta reads an empty partition value as null (protocol, "Partition Value Serialization").
    """
    values = {name.removeprefix(_PARTITION): row[name] for name in row if name.startswith(_PARTITION)}
    return ", ".join(f"{name}={value}" if value else f"{name} IS NULL" for name, value in values.items())


def format_list(words: Sequence[object], most: int = 5, separator: str = ", ") -> str:
    """Format the first items of a list on one line: "a, b", "a, b, c, d, e and 2,000 more"."""
    more = len(words) - most
    shown = (one_line(str(word)) for word in words[:most])
    return separator.join(shown) + (f" and {more:,} more" if more > 0 else "")


def joined_lines(lines: Iterable[str | None]) -> str:
    """Join lines, without empty ones; a name with line breaks stays on its line."""
    return "\n".join(" ".join(line.splitlines()) for line in lines if line)


def format_seconds(seconds: float) -> str:
    """Format seconds: "4.2 ms", "0.42 s", "1.3 s", "42 s", "10 min", "2 min 5 s", "3 h 4 min"."""
    if not seconds:
        return "0 s"
    if seconds < 0.0995:
        milliseconds = seconds * 1000
        return f"{milliseconds:.{0 if milliseconds >= 9.95 else 1}f} ms"
    if seconds < 9.95:
        return f"{seconds:.{1 if seconds >= 0.995 else 2}f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    number, large, small = (whole, "min", "s") if whole < 7200 else (round(seconds / 60), "h", "min")
    return f"{number // 60:,} {large}" + (f" {number % 60} {small}" if number % 60 else "")


def format_range(low: float, high: float) -> str:
    """Format a rough range of seconds: "3 to 8 s", "0.1 s", "1.4 to 3 s", "40 s to 2 min 10 s"."""
    ends = [max(float(f"{end:.{1 if end < 1 or 2 <= end < 10 else 2}g}"), 0.1) for end in (low, high)]
    first, last = (f"{end:g} s" if end < 120 else format_seconds(end) for end in ends)
    return last if first == last else f"{first.removesuffix(' s') if ends[1] < 120 else first} to {last}"


def format_factor(factor: float) -> str:
    """Format a factor or an average: "1.3", "2", "12", "1,234"."""
    return f"{factor:.1f}".removesuffix(".0") if factor < 9.95 else f"{factor:,.0f}"


def format_change(before: float, after: float) -> str:
    """Format two sizes and their ratio, unless it is about 1: "547 KiB → 1.8 MiB, 3.4 times as much"."""
    factor = after / before if before else 1.0
    share = f"{factor:.0%}".replace("%", " %") if factor >= 0.01 else "less than 1 %"
    times = share if factor < 1 else f"{format_factor(factor)} times"
    ratio = "" if 0.95 < factor < 1.05 else f", {times} as much"
    return f"{format_size(before)} → {format_size(after)}{ratio}"


def format_share(part: float, whole: float) -> str:
    """Format a share, as 0 % or 100 % only if it is exactly nothing or all."""
    if not whole:
        return "0 %"
    share = round(100 * part / whole)
    return f"{share if part in (0, whole) else min(max(share, 1), 99)} %"


class Html(str):
    """Text that is HTML. Adding, formatting or replacing gives plain text again."""

    __slots__ = ()


def visible(text: str) -> str:
    """Replace invisible characters by Python's escapes; names of files and columns may hold any."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def unbroken(text: str) -> str:
    """Keep numbers and their units on one line: "28 %", "1.8 MiB", "3 files"."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def element(name: str, /, *children: str, **attributes: str) -> Html:
    r"""Return an HTML element; its text and its attributes' values are escaped, Html is not.

    "_" in an attribute's name becomes "-", and is dropped at the end.

    Examples:
        >>> from compaction_kit.text import element
        >>> element("p", "a < b", class_='"')
        '<p class="&quot;">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items()
    )
    end = "" if name in _EMPTY_ELEMENTS else f"{joined(*children)}</{name}>"
    return Html(f"<{name}{given}>{end}")


def joined(*children: str) -> Html:
    """Join text, which is escaped, and Html."""
    return Html("".join(child if isinstance(child, Html) else _escaped(child) for child in children))


def prose(text: str) -> Html:
    """Return sentences as HTML that breaks their lines neither before a unit nor within a date."""
    words = _DATE.split(unbroken(text))
    words[1::2] = (element("span", date, style="white-space:nowrap") for date in words[1::2])
    return joined(*words)


def paragraph(text: str) -> Html:
    """Return a paragraph that keeps the line breaks of a text."""
    first, *rest = text.split("\n")
    return element("p", first, *(joined(element("br"), line) for line in rest))


def folded(summary: str, lines: str) -> Html:
    """Return lines of code or error details unchanged, hidden until a click on the summary."""
    return element("details", element("summary", summary), element("pre", lines))


def shown(*parts: object) -> Html:
    """Return parts of a record, one below the other, as notebooks and reports show them.

    Parts are sentences, facts (names and values), small Arrow tables, Html, and objects with _repr_html_.

    Raises:
        InvalidArgumentError: A part is none of these.
    """
    # Otherwise a notebook's MathJax would show text between two $ as a formula.
    return element("div", *map(_shown, parts), class_="mathjax_ignore tex2jax_ignore")


def as_html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return an HTML table: the first column aligned left, the others right."""
    body = (element("tr", *_cells("td", row)) for row in rows)
    return element("table", element("thead", element("tr", *_cells("th", head))), element("tbody", *body))


def arrow_as_html(rows: pa.Table) -> Html:
    """Return a small Arrow table as an HTML table; nulls are empty cells."""
    head = [name.replace("_", " ") for name in rows.column_names]
    return as_html_table(head, ([_as_cell(value) for value in row.values()] for row in rows.to_pylist()))


def _as_cell(value: object) -> str:
    if isinstance(value, datetime):
        return show_time(value, "seconds")
    if isinstance(value, list):
        # Arrow gives a map as a list of pairs.
        given = (part for part in value if not isinstance(part, tuple) or part[1] is not None)
        return ", ".join("=".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in given)
    return "" if value is None else str(value)


def _escaped(text: object) -> str:
    return html.escape(visible(str(text)))


def _shown(part: object) -> Html:
    if isinstance(part, Html):
        return part
    if isinstance(part, str):
        return paragraph(part)
    if isinstance(part, Mapping):
        left = {"style": "text-align:left"}
        rows = (element("tr", element("th", k, **left), element("td", v, **left)) for k, v in part.items())
        return element("table", element("tbody", *rows))
    if isinstance(part, pa.Table):
        return arrow_as_html(part)
    if hasattr(part, "_repr_html_"):
        return Html(part._repr_html_())
    raise InvalidArgumentError(
        f"A part of type {type(part).__name__} can't be shown: give records of the kit, figures, small "
        "Arrow tables or sentences."
    )


def _cells(kind: str, texts: Sequence[str]) -> list[Html]:
    styles = ["text-align:left", *["text-align:right"] * (len(texts) - 1)]
    if kind == "td":
        styles = [f"{style};white-space:nowrap" for style in styles]
    return [element(kind, text, style=style) for style, text in zip(styles, texts, strict=True)]
