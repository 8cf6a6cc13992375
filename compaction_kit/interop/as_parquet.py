"""Whether the live files of a Delta table, read as plain Parquet, are the table."""

import pyarrow as pa
from pyspark.sql.types import StructType

from compaction_kit.errors import EmptyTableError, UnsupportedTableError
from compaction_kit.interop.partition_folders import folders_of
from compaction_kit.interop.visibility import spark_reads
from compaction_kit.log.paths import is_outside, places
from compaction_kit.table import Table, local_path
from compaction_kit.text import format_count

_ROW_IDS = "delta.rowTracking.materializedRowIdColumnName"


def live_paths(table: Table) -> pa.Array:
    """Where the live files are; see `paths.places`."""
    return places(table.log.snapshot().live["path"], table.path)


def check_as_parquet(table: Table) -> None:
    """Refuse a table whose files alone are not its rows.

    Raises:
        EmptyTableError: It has no live file.
        UnsupportedTableError: It is another's or not all of it is in the files and their folders; the
            sentence says what to do.
    """
    reason = _refusal(table)
    if reason is not None:
        raise UnsupportedTableError(f"{table.name} can't become plain Parquet: {reason}.")
    if not table.files().num_files:
        raise EmptyTableError(f"{table.name} has no live file, so that there is nothing to read as Parquet.")


def differences(schema: StructType, plain: StructType) -> dict[str, str]:
    """What Spark makes of columns in Parquet files if it isn't told the table's schema, where it differs.

    Args:
        schema: The table's.
        plain: That of `spark.read.parquet(path)`.
    """
    read = {field.name: field.dataType for field in plain}
    found = {}
    for field in schema:
        kind = read.get(field.name)
        if kind is None:
            found[field.name] = "missing: not in the file whose schema Spark takes for all"
        elif kind != field.dataType:
            found[field.name] = f"{kind.simpleString()} instead of {field.dataType.simpleString()}"
    return found


def _refusal(table: Table) -> str | None:
    snapshot = table.log.snapshot()
    if local_path(table.name).resolve() != table.path:
        return (
            "a catalog knows it as a Delta table and would go on doing so; drop it there, and open it by its "
            "path"
        )
    if snapshot.metadata.is_mapped:
        return (
            "it has column mapping, so that its files may have other names for the columns; copy its rows to "
            "a table without"
        )
    if snapshot.has_vectors:
        return (
            "it has deletion vectors, and the rows that they delete would come back; run REORG TABLE … APPLY "
            "(PURGE) first"
        )
    if _ROW_IDS in snapshot.metadata.configuration:
        return "it has row tracking, which adds columns of its own to files; copy its rows to a table without"
    return _file_refusal(table)


def _file_refusal(table: Table) -> str | None:
    paths = live_paths(table)
    outside = paths.filter(is_outside(paths))
    if len(outside):
        count = format_count(len(outside), "live file")
        return f"{count} outside of its folder, such as {outside[0]}; copy its rows to a new table"
    names = paths.to_pylist()
    folders = folders_of(table.files().partitions).to_pylist()
    for path, folder in zip(names, folders, strict=True):
        if path.rpartition("/")[0] != folder:
            where = f"of the partition {folder}" if folder else "of no partition"
            return f"{path} is {where}, and its folder doesn't say so; rewrite the table"
        if not spark_reads(path):
            return f"{path} has a name that Spark passes over when it reads Parquet; rewrite the table"
    missing = [path for path in names if not (table.path / path).is_file()]
    return (
        f"{format_count(len(missing), 'live file')} not there, such as {missing[0]}; restore it"
        if missing
        else None
    )
