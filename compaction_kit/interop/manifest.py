"""Symlink manifests: the lists of files with which Presto, Athena and Hive read a Delta table.

Delta writes a file named `manifest` for each partition, below `_symlink_format_manifest`, with one line per
live file (GenerateSymlinkManifest.scala).

A manifest lists the files of the version at which it was generated. An OPTIMIZE with optimize.batchSize can
make several commits: GENERATE between two of them lists files that the next commits compact. Readers of the
manifest get the same rows until VACUUM deletes those files.
"""

from functools import reduce

import pyarrow as pa
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
from compaction_kit.interop.parquet_folder import partition_values, read_parquet
from compaction_kit.log.reading import first_line
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.session import quiet_errors
from compaction_kit.sql import quoted, table_name
from compaction_kit.storage import Store
from compaction_kit.table import Table
from compaction_kit.text import format_count

FOLDER = "_symlink_format_manifest"
PROPERTY = "delta.compatibility.symlinkFormatManifest.enabled"
LISTED = pa.schema([("partition", pa.string()), ("path", pa.string()), ("size_bytes", pa.int64())])


def read_manifest(table: Table) -> pa.Table:
    """Read the lines of a table's manifest, without reading the log.

    Args:
        table: The table.

    Returns:
        One row per line. partition is the manifest's folder, such as "origin=JFK"; "" for a table without
        partitions. path is relative to the table and decoded, or the line itself if the file is elsewhere.
        size_bytes is null if the file doesn't exist or isn't on a local disk.

    Raises:
        InvalidArgumentError: There is no manifest.
        CorruptLogError: A manifest is not text.
    """
    store = table.handle.store
    found = (
        (place, {entry.name for entry in entries if entry.is_file}) for place, entries in store.walk(FOLDER)
    )
    folders = sorted(place for place, names in found if "manifest" in names)
    if not folders:
        reason = refusal(table.log.snapshot())
        advice = (
            f"and Delta refuses to generate one: {reason}"
            if reason
            else "generate one with interop.generate_manifest(table)"
        )
        raise InvalidArgumentError(f"{table.name} has no symlink manifest, {advice}.")
    rows = []
    for folder in folders:
        partition = folder.removeprefix(FOLDER).removeprefix("/")
        try:
            lines = store.read(f"{folder}/manifest").decode().split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptLogError(
                f"The manifest in {FOLDER}/{partition} can't be read ({first_line(error)}): generate it "
                "again with interop.generate_manifest(table)."
            ) from None
        for line in filter(None, lines):
            path = _relative(line, store)
            file = store.status(path)
            size_bytes = file.size_bytes if file is not None and file.is_file else None
            rows.append({"partition": partition, "path": path, "size_bytes": size_bytes})
    return pa.Table.from_pylist(rows, schema=LISTED)


def read_through_manifest(table: Table) -> DataFrame:
    """Read with Spark the rows that a reader of the manifest gets.

    The listed files are read as plain Parquet, and the partition values come from the manifest's folder.
    Each partition needs a scan of its own, so this is slow; use it to compare rows.

    Args:
        table: The table.

    Returns:
        The rows, with the table's columns.

    Raises:
        InvalidArgumentError: There is no manifest.
        RunFailedError: A listed file is missing, so that every reader fails.
    """
    listed = read_manifest(table)
    missing = listed.filter(listed["size_bytes"].is_null())["path"].to_pylist()
    if missing:
        raise RunFailedError(
            f"The files that the manifest of {table.name} lists can't be read: "
            f"{format_count(len(missing), 'listed file')} missing, such as {missing[0]}; generate it again "
            "with interop.generate_manifest(table)."
        )
    metadata = table.log.snapshot().metadata
    schema = StructType.fromJson(dict(metadata.schema))
    by = [column for column in schema if column.name in metadata.partition_columns]
    data = StructType([column for column in schema if column not in by])
    parts = []
    for group in listed.group_by("partition").aggregate([("path", "list")]).to_pylist():
        values = partition_values(group["partition"]) or {}
        rows = read_parquet(table.spark, map(table.handle.store.uri, group["path_list"]), data)
        constants = {column.name: F.lit(values.get(column.name)).cast(column.dataType) for column in by}
        parts.append(rows.withColumns(constants).select(*map(quoted, schema.names)))
    return reduce(DataFrame.unionAll, parts) if parts else table.spark.createDataFrame([], schema)


def generate_manifest(table: Table) -> None:
    """Generate the manifest of the latest version with Delta's GENERATE, which makes no commit.

    GENERATE replaces the manifests of the partitions one after the other, so that readers may see a mix of
    two versions until it is done. Add new partitions to the metastore afterwards. `check_manifest` has an
    example.

    Args:
        table: The table.

    Raises:
        UnsupportedTableError: The table has column mapping or deletion vectors, which Delta refuses.
        RunFailedError, ReadOnlyTableError: The manifest could not be written.
    """
    _check(table)
    name = table_name(table.spark, table.handle.uri)
    _run(table, f"GENERATE symlink_format_manifest FOR TABLE {name}", "the manifest may be outdated")


def keep_manifest(table: Table, keep: bool = True) -> None:
    """Make Delta update the manifest after each commit, or stop that.

    Set the table property delta.compatibility.symlinkFormatManifest.enabled, which is a commit; then
    generate the manifest, as the property alone doesn't. From then on Delta rewrites, after each commit of
    any writer, the manifests of the changed partitions. With keep=False the manifest is not changed, and is
    outdated after the next commit.

    Args:
        table: The table.
        keep: Whether to keep the manifest up to date.

    Raises:
        UnsupportedTableError: The table has column mapping, with which every later commit would be made
            and then fail; or deletion vectors, with which Delta refuses the property.
        RunFailedError, ReadOnlyTableError: The property or the manifest could not be written.
    """
    if keep:
        _check(table, keep=True)
    name, value = table_name(table.spark, table.handle.uri), str(keep).lower()
    _run(
        table, f"ALTER TABLE {name} SET TBLPROPERTIES ('{PROPERTY}' = '{value}')", "the property is unchanged"
    )
    if keep:
        generate_manifest(table)


def refusal(snapshot: Snapshot, keep: bool = False) -> str | None:
    """Return why Delta can't generate a manifest of a version, or keep it up to date; None if it can."""
    if snapshot.metadata.is_mapped:
        return (
            "the table has column mapping, and other readers find columns by their names in the files; "
            "copy its rows to a table without it"
        )
    if snapshot.has_vectors:
        return (
            "the table has deletion vectors, and other readers would read the deleted rows; run REORG "
            "TABLE … APPLY (PURGE) first, with delta.enableDeletionVectors=false"
        )
    if keep and snapshot.metadata.configuration.get("delta.enableDeletionVectors") == "true":
        return (
            "its deletes may write deletion vectors, which a manifest can't list; set "
            "delta.enableDeletionVectors=false first"
        )
    return None


def _check(table: Table, keep: bool = False) -> None:
    reason = refusal(table.log.snapshot(), keep)
    if reason is not None:
        raise UnsupportedTableError(f"{table.name} can't have a symlink manifest: {reason}.")


def _run(table: Table, statement: str, outcome: str) -> None:
    try:
        with quiet_errors():
            table.spark.sql(statement).collect()
    except SPARK_ERRORS as error:
        raise translate(error, table.handle.store.root, outcome) from None


def _relative(line: str, store: Store) -> str:
    """Return a line's path relative to the table, or the line if it is elsewhere; it is not URL-encoded."""
    if not store.is_local:
        return store.relative(line) or line
    if not line.startswith(("/", "file:")) or "\0" in line:
        return line
    path, prefix = "/" + line.removeprefix("file:").lstrip("/"), f"{store.root}/"
    # The writer may have used another path to the table, by a symbolic link.
    return (path if path.startswith(prefix) else store.real(path)).removeprefix(prefix)
