"""What the strategy "arrow" leaves to OPTIMIZE, and why."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit.errors import UnsupportedTableError
from compaction_kit.execute.arrow.types import data_schema, has_partition_columns
from compaction_kit.log.metadata import Protocol
from compaction_kit.log.paths import is_remote, is_unreadable, places
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.plan import BinPlan

# Writer features that a rewrite of files, row by row and column by column, leaves intact; Delta
# sees to the rest of them in its commit.
_HARMLESS = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "materializePartitionColumns",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
# Years of more or less than four digits have a sign.
_FAR_TIME = r'"[+-]\d{4,}-\d\d-\d\d[T ]'
# Writer versions from which on features are named instead (protocol, "Table Features").
_NAMED_FEATURES = 7


def refuse_table(spark: SparkSession, plan: BinPlan) -> str | None:
    """Why none of a plan's bins can be rewritten with pyarrow; None if they can."""
    snapshot = plan.source.snapshot
    if plan.zorder_by:
        return "ordering the rows of a partition takes Spark"
    if plan.thresholds.max_records_per_file:
        return "spark.sql.files.maxRecordsPerFile is set, by which a bin becomes several files"
    return _refuse_protocol(snapshot.protocol) or _refuse_types(snapshot) or _refuse_settings(spark)


def refuse_changes(before: Snapshot, after: Snapshot) -> str | None:
    """Why files that were rewritten by one state of the table don't fit another; None if they do.

    Columns that came in between are no harm: in older files they are null.
    """
    metadata = after.metadata
    if (before.metadata.id, before.metadata.partition_columns) != (metadata.id, metadata.partition_columns):
        return "it was made anew"
    reason = _refuse_protocol(after.protocol) or _refuse_types(after)
    if reason is not None:
        return f"{reason} now"
    were, are = (has_partition_columns(one.metadata, one.protocol) for one in (before, after))
    if are != were:
        return f"data files are {'to have' if are else 'to be without'} the partition columns now"
    now, known = (data_schema(one.metadata, one.protocol) for one in (after, before))
    changed = [f.name for f in known if f.name in now.names and not f.equals(now.field(f.name))]
    return f"the column {changed[0]} is of another type now" if changed else None


def refuse_bins(plan: BinPlan) -> dict[int, str]:
    """Why some of a plan's bins can't be, by their number."""
    positions, bin_ids = plan.members
    files = plan.source.to_arrow()
    has_vector = files["deletion_vector_cardinality"].is_valid().to_numpy()[positions]
    paths = plan.source.paths(positions)
    found = places(paths, plan.source.snapshot.store)
    reasons: dict[str, Any] = {
        "a file has a path that Delta can't open": is_unreadable(paths),
        "a file is not on a local disk": is_remote(found),
        "a file has a deletion vector": has_vector,
        "a file has timestamps of years that pyarrow may read as others": _far_times(plan, positions),
    }
    return {int(number): reason for reason, hits in reasons.items() for number in bin_ids[np.asarray(hits)]}


def _far_times(plan: BinPlan, positions: np.ndarray) -> np.ndarray:
    """Of each of some files, whether stats tell of years before 1 or after 9999, which INT96 may hold."""
    snapshot = plan.source.snapshot
    if '"timestamp"' not in json.dumps(snapshot.metadata.schema):
        return np.zeros(len(positions), dtype=bool)
    stats = snapshot.stats.take(pa.array(plan.source.in_snapshot(positions)))
    return np.array(pc.match_substring_regex(stats, _FAR_TIME).to_pylist(), dtype=bool)


def _refuse_protocol(protocol: Protocol) -> str | None:
    if protocol.min_writer_version > _NAMED_FEATURES:
        return f"the table needs writer version {protocol.min_writer_version}"
    unknown = sorted(protocol.writer_features - _HARMLESS)
    return f"the table has the feature {', '.join(unknown)}" if unknown else None


def _refuse_settings(spark: SparkSession) -> str | None:
    """Files that don't say by which calendar their dates are, Spark reads as it is set to."""
    for name in ("datetimeRebaseModeInRead", "int96RebaseModeInRead"):
        if (spark.conf.get(f"spark.sql.parquet.{name}", None) or "").upper() == "LEGACY":
            return f"spark.sql.parquet.{name} is LEGACY, so that dates may be of the old calendar"
    return None


def _refuse_types(snapshot: Snapshot) -> str | None:
    metadata = snapshot.metadata
    if len(metadata.schema["fields"]) == len(metadata.partition_columns):
        return "the table has no column besides those it is partitioned by"
    try:
        data_schema(metadata, snapshot.protocol)
    except UnsupportedTableError as error:
        return str(error).rstrip(".")
    return None
