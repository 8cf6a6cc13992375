"""The strategy "rewrite": Delta's overwrite with dataChange=false, of the partitions that have bins."""

import math
from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from compaction_kit.compat import metadata_column
from compaction_kit.errors import StalePlanError
from compaction_kit.execute.commits import commits_of, removed_paths, settings
from compaction_kit.execute.delta import is_conflict
from compaction_kit.execute.failures import ContentDiffers
from compaction_kit.execute.jobs import SparkJob, Watched, run_watched
from compaction_kit.execute.work import Run, Strategy
from compaction_kit.log.protocol import columns_of
from compaction_kit.plan import BinPlan
from compaction_kit.predicate import partitions_predicate
from compaction_kit.sql import quoted

_CONFS = {
    # Other values would change the files that are written, or replace rows of other partitions.
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
    "spark.sql.sources.partitionOverwriteMode": "static",
}
# Whether a writer may set the values of an identity column (protocol, "Identity Columns").
_EXPLICIT = "delta.identity.allowExplicitInsert"


class Rewrite(Strategy):
    """Overwrites the partitions in which a plan has bins with their own rows, in one commit.

    All files of these partitions are rewritten, including large and lone ones. The rows are read without a
    version, so that Delta scans the snapshot of the transaction that overwrites them; a given version, or a
    cached DataFrame, would lose rows that others committed in between, and Delta would not notice. So no row
    is lost or duplicated: later appends are kept, and if another writer deletes, updates or optimizes files
    that were read, Delta refuses the commit.

    If another writer commits between the last check and Delta's transaction, the later version is rewritten.
    If that commit added and filled a column, its values would be lost, and Delta does not prevent it: the run
    then restores the version before, and fails.
    """

    name = "rewrite"
    reason = "rewrite"

    def refuse(self, run: Run) -> str | None:
        """Return why an overwrite would change more than files."""
        plan, metadata = run.plan, run.plan.source.snapshot.metadata
        if plan.sorts_rows:
            return "only OPTIMIZE sorts rows"
        if metadata.tracks_rows:
            return "the table has row tracking and the ids of its rows would change"
        fields = metadata.schema["fields"]
        always = [one["name"] for one in fields if (one.get("metadata") or {}).get(_EXPLICIT) is False]
        if always:
            return f"Delta alone gives the values of {', '.join(always)}, GENERATED ALWAYS AS IDENTITY"
        values = {name: plan.source.partitions[f"partition.{name}"] for name in plan.source.partition_columns}
        empty = [name for name, texts in values.items() if pc.any(pc.equal(texts, "")).as_py()]
        if empty:
            return f'{", ".join(empty)} is "" in some files, which a write would turn into null'
        return None

    def run(self, run: Run) -> Mapping[int, str]:
        """Overwrite; see the class.

        Raises:
            UnsupportedTableError: No predicate selects the partitions.
            StalePlanError: The table isn't at the planned version.
            ContentDiffers: The schema was changed just before the transaction began.
        """
        plan, positions = run.plan, _whole_partitions(run.plan)
        is_whole_table = len(positions) == plan.source.snapshot.live.num_rows
        with settings(run.spark, self.name, run.id, _CONFS) as spark:
            predicate = None if is_whole_table else partitions_predicate(spark, plan.source, positions)
            rows = spark.read.format("delta").load(run.table)
            # This filter is always true. With _metadata, Spark doesn't read a table that the session has
            # cached: that may be older than the transaction.
            rows = rows.where(metadata_column(rows).isNotNull())
            rows = rows if predicate is None else rows.where(predicate)
            rows, most_rows = _spread(rows, plan, positions)
            # Checked as late as possible; `_check_start` finds later commits.
            if (latest := run.log.segment().version) != plan.version:
                raise StalePlanError.at(plan.version, latest)
            try:
                _watched(run, rows, predicate, most_rows)
            except Exception as error:
                # If an answer is lost, Delta tries again and takes its own commit for another writer's.
                own = is_conflict(error) and commits_of(run.store, run.id, plan.version)
                if not (own and self.is_as_planned(plan, removed_paths(own), 0)):
                    raise
        _check_start(run)
        return {}

    def is_as_planned(self, plan: BinPlan, removed: set[str], num_added: int) -> bool:
        """Return whether all files of the partitions in which the plan has bins were removed."""
        return removed == set(plan.source.paths(_whole_partitions(plan)).to_pylist())


def overwrite(rows: DataFrame, table: str, predicate: str | None, most_rows: int = 0) -> None:
    """Let Delta replace the rows that a predicate selects, or all, in a commit with dataChange=false."""
    writer = rows.write.format("delta").mode("overwrite").option("dataChange", "false")
    writer = writer.option("maxRecordsPerFile", str(most_rows))
    if predicate is not None:
        writer = writer.option("replaceWhere", predicate)
    writer.save(table)


def _spread(rows: DataFrame, plan: BinPlan, positions: np.ndarray) -> tuple[DataFrame, int]:
    """Spread rows over tasks by the target file size; also returns the most rows per file, 0 for no limit."""
    limit, columns = plan.thresholds.max_file_size, plan.source.partition_columns
    if not columns:
        size = plan.planner.model.output_bytes(positions, np.zeros(len(positions), int), 1)[0]
        return rows.repartition(max(math.ceil(size / limit), 1)), 0
    # One task writes each partition: as one file, or as files with a limited number of rows.
    rows = rows.repartition(len(np.unique(plan.planner.groups[positions])), *map(quoted, columns))
    num_rows, sizes = plan.planner.rows[positions], plan.source.sizes[positions]
    known = num_rows > 0
    is_large = sizes.sum() > limit and known.any()
    return rows, max(int(num_rows[known].sum() * limit / sizes[known].sum()), 1) if is_large else 0


def _whole_partitions(plan: BinPlan) -> np.ndarray:
    return np.flatnonzero(np.isin(plan.planner.groups, np.unique(plan.bin_groups)))


def _watched(run: Run, rows: DataFrame, predicate: str | None, most_rows: int) -> None:
    plan, record, jobs = run.plan, run.record, list[SparkJob]()

    def watch(watched: Watched) -> None:
        jobs[:] = watched.jobs
        if watched.num_tasks:
            share = watched.tasks / watched.num_tasks
            record.rewriting(int(plan.num_bins * share), int(plan.bytes_removed * share))
        elif watched.jobs:
            record.committing()
        else:
            record.preparing()

    run_watched(run.spark, lambda: overwrite(rows, run.table, predicate, most_rows), watch)
    for job in jobs:
        record.span("rewrite", job.start, job.end, job.name)


def _check_start(run: Run) -> None:
    """Raise if columns have changed between the planned version and the one that the transaction read."""
    planned = run.plan.version
    commits = commits_of(run.store, run.id, planned)
    if not commits or commits[-1].read_version == planned:
        return
    version, start = commits[-1].version, commits[-1].read_version
    read, plan = (one.metadata.schema for one in (run.log.snapshot(start), run.plan.source.snapshot))
    if columns_of(read) != columns_of(plan):
        raise ContentDiffers(
            f"The table's columns were changed in version {start}, a moment before version {version} rewrote "
            f"it as planned at {planned}, so values of new columns may be missing",
            advice="make a new plan",
        )
