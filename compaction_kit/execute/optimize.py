"""The strategy "optimize": Delta's own OPTIMIZE, with the plan's thresholds."""

from collections.abc import Collection

import numpy as np
from pyspark.sql import SparkSession

from compaction_kit.execute.commits import settings
from compaction_kit.execute.jobs import Watched, run_watched
from compaction_kit.execute.jvm import is_conflict
from compaction_kit.execute.work import Work
from compaction_kit.plan import BinPlan
from compaction_kit.predicate import partitions_predicate
from compaction_kit.sql import identifier, table_name

# How often OPTIMIZE is run anew where another writer took its files.
MOST_TRIES = 3
_CONF = "spark.databricks.delta.optimize"


def run_optimize(work: Work) -> None:
    """Run OPTIMIZE so that it does what the plan says, again if another writer takes its files.

    Args:
        work: The plan, the table and the session, whose settings are put back afterwards.

    Raises:
        PySparkException, WorkCancelled: It failed, or was cancelled.
    """
    _optimize(work, work.plan.where, work.plan.num_bins)


def optimize_partitions(work: Work, groups: Collection[int]) -> None:
    """Run OPTIMIZE on some partitions of a plan, by their numbers; see `run_optimize`."""
    plan = work.plan
    bins = np.isin(plan.bin_groups, list(groups))
    rows = np.flatnonzero(np.isin(plan.groups, list(groups)))
    _optimize(work, _where_in(work.spark, plan, rows), int(bins.sum()))


def _optimize(work: Work, where: str | None, num_bins: int) -> None:
    plan, options = work.plan, work.options
    confs = {
        f"{_CONF}.minFileSize": str(plan.thresholds.min_file_size),
        f"{_CONF}.maxFileSize": str(plan.thresholds.max_file_size),
        f"{_CONF}.maxDeletedRowsRatio": str(plan.thresholds.max_deleted_rows_ratio),
        f"{_CONF}.batchSize": str(plan.thresholds.batch_size or 2**63 - 1),
    }
    if options.max_threads is not None:
        confs[f"{_CONF}.maxThreads"] = str(options.max_threads)
    if options.repartition is not None:
        confs[f"{_CONF}.repartition.enabled"] = str(options.repartition).lower()
    columns = ", ".join(identifier(work.spark, name) for name in plan.zorder_by)
    zorder = f" ZORDER BY ({columns})" if columns else ""
    condition = f" WHERE {where}" if where else ""
    statement = f"OPTIMIZE {table_name(work.spark, work.table)}{condition}{zorder}"
    with settings(work.spark, "optimize", plan.id, confs):
        for tries_left in reversed(range(MOST_TRIES)):
            try:
                _run(work, statement, num_bins)
                return
            except Exception as error:
                if not is_conflict(error) or not tries_left:
                    raise
                work.record.conflict(error)


def _run(work: Work, statement: str, num_bins: int) -> None:
    record = work.record
    bins_before, bytes_before = record.bins_done, record.bytes_done
    share = (work.plan.bytes_removed - bytes_before) / max(num_bins, 1)
    seen = 0

    def watch(watched: Watched) -> None:
        nonlocal seen
        # OPTIMIZE rewrites bins on a thread pool of its own, one job each (ThreadUtils.parmap).
        done = [job for job in watched.jobs if "ForkJoinTask" in job.name]
        for job in done[seen:]:
            record.span("rewrite", job.start, job.end)
        seen = len(done)
        bins = min(seen, num_bins)
        record.rewriting(bins_before + bins, bytes_before + int(share * bins))

    run_watched(work.spark, lambda: work.spark.sql(statement).collect(), watch)


def _where_in(spark: SparkSession, plan: BinPlan, rows: np.ndarray) -> str | None:
    """The plan's predicate, for the partitions of some of its files alone; None for all."""
    if not plan.source.partition_columns:
        return plan.where
    partitions = partitions_predicate(spark, plan.source, rows)
    return f"({plan.where}) AND ({partitions})" if plan.where else partitions
