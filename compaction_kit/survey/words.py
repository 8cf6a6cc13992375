"""A survey in words: its finding, as text, and as HTML."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from compaction_kit.plan.packing import OPEN_COST
from compaction_kit.survey.row import Facts
from compaction_kit.text import Html, as_html_table, element, format_count, format_size, joined, paragraph
from compaction_kit.times import in_zone, session_zone

_MOST_LINES = 20
_MOST_ROWS = 50
# The share of all that is worth naming the tables of.
_MOST_OF_IT = 0.8
_COUNTED = f"each opened file counts as {format_size(OPEN_COST)}"
GAIN = (
    f"Gain: what a full read of the table is spared. In it {_COUNTED}, as by Spark's default for "
    "spark.sql.files.openCostInBytes."
)
_HEAD = (
    "table",
    "files",
    "small",
    "size",
    "median file",
    "after",
    "to rewrite",
    "gain",
    "gain a byte",
    "overlap",
    "log to read",
    "last OPTIMIZE",
)


def finding(where: str, rows: pa.Table) -> str:
    """What a survey found, in a sentence without its full stop."""
    if not len(rows):
        return f"There is no Delta table in {where}"
    gains = [gain or 0 for gain in _surveyed(rows)["gain"].to_pylist()]
    if not gains:
        return f"No table of {len(rows):,} can be surveyed"
    total, tables = sum(gains), format_count(len(gains), "table")
    if not total:
        return f"Compaction would gain nothing in {tables}"
    spared = f"Compaction would spare readers {format_size(total)}"
    cumulated = np.cumsum(gains)
    most = int(np.searchsorted(cumulated, _MOST_OF_IT * total)) + 1
    if most == len(gains):
        return f"{spared} in {tables}; {_COUNTED}"
    share = _percent(int(cumulated[most - 1]), total)
    return f"{spared}, {share} of it in {most:,} of {tables}; {_COUNTED}"


def survey_text(where: str, rows: pa.Table) -> str:
    """The finding, and a line a table."""
    surveyed = _surveyed(rows).to_pylist()
    lines = [f"{finding(where, rows)}."]
    cells = [(row["table"], _files(row), _small(row), _spared(row)) for row in surveyed[:_MOST_LINES]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines += [
        f"{name:<{widths[0]}}  {files:>{widths[1]}}  {small:>{widths[2]}}  {spared:>{widths[3]}}"
        for name, files, small, spared in cells
    ]
    lines += _more(len(surveyed), _MOST_LINES)
    return "\n".join([*lines, *(f"{row['table']}: {row['error']}" for row in _failed(rows))])


def survey_html(where: str, rows: pa.Table) -> Html:
    """The finding, a table of the tables, and the errors in words."""
    surveyed, failed = _surveyed(rows).to_pylist(), _failed(rows)
    parts = [element("p", element("b", f"{finding(where, rows)}."))]
    if surveyed:
        parts.append(as_html_table(_HEAD, [_cells(row) for row in surveyed[:_MOST_ROWS]]))
        parts += map(paragraph, [*_more(len(surveyed), _MOST_ROWS), GAIN])
    if failed:
        listed = (element("li", element("b", row["table"]), f": {row['error']}") for row in failed)
        parts += [paragraph("Not surveyed, or not in full:"), element("ul", *listed)]
    return joined(*parts)


def _surveyed(rows: pa.Table) -> pa.Table:
    return rows.filter(rows["error"].is_null())


def _failed(rows: pa.Table) -> list[Facts]:
    failed: list[Facts] = rows.filter(rows["error"].is_valid()).to_pylist()
    return failed


def _cells(row: Facts) -> Sequence[str]:
    some = row["files_removed"] > 0
    when = row["last_optimize"]
    return (
        row["table"],
        f"{row['num_files']:,}",
        _percent(row["num_small_files"], row["num_files"]),
        format_size(row["size_bytes"]),
        format_size(row["median_size_bytes"]),
        f"{row['num_files'] - row['files_removed'] + row['files_added']:,}",
        format_size(row["bytes_rewritten"]) if some else "nothing",
        format_size(row["gain"]) if some else "none",
        "" if row["gain_per_byte"] is None else _ratio(row["gain_per_byte"]),
        "" if row["overlap"] is None else f"{row['overlap']:,.1f} by {row['overlap_column']}",
        format_size(row["log_bytes"]),
        f"{in_zone(when, session_zone()):%Y-%m-%d}" if when else "",
    )


def _files(row: Facts) -> str:
    after = row["num_files"] - row["files_removed"] + row["files_added"]
    return f"{row['num_files']:,} → {after:,} files"


def _small(row: Facts) -> str:
    return f"{_percent(row['num_small_files'], row['num_files'])} small"


def _spared(row: Facts) -> str:
    return f"spares {format_size(row['gain'])}" if row["files_removed"] else "nothing to gain"


def _more(count: int, most: int) -> list[str]:
    return [f"… and {format_count(count - most, 'table')} more in to_arrow()"] if count > most else []


def _ratio(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _percent(part: int, whole: int) -> str:
    """A share that is 0 % or 100 % only if it is all or nothing."""
    if not whole:
        return "0 %"
    share = round(100 * part / whole)
    return f"{share if part in (0, whole) else min(max(share, 1), 99)} %"
