"""Base classes of plans, results and other records: text, HTML and dictionaries from the same facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.text import Html, format_count, format_list, joined_lines, shown

_MOST_SKIPPED = 20


class Record:
    """Base class for frozen dataclasses (with `repr=False`) that show their facts as text and HTML."""

    def facts(self) -> dict[str, str]:
        """Return the record as readable text: names and values; {} if `summary` has sentences instead."""
        return {}

    def parts(self) -> Sequence[object]:
        """Return the parts for notebooks and reports: by default facts or sentences, and any figure."""
        return self.facts() or self.summary(), *([self.plot()] if hasattr(self, "plot") else [])

    def summary(self) -> str:
        """Return the facts, one per line, with names and values aligned."""
        facts = self.facts()
        width = max(map(len, facts), default=0) + 4
        return joined_lines(f"{name:<{width}}{value}" for name, value in facts.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values: sizes in bytes, times in ISO 8601, durations in seconds.

        Tables become lists of rows. Fields with `repr=False`, such as a session, are left out.
        """
        return {field.name: plain(getattr(self, field.name)) for field in fields(self) if field.repr}  # type: ignore[arg-type]

    def _repr_html_(self) -> Html:
        return shown(*self.parts())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n{self.summary()}\n)"


class Plan(Record):
    """Base class of plans: nothing is changed until `run()`."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do; `explain()` says why."""
        return False

    def explain(self) -> str:
        """Return in a few sentences what the plan does and why."""
        return self.summary()


@dataclass(frozen=True, repr=False)
class TableRows(Record):
    """The result of reading many tables, as rows.

    `where` describes the tables; `skipped` says what was left out, such as "sales.recent is a view".
    """

    where: str
    rows: pa.Table
    skipped: tuple[str, ...] = ()

    @property
    def finding(self) -> str:
        """The finding, as a sentence without full stop."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame; see `to_arrow`."""
        return self.rows.to_pandas()

    def __len__(self) -> int:
        return self.rows.num_rows

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.finding})"

    def _rest(self, count: int, most: int, noun: str) -> list[str]:
        return [f"… and {format_count(count - most, noun)} in to_arrow()"] if count > most else []

    def _skipped(self) -> list[str]:
        names = format_list(self.skipped, most=_MOST_SKIPPED)
        return [f"Skipped {len(self.skipped):,}: {names}."] if names else []


def plain(value: Any) -> Any:
    """Convert a value to JSON values; see `Record.to_dict`."""
    if isinstance(value, (pa.Table, pa.Array, pa.ChunkedArray)):
        return [plain(item) for item in value.to_pylist()]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Record):
        return value.to_dict()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.repr}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
