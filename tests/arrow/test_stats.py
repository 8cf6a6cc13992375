"""Merged stats equal those of all rows together, or are left out; they are never wrong."""

import json
import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit import open_table
from compaction_kit.arrow.stats import data_leaves, merge_stats, shows_years
from compaction_kit.log.protocol import Metadata
from tests import handmade
from tests.handmade import struct_of

COLUMNS = {
    "i": "long",
    "s": "string",
    "d": "decimal(38,18)",
    "n": struct_of({"a": "date"}),
    "l": {"type": "array", "elementType": "long", "containsNull": True},
}
ROWS = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(max_size=5),
        "d": st.none() | st.decimals(-(10**19), 10**19, places=18),
        "n": st.fixed_dictionaries({"a": st.none() | st.dates().map(str)}),
        "l": st.none() | st.lists(st.integers(), max_size=2),
    }
)
LEAVES = data_leaves(Metadata("id", struct_of(COLUMNS), (), {}))
FILES = st.lists(st.lists(ROWS, max_size=5), min_size=1, max_size=5)
Row = dict[str, Any]


def stats_of(rows: list[Row]) -> Row:
    """Return Delta's stats of these rows; a column of nulls has no bounds."""
    nulls: Row = {name: sum(row[name] is None for row in rows) for name in "isdl"}
    dates = [row["n"]["a"] for row in rows if row["n"]["a"] is not None]
    stats = {"numRecords": len(rows), "nullCount": nulls | {"n": {"a": len(rows) - len(dates)}}}
    for kind, pick in (("minValues", min), ("maxValues", max)):
        bounds: Row = {"n": {"a": pick(dates)} if dates else {}}
        for name in "isd":
            if values := [row[name] for row in rows if row[name] is not None]:
                bounds[name] = pick(values, key=lambda one: one.encode() if isinstance(one, str) else one)
        stats[kind] = bounds
    return stats


def dumped(stats: Row) -> str:
    """Return JSON with decimals as numbers, which the standard library can't write."""
    text = json.dumps(stats, default=lambda number: f"decimal {number:f}")
    return re.sub('"decimal ([^"]*)"', r"\1", text)


def loaded(text: str) -> Row:
    stats: Row = json.loads(text, parse_float=Decimal)
    # An empty struct of bounds means the same as no struct.
    for name in ("minValues", "maxValues"):
        stats[name] = {key: value for key, value in stats.get(name, {}).items() if value != {}}
    return stats


@given(FILES, st.data(), st.booleans())
def test_merged_stats_are_those_of_all_rows_without_what_one_file_does_not_say(
    files: list[list[Row]], data: st.DataObject, is_whole: bool
) -> None:
    rows = [row for file in files for row in file]
    stats, expected = [stats_of(file) for file in files], loaded(dumped(stats_of(rows)))
    kind = data.draw(st.sampled_from(["minValues", "maxValues", "nullCount"]))
    column = data.draw(st.sampled_from("isd"))
    lacking = data.draw(st.sampled_from(stats))
    was_there = not is_whole and lacking[kind].pop(column, None) is not None
    merged = loaded(merge_stats(list(map(dumped, stats)), LEAVES).of(len(rows), dict))
    if was_there:
        expected[kind].pop(column, None)
        if kind == "nullCount":
            # Without a null count, a file without bounds may have other values than nulls.
            for name in ("minValues", "maxValues"):
                if column not in merged[name]:
                    expected[name].pop(column, None)
    assert merged == expected


@pytest.mark.parametrize(
    "other",
    [None, "{", "[]", "{}", '{"numRecords":"2"}', '{"numRecords":2,"tightBounds":false}', '{"numRecords":3}'],
)
def test_unless_all_files_have_valid_stats_only_rows_are_counted(other: str | None) -> None:
    """In the last case the stats count five rows, and four were written."""
    whole = '{"numRecords":2,"minValues":{"i":1},"maxValues":{"i":2},"nullCount":{"i":0}}'
    assert json.loads(merge_stats([whole, other], LEAVES).of(4, dict)) == {"numRecords": 4}


def test_years_show_by_both_bounds(tmp_path: Path) -> None:
    known = [("1901-01-01", "9999-12-31"), ("1900-12-31", "2024-01-01"), ("2024-01-01", "+10000-01-01")]
    adds = [handmade.add(f"{i}", bounds=({"t": low}, {"t": high})) for i, (low, high) in enumerate(known)]
    files = open_table(handmade.write_log(tmp_path, [handmade.metadata({"t": "date"}), *adds])).files()
    assert shows_years(files, np.arange(3), "date", 1901).tolist() == [True, False, False]


EARLY, LATE = "2024-01-01T01:30:00.000+02:00", "2024-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        # NaN is the greatest value, as in Spark.
        ("double", ["NaN", 1.5, "Infinity", "-Infinity"], ("-Infinity", "NaN")),
        ("float", ["NaN", 1.5, "Infinity", "-Infinity"], ("-Infinity", "NaN")),
        # Timestamps are compared as instants, and stay as they were written.
        ("timestamp", [LATE, EARLY], (EARLY, LATE)),
        ("timestamp_ntz", [EARLY[:-6], LATE[:-1]], (LATE[:-1], EARLY[:-6])),
        # Values that can't be compared with certainty have no bounds.
        ("double", ["nan", 1.5], None),
        ("date", ["+10000-01-01", "2024-01-01"], None),
        ("timestamp", ["soon", LATE], None),
        # Timestamps without an offset are in the time zones of the sessions that wrote them.
        ("timestamp", [EARLY[:-6], LATE[:-1]], None),
        ("long", [1.5, 2], None),
        ("boolean", [True, False], None),
        ("binary", ["a", "b"], None),
    ],
    ids=str,
)
def test_comparable_values_have_bounds(kind: str, values: list[Any], bounds: tuple[Any, Any] | None) -> None:
    texts = [
        json.dumps({"numRecords": 1, "minValues": {"c": v}, "maxValues": {"c": v}, "nullCount": {"c": 0}})
        for v in values
    ]
    expected: Row = {"numRecords": len(values), "nullCount": {"c": 0}}
    if bounds:
        expected |= {"minValues": {"c": bounds[0]}, "maxValues": {"c": bounds[1]}}
    assert json.loads(merge_stats(texts, [(("c",), kind)]).of(len(values), dict)) == expected


def test_a_long_maximum_has_a_greater_text_or_none() -> None:
    stats = merge_stats(['{"numRecords":1,"nullCount":{"c":0}}'], [(("c",), "string")])
    for end, bound in (("", "z" * 32), ("y", "z" * 32 + "\U0010ffff"), ("\U0010ffff", None)):
        found = json.loads(stats.of(2, partial(dict, c=(0, "a", "z" * 32 + end))))
        assert (found["minValues"]["c"], found.get("maxValues", {}).get("c")) == ("a", bound)
