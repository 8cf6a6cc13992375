"""Random values of many types, including the extremes of each type."""

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

# Types and strategies for their values, by name.
Kinds = dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]]
Row = dict[str, Any]
UTC = datetime.UTC
DAYS = st.dates(datetime.date(1600, 1, 1), datetime.date(9999, 12, 31))
TIMES = st.datetimes(datetime.datetime(1600, 1, 1), datetime.datetime(9999, 1, 1))
# Values that hashes may confuse are drawn often.
SMALL = st.sampled_from([0, 1, 2])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf])
SCALARS: Kinds = {
    "long": (pa.int64(), SMALL | st.integers(-(2**63), 2**63 - 1)),
    "int": (pa.int32(), SMALL),
    "short": (pa.int16(), SMALL),
    "byte": (pa.int8(), SMALL),
    "double": (pa.float64(), FLOATS | st.floats()),
    "float": (pa.float32(), FLOATS | st.floats(width=32)),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.sampled_from(["", "\0", "a", "A", "ab", "x" * 13]) | st.text(max_size=4)),
    "binary": (pa.binary(), st.sampled_from([b"", b"\0", b"x" * 13]) | st.binary(max_size=4)),
    "decimal": (pa.decimal128(38, 2), st.integers(-(10**30), 10**30).map(lambda n: Decimal(n) / 100)),
    "small decimal": (
        pa.decimal128(9, 2),
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n) / 100),
    ),
    "date": (pa.date32(), DAYS),
    "timestamp": (pa.timestamp("us", "UTC"), TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    "timestamp_ntz": (pa.timestamp("us"), TIMES),
}


def nested(kinds: Kinds) -> Kinds:
    """Return lists, maps and structs of these types."""
    found: Kinds = {}
    keys = st.sampled_from(["", "k", "l"])
    for name, (kind, values) in kinds.items():
        value = st.none() | values
        entries = st.dictionaries(keys, value, max_size=3).map(lambda found: list(found.items()))
        fields = st.fixed_dictionaries({"x": value, "y": value})
        found[f"list of {name}"] = pa.list_(pa.field("element", kind)), st.lists(value, max_size=3)
        found[f"map to {name}"] = pa.map_(pa.string(), kind), entries
        found[f"struct of {name}"] = pa.struct([("x", kind), ("y", kind)]), fields
    return found


FEW = {name: SCALARS[name] for name in ("int", "double", "string", "timestamp")}
ONCE = nested(FEW)
KINDS = (
    SCALARS | ONCE | nested({name: ONCE[name] for name in sorted(ONCE) if "int" in name or "double" in name})
)


@st.composite
def some_columns(draw: st.DrawFn, kinds: Kinds = KINDS) -> tuple[pa.Schema, st.SearchStrategy[Row]]:
    """Draw some columns and a strategy for their rows, in which some values are null."""
    names = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=4, unique=True))
    row = st.fixed_dictionaries({name: st.none() | kinds[name][1] for name in names})
    return pa.schema([(name, kinds[name][0]) for name in names]), row
