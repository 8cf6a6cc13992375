"""The strategy "optimize": Delta's own OPTIMIZE, with the plan's thresholds."""

import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from compaction_kit.execute.jobs import run_watched, session_confs
from compaction_kit.plan import CompactionPlan
from compaction_kit.sql import quoted, table_name

# Settings are the session's: of two runs at once each would go by the other's.
_SETTINGS = threading.Lock()
_CONF = "spark.databricks.delta.optimize"


def run_optimize(
    spark: SparkSession, table: Path, plan: CompactionPlan, watch: Callable[[int], None]
) -> dict[int, str]:
    """Run OPTIMIZE so that it does what the plan says.

    Args:
        spark: The session; its OPTIMIZE settings are put back afterwards.
        table: The table's folder.
        plan: What to do; the table must be at its version.
        watch: Called with the number of bins that are done; raising cancels.

    Returns:
        Nothing: it leaves no bin alone.
    """
    where = f" WHERE {plan.where}" if plan.where else ""
    confs = {
        f"{_CONF}.minFileSize": str(plan.thresholds.min_file_size),
        f"{_CONF}.maxFileSize": str(plan.thresholds.max_file_size),
        f"{_CONF}.maxDeletedRowsRatio": str(plan.thresholds.max_deleted_rows_ratio),
        f"{_CONF}.batchSize": str(plan.thresholds.batch_size or 2**63 - 1),
    }
    columns = ", ".join(map(quoted, plan.zorder_by))
    zorder = f" ZORDER BY ({columns})" if columns else ""
    statement = f"OPTIMIZE {table_name(table)}{where}{zorder}"
    with _SETTINGS, session_confs(spark, confs):
        run_watched(
            spark,
            lambda: spark.sql(statement).collect(),
            lambda watched: watch(min(plan.num_bins, sum(map(_rewrites_bin, watched.jobs)))),
        )
    return {}


def _rewrites_bin(job: str) -> bool:
    # OPTIMIZE rewrites bins on a thread pool of its own, one job each (ThreadUtils.parmap).
    return "ForkJoinTask" in job
