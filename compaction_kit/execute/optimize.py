"""The strategy "optimize": Delta's own OPTIMIZE, with the plan's thresholds."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from compaction_kit.execute.jobs import run_watched, session_confs
from compaction_kit.plan import CompactionPlan
from compaction_kit.sql import table_name

_CONF = "spark.databricks.delta.optimize"


def run_optimize(
    spark: SparkSession, table: Path, plan: CompactionPlan, watch: Callable[[int], None]
) -> None:
    """Run OPTIMIZE so that it does what the plan says.

    Args:
        spark: The session; its OPTIMIZE settings are put back afterwards.
        table: The table's folder.
        plan: What to do; the table must be at its version.
        watch: Called with the number of bins that are done; raising cancels.
    """
    where = f" WHERE {plan.where}" if plan.where else ""
    confs = {
        f"{_CONF}.minFileSize": str(plan.thresholds.min_file_size),
        f"{_CONF}.maxFileSize": str(plan.thresholds.max_file_size),
        f"{_CONF}.maxDeletedRowsRatio": str(plan.thresholds.max_deleted_rows_ratio),
        # One commit: with batches, a run that is cancelled half-way would leave some behind.
        f"{_CONF}.batchSize": str(2**63 - 1),
    }
    statement = f"OPTIMIZE {table_name(table)}{where}"
    with session_confs(spark, confs):
        run_watched(
            spark,
            lambda: spark.sql(statement).collect(),
            lambda jobs: watch(min(plan.num_bins, sum(map(_rewrites_bin, jobs)))),
        )


def _rewrites_bin(job: str) -> bool:
    # OPTIMIZE rewrites bins on a thread pool of its own, one job each (ThreadUtils.parmap).
    return "ForkJoinTask" in job
