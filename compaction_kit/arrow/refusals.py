"""Find what the strategy "arrow" can rewrite, as Arrow types, and what it leaves to OPTIMIZE, and why."""

import importlib
import pickle
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from compaction_kit.arrow import concat, worker
from compaction_kit.arrow.worker.files import Storage
from compaction_kit.compat import has_jvm, writes_partition_columns
from compaction_kit.errors import UnsupportedTableError, reason_of
from compaction_kit.execute.failures import SPARK_FAILURES
from compaction_kit.log.paths import deletion_vector_file, is_remote, is_unreadable, places
from compaction_kit.log.protocol import DECIMAL, ROW_COLUMNS, Metadata
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.plan import BinPlan
from compaction_kit.storage import Store

# Writer features that stay intact when files are rewritten row by row; Delta's commit does the rest.
# fmt: off
_HARMLESS = frozenset([
    "allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "checkpointProtection",
    "clustering", "columnMapping", "deletionVectors", "domainMetadata", "generatedColumns", "identityColumns",
    "inCommitTimestamp", "invariants", "materializePartitionColumns", "rowTracking", "timestampNtz",
    "v2Checkpoint", "vacuumProtocolCheck",
])
# fmt: on
_SIMPLE = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
# Their values are CORRECTED, LEGACY or EXCEPTION (DataSourceUtils, datetimeRebaseSpec, int96RebaseSpec).
_REBASE_MODES = ("datetimeRebaseModeInRead", "int96RebaseModeInRead")
# Spark's masters with tasks in the driver's own process and its Python; not "local-cluster".
_ONE_PROCESS = re.compile(r"local($|\[)")
# The oldest pyarrow that executors may have: 20 can't load the S3FileSystem of a newer release.
_LEAST_PYARROW = 21
# Executors may lack this package: they get the worker's code by value.
for _package in (worker, concat):
    cloudpickle.register_pickle_by_value(_package)  # type: ignore[no-untyped-call]


def refuse_table(spark: SparkSession | None, plan: BinPlan, may_ask: bool = True) -> str | None:
    """Return why no bin of a plan can be rewritten with pyarrow; None if bins can.

    Without a session, or if executors may not be asked, some reasons stay unknown.
    """
    snapshot = plan.source.snapshot
    store = snapshot.store
    if spark is not None and not has_jvm(spark):
        return "its commit needs the session's JVM, which can't be reached over Spark Connect"
    if not store.is_local and store.filesystem is None:
        return f"executors can't reach {store.root} by pyarrow"
    if plan.sorts_rows:
        return "only OPTIMIZE sorts rows"
    if plan.thresholds.max_records_per_file:
        return "spark.sql.files.maxRecordsPerFile is set, so a bin becomes several files"
    if (reason := _refuse_content(spark, snapshot)) or spark is None:
        return reason
    return legacy_setting(spark) or (refuse_executors(spark, store) if may_ask else None)


def refuse_executors(spark: SparkSession, store: Store) -> str | None:
    """Return why a cluster's executors can't rewrite files of a store, found by one task; None if they can.

    Tasks that run in the driver's own process can do what the driver can.
    """
    if runs_in_driver(spark):
        return None
    place, files = store.place(), store.filesystem
    # As bytes, because an executor without pyarrow can't load the function.
    reach = cloudpickle.dumps(lambda: Storage(files).is_there(place))  # type: ignore[no-untyped-call]

    def look(_: Iterable[int]) -> list[str]:
        try:
            version, _ = (importlib.import_module(name).__version__ for name in ("pyarrow", "numpy"))
            if int(version.partition(".")[0]) < _LEAST_PYARROW:
                return [f"have pyarrow {version}, and {_LEAST_PYARROW} or newer is needed"]
            return [] if pickle.loads(reach)() else [f"can't reach {place}: nothing is there"]
        except ImportError as error:
            is_missing = error.name in ("pyarrow", "numpy")
            return [f"have no {error.name}" if is_missing else f"can't import pyarrow: {error}"]
        except Exception as error:
            return [f"can't reach {place}: {error}"]

    try:
        reasons = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
    except SPARK_FAILURES as error:
        reasons = [f"can't run Python: {reason_of(error)}"]
    if not reasons:
        return None
    reason = reasons[0].partition("\n")[0].rstrip(" .")
    _, (options, *_) = files.__reduce__() if files else ("", ({},))
    for name, value in dict(options).items():
        if value and re.search("key|token", name):
            reason = reason.replace(str(value), "…")
    return f"executors {reason}"


def runs_in_driver(spark: SparkSession) -> bool:
    """Return whether tasks run beside the driver's own process, with its Python and its memory."""
    context, python = spark.sparkContext, shutil.which(spark.sparkContext.pythonExec)
    # python3 and python of one environment are the same.
    has_python = python is not None and Path(python).parent == Path(sys.executable).parent
    is_free = context.getConf().get("spark.executor.pyspark.memory") is None
    return _ONE_PROCESS.match(str(context.master)) is not None and has_python and is_free


def refuse_changes(spark: SparkSession, before: Snapshot, after: Snapshot) -> str | None:
    """Return why files that were rewritten for one version don't fit a later one; None if they do.

    Columns added in between are no problem, because they are null in older files.
    """
    metadata = after.metadata
    if (before.metadata.id, before.metadata.partition_columns) != (metadata.id, metadata.partition_columns):
        return "it was created again or has other partition columns now"
    if reason := _refuse_content(spark, after):
        return f"{reason} now"
    if tracking_columns(before.metadata) != tracking_columns(metadata):
        return "row tracking was switched on or off"
    were, are = (has_partition_columns(spark, snapshot) for snapshot in (before, after))
    if are != were:
        return f"data files are {'to have' if are else 'to be without'} the partition columns now"
    now, known = (data_schema(snapshot.metadata, are) for snapshot in (after, before))
    changed = [f.name for f in known if f.name in now.names and not f.equals(now.field(f.name))]
    return f"the column {changed[0]} is of another type now" if changed else None


def refuse_bins(plan: BinPlan) -> dict[int, str]:
    """Return why some of a plan's bins can't be rewritten with pyarrow, by their number."""
    positions, bin_ids = plan.members
    live = plan.source.snapshot.live["deletion_vector_id"]
    vector_ids = live.take(pa.array(plan.source.in_snapshot(positions))).to_pylist()
    paths, store = plan.source.paths(positions), plan.source.snapshot.store
    far = "not on a local disk" if store.is_local else "outside of the table's folder"
    reasons: dict[str, Any] = {
        "a file has a path that Delta can't open": is_unreadable(paths),
        f"a file is {far}": is_remote(places(paths, store)),
        f"a deletion vector is {far}": [is_far(vector_id, store) for vector_id in vector_ids],
    }
    return {int(number): reason for reason, hits in reasons.items() for number in bin_ids[np.asarray(hits)]}


def legacy_setting(spark: SparkSession) -> str | None:
    """Return the setting that makes Spark read other dates or times than files have; None if none does."""
    for name in _REBASE_MODES:
        if _setting(spark, name) == "LEGACY":
            return f"spark.sql.parquet.{name} is LEGACY, so dates may be of the legacy hybrid calendar"
    if _setting(spark, "int96TimestampConversion") == "TRUE":
        return "spark.sql.parquet.int96TimestampConversion is true, so Spark shifts some timestamps"
    return None


def refuses_old_dates(spark: SparkSession) -> bool:
    """Return whether Spark refuses dates before 1582, or times before 1900, in files of unknown releases."""
    return any(_setting(spark, name) == "EXCEPTION" for name in _REBASE_MODES)


def _setting(spark: SparkSession, name: str) -> str:
    # Without a default here, this is Spark's own default.
    return str(spark.conf.get(f"spark.sql.parquet.{name}")).upper()


def _refuse_content(spark: SparkSession | None, snapshot: Snapshot) -> str | None:
    """Return the table feature or the type that pyarrow can't rewrite, if there is one."""
    protocol, metadata = snapshot.protocol, snapshot.metadata
    if unknown := sorted(protocol.writer_features - _HARMLESS):
        return f"arrow doesn't know the table's feature {', '.join(unknown)}"
    if metadata.is_mapped_by_id:
        return "columns are found by their field ids"
    try:
        data_schema(metadata, spark is not None and has_partition_columns(spark, snapshot))
    except UnsupportedTableError as error:
        return str(error).rstrip(".")
    return None


def data_schema(metadata: Metadata, with_partition_columns: bool, tracking: Iterable[str] = ()) -> pa.Schema:
    """Return the schema of data files that Delta writes: physical names, field ids, partition columns last.

    `tracking` are columns for row tracking.

    Raises:
        UnsupportedTableError: A column's type isn't known here.
    """
    fields = {field["name"]: field for field in metadata.schema["fields"]}
    names = [name for name in fields if name not in metadata.partition_columns]
    last = metadata.partition_columns if with_partition_columns else ()
    tracked = [pa.field(name, pa.int64()) for name in tracking]
    found, constants = ([_field(fields[name], metadata) for name in some] for some in (names, last))
    return pa.schema([*found, *tracked, *constants])


def has_partition_columns(spark: SparkSession, snapshot: Snapshot) -> bool:
    """Return whether Delta writes partition columns to data files (TransactionalWrite.writeFiles)."""
    if "materializePartitionColumns" in snapshot.protocol.writer_features:
        return True
    written = snapshot.metadata.configuration.get("delta.writePartitionColumnsToParquet", "true")
    return writes_partition_columns(spark) and written.lower() == "true"


def is_far(vector_id: str | None, store: Store) -> bool:
    """Return whether a deletion vector, by its id in the log, is in a file that the store doesn't reach."""
    return "://" in (deletion_vector_file(vector_id, store) or "")


def tracking_columns(metadata: Metadata) -> list[str]:
    """Return the columns of data files for row ids and row commit versions; none if rows aren't tracked.

    Rows without values in them have as id baseRowId plus their number, and defaultRowCommitVersion (protocol,
    "Row Tracking"; RowTracking.preserveRowTrackingColumns).
    """
    return [metadata.configuration[name] for name in ROW_COLUMNS] if metadata.tracks_rows else []


def _field(field: Mapping[str, Any], metadata: Metadata) -> pa.Field:
    known = field.get("metadata") or {}
    if "EXISTS_DEFAULT" in known:
        # pyarrow and DuckDB would read null instead of the default.
        raise UnsupportedTableError(
            f"Column {field['name']} has a default that Spark reads from files without the column."
        )
    number = known.get("delta.columnMapping.id") if metadata.is_mapped else None
    ids = {"PARQUET:field_id": str(number)} if number is not None else None
    kind = _type(field["type"], field["name"], metadata)
    return pa.field(metadata.physical_name(field), kind, nullable=True, metadata=ids)


def _type(kind: Any, column: str, metadata: Metadata) -> pa.DataType:
    if isinstance(kind, str):
        decimal = DECIMAL.fullmatch(kind)
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if kind in _SIMPLE:
            return _SIMPLE[kind]
    elif kind["type"] == "struct":
        return pa.struct([_field(field, metadata) for field in kind["fields"]])
    elif kind["type"] == "array":
        return pa.list_(pa.field("element", _type(kind["elementType"], column, metadata)))
    elif kind["type"] == "map":
        value = pa.field("value", _type(kind["valueType"], column, metadata))
        return pa.map_(_type(kind["keyType"], column, metadata), value)
    name = kind if isinstance(kind, str) else kind["type"]
    raise UnsupportedTableError(f"Column {column} is of type {name}, which pyarrow can't rewrite faithfully.")
