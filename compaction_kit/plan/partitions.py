"""Parse partition values, and group files by those that are the same to OPTIMIZE.

From Delta 4.3 on, OptimizeExecutor groups files by partition values parsed to the column's type
(conf normalizePartitionValuesOnRead): int "1" and "01" are one partition. Before, by their text.
"""

import datetime
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.errors import UnsupportedTableError
from compaction_kit.log.paths import one_array
from compaction_kit.times import in_zone, parse_fields

_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
# The words that Spark casts to boolean (StringUtils.isTrueString and isFalseString).
_TRUE = ("true", "t", "yes", "y", "1")
_FALSE = ("false", "f", "no", "n", "0")
# What a folder is called whose partition value is null.
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_DATE = re.compile(r"([+-]?\d{4,7})-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?")


def partition_groups(
    partitions: pa.Table, types: Mapping[str, Any] | None = None, time_zone: datetime.tzinfo | None = None
) -> np.ndarray:
    """Number the partitions from 0: files with the same number belong together.

    Args:
        partitions: partition.<column> of each file, as the log writes it (text).
        types: The Delta type of each column, by its name; None compares values as text.
        time_zone: The session's, for timestamps written without one; None for the machine's.

    Raises:
        UnsupportedTableError: A value isn't of its column's type; OPTIMIZE would turn it into null.
    """
    codes = np.zeros(partitions.num_rows, dtype=np.int64)
    for column in partitions.column_names:
        name = column.removeprefix("partition.")
        encoded = one_array(partitions[column]).dictionary_encode(null_encoding="encode")
        keys = encoded.dictionary.to_pylist()
        if types is not None:
            keys = [_key(value, name, types[name], time_zone) for value in keys]
        numbers: dict[Any, int] = {}
        of_value = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
        if len(of_value):
            codes = codes * (len(numbers) + 1) + of_value[encoded.indices.to_numpy()]
            codes = np.unique(codes, return_inverse=True)[1]
    if types is None:
        return codes
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _key(value: str | None, column: str, kind: Any, time_zone: datetime.tzinfo | None) -> Any:
    if not value:
        # "" and null both read as null, and still OPTIMIZE keeps them apart.
        return value
    typed = typed_value(value, column, kind, time_zone)
    return "NaN" if typed != typed else typed


def typed_value(value: str | None, column: str, kind: Any, time_zone: datetime.tzinfo | None) -> Any:
    """Parse a partition value as Delta reads it (protocol, "Partition Value Serialization").

    Returns a value that pyarrow converts to the type; a date as days since 1970. None for null.
    """
    if not value:
        return None
    try:
        return _parser(kind, time_zone)(value if kind in ("string", "binary") else value.strip())
    except (ValueError, ArithmeticError, TypeError, UnsupportedTableError):
        raise UnsupportedTableError(
            f'The partition value "{value}" of column {column} can\'t be read as {kind}: OPTIMIZE would turn '
            "it into null; correct those rows first."
        ) from None


def _parser(kind: Any, time_zone: datetime.tzinfo | None) -> Callable[[str], Any]:
    if not isinstance(kind, str):
        return _text
    if kind in _INTEGER_BITS:
        return lambda text: _integer(text, _INTEGER_BITS[kind])
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        context, unit = Context(int(decimal[1])), Decimal(1).scaleb(-int(decimal[2]))
        return lambda text: Decimal(text).quantize(unit, ROUND_HALF_UP, context)
    parsers: dict[str, Callable[[str], Any]] = {
        "float": float,
        "double": float,
        "boolean": _boolean,
        "date": _date,
        "timestamp": lambda text: in_zone(parse_fields(text), time_zone).astimezone(datetime.UTC),
        "timestamp_ntz": lambda text: parse_fields(text).replace(tzinfo=None),
        "binary": lambda text: _text(text).encode(),
    }
    return parsers.get(kind, _text)


def _integer(text: str, bits: int) -> int:
    number = int(text)
    if "_" in text or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(text)
    return number


def _text(text: str) -> str:
    if text == _HIVE_NULL:
        raise ValueError(text)
    return text


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE or lowered in _FALSE:
        return lowered in _TRUE
    raise ValueError(text)


def _date(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day = int(match[1]), int(match[2]), int(match[3] or 1)
    datetime.date(min(max(year, 1), 9999), month, day)
    first = np.datetime64(12 * (year - 1970) + month - 1, "M").astype("datetime64[D]")
    return int(first.astype(np.int64)) + day - 1
