"""The strategy "rewrite": Delta's overwrite with dataChange=false, of the partitions that have bins."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from compaction_kit.compat import least_read_tasks, metadata_column, repartition_by_id
from compaction_kit.errors import UnsupportedTableError
from compaction_kit.execute.commits import commits_of, settings
from compaction_kit.execute.failures import ContentDiffers, stale
from compaction_kit.execute.jobs import Watched, run_watched
from compaction_kit.execute.work import Work
from compaction_kit.files import Files
from compaction_kit.plan import BinPlan
from compaction_kit.plan.packing import OPEN_COST
from compaction_kit.predicate import partitions_predicate
from compaction_kit.sql import quoted
from compaction_kit.text import MIB

_CONFS = {
    # These would make other files of the rows, or of those of other partitions.
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.sql.files.maxRecordsPerFile": "0",
}
_SCAN_BYTES = 128 * MIB
_SLOT = "__compaction_kit_slot"
# Runs of rows that go to each output: many, so that outputs are of one size, and long, for neighbouring
# rows are alike and compress well.
_RUNS = 1_000


@dataclass(frozen=True)
class Spread:
    """The number of files that the rows of each partition become.

    Attributes:
        source: The files considered.
        positions: Positions in it of the rewritten files: all files of the partitions that have bins.
        counts: The number of files that the partition of each of these becomes, int64, one a position.
        num_files: The number of files in all.
        num_rows: The rows of all, as far as the log says.
    """

    source: Files
    positions: np.ndarray
    counts: np.ndarray
    num_files: int
    num_rows: int

    @classmethod
    def of(cls, plan: BinPlan) -> "Spread":
        """The fewest files that are predicted to stay within the plan's `max_file_size`."""
        positions = whole_partitions(plan)
        groups = np.unique(plan.groups[positions], return_inverse=True)[1]
        limit, model = plan.thresholds.max_file_size, plan.planner.model
        contents = np.bincount(groups, model.weights[positions])
        sizes = np.bincount(groups, plan.source.sizes[positions])
        # Never more files than their bytes as they are would fill: the overhead is a guess.
        counts = np.minimum(np.ceil(contents / max(limit - model.overhead, 1)), np.ceil(sizes / limit))
        counts = np.maximum(counts, 1).astype(np.int64)
        num_rows = int(np.nansum(plan.planner.rows[positions]))
        return cls(plan.source, positions, counts[groups], int(counts.sum()), num_rows)

    def apply(self, rows: DataFrame, num_tasks: int) -> DataFrame:
        """Distribute rows over tasks so that each task writes one file of a partition.

        Args:
            rows: Rows of the partitions in question; every other partition becomes one file.
            num_tasks: At least the number of files that a partition becomes.
        """
        # Not Spark's repartition(n): that sorts all rows, and separates neighbours.
        part = self._part(rows.sparkSession)
        columns = [F.col(quoted(name)) for name in self.source.partition_columns]
        tasks = F.lit(num_tasks)
        slot = F.pmod(F.pmod(F.hash(*columns), tasks) + part, tasks) if columns else part
        slotted = rows.select("*", slot.cast("int").alias(_SLOT))
        return repartition_by_id(slotted, num_tasks, _SLOT)

    def _part(self, spark: SparkSession) -> Column:
        """The file of its partition that each row goes to, by number."""
        length = max(self.num_rows // (self.num_files * _RUNS), 1)
        turn = F.expr(f"monotonically_increasing_id() div {length}")
        if not self.source.partition_columns:
            return F.pmod(turn, F.lit(int(self.counts[0])))
        part = F.lit(0)
        for count in np.unique(self.counts[self.counts > 1]).tolist():
            members = partitions_predicate(spark, self.source, self.positions[self.counts == count])
            part = F.when(F.expr(members), F.pmod(turn, F.lit(count))).otherwise(part)
        return part


def whole_partitions(plan: BinPlan) -> np.ndarray:
    """Positions in the plan's source of all files of the partitions that have bins."""
    positions: np.ndarray = np.flatnonzero(np.isin(plan.groups, np.unique(plan.groups[plan.members[0]])))
    return positions


def run_rewrite(work: Work) -> None:
    """Overwrite the partitions in which a plan has bins with their own rows, in one commit.

    All files of these partitions are rewritten, large and lone ones too; the whole table, if it
    has no partitions. Each partition becomes as few files as are predicted to stay within
    `max_file_size`, of equal rows. Batches become one commit.

    The rows are read without naming a version, so that Delta scans the snapshot of the very
    transaction that overwrites them; a named version, or a cached DataFrame, would drop what others
    committed in between, and Delta would not notice. So, whoever writes meanwhile:

    - No row is lost or duplicated. The transaction reads what is committed before it begins; later
      appends stay beside it; a delete, update or OPTIMIZE of files that it read makes Delta refuse
      the commit (a transaction of dataChange=false alone has snapshot isolation).
    - It begins at the planned version, unless somebody commits in the moment between the last check
      and Delta's transaction. Then the later version is rewritten, and a warning says so.
    - If a column was added and filled in that moment, its values are lost in the new version, which
      Delta does not prevent. The run then restores the version before, and fails.

    Args:
        work: The plan, the table, and the session, whose settings are put back afterwards.

    Raises:
        UnsupportedTableError: An overwrite would change more than files, or Delta refuses it.
        StalePlanError: The table isn't at the planned version.
        ContentDiffers: The schema was changed just before the transaction began.
    """
    plan = work.plan
    reason = _refusal(plan)
    if reason is not None:
        raise UnsupportedTableError(f'strategy="rewrite" can\'t run this plan, because {reason}.')
    spread = Spread.of(plan)
    is_whole_table = len(spread.positions) == plan.source.snapshot.live.num_rows
    predicate = None if is_whole_table else partitions_predicate(work.spark, plan.source, spread.positions)
    with settings(work.spark, "rewrite", plan.id, _CONFS):
        num_tasks = _num_tasks(work.spark, spread, plan)
        rows = spread.apply(_rows(work.spark, work.table, predicate), num_tasks)
        # After the columns are fixed and as late as can be: `_check_start` finds what comes later.
        latest = work.log.segment().version
        if latest != plan.version:
            raise stale(plan, latest)
        run_watched(
            work.spark, lambda: overwrite(rows, work.table, predicate), _bins_done(work, spread, num_tasks)
        )
    _check_start(work)


def rewritten_paths(plan: BinPlan) -> set[str]:
    """The files that a rewrite removes, by path as the log writes it: more than the plan's own."""
    return set(plan.source.paths(whole_partitions(plan)).to_pylist())


def _refusal(plan: BinPlan) -> str | None:
    """Why a plan can't be run by an overwrite, and what to do; None if it can."""
    metadata = plan.source.snapshot.metadata
    if plan.zorder_by:
        return 'it orders no rows: run it with strategy="optimize"'
    if metadata.configuration.get("delta.appendOnly", "").lower() == "true":
        return 'the table is append-only (delta.appendOnly): run it with strategy="optimize", which may'
    if metadata.configuration.get("delta.enableRowTracking", "").lower() == "true":
        return (
            "the table has row tracking and the ids of its rows would change: run it with "
            'strategy="optimize", which keeps them'
        )
    columns = [(field["name"], field.get("metadata") or {}) for field in metadata.schema["fields"]]
    generated = [name for name, known in columns if known.get("delta.identity.allowExplicitInsert") is False]
    if generated:
        return (
            f"Delta takes no values for {', '.join(generated)}, which is GENERATED ALWAYS AS IDENTITY: "
            'run it with strategy="optimize"'
        )
    values = {name: plan.source.partitions[f"partition.{name}"] for name in plan.source.partition_columns}
    empty = [name for name, texts in values.items() if pc.any(pc.equal(texts, "")).as_py()]
    if empty:
        return (
            f'{", ".join(empty)} is "" in some files, which a write would turn into null: correct those rows '
            "first"
        )
    return None


def _rows(spark: SparkSession, table: str, predicate: str | None) -> DataFrame:
    """The table's rows when they are read, not now."""
    rows = spark.read.format("delta").load(table)
    # Always true. But with _metadata Spark doesn't use a table that the session has cached, which may be
    # older than the transaction.
    rows = rows.where(metadata_column(rows).isNotNull())
    return rows if predicate is None else rows.where(predicate)


def overwrite(rows: DataFrame, table: str, predicate: str | None) -> None:
    """Let Delta replace the rows that a predicate selects, or all, in a commit with dataChange=false."""
    writer = rows.write.format("delta").mode("overwrite").option("dataChange", "false")
    if predicate is not None:
        writer = writer.option("replaceWhere", predicate)
    writer.save(table)


def _num_tasks(spark: SparkSession, spread: Spread, plan: BinPlan) -> int:
    """The number of tasks that write: one a file, but not many tasks for few bytes."""
    num_bytes = int(plan.source.sizes[spread.positions].sum())
    enough = max(
        int(spark.conf.get("spark.sql.shuffle.partitions") or 1),
        math.ceil(num_bytes / plan.thresholds.max_file_size),
        int(spread.counts.max()),
    )
    return min(spread.num_files, enough)


def _bins_done(work: Work, spread: Spread, num_tasks: int) -> Callable[[Watched], None]:
    """Make a callback that reports tasks done, first of reading and then of writing, as bins and bytes."""
    plan, record = work.plan, work.record
    cost = int((plan.source.sizes[spread.positions] + OPEN_COST).sum())
    reading = max(math.ceil(cost / _SCAN_BYTES), least_read_tasks(work.spark))
    # Of finished jobs, and of running ones.
    tasks = [0, 0]
    seen = 0

    def report(watched: Watched) -> None:
        nonlocal seen
        for job in watched.jobs[seen:]:
            record.span("rewrite", job.start, job.end, job.name)
        seen = len(watched.jobs)
        if watched.tasks < tasks[1]:
            tasks[0] += tasks[1]
        tasks[1] = watched.tasks
        share = min(sum(tasks) / (reading + num_tasks), 1.0)
        if not (watched.jobs or watched.num_tasks):
            record.preparing()
        elif record.bytes_done < plan.bytes_removed:
            record.rewriting(int(plan.num_bins * share), int(plan.bytes_removed * share))
        else:
            record.committing()

    return report


def _check_start(work: Work) -> None:
    """Warn if the transaction didn't begin at the planned version; raise if columns have changed."""
    planned = work.plan.version
    commits = commits_of(work.store, work.plan.id, planned)
    if not commits or commits[-1].read_version == planned:
        return
    version, start = commits[-1].version, commits[-1].read_version
    if work.log.snapshot(start).metadata.schema != work.plan.source.snapshot.metadata.schema:
        raise ContentDiffers(
            f"The table's columns were changed in version {start}, a moment before version {version} rewrote "
            f"it as planned at {planned}, so values of new columns may be missing",
            advice="make a new plan",
        )
    warnings.warn(
        f"The plan was made at version {planned}, and somebody committed a moment before it ran: "
        f"version {version} rewrites the rows of version {start}. None is lost; plan again to see what is "
        "left to do.",
        stacklevel=2,
    )
