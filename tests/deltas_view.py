"""Delta's own view of a table, through Spark: the reference for what the kit reads."""

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.releases import DELTA

Key = tuple[str, str | None]
Values = dict[str, str | None]


@dataclass(frozen=True)
class State:
    """A version: bytes, partition values and records of each live file, and deletion times of tombstones.

    A file's key is its path on disk and the unique id of its deletion vector. `twice` has the deletion times
    of files with two tombstones in Delta's state, such as when a compacted log file has the second one.
    """

    schema: str
    partition_columns: list[str]
    files: dict[Key, tuple[int, Values, int | None] | int | None]
    twice: dict[Key, set[Any]] = field(default_factory=dict, compare=False)


def live_files(spark: SparkSession, table: Path) -> list[tuple[str, int]]:
    """Return path and bytes of each live file, as Delta's own Snapshot has them."""
    adds = DataFrame(_snapshot(spark, table, None).allFiles().toDF(), spark)
    return [(row["path"], row["size"]) for row in adds.select("path", "size").collect()]


def states(spark: SparkSession, table: Path, versions: Iterable[int]) -> dict[int, State]:
    """Return the states of those versions that Delta can read."""
    snapshots = {}
    for version in versions:
        try:
            snapshots[version] = _snapshot(spark, table, version)
        except (Py4JJavaError, PySparkException):
            continue
    if not snapshots:
        return {}
    frames = [_file_actions(spark, version, snapshot) for version, snapshot in snapshots.items()]
    rows = functools.reduce(DataFrame.unionAll, frames).collect()  # one job is cheaper than many
    found = {}
    for version, snapshot in snapshots.items():
        schema = snapshot.metadata().schemaString()
        columns = [name for name in snapshot.metadata().partitionColumns().mkString("\n").split("\n") if name]
        names = physical_names(schema)
        state = found[version] = State(schema, columns, {})
        for row in (row for row in rows if row["version"] == version):
            key = decoded(row["path"]), row["vector"]
            if key in state.files:
                assert not row["is_add"]
                assert not isinstance(state.files[key], tuple)
                state.twice.setdefault(key, {state.files[key]}).add(row["deletionTimestamp"])
            state.files[key] = row["deletionTimestamp"]
            if row["is_add"]:
                values = {name: row["partitionValues"].get(names[name]) for name in columns}
                records = None if row["records"] is None else int(row["records"])
                state.files[key] = row["size"], values, records
    return found


def physical_names(schema: str) -> dict[str, str]:
    """Map each column of a schema in JSON to its name in partition values."""
    return {
        column["name"]: column["metadata"].get("delta.columnMapping.physicalName", column["name"])
        for column in json.loads(schema)["fields"]
    }


def _file_actions(spark: SparkSession, version: int, snapshot: Any) -> DataFrame:
    vector = "coalesce(add.deletionVector, remove.deletionVector)"
    return (
        DataFrame(snapshot.stateDF(), spark)
        .where("add IS NOT NULL OR remove IS NOT NULL")
        .selectExpr(
            f"{version} version",
            "add IS NOT NULL is_add",
            "coalesce(add.path, remove.path) path",
            f"{vector}.storageType || {vector}.pathOrInlineDv || coalesce('@' || {vector}.offset, '') vector",
            "add.size",
            "add.partitionValues",
            "get_json_object(add.stats, '$.numRecords') records",
            "remove.deletionTimestamp",
        )
    )


def canonical_path(spark: SparkSession, table: Path) -> Callable[[str], str]:
    """Return the function that converts a path of the log to the path that identifies the file for Delta."""
    function = _log(spark, table).getCanonicalPathFunction(False)
    return lambda path: str(function.apply(path))


def forget(spark: SparkSession) -> None:
    """Make Delta read logs again, after a log was changed without Delta."""
    _jvm(spark).DeltaLog.clearCache()


def checkpoint(spark: SparkSession, table: Path) -> None:
    """Have Delta write a checkpoint of the latest version."""
    forget(spark)
    _log(spark, table).checkpoint()


def input_files(rows: DataFrame) -> set[str]:
    """The names of the data files that a DataFrame reads."""
    return {Path(decoded(uri)).name for uri in rows.inputFiles()}


def _snapshot(spark: SparkSession, table: Path, version: int | None) -> Any:
    log = _log(spark, table)
    if version is None:
        return log.unsafeVolatileSnapshot()
    positions = (2, 3, 4) if DELTA >= (4, 1) else (2, 3)
    defaults = (getattr(log, f"getSnapshotAt$default${position}")() for position in positions)
    return log.getSnapshotAt(version, *defaults)


def _log(spark: SparkSession, table: Path) -> Any:
    return _jvm(spark).DeltaLog.forTable(spark._jsparkSession, str(table))


def _jvm(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    return spark._jvm.org.apache.spark.sql.delta


def decoded(uri: str) -> str:
    """Decode the path of a URI; drop the scheme of local files."""
    return unquote(urlsplit(uri).path if uri.startswith("file:") else uri)
