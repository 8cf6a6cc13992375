"""Runs on a cluster, in a process of their own, for a process has one Spark context.

python -m tests.arrow.cluster_runs FOLDER SETTINGS runs plans of the tables in FOLDER, and writes what came
of each to its "told.json". SETTINGS are the session's, in JSON. The first task to write a file of a table
meets with what `FAULTS` has for it; "<table>.lost" in FOLDER names that file. "stored" is s3a://kit/stored;
with "path/t" is done what else an analyst does. Other Pythons than the executors' first are in "pythons" in
FOLDER.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from compaction_kit import get_spark, interop, open_table, survey, workbench
from compaction_kit.arrow import job
from compaction_kit.arrow.refusals import refuse_executors
from compaction_kit.arrow.worker import rewrite_bins
from compaction_kit.execute import Progress
from compaction_kit.storage import open_store

CONFIG = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    # Begin when both executors are there.
    "spark.cores.max": 2,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
Fault = Callable[[], None]


def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> None:
    """The parent of the daemon that has forked this process."""
    found = subprocess.check_output(["ps", "-o", "ppid=", "-p", str(os.getppid())])
    os.kill(int(found), signal.SIGKILL)


FAULTS: dict[str, Fault] = {"worker": kill_worker, "stored": kill_worker, "executor": kill_executor}


def faulty(lost: Path, fault: Fault) -> Callable[..., Iterator[tuple[Any, ...]]]:
    """`rewrite_bins`, with a fault after the first file of all, which is named in `lost`."""

    def rewriting(*args: Any) -> Iterator[tuple[Any, ...]]:
        for one in rewrite_bins(*args):
            with suppress(FileExistsError):
                with lost.open("x") as file:
                    file.write(one[2])
                fault()
            yield one

    return rewriting


def run(spark: SparkSession, folder: Path, name: str) -> dict[str, Any]:
    """Run a plan of a table; returns what is told of it."""
    table, lost = folder / name, folder / f"{name}.lost"
    plan = open_table(table if table.exists() else f"s3a://kit/{name}", spark).plan_compaction()
    fault = FAULTS.get(name)
    vars(job)["rewrite_bins"] = faulty(lost, fault) if fault else rewrite_bins
    seen: list[Progress] = []
    result = plan.run(progress=seen.append)
    return result.to_dict() | {"fractions": [progress.fraction for progress in seen]}


def path(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """What else an analyst does: rewrite by Spark's writer, restore, a manifest, vacuum, the workbench."""
    table = open_table(folder, spark)
    rewritten = table.plan_compaction().run(strategy="rewrite")
    restored = table.plan_restore(rewritten.versions[0] - 1).run()
    interop.generate_manifest(table)
    listed = interop.check_manifest(table).files["state"].to_pylist()
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    vacuum = table.plan_vacuum(retention="0 hours")
    vacuumed = vacuum.run()
    bench: Any = workbench(folder)
    bench.state.loading.wait(60)
    bench.state.run()
    bench.state.running.wait(120)
    return {
        "rewritten": [rewritten.strategy, rewritten.as_planned, rewritten.verified],
        "restored": restored.as_planned,
        "listed": sorted(set(listed)),
        "vacuumed": [vacuum.num_files, vacuumed.num_files, vacuumed.as_planned],
        "surveyed": survey(folder.parent).to_arrow()["table"].to_pylist(),
        "workbench": bench.children[-1].children[1].children[0].value,
        "by": bench.state.result.strategy,
    }


def looked(spark: SparkSession, folder: Path) -> dict[str, str | None]:
    """What `refuse_executors` says of several tables and Pythons."""
    context = spark.sparkContext
    tables = (str(folder / "missing"), *(f"s3a://kit/{name}" for name in ("stored", "missing", "denied")))
    told = {table: refuse_executors(spark, open_store(table)) for table in tables}
    for name in ("bare", "without-numpy", "old", "none"):
        context.pythonExec = f"{folder}/pythons/{name}/bin/python"
        told[name] = refuse_executors(spark, open_store(folder))
    return told


def main(to: str, settings: str) -> None:
    folder = Path(to)
    spark = get_spark(CONFIG | json.loads(settings), s3=True)
    context = spark.sparkContext
    # The least, so that small bins are divided too.
    job.LEAST_PART = 1
    told: dict[str, Any] = {name: run(spark, folder, name) for name in ("planned", "worker", "stored")}
    python = context.pythonExec
    told["looked"] = looked(spark, folder)
    context.pythonExec = f"{folder}/pythons/bare/bin/python"
    told["bare"] = run(spark, folder, "bare")
    context.pythonExec = python
    # At last: another executor takes a while to start.
    told["executor"] = run(spark, folder, "executor")
    told["path"] = path(spark, folder / "path" / "t")
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
