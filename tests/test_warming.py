"""A new session is warmed when it is idle: that gives way, leaves nothing, and is off where it should be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HELPERS = """
import os, threading, time
from pathlib import Path
from compaction_kit import get_spark

def warming():
    return [thread for thread in threading.enumerate() if "warming" in thread.name]

def jobs(spark, active=True):
    tracker = spark.sparkContext.statusTracker()
    ours = spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag("compaction-kit-warming")
    return set(ours) & set(tracker.getActiveJobsIds()) if active else set(ours)

def wait_for(what):
    end = time.monotonic() + 120
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)
"""
WARM = """
spark = get_spark()
assert not warming(), "it is off where the environment has CI"
spark.stop()
del os.environ["CI"]

spark = get_spark()
(thread,) = warming()
wait_for(lambda: jobs(spark))
spark.stop()
again = get_spark(warm=False)
assert again.range(3).count() == 3
thread.join(60)
assert not thread.is_alive()
assert not warming(), "it is off where it isn't wanted"
again.stop()

spark = get_spark()
before = spark.conf.getAll
(thread,) = warming()
wait_for(lambda: jobs(spark))
theirs = jobs(spark, active=False)
folder = Path(spark.conf.get("spark.local.dir"))
seen = folder / "seen"

def work(spark):
    spark.sparkContext.parallelize(range(2), 2).foreach(lambda _: wait_for(seen.exists))

other = threading.Thread(target=work, args=(spark,))
other.start()
wait_for(lambda: not jobs(spark))
time.sleep(1)
assert other.is_alive() and not jobs(spark), "it gave way"
seen.touch()
other.join()
wait_for(lambda: jobs(spark, active=False) - theirs)
thread.join(120)
assert not thread.is_alive()
last = max(jobs(spark, active=False))
assert spark.sparkContext.statusTracker().getJobInfo(last).status == "SUCCEEDED"
assert spark.conf.getAll == before
assert get_spark() is spark and not warming()
assert spark.sparkContext.parallelize([(1,)]).toDF(["id"]).sparkSession is spark
print(*[path for path in folder.rglob("*") if "_delta_log" in path.name or path.suffix == ".parquet"])
spark.stop()
assert get_spark().range(3).count() == 3
assert not warming(), "the JVM is warm"
"""


@pytest.mark.nightly
def test_a_session_is_warmed_when_it_is_idle_can_be_stopped_meanwhile_and_keeps_no_trace(
    tmp_path: Path,
) -> None:
    """It is off where it should be; that a program can end meanwhile is shown in `test_session.py`."""
    done = subprocess.run(
        [sys.executable, "-c", HELPERS + WARM],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path), "CI": "true"},
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
    assert not list(tmp_path.glob("*compaction-kit*"))
