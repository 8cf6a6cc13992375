"""Stats are merged to what they would be of all rows, or left out: never wrong."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit.arrow.stats import data_leaves, merge_stats
from compaction_kit.log.protocol import Metadata

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "i", "type": "long"},
        {"name": "s", "type": "string"},
        {"name": "d", "type": "decimal(38,18)"},
        {"name": "n", "type": {"type": "struct", "fields": [{"name": "a", "type": "date"}]}},
        {"name": "l", "type": {"type": "array", "elementType": "long", "containsNull": True}},
    ],
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
LEAVES = data_leaves(Metadata("id", SCHEMA, (), {}))
FILES = st.lists(st.lists(ROWS, max_size=5), min_size=1, max_size=5)
Row = dict[str, Any]


def stats_of(rows: list[Row]) -> str:
    """What Delta says of these rows; a column of nulls has no bounds."""
    nulls = {name: sum(row[name] is None for row in rows) for name in "isdl"}
    text = {
        "numRecords": len(rows),
        "minValues": bounds_of(rows, min),
        "maxValues": bounds_of(rows, max),
        "nullCount": {**nulls, "n": {"a": sum(row["n"]["a"] is None for row in rows)}},
    }
    return dumped(text)


def bounds_of(rows: list[Row], pick: Callable[..., Any]) -> Row:
    inner = [row["n"]["a"] for row in rows if row["n"]["a"] is not None]
    bounds: Row = {"n": {"a": pick(inner)}} if inner else {"n": {}}
    for name in "isd":
        values = [row[name] for row in rows if row[name] is not None]
        if values:
            bounds[name] = pick(values, key=lambda value: value.encode() if isinstance(value, str) else value)
    return bounds


def dumped(stats: Row) -> str:
    """JSON with decimals as numbers; the standard library has no way to."""
    decimals: list[Decimal] = []

    def held(number: Decimal) -> str:
        decimals.append(number)
        return f"decimal {len(decimals) - 1} of the test"

    text = json.dumps(stats, default=held)
    for i, number in enumerate(decimals):
        text = text.replace(f'"decimal {i} of the test"', f"{number:f}")
    return text


def loaded(text: str) -> Row:
    stats: Row = json.loads(text, parse_float=Decimal)
    # An empty struct of bounds says as much as none.
    for name in ("minValues", "maxValues"):
        stats[name] = {key: value for key, value in stats.get(name, {}).items() if value != {}}
    return stats


@given(FILES)
def test_merged_stats_are_those_of_all_rows_together(files: list[list[Row]]) -> None:
    rows = [row for file in files for row in file]
    merged = merge_stats([stats_of(file) for file in files], LEAVES).of(len(rows), {})
    assert loaded(merged) == loaded(stats_of(rows))


@given(FILES, st.data())
def test_what_one_file_does_not_say_is_left_out(files: list[list[Row]], data: st.DataObject) -> None:
    rows = [row for file in files for row in file]
    texts: list[Row] = [json.loads(stats_of(file), parse_float=Decimal) for file in files]
    kind = data.draw(st.sampled_from(["minValues", "maxValues", "nullCount"]))
    column = data.draw(st.sampled_from("isd"))
    lacking = data.draw(st.integers(0, len(files) - 1))
    was_there = texts[lacking][kind].pop(column, None) is not None
    merged = loaded(merge_stats([dumped(text) for text in texts], LEAVES).of(len(rows), {}))
    expected = loaded(stats_of(rows))
    if was_there:
        expected[kind].pop(column, None)
        if kind == "nullCount":
            # Without it nobody knows whether a file without bounds has nothing but nulls.
            for name in ("minValues", "maxValues"):
                if column not in merged[name]:
                    expected[name].pop(column, None)
    assert merged == expected


@pytest.mark.parametrize(
    "other",
    [None, "{", "[]", "{}", '{"numRecords":"2"}', '{"numRecords":2,"tightBounds":false}', '{"numRecords":3}'],
)
def test_without_a_sound_word_of_every_file_rows_alone_are_counted(other: str | None) -> None:
    """The last one counts other rows than were written."""
    whole = '{"numRecords":2,"minValues":{"i":1},"maxValues":{"i":2},"nullCount":{"i":0}}'
    assert json.loads(merge_stats([whole, other], LEAVES).of(4, {})) == {"numRecords": 4}


EARLY, LATE = "2024-01-01T01:30:00.000+02:00", "2024-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        # NaN is the greatest, as Spark has it.
        ("double", ["NaN", 1.5, "Infinity", "-Infinity"], ("-Infinity", "NaN")),
        ("float", ["NaN", 1.5, "Infinity", "-Infinity"], ("-Infinity", "NaN")),
        # They compare as moments, and are told as they were written.
        ("timestamp", [LATE, EARLY], (EARLY, LATE)),
        # What doesn't surely compare has no bounds.
        ("double", ["nan", 1.5], None),
        ("date", ["+10000-01-01", "2024-01-01"], None),
        ("timestamp", ["soon", LATE], None),
        ("timestamp", ["2024-01-01T00:00:00.000", LATE], None),
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
    assert json.loads(merge_stats(texts, [(("c",), kind)]).of(len(values), {})) == expected


def test_columns_go_by_their_physical_names_without_those_of_partitions() -> None:
    field = {"name": "a", "type": "long", "metadata": {"delta.columnMapping.physicalName": "col-1"}}
    nested = {"name": "n", "type": {"type": "struct", "fields": [field]}, "metadata": {}}
    schema = {"type": "struct", "fields": [field, nested, {"name": "p", "type": "date"}]}
    for mode, name in (("name", "col-1"), ("none", "a")):
        leaves = data_leaves(Metadata("id", schema, ("p",), {"delta.columnMapping.mode": mode}))
        assert leaves == [((name,), "long"), (("n", name), "long")]
