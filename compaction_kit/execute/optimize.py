"""The strategy "optimize": Delta's own OPTIMIZE, with the plan's thresholds."""

from collections.abc import Mapping

import numpy as np
from pyspark.sql import SparkSession

from compaction_kit.execute.commits import commits_of, removed_paths, settings
from compaction_kit.execute.delta import is_conflict
from compaction_kit.execute.jobs import Watched, run_watched
from compaction_kit.execute.work import Run, Strategy
from compaction_kit.plan.thresholds import CUBES
from compaction_kit.predicate import partitions_predicate
from compaction_kit.sql import identifier, table_name

# How many times OPTIMIZE is tried if other writers' commits conflict with it.
MOST_TRIES = 3
_CONF = "spark.databricks.delta.optimize"


class Optimize(Strategy):
    """Delta's OPTIMIZE with the plan's thresholds as settings; it runs again after a conflict."""

    name = "optimize"
    reason = "optimize, which runs on every table"

    def run(self, run: Run) -> Mapping[int, str]:
        """Run OPTIMIZE; settings are restored afterwards.

        Raises:
            PySparkException, WorkCancelled: OPTIMIZE failed, or was cancelled.
        """
        plan, where, num_bins = run.plan, run.plan.where, run.plan.num_bins
        if run.partitions is not None:
            num_bins = int(np.isin(plan.bin_groups, list(run.partitions)).sum())
        if run.partitions is not None and plan.source.partition_columns:
            files = np.flatnonzero(np.isin(plan.planner.groups, list(run.partitions)))
            these = partitions_predicate(run.spark, plan.source, files)
            where = f"({where}) AND ({these})" if where else these
        confs = {
            f"{_CONF}.minFileSize": str(plan.thresholds.min_file_size),
            f"{_CONF}.maxFileSize": str(plan.thresholds.max_file_size),
            f"{_CONF}.maxDeletedRowsRatio": str(plan.thresholds.max_deleted_rows_ratio),
            f"{_CONF}.batchSize": str(plan.thresholds.batch_size or 2**63 - 1),
        }
        if plan.clustered_by:
            confs[f"{CUBES}.threshold"] = str(plan.planner.rules.cubes.complete)
            confs[f"{CUBES}.targetCubeSize"] = str(plan.planner.rules.cubes.target)
        statement = self._statement(run, f" WHERE {where}" if where else "")
        with settings(run.spark, self.name, run.id, confs) as spark:
            for tries_left in reversed(range(MOST_TRIES)):
                try:
                    _execute(run, spark, statement, num_bins)
                    break
                except Exception as error:
                    if not is_conflict(error):
                        raise
                    # If an answer is lost, Delta tries again and takes its own commit for another writer's.
                    own = commits_of(run.store, run.id, plan.version)
                    if plan.without(removed_paths(own)).is_empty:
                        break
                    if not tries_left:
                        raise
                    if run.log.segment().version > plan.version + len(own):
                        run.record.conflict(error)
        return {}

    def _statement(self, run: Run, condition: str) -> str:
        columns = ", ".join(identifier(run.spark, name) for name in run.plan.zorder_by)
        zorder = f" ZORDER BY ({columns})" if columns else ""
        full = " FULL" if run.plan.full else ""
        return f"OPTIMIZE {table_name(run.spark, run.table)}{condition}{zorder}{full}"


class Reorg(Optimize):
    """Delta's REORG … APPLY (PURGE), which is OPTIMIZE with other files: see `Table.plan_purge`."""

    name = "reorg"
    reason = "reorg, which alone purges"

    def _statement(self, run: Run, condition: str) -> str:
        return f"REORG TABLE {table_name(run.spark, run.table)}{condition} APPLY (PURGE)"


def _execute(run: Run, spark: SparkSession, statement: str, num_bins: int) -> None:
    record, seen = run.record, 0
    bins_before, bytes_before = record.bins_done, record.bytes_done
    share = (run.plan.bytes_removed - bytes_before) / max(num_bins, 1)

    def watch(watched: Watched) -> None:
        nonlocal seen
        # OPTIMIZE runs one job per bin in a thread pool (ThreadUtils.parmap).
        done = [job for job in watched.jobs if "ForkJoinTask" in job.name]
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

    run_watched(run.spark, lambda: spark.sql(statement).collect(), watch)
