"""The model of lesson 08's lab: which files of a sink's log are left, as a projection has them.

That a projection says what Spark leaves is shown by tests/sinklog/test_policy.py.
"""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from course.labs.sink_log import KEPT, NEEDED, REMOVED, log_files

from compaction_kit import sink_log
from compaction_kit.sinklog.policy import Policy
from compaction_kit.times import millis
from tests.sinklog.streams import make_log, names_after


def names(policy: Policy, batch: int, *states: str) -> list[str]:
    """The names of the log's files in these states, after a batch."""
    return [one["name"] for one in log_files(policy, batch).to_pylist() if one["state"] in states]


@pytest.mark.parametrize(("interval", "retained", "delay"), [(3, 2, 0), (4, 5, 0), (3, 2, 7)])
def test_files_are_left_as_a_projection_says(
    tmp_path: Path, interval: int, retained: int, delay: int
) -> None:
    policy = Policy(interval, retained, timedelta(minutes=delay))
    log = sink_log(make_log(tmp_path / "_spark_metadata", b0="v1"), policy=policy)
    # The first of the batches to come is written when the log is read.
    began = millis(log.read_at) / 1_000 - 60
    os.utime(tmp_path / "_spark_metadata" / "0", (began, began))
    log = sink_log(tmp_path / "_spark_metadata", policy=policy)
    projected = log.project(30, seconds_between=60)
    for batch in range(1, 30):
        assert names(policy, batch, NEEDED, KEPT) == names_after(log, projected, batch), batch
        last = max(done for done in range(-1, batch + 1) if (done + 1) % interval == 0)
        needed = [f"{last}.compact"] if last >= 0 else []
        assert names(policy, batch, NEEDED) == [*needed, *map(str, range(last + 1, batch + 1))], batch
    assert names(policy, 29, REMOVED)
