"""Kill processes during a run: the table keeps its rows, and another run can do the rest."""

import atexit
import contextlib
import functools
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from compaction_kit import datasets, errors, get_spark, open_table
from compaction_kit.execute import Progress
from tests.conftest import QUICK
from tests.handmade import commit_path
from tests.knocks.oracle import STRATEGIES, Before, Case, Outcome, Wrong, judge_result, rows_of

# The most seconds until a session starts or a run comes to its moment, on a machine with little memory.
_SECONDS = 600
# When a process dies, and which one. Moments such as "Rewriting" are lines that the driver prints.
MOMENTS = ["chance", "chance", "begun", "Rewriting", "rewritten", "Comparing", "commit", "after the commit"]
WHOM = ["all", "all", "all", "driver", "workers"]


class Driver:
    """A process with a Spark session, see `main`; it leads a process session of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.knocks.kills"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        atexit.register(self.kill, "all")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("dead")

    def tell(self, **order: object) -> None:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def wait(self, *starts: str) -> str:
        """Wait for a line with one of these beginnings; "dead" or an answer ends the wait too."""
        end = time.monotonic() + _SECONDS
        while True:
            line = self.lines.get(timeout=max(end - time.monotonic(), 0.01))
            if line.startswith((*starts, "dead", "done", "error")):
                return line

    def kill(self, whom: str) -> None:
        """Kill all its processes, only the driver, or only its Python workers."""
        if whom == "driver":
            self.process.kill()
        else:
            for pid in self._processes("daemon" if whom == "workers" else ""):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if whom != "workers":
            self.process.wait()
            end = time.monotonic() + _SECONDS
            while self._processes("") and time.monotonic() < end:
                time.sleep(0.02)

    def _processes(self, named: str) -> list[int]:
        """Return the ids of the processes in its session whose command contains `named`."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                is_ours = int(fields[3]) == self.process.pid and fields[0] != "Z"
                if is_ours and named in (folder / "cmdline").read_text():
                    found.append(int(folder.name))
        return found


@functools.cache
def _drivers() -> list[Driver]:
    return [Driver()]


def take() -> Driver:
    """Return a driver that is ready, and start the next one."""
    _drivers().append(Driver())
    driver = _drivers().pop(0)
    if driver.wait("ready") != "ready":
        raise Wrong("no session starts")
    return driver


def play(case: Case) -> Outcome:
    draw, table = case.draw, case.folder / "table"
    shape = {
        "partitions": draw.choice([0, 2, 6]),
        "files": draw.choice([4, 12]),
        "rows": draw.choice([20, 400]),
    }
    datasets.shaped_table(table, **shape, commits=3, seed=draw.randrange(99))
    strategies = STRATEGIES
    if not shape["partitions"] and draw.random() < 0.5:
        strategies = ["optimize"]
        case.spark.sql(f"ALTER TABLE delta.`{table}` CLUSTER BY (id, value)")
    before = Before.of(table, rows_of(case.spark, table))
    strategy, moment, whom = draw.choice(strategies), draw.choice(MOMENTS), draw.choice(WHOM)
    driver = take()
    # One commit for all bins, or one commit per bin.
    driver.tell(table=str(table), strategy=strategy, batch_size=draw.choice([None, 1]))
    answer = _await(driver, moment, table, before.version, draw)
    if not answer.startswith(("done", "error")):
        driver.kill(whom)
        answer = driver.wait() if whom == "workers" else "killed"
    driver.kill("all")
    outcome = _judge(case, before, answer)
    _go_on(case, before, draw.choice(strategies))
    return outcome


def _await(driver: Driver, moment: str, table: Path, version: int, draw: random.Random) -> str:
    """Wait for the moment, and a bit longer; return the last line that the driver printed."""
    waits: dict[str, Callable[[], str]] = {
        "chance": lambda: driver.wait("begun"),
        "commit": lambda: _await_commit(driver, table, version),
        "after the commit": lambda: _await_commit(driver, table, version),
    }
    line = waits.get(moment, lambda: driver.wait(moment))()
    most = {"chance": 1.2, "commit": 0.0, "after the commit": 0.3}.get(moment, 0.05)
    time.sleep(draw.random() * most)
    return line


def _await_commit(driver: Driver, table: Path, version: int) -> str:
    end = time.monotonic() + _SECONDS
    while not commit_path(table, version + 1).exists() and time.monotonic() < end:
        with contextlib.suppress(queue.Empty):
            line = driver.lines.get(timeout=0.001)
            if line.startswith(("done", "error", "dead")):
                return line
    return "commit"


def _judge(case: Case, before: Before, answer: str) -> Outcome:
    before.check(rows_of(case.spark, before.table), before.rows)
    if answer.startswith("done"):
        if answer != "done True True":
            raise Wrong(f"a run of its own came to {answer!r}")
        return Outcome.AS_PLANNED
    if answer.startswith("error"):
        if not answer.startswith("error CompactionKitError") or "\\n" in answer:
            raise Wrong(answer)
        return Outcome.FAILED
    infos = before.of_kit()
    if not infos:
        return Outcome.FAILED
    is_proved = all(", proved " in info["userMetadata"] for info in infos)
    if not is_proved and any("compaction_kit arrow" in info["userMetadata"] for info in infos):
        raise Wrong("arrow has committed without a proof")
    return Outcome.PROVED if is_proved else Outcome.NOT_PROVED


def _go_on(case: Case, before: Before, strategy: str) -> None:
    """Check that VACUUM would delete the files that are left, and that a new plan does the rest."""
    left = before.left()
    if left:
        spark = case.spark
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        taken = spark.sql(f"VACUUM delta.`{before.table}` RETAIN 0 HOURS DRY RUN").collect()
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
        names = {row["path"].rpartition("/")[2] for row in taken}
        if missed := {path for path in left if path.rpartition("/")[2] not in names}:
            raise Wrong(f"VACUUM does not take {sorted(missed)}")
    result = open_table(before.table, case.spark).plan_compaction().run(strategy=strategy)
    if judge_result(result) is not Outcome.AS_PLANNED:
        raise Wrong(f"the run afterwards did another thing than planned: {result.summary()}")
    before.check(rows_of(case.spark, before.table), before.rows)


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
    except errors.CompactionKitError as error:
        tell("error CompactionKitError", type(error).__name__, str(error).replace("\n", "\\n"))
    except Exception as error:
        tell("error", type(error).__name__, str(error).replace("\n", "\\n"))


def main() -> None:
    """Run the plan that a line of JSON describes, and print its progress, until the process is killed."""
    spark = get_spark({"spark.master": "local[2]", "spark.driver.memory": "1g"})
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    # Do a first run now, which is slow, so that the moments spread over the second run.
    with tempfile.TemporaryDirectory() as folder:
        warm = datasets.shaped_table(f"{folder}/warm", partitions=2, files=2, rows=2)
        open_table(warm, spark).plan_compaction().run(strategy="arrow")
    tell("ready")
    run(**json.loads(sys.stdin.readline()))


if __name__ == "__main__":
    main()
