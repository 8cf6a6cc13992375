"""What an analyst does with a table after a compaction: on a store, on a cluster, over Spark Connect."""

from typing import Any

from compaction_kit import interop
from compaction_kit.execute.jobs import session_confs
from compaction_kit.reads import measure_reads
from compaction_kit.table import Table

CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
# The result for a table such as the fixture `shaped`, of 21 files in 3 partitions.
AFTERWARDS = {
    "rewritten": ["rewrite", [5], True, True],
    "read": [21, 3, True],
    "bytes read": True,
    "restored": [6, True],
    "listed": ["listed and live"],
    "vacuumed": [3, 3, True, 1],
    "readable": ["yes", "missing files", "yes"],
}


def afterwards(table: Table) -> dict[str, Any]:
    """Rewrite by Spark's writer, time a query, restore, list in a manifest and vacuum; return the results."""
    rewritten, seen = table.plan_compaction().run(strategy="rewrite"), list[float]()
    reads = measure_reads(table.spark, table.location, 4, 5, "id IS NOT NULL", repeats=1)
    restored = table.plan_restore(4).run()
    interop.generate_manifest(table)
    with session_confs(table.spark, {CHECK: "false"}):
        vacuum = table.plan_vacuum(retention="0 hours")
        vacuumed = vacuum.run(progress=lambda progress: seen.append(progress.fraction))
    sizes = rewritten.bytes_removed, rewritten.bytes_added
    return {
        "rewritten": [rewritten.strategy, [*rewritten.versions], rewritten.as_planned, rewritten.verified],
        "read": [reads.files_before, reads.files_after, reads.same_result],
        "bytes read": (reads.bytes_before, reads.bytes_after) == sizes,
        "restored": [restored.version, restored.as_planned],
        "listed": sorted({*interop.check_manifest(table).files["state"].to_pylist()}),
        "vacuumed": [vacuum.num_files, vacuumed.num_files, vacuumed.as_planned, seen[-1]],
        "readable": table.versions()["readable"].to_pylist()[4:7],
    }
