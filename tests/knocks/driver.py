"""A process that runs plans as it is told by lines of JSON, and tells how far it is, until it is killed."""

import json
import sys
import tempfile
from typing import Any

from compaction_kit import get_spark, open_table
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import CompactionKitError
from compaction_kit.execute import Progress
from tests.conftest import QUICK


def tell(*words: object) -> None:
    print(*words, flush=True)


def run(table: str, strategy: str, batch_size: int | None) -> None:
    plan = open_table(table).plan_compaction(batch_size=batch_size)
    told: set[str] = set()

    def report(progress: Progress) -> None:
        is_rewritten = progress.bins_done == progress.num_bins
        for step in [progress.step, *(["rewritten"] if is_rewritten else [])]:
            if step not in told:
                told.add(step)
                tell(step)

    tell("begun")
    try:
        result = plan.run(strategy=strategy, progress=report)
        tell("done", result.as_planned, result.verified)
    except CompactionKitError as error:
        tell("error CompactionKitError", type(error).__name__, str(error).replace("\n", "\\n"))
    except Exception as error:
        tell("error", type(error).__name__, str(error).replace("\n", "\\n"))


def main() -> None:
    spark = get_spark({"spark.master": "local[2]", "spark.driver.memory": "1g"})
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    # What is slow for the first time is done now, so that moments spread over a run.
    with tempfile.TemporaryDirectory() as folder:
        warm = shaped_table(f"{folder}/warm", partitions=2, files=2, rows=2)
        open_table(warm, spark).plan_compaction().run(strategy="arrow")
    tell("ready")
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        run(**order) if order else tell("ready")


if __name__ == "__main__":
    main()
