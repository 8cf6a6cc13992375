"""The names of partition folders, as Hive, Spark and Delta write them: `origin=JFK/day=2013-01-01`."""

import re
from pathlib import PurePosixPath

import pyarrow as pa

from compaction_kit.log.paths import HIVE_NULL, folder_of

Value = str | None

_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


def values_of(folder: str) -> dict[str, Value] | None:
    """The partition values that a folder's name tells, null for Hive's word for it.

    Args:
        folder: Relative to the table; "" for the table's own.

    Returns:
        The value of each column as text; None if a part of it isn't of the form column=value.
    """
    values: dict[str, Value] = {}
    for part in PurePosixPath(folder).parts:
        name, sign, value = part.partition("=")
        if not sign or not name or not value:
            return None
        values[_unescaped(name)] = None if value == HIVE_NULL else _unescaped(value)
    return values


def folders_of(partitions: pa.Table) -> pa.Array:
    """The folder of each row of partition.<column>; "" for a table without any."""
    if not partitions.num_columns:
        return pa.array([""] * partitions.num_rows, pa.string())
    columns = [name.removeprefix("partition.") for name in partitions.column_names]
    distinct = partitions.group_by(partitions.column_names).aggregate([])
    known = {values: folder_of(columns, values) for values in _rows(distinct)}
    return pa.array([known[values] for values in _rows(partitions)], pa.string())


def parent_folders(paths: pa.Array) -> pa.DictionaryArray:
    """The folder that each path is in, relative as the path is; "" for the table's own."""
    return pa.array([path.rpartition("/")[0] for path in paths.to_pylist()], pa.string()).dictionary_encode()


def _rows(partitions: pa.Table) -> list[tuple[Value, ...]]:
    return list(zip(*(column.to_pylist() for column in partitions.columns), strict=True))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[0][1:], 16)), text)
