"""Runs on a Spark standalone cluster whose executors have pyspark, pyarrow and numpy, but not this package.

A separate process runs this module as a program, because a process can have only one Spark context.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from compaction_kit import get_spark, open_table, survey, workbench
from compaction_kit.arrow import job
from compaction_kit.arrow.refusals import refuse_executors
from compaction_kit.arrow.worker import rewrite_bins
from compaction_kit.datasets import shaped_table
from compaction_kit.execute import Progress
from compaction_kit.storage import open_store
from tests import folders, rows
from tests.cluster import python_with, standalone
from tests.conftest import QUICK
from tests.elsewhere import AFTERWARDS, afterwards
from tests.processes import run_python
from tests.releases import since_spark
from tests.stores import SECRET_KEY, s3_server

# Some of the tables are on S3.
pytestmark = [pytest.mark.slow, pytest.mark.nightly, since_spark("4.0")]

CONFIG = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    # Start tasks only once both executors have registered.
    "spark.cores.max": 2,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
Fault = Callable[[], None]


def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> None:
    """Kill the executor: the parent of the daemon that has forked this process."""
    found = subprocess.check_output(["ps", "-o", "ppid=", "-p", str(os.getppid())])
    os.kill(int(found), signal.SIGKILL)


FAULTS: dict[str, Fault] = {"worker": kill_worker, "stored": kill_worker, "executor": kill_executor}


def faulty(lost: Path, fault: Fault) -> Callable[..., Iterator[tuple[Any, ...]]]:
    """Return `rewrite_bins` with a fault after the run's first file, whose path is written to `lost`."""

    def rewriting(*args: Any) -> Iterator[tuple[Any, ...]]:
        for one in rewrite_bins(*args):
            with contextlib.suppress(FileExistsError):
                with lost.open("x") as file:
                    file.write(one[2])
                fault()
            yield one

    return rewriting


def run(spark: SparkSession, folder: Path, name: str) -> dict[str, Any]:
    """Compact a table; return the run's result and progress as a dict."""
    table, lost = folder / name, folder / f"{name}.lost"
    plan = open_table(table if table.exists() else f"s3a://kit/{name}", spark).plan_compaction()
    fault = FAULTS.get(name)
    vars(job)["rewrite_bins"] = faulty(lost, fault) if fault else rewrite_bins
    seen: list[Progress] = []
    result = plan.run(progress=seen.append)
    return result.to_dict() | {"fractions": [progress.fraction for progress in seen]}


def path(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Do the rest of an analyst's work after a compaction, and end with a run in the workbench."""
    told = afterwards(open_table(folder, spark))
    bench: Any = workbench(folder)
    bench.state.loading.wait(60)
    bench.state.run()
    bench.state.running.wait(120)
    return {
        "afterwards": told,
        "surveyed": survey(folder.parent).to_arrow()["table"].to_pylist(),
        "workbench": bench.children[-1].children[1].children[0].value,
        "by": bench.state.result.strategy,
    }


def looked(spark: SparkSession, folder: Path) -> dict[str, str | None]:
    """Return the answers of `refuse_executors` for several tables and Python executables."""
    paths = (str(folder / "missing"), *(f"s3a://kit/{name}" for name in ("stored", "missing", "denied")))
    told = {table: refuse_executors(spark, open_store(table)) for table in paths}
    for name in ("old", "none"):
        spark.sparkContext.pythonExec = f"{folder}/pythons/{name}/bin/python"
        told[name] = refuse_executors(spark, open_store(folder))
    return told


def main(to: str, settings: str) -> None:
    """Compact the tables in a folder, and write the results to "told.json" there.

    `settings` are those of the session, as JSON. The first task that writes a file of a table gets the fault
    that `FAULTS` has for the table; "<table>.lost" in the folder holds the path of that file.
    """
    folder = Path(to)
    spark = get_spark(CONFIG | json.loads(settings), s3=True)
    context = spark.sparkContext
    # As small as possible, so that small bins are divided too.
    job.LEAST_PART = 1
    told: dict[str, Any] = {name: run(spark, folder, name) for name in ("planned", "worker", "stored")}
    python = context.pythonExec
    told["looked"] = looked(spark, folder)
    context.pythonExec = f"{folder}/pythons/bare/bin/python"
    told["bare"] = run(spark, folder, "bare")
    context.pythonExec = python
    # Last, because a new executor takes a while to start.
    told["executor"] = run(spark, folder, "executor")
    told["path"] = path(spark, folder / "path" / "t")
    (folder / "told.json").write_text(json.dumps(told))


_PYSPARK = ("pyspark", "py4j")


class Runs(NamedTuple):
    """The results of the runs, and the folder of their tables.

    `stored` are the objects of the table on S3 after its run; `put` are the names of all files ever written.
    """

    folder: Path
    told: dict[str, Any]
    stored: set[str]
    put: set[str]

    def lost(self, table: str) -> str:
        """Return the name of the file that was written before the fault."""
        return Path((self.folder / f"{table}.lost").read_text()).name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, shaped: Path, spark: SparkSession) -> Runs:
    folder = tmp_path_factory.mktemp("cluster")
    shaped_table(folder / "planned", partitions=0, files=8, rows=50, commits=4)
    for name in ("bare", "worker", "executor", "path/t"):
        folders.copy(shaped, folder / name)
    pythons = folder / "pythons"
    executors = python_with(folder / "python", *_PYSPARK, "pyarrow", "numpy")
    python_with(pythons / "bare", *_PYSPARK)
    # A stub instead of an old pyarrow, which would have to come from a package index.
    old = python_with(pythons / "old", *_PYSPARK, "numpy")
    (site,) = (old.parents[1] / "lib").glob("python*/site-packages")
    (site / "pyarrow.py").write_text("__version__ = '20.0.0'")
    with standalone(spark, folder) as master, s3_server() as server:
        server.upload(shaped, "stored")
        server.requests.clear()
        server.fault = lambda _, path: (403, "AccessDenied") if "/denied" in path else None
        hadoop = {f"spark.hadoop.{name}": value for name, value in server.s3a.items()}
        settings = json.dumps(QUICK | {"spark.master": master} | hadoop)
        where = {"PYSPARK_PYTHON": str(executors), "SPARK_LOCAL_IP": "127.0.0.1"}
        run_python("-m", "tests.arrow.test_cluster", str(folder), settings, **where)
        put = {Path(request.path).name for request in server.requests if request.method == "PUT"}
        return Runs(folder, json.loads((folder / "told.json").read_text()), server.names("stored"), put)


@pytest.mark.works("cluster", "read", "arrow", "proof", when="worker")
@pytest.mark.works("cluster", "optimize", "proof", when="bare")
@pytest.mark.parametrize("name", ["planned", "worker", "executor", "bare"])
def test_a_run_keeps_the_content_and_leaves_no_other_files(runs: Runs, name: str) -> None:
    told, table = runs.told[name], runs.folder / name
    assert (told["versions"], told["as_planned"], told["verified"]) == ([5], True, True)
    assert told["strategy"] == ("optimize" if name == "bare" else "arrow")
    assert told["num_files_added"] == told["num_bins"] == len(folders.live(table))
    assert rows.on_disk(table, 5) == rows.on_disk(table, 4)
    # The table's folder holds only the log and the files that versions name.
    named = folders.live(table, 4) | folders.live(table)
    files = {path for path in table.rglob("*") if path.is_file() and "_delta_log" not in path.parts}
    assert {str(path.relative_to(table)) for path in files if path.suffix != ".crc"} == named
    assert not list(table.glob("compaction-kit-*"))
    if name in ("worker", "executor"):
        assert runs.lost(name).endswith(".parquet")


@pytest.mark.works("cluster", "rewrite", "restore", "manifests", "vacuum", "survey", "workbench")
def test_restore_vacuum_survey_and_workbench_on_a_cluster(runs: Runs) -> None:
    told, table = runs.told["path"], runs.folder / "path" / "t"
    assert told["afterwards"] == AFTERWARDS
    assert told["surveyed"] == [str(table)]
    assert "content identical" in told["workbench"]
    assert told["by"] == "arrow"
    assert rows.on_disk(table, open_table(table).version) == rows.on_disk(table, 4)


def test_a_large_bin_is_divided_and_progress_is_told(runs: Runs) -> None:
    told = runs.told["planned"]
    assert {span["step"] for span in told["timeline"]} >= {"rewrite", "join", "commit", "proof"}
    assert told["fractions"] == sorted(told["fractions"])
    assert told["fractions"][-1] == 1


def test_an_attempt_that_lost_leaves_nothing_on_a_store(runs: Runs, shaped: Path) -> None:
    told, lost = runs.told["stored"], runs.lost("stored")
    assert (told["strategy"], told["versions"], told["as_planned"]) == ("arrow", [5], True)
    assert told["verified"] is True
    assert lost in runs.put
    before = {str(path.relative_to(shaped)) for path in folders.data_files(shaped)}
    outputs = {name for name in runs.stored - before if not name.startswith("_delta_log/")}
    assert {Path(name).name for name in outputs} <= runs.put - {lost}
    assert len(outputs) == told["num_files_added"] == told["num_bins"]


def test_what_executors_lack_is_told_without_a_secret(runs: Runs) -> None:
    assert runs.told["bare"]["reason"] == "optimize, because executors have no pyarrow"
    missing, absent = runs.folder / "missing", runs.folder / "pythons" / "none" / "bin" / "python"
    looked = runs.told["looked"]
    assert {place: said for place, said in looked.items() if "://" not in place} == {
        str(missing): f"executors can't reach {missing}: nothing is there",
        "old": "executors have pyarrow 20.0.0, and 21 or newer is needed",
        "none": f'executors can\'t run Python: Cannot run program "{absent}": error=2, No such file or '
        "directory",
    }
    assert looked["s3a://kit/stored"] is None
    assert looked["s3a://kit/missing"] == "executors can't reach s3a://kit/missing: nothing is there"
    denied = looked["s3a://kit/denied"]
    assert denied.startswith("executors can't reach s3a://kit/denied: ")
    assert "ACCESS_DENIED" in denied
    assert SECRET_KEY not in denied


if __name__ == "__main__":
    main(*sys.argv[1:])
