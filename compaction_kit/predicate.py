"""Select files by a predicate on partition columns, and write the predicate that selects given partitions."""

from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from compaction_kit.compat import create_frame
from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError, first_line, show_value
from compaction_kit.files import Files
from compaction_kit.handle import Handle
from compaction_kit.log.protocol import Metadata
from compaction_kit.session import quiet_errors
from compaction_kit.sql import identifier, literal, sql_type

_ROW = "__compaction_kit_row"


def select_partitions(handle: Handle, files: Files, where: str) -> Files:
    """Return the files in the partitions that a predicate selects, as WHERE of OPTIMIZE does.

    The table's session parses and evaluates the predicate; since Spark 4.0 this runs no Spark job.

    Raises:
        InvalidArgumentError: The predicate can't be parsed, or uses anything but partition columns.
    """
    if not isinstance(where, str):
        raise InvalidArgumentError(
            f"where={where!r} is not a predicate: write SQL, such as \"origin = 'JFK'\"."
        )
    columns = files.partition_columns
    if not columns:
        raise InvalidArgumentError(
            f"where={show_value(where)} can't be used: the table is not partitioned; leave where out."
        )
    names = files.partitions.column_names
    rows = files.partitions.append_column(_ROW, pa.array(np.arange(files.num_files)))
    partitions = rows.group_by(names).aggregate([(_ROW, "list")])
    selected = _evaluate(handle.spark, partitions.select(names), files.snapshot.metadata, where)
    positions = pc.list_flatten(partitions[f"{_ROW}_list"].take(pa.array(selected, pa.int64())))
    return Files(files.snapshot, files.in_snapshot(np.sort(positions.to_numpy())))


def partitions_predicate(spark: SparkSession, files: Files, positions: np.ndarray) -> str:
    """Write SQL that selects exactly the partitions of some files of a partitioned table, by their positions.

    Values are compared by type, as Delta does: 1 selects both "1" and "01" of an integer column.
    Partitions that differ only in the last column share one IN list, which keeps the SQL short.
    The predicate is for OPTIMIZE … WHERE, replaceWhere and `select_partitions`.

    Raises:
        UnsupportedTableError: A value is "" in a column that is not of type string: Delta fails on
            predicates over it.
    """
    values = files.partitions.take(pa.array(positions))
    values = values.group_by(values.column_names).aggregate([])
    kinds = [files.snapshot.metadata.column_types[name] for name in files.partition_columns]
    rows = zip(*(column.to_pylist() for column in values.columns), strict=True)
    in_order = sorted(rows, key=lambda row: [(value is None, value) for value in row])
    clauses = []
    for _, same in groupby(in_order, key=lambda row: row[:-1]):
        wanted = (list(dict.fromkeys(column)) for column in zip(*same, strict=True))
        columns = zip(files.partition_columns, kinds, wanted, strict=True)
        clauses.append(" AND ".join(_is_one_of(spark, *column) for column in columns))
    return " OR ".join(clauses)


def _is_one_of(spark: SparkSession, name: str, kind: str, values: list[str | None]) -> str:
    texts = [value for value in values if value is not None]
    if kind != "string" and "" in texts:
        raise UnsupportedTableError(
            f'A partition value of {name} is "", which is not of type {kind}, so no predicate can select it: '
            "compact without a predicate, or correct those rows first."
        )
    column = identifier(spark, name)
    conditions = [f"{column} IS NULL"] if len(texts) < len(values) else []
    if texts:
        listed = ", ".join(literal(text, kind) for text in texts)
        conditions.append(f"{column} IN ({listed})" if len(texts) > 1 else f"{column} = {listed}")
    return conditions[0] if len(conditions) == 1 else f"({' OR '.join(conditions)})"


@quiet_errors()
def _evaluate(spark: SparkSession, partitions: pa.Table, metadata: Metadata, where: str) -> list[int]:
    types, columns = metadata.column_types, metadata.partition_columns
    named = partitions.rename_columns(list(columns)).append_column(_ROW, pa.array(np.arange(len(partitions))))
    frame = create_frame(spark, named)
    typed = [
        F.expr(f"try_cast({identifier(spark, name)} AS {sql_type(types[name])})").alias(name)
        for name in columns
    ]
    try:
        return [row[_ROW] for row in frame.select(*typed, _ROW).where(where).select(_ROW).collect()]
    except PySparkException as error:
        line = first_line(error)
        reason = f"can't be {'parsed as SQL' if isinstance(error, ParseException) else 'used'}: {line}"
        if line.startswith("[UNRESOLVED_COLUMN"):
            unknown = (error.getMessageParameters() or {}).get("objectName", "?").replace("`", "")
            reason = (
                f"uses {unknown}, which is not a partition column: use only {', '.join(columns)}, or leave "
                "where out"
            )
        raise InvalidArgumentError(f"where={show_value(where)} {reason}.") from None
