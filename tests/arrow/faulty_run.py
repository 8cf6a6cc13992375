"""Two runs in a process of their own: tasks of the first die, and the second hangs until it is killed.

python -m tests.arrow.faulty_run DYING HANGING FOLDER prints the versions of the first run, in
which the first task to write a file dies, once in rewriting and once in joining, as the files "rewrite"
and "join" in FOLDER tell. The second run's second batch hangs with its first file written, as "hangs"
tells.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from compaction_kit import get_spark, open_table
from compaction_kit.arrow import job
from compaction_kit.arrow.worker import join_parts, rewrite_bins

# Two cores, and tasks that are tried up to four times, as on a cluster.
_CONFIG = {"spark.master": "local[2,4]", "spark.driver.memory": "1g"}
_HANGING_SECONDS = 600


def faulty(
    step: str, folder: Path, commit: Path, results: Iterable[tuple[Any, ...]]
) -> Iterator[tuple[Any, ...]]:
    """What a task gives; the first try of all dies, and each hangs that is made after a commit."""
    for one in results:
        if _is_first(folder / step):
            os._exit(1)
        if commit.exists():
            (folder / "hangs").touch()
            time.sleep(_HANGING_SECONDS)
        yield one


def _is_first(flag: Path) -> bool:
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main(dying: str, hanging: str, to: str) -> None:
    folder = Path(to)
    spark = get_spark(_CONFIG)
    plan = open_table(hanging, spark).plan_compaction(batch_size=1, max_file_size="10 KiB")
    commit = Path(hanging) / "_delta_log" / f"{plan.version + 1:020}.json"

    def rewriting(*args: Any) -> Iterator[tuple[Any, ...]]:
        return faulty("rewrite", folder, commit, rewrite_bins(*args))

    def joining(bins: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        return faulty("join", folder, commit, join_parts(bins))

    # The least, so that small bins are divided too.
    for name, value in (("rewrite_bins", rewriting), ("join_parts", joining), ("LEAST_PART", 1)):
        setattr(job, name, value)
    print(*open_table(dying, spark).plan_compaction().run(strategy="arrow").versions, flush=True)
    plan.run(strategy="arrow")


if __name__ == "__main__":
    main(*sys.argv[1:])
