"""What all records of the kit share: text and HTML from the same facts, a dictionary from their fields.

One pattern everywhere: a plan changes nothing, knows what would happen, and is the only thing that runs; its
run gives a result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.text import Html, as_text, shown


class Record:
    """A frozen dataclass, made with `repr=False`, that tells of itself."""

    def facts(self) -> dict[str, str]:
        """What there is to know, for people: name and value."""
        raise NotImplementedError

    def parts(self) -> Sequence[object]:
        """What a notebook and a report show, in turn: facts, sentences, small tables, figures."""
        return (self.facts(),)

    def summary(self) -> str:
        """The facts, one a line."""
        return as_text(self.facts())

    def to_dict(self) -> dict[str, Any]:
        """The record's fields in values that JSON has: sizes in bytes, times in ISO 8601, spans in seconds.

        Tables are lists of rows. What the record does its work with, such as a session, is left out.
        """
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self) if one.repr}  # type: ignore[arg-type]

    def _repr_html_(self) -> Html:
        return shown(*self.parts())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n{self.summary()}\n)"


class Plan(Record):
    """What would be done, and nothing is until `run()`."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do; `explain()` says why."""
        raise NotImplementedError

    def explain(self) -> str:
        """What the plan does and why, in a few sentences."""
        return self.summary()

    def run(self) -> Any:
        """Do what the plan says, and tell what was done."""
        raise NotImplementedError


class Result(Record):
    """What a run has done, by what the log and the folder say after it."""


def _plain(value: Any) -> Any:
    if isinstance(value, pa.Table):
        return [_plain(row) for row in value.to_pylist()]
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return [_plain(one) for one in value.to_pylist()]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Record):
        return value.to_dict()
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value) if one.repr}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
