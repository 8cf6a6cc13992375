"""A run in a process of its own, whose first tasks meet a bad moment when they have written a file.

python -m tests.execute.arrow.faulty_run TABLE FAULT FLAG prints the versions of the run. FAULT is
"dies" or "hangs"; the files FLAG-rewrite and FLAG-join tell that it has happened.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from compaction_kit import get_spark, open_table
from compaction_kit.execute.arrow import job
from compaction_kit.execute.arrow.worker import join_parts, rewrite_shares

# Two cores, and tasks that are tried up to four times, as on a cluster.
_CONFIG = {"spark.master": "local[2,4]", "spark.driver.memory": "1g"}
_HANGING_SECONDS = 600


def faulty(fault: str, flag: str, results: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """What a task gives; the first try of all dies or hangs instead, with its first file written."""
    for one in results:
        if _is_first(flag):
            if fault == "dies":
                os._exit(1)
            time.sleep(_HANGING_SECONDS)
        yield one


def _is_first(flag: str) -> bool:
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def main(table: str, fault: str, flag: str) -> None:
    def rewriting(shares: Iterable[tuple[Any, ...]], tell: Callable[..., None]) -> Iterator[tuple[Any, ...]]:
        return faulty(fault, f"{flag}-rewrite", rewrite_shares(shares, tell))

    def joining(bins: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        return faulty(fault, f"{flag}-join", join_parts(bins))

    # The least, so that small bins are divided too.
    for name, value in (("rewrite_shares", rewriting), ("join_parts", joining), ("_LEAST_SHARE", 1)):
        setattr(job, name, value)
    spark = get_spark(_CONFIG)
    print(*open_table(table, spark).plan_compaction().run(strategy="arrow").versions)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
