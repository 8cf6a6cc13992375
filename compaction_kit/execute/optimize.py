"""The strategy "optimize": Delta's own OPTIMIZE, with the plan's thresholds."""

from collections.abc import Collection

import numpy as np

from compaction_kit.execute.commits import settings
from compaction_kit.execute.jobs import SparkJob, Watched, run_watched
from compaction_kit.execute.jvm import is_conflict
from compaction_kit.execute.work import Work
from compaction_kit.predicate import partitions_predicate
from compaction_kit.sql import identifier, table_name

# How often OPTIMIZE is run if another writer takes its files.
MOST_TRIES = 3
_CONF = "spark.databricks.delta.optimize"
_OPTIONS = {"max_threads": "maxThreads", "repartition": "repartition.enabled"}


def run_optimize(work: Work, partitions: Collection[int] | None = None) -> None:
    """Run OPTIMIZE so that it does what the plan says, again if another writer takes its files.

    Args:
        work: The plan, the table and the session, whose settings are put back afterwards.
        partitions: Those of the plan to optimize, by their numbers; None for all.

    Raises:
        PySparkException, WorkCancelled: It failed, or was cancelled.
    """
    plan, where, num_bins = work.plan, work.plan.where, work.plan.num_bins
    if partitions is not None:
        num_bins = int(np.isin(plan.bin_groups, list(partitions)).sum())
    if partitions is not None and plan.source.partition_columns:
        files = np.flatnonzero(np.isin(plan.groups, list(partitions)))
        these = partitions_predicate(work.spark, plan.source, files)
        where = f"({where}) AND ({these})" if where else these
    confs = {
        f"{_CONF}.minFileSize": str(plan.thresholds.min_file_size),
        f"{_CONF}.maxFileSize": str(plan.thresholds.max_file_size),
        f"{_CONF}.maxDeletedRowsRatio": str(plan.thresholds.max_deleted_rows_ratio),
        f"{_CONF}.batchSize": str(plan.thresholds.batch_size or 2**63 - 1),
    }
    confs |= {f"{_CONF}.{_OPTIONS[name]}": str(value).lower() for name, value in work.options.items()}
    columns = ", ".join(identifier(work.spark, name) for name in plan.zorder_by)
    zorder = f" ZORDER BY ({columns})" if columns else ""
    condition = f" WHERE {where}" if where else ""
    statement = f"OPTIMIZE {table_name(work.spark, work.table)}{condition}{zorder}"
    with settings(work.spark, "optimize", plan.id, confs):
        for tries_left in reversed(range(MOST_TRIES)):
            try:
                _execute(work, statement, num_bins)
                return
            except Exception as error:
                if not is_conflict(error) or not tries_left:
                    raise
                work.record.conflict(error)


def _execute(work: Work, statement: str, num_bins: int) -> None:
    record = work.record
    bins_before, bytes_before = record.bins_done, record.bytes_done
    share = (work.plan.bytes_removed - bytes_before) / max(num_bins, 1)
    seen = 0

    def watch(watched: Watched) -> None:
        nonlocal seen
        done = list(filter(_is_of_bin, watched.jobs))
        for job in done[seen:]:
            record.span("rewrite", job.start, job.end)
        seen = len(done)
        bins = min(seen, num_bins)
        if not (watched.jobs or watched.num_tasks):
            record.preparing()
        elif record.bins_done < bins_before + bins or bins < num_bins:
            record.rewriting(bins_before + bins, bytes_before + int(share * bins))
        else:
            record.committing()

    run_watched(work.spark, lambda: work.spark.sql(statement).collect(), watch)


def _is_of_bin(job: SparkJob) -> bool:
    """Whether a job rewrote a bin: OPTIMIZE has a thread pool, and a job for each (ThreadUtils.parmap).

    Where jobs have no names, it is their one task (OptimizeExecutor.runOptimizeBinJob: coalesce(1)).
    """
    return "ForkJoinTask" in job.name or (not job.name and job.num_tasks == 1)
