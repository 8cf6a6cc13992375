"""Columns of one value: what the log says of partition columns, written behind those that are read.

Delta writes them to data files, last and in the order of `partitionColumns`, as it reads them from the
log (see `types.has_partition_columns`). Older files, and those of other writers, lack them.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def with_constants(rows: pa.Table, constants: Sequence[pa.Array], schema: pa.Schema) -> pa.Table:
    """Put columns of one value behind those of some rows.

    Args:
        rows: The other columns.
        constants: The value of each column, as an array of length 1.
        schema: Of the result.
    """
    if not constants:
        return rows
    firsts = pa.array(np.zeros(len(rows), np.int32))
    return pa.Table.from_arrays([*rows.columns, *(value.take(firsts) for value in constants)], schema=schema)


def has_constants(metadata: pq.FileMetaData, constants: Sequence[pa.Array]) -> bool:
    """Whether the last columns of a file hold one value each, as far as its statistics tell.

    Args:
        metadata: The file's.
        constants: The value of each column, as an array of length 1.
    """
    start = metadata.num_columns - len(constants)
    return all(
        _holds_only(metadata.row_group(i).column(number).statistics, value)
        for i in range(metadata.num_row_groups)
        for number, value in enumerate(constants, start)
    )


def _holds_only(statistics: pq.Statistics | None, value: pa.Array) -> bool:
    if statistics is None or not statistics.has_null_count:
        return False
    if value.null_count:
        return bool(statistics.num_values == 0)
    if statistics.null_count or not statistics.has_min_max:
        return False
    bounds = pa.array([statistics.min, statistics.max], value.type)
    return bool(bounds.equals(pa.concat_arrays([value, value])))
