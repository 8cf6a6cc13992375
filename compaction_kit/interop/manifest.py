"""Symlink manifests: the lists of files by which Presto, Athena and Hive read a Delta table.

Delta writes a file named manifest for each partition, below `_symlink_format_manifest`, with a line
for each live file (GenerateSymlinkManifest.scala). Each is replaced as a whole; several are not.

A manifest is that of the version at which it was made, and knows of no later one: GENERATE between
two commits of an OPTIMIZE that has several (optimize.batchSize; without it there is one) lists some
files that are compacted a moment later. Its readers get the same rows until VACUUM takes those files.
"""

import os
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from compaction_kit.errors import (
    CorruptLogError,
    InvalidArgumentError,
    RunFailedError,
    UnsupportedTableError,
)
from compaction_kit.execute.failures import translate
from compaction_kit.folder import is_file
from compaction_kit.interop.parquet_read import read_parquet
from compaction_kit.interop.partition_folders import values_of
from compaction_kit.log.reading import first_line
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.session import quiet_errors
from compaction_kit.sql import quoted, table_name
from compaction_kit.table import Table
from compaction_kit.text import format_count

FOLDER = "_symlink_format_manifest"
PROPERTY = "delta.compatibility.symlinkFormatManifest.enabled"
LISTED = pa.schema([("partition", pa.string()), ("path", pa.string()), ("size_bytes", pa.int64())])


def read_manifest(table: Table) -> pa.Table:
    """What a reader through the manifest is told to read; the log plays no part.

    Args:
        table: The table.

    Returns:
        One row a line: partition (the folder that the manifest is in, such as "origin=JFK"; "" for
        a table without partitions), path (relative to the table, as on disk; as the line has it if it
        is elsewhere), size_bytes (on disk; null if there is no such file, or not on a local one).

    Raises:
        InvalidArgumentError: There is no manifest.
    """
    root = table.path / FOLDER
    manifests = sorted(path for path in root.rglob("manifest") if is_file(path))
    if not manifests:
        reason = refusal(table.log.snapshot())
        advice = (
            f"and Delta makes none: {reason}" if reason else "make one with interop.generate_manifest(table)"
        )
        raise InvalidArgumentError(f"{table.name} has no symlink manifest, {advice}.")
    rows = []
    for manifest in manifests:
        folder = manifest.parent.relative_to(root).as_posix()
        partition = "" if folder == "." else folder
        for line in filter(None, _text(manifest, f"{FOLDER}/{partition}").split("\n")):
            path = _relative(line, table.path)
            rows.append({"partition": partition, "path": path, "size_bytes": _size(table.path / path)})
    return pa.Table.from_pylist(rows, schema=LISTED)


def read_through_manifest(table: Table) -> DataFrame:
    """The rows that a reader through the manifest gets, read by Spark as such a reader does it.

    The listed files are read as plain Parquet, and partition values are those of the folder that
    the manifest is in. One scan a partition: meant to show what is read, not to be fast.

    Args:
        table: The table.

    Returns:
        The rows, with the table's columns.

    Raises:
        InvalidArgumentError: There is no manifest.
        RunFailedError: A listed file is not there, at which any reader fails.
    """
    listed = read_manifest(table)
    gone = listed.filter(listed["size_bytes"].is_null())["path"].to_pylist()
    if gone:
        raise RunFailedError(
            f"The manifest of {table.name} can't be read through: {format_count(len(gone), 'listed file')} "
            f"not there, such as {gone[0]}; make it anew with interop.generate_manifest(table)."
        )
    metadata = table.log.snapshot().metadata
    schema = StructType.fromJson(dict(metadata.schema))
    data = StructType([field for field in schema if field.name not in metadata.partition_columns])
    parts = []
    for folder in sorted(set(listed["partition"].to_pylist())):
        values = values_of(folder) or {}
        names = listed.filter(pc.equal(listed["partition"], folder))["path"].to_pylist()
        rows = read_parquet(table.spark, [table.path / name for name in names], data)
        columns = [
            F.lit(values.get(field.name)).cast(field.dataType).alias(field.name)
            if field.name in metadata.partition_columns
            else F.col(quoted(field.name))
            for field in schema
        ]
        parts.append(rows.select(*columns))
    return reduce(DataFrame.unionAll, parts) if parts else table.spark.createDataFrame([], schema)


def generate_manifest(table: Table) -> None:
    """Make the manifest of the latest version, by Delta's GENERATE; no commit is made.

    It replaces one partition's list after the other, so that a reader may meanwhile find some of
    the old version and some of the new; and a reader whose metastore has partitions needs to be
    told of new ones.

    Args:
        table: The table.

    Raises:
        UnsupportedTableError: Delta makes none for a table with column mapping or deletion vectors.
        RunFailedError, ReadOnlyTableError: It could not be written.
    """
    _check(table)
    _run(
        table,
        f"GENERATE symlink_format_manifest FOR TABLE {table_name(table.spark, table.path)}",
        "the manifest may be old",
    )


def keep_manifest(table: Table, keep: bool = True) -> None:
    """Have Delta bring the manifest up to date after each commit, or stop that.

    Sets the table property delta.compatibility.symlinkFormatManifest.enabled, which is a commit; then
    makes the manifest, as the property alone makes none, and leaves those partitions of an old one
    as they are that no later commit touches. Every writer's Delta then rewrites, after its commit, the
    lists of the partitions that it has touched; a batched OPTIMIZE after each batch. Without `keep` the
    manifest stays as it is, and becomes old with the next commit.

    Args:
        table: The table.
        keep: Whether to keep it.

    Raises:
        UnsupportedTableError: The table has column mapping, with which every later commit would
            be made and then fail; or deletion vectors, with which Delta refuses the property.
        RunFailedError, ReadOnlyTableError: It could not be written.
    """
    if keep:
        _check(table, keep=True)
    name, value = table_name(table.spark, table.path), str(keep).lower()
    statement = f"ALTER TABLE {name} SET TBLPROPERTIES ('{PROPERTY}' = '{value}')"
    _run(table, statement, "the property is as it was")
    if keep:
        generate_manifest(table)


def refusal(snapshot: Snapshot) -> str | None:
    """Why Delta makes no manifest of a version, and what to do; None if it does."""
    if snapshot.metadata.is_mapped:
        return (
            "the table has column mapping, and other readers know columns by their names in the files; "
            "copy its rows to a table without"
        )
    if snapshot.has_vectors:
        return (
            "the table has deletion vectors, and other readers would read the deleted rows; run REORG "
            "TABLE … APPLY (PURGE) first, with delta.enableDeletionVectors=false"
        )
    return None


def _check(table: Table, keep: bool = False) -> None:
    snapshot = table.log.snapshot()
    reason = refusal(snapshot)
    if (
        reason is None
        and keep
        and snapshot.metadata.configuration.get("delta.enableDeletionVectors") == "true"
    ):
        reason = (
            "its deletes may write deletion vectors, which no manifest can tell; set "
            "delta.enableDeletionVectors=false first"
        )
    if reason is not None:
        raise UnsupportedTableError(f"{table.name} can have no symlink manifest: {reason}.")


def _run(table: Table, statement: str, outcome: str) -> None:
    try:
        with quiet_errors():
            table.spark.sql(statement).collect()
    except SPARK_ERRORS as error:
        raise translate(error, table.path, outcome) from error


def _text(manifest: Path, folder: str) -> str:
    try:
        return manifest.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptLogError(
            f"The manifest in {folder} can't be read ({first_line(error)}): make it anew with "
            "interop.generate_manifest(table)."
        ) from error


def _relative(line: str, table: Path) -> str:
    """A line's path, relative to the table; as it stands if it is elsewhere. Lines are not URL-encoded."""
    if not line.startswith(("/", "file:")) or "\0" in line:
        return line
    path, prefix = "/" + line.removeprefix("file:").lstrip("/"), f"{table}/"
    # The writer may have come by a link.
    return (path if path.startswith(prefix) else os.path.realpath(path)).removeprefix(prefix)


def _size(path: Path) -> int | None:
    return path.stat().st_size if is_file(path) else None
