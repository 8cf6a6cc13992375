"""Parse partition values, and group files into partitions as OPTIMIZE does.

From Delta 4.3 on, OptimizeExecutor groups files by partition values parsed to the column's type
(conf normalizePartitionValuesOnRead): int "1" and "01" are one partition. Earlier releases compare text;
later releases do so too for files with "" in a column that isn't text.
"""

import datetime
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import UnsupportedTableError
from compaction_kit.log.paths import HIVE_NULL, one_array
from compaction_kit.log.protocol import DECIMAL

_LIMITS = {"byte": 1 << 7, "short": 1 << 15, "integer": 1 << 31, "long": 1 << 63}
# The words that Spark casts to boolean (StringUtils.isTrueString and isFalseString).
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True)
_BOOLEANS |= dict.fromkeys(("false", "f", "no", "n", "0"), False)
_TEXTS = ("string", "binary")
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def partition_groups(
    partitions: pa.Table, types: Mapping[str, Any] | None = None, time_zone: datetime.tzinfo | None = None
) -> np.ndarray:
    """Number the partitions from 0: files with the same number belong together.

    Args:
        partitions: partition.<column> of each file, as the log writes it (text).
        types: The Delta type of each column, by its name; None compares values as text.
        time_zone: The session's time zone, for timestamps without a zone; None for the machine's zone.

    Raises:
        UnsupportedTableError: A value isn't of its column's type; OPTIMIZE may turn it into null.
    """
    columns = {
        name.removeprefix("partition."): one_array(values).dictionary_encode(null_encoding="encode")
        for name, values in zip(partitions.column_names, partitions.columns, strict=True)
    }
    codes = np.zeros(partitions.num_rows, dtype=np.int64)
    by_text = np.zeros(len(codes), dtype=bool)
    for name, encoded in columns.items():
        if types is not None and types[name] not in _TEXTS:
            by_text |= (
                pc.fill_null(pc.equal(encoded.dictionary, ""), False).take(encoded.indices).to_numpy(False)
            )
    for name, encoded in columns.items():
        keys, values = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        if types is not None and len(keys):
            numbers: dict[Any, int] = {}
            typed = (_key(value, name, types[name], time_zone) for value in keys)
            of_value = np.array([numbers.setdefault(key, len(numbers)) for key in typed])
            values = np.where(by_text, len(keys) + values, of_value[values])
        codes = codes * (2 * len(keys) + 1) + values
        codes = np.unique(codes, return_inverse=True)[1]
    if types is None:
        return codes
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _key(value: str | None, column: str, kind: Any, time_zone: datetime.tzinfo | None) -> Any:
    if not value:
        # "" and null are both read as null, but OPTIMIZE puts them into different groups.
        return value
    typed = typed_value(value, column, kind, time_zone)
    # As in Java, NaN equals NaN, and 0.0 differs from -0.0.
    return repr(typed) if isinstance(typed, float) else typed


def typed_value(value: str | None, column: str, kind: Any, time_zone: datetime.tzinfo | None) -> Any:
    """Parse a partition value as Delta reads it (protocol, "Partition Value Serialization").

    Returns a value that pyarrow converts to the type; a date as days, a timestamp as microseconds since 1970.
    None for null.
    """
    if not value:
        return None
    try:
        return _parsed(value, kind if isinstance(kind, str) else "", time_zone)
    except (ValueError, ArithmeticError, TypeError, UnsupportedTableError):
        into = "null or, before the year 1 in UTC, into another time" if kind == "timestamp" else "null"
        raise UnsupportedTableError(
            f'The partition value "{value}" of column {column} can\'t be read as {kind}: OPTIMIZE may turn '
            f"it into {into}; correct those rows first."
        ) from None


def _parsed(value: str, kind: str, time_zone: datetime.tzinfo | None) -> Any:
    text = value if kind in _TEXTS else value.strip()
    if kind in ("float", "double"):
        return float(text)
    if kind == "date":
        # Folders of Hive tables may have no leading zeros.
        return datetime.date(*map(int, text.split("-"))).toordinal() - _EPOCH
    if kind == "timestamp":
        return _microseconds(datetime.datetime.fromisoformat(text), time_zone)
    if kind == "timestamp_ntz":
        return datetime.datetime.fromisoformat(text).replace(tzinfo=None)
    if kind == "boolean" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if kind in _LIMITS:
        number, limit = int(text), _LIMITS[kind]
        if "_" not in text and -limit <= number < limit:
            return number
    elif decimal := DECIMAL.fullmatch(kind):
        unit = Decimal(1).scaleb(-int(decimal[2]))
        return Decimal(text).quantize(unit, ROUND_HALF_UP, Context(int(decimal[1])))
    elif kind != "boolean" and text != HIVE_NULL:
        return text.encode() if kind == "binary" else text
    raise ValueError(text)


def _microseconds(moment: datetime.datetime, zone: datetime.tzinfo | None) -> int:
    # astimezone() fails on Python's first and last day. NumPy is used, as the year may be 10000 in UTC.
    known = moment.tzinfo or zone or moment.replace(year=min(max(moment.year, 2), 9998)).astimezone().tzinfo
    local = np.datetime64(moment.replace(tzinfo=None), "us")
    instant = local - np.timedelta64(moment.replace(tzinfo=known).utcoffset() or 0, "us")
    if instant < np.datetime64("0001-01-01"):
        raise ValueError("Delta 4.4 writes the year 0 as the year 1")
    return int(instant.astype(np.int64))
