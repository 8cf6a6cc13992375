"""Runs on a Spark standalone cluster, whose executors have pyspark, pyarrow and numpy, not this package."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.datasets import shaped_table
from tests import folders, rows
from tests.cluster import python_with, standalone
from tests.conftest import QUICK
from tests.releases import since_spark
from tests.stores import SECRET_KEY, s3_server

# Some of its tables are on S3.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly, since_spark("4.0")]

_PYSPARK = ("pyspark", "py4j")


class Runs(NamedTuple):
    """What was told of the runs of `cluster_runs.py`, whose tables are in `folder`.

    The objects of the table on S3 are `stored`, and those that were ever written to it are `put`.
    """

    folder: Path
    told: dict[str, Any]
    stored: set[str]
    put: set[str]

    def lost(self, table: str) -> str:
        """The file that was written by the attempt that met with a fault."""
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
    python_with(pythons / "without-numpy", *_PYSPARK, "pyarrow")
    # No package index is asked for one that is really old.
    old = python_with(pythons / "old", *_PYSPARK, "numpy")
    (site,) = (old.parents[1] / "lib").glob("python*/site-packages")
    (site / "pyarrow.py").write_text("__version__ = '14.0.2'")
    with standalone(spark, folder) as master, s3_server() as server:
        server.upload(shaped, "stored")
        server.requests.clear()
        server.fault = lambda _, path: (403, "AccessDenied") if "/denied" in path else None
        hadoop = {f"spark.hadoop.{name}": value for name, value in server.s3a.items()}
        _run(folder, QUICK | {"spark.master": master} | hadoop, executors)
        put = {Path(request.path).name for request in server.requests if request.method == "PUT"}
        return Runs(folder, json.loads((folder / "told.json").read_text()), server.names("stored"), put)


def _run(folder: Path, settings: dict[str, str], python: Path) -> None:
    command = [sys.executable, "-m", "tests.arrow.cluster_runs", str(folder), json.dumps(settings)]
    own = os.environ | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(command, env=own, start_new_session=True)
    try:
        assert process.wait(400) == 0
    finally:
        # With the JVM that it has started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.works("cluster", "read", "arrow", "proof", when="worker")
@pytest.mark.works("cluster", "optimize", "proof", when="bare")
@pytest.mark.parametrize("name", ["planned", "worker", "executor", "bare"])
def test_content_stays_and_nothing_else_does(runs: Runs, name: str) -> None:
    told, table = runs.told[name], runs.folder / name
    assert (told["versions"], told["as_planned"], told["verified"]) == ([5], True, True)
    assert told["strategy"] == ("optimize" if name == "bare" else "arrow")
    assert told["num_files_added"] == told["num_bins"] == len(folders.live(table))
    assert rows.on_disk(table, 5) == rows.on_disk(table, 4)
    # Nothing is in the table's folder but its log, and files that versions name.
    named = folders.live(table, 4) | folders.live(table)
    files = {path for path in table.rglob("*") if path.is_file() and "_delta_log" not in path.parts}
    assert {str(path.relative_to(table)) for path in files if path.suffix != ".crc"} == named
    assert not list(table.glob("compaction-kit-*"))
    if name in ("worker", "executor"):
        assert runs.lost(name).endswith(".parquet")


@pytest.mark.works("cluster", "rewrite", "restore", "manifests", "vacuum", "survey", "workbench")
def test_the_rest_of_an_analysts_path(runs: Runs) -> None:
    told, table = runs.told["path"], runs.folder / "path" / "t"
    assert told["rewritten"] == ["rewrite", True, True]
    assert told["restored"] is True
    assert told["listed"] == ["listed and live"]
    # Those that the rewrite made, and that the restore took back.
    assert told["vacuumed"] == [3, 3, True]
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
        "bare": "executors have no pyarrow",
        "without-numpy": "executors have no numpy",
        "old": "executors have pyarrow 14.0.2, and 19 or newer is needed",
        "none": f'executors can\'t run Python: Cannot run program "{absent}": error=2, No such file or '
        "directory",
    }
    assert looked["s3a://kit/stored"] is None
    assert looked["s3a://kit/missing"] == "executors can't reach s3a://kit/missing: nothing is there"
    denied = looked["s3a://kit/denied"]
    assert denied.startswith("executors can't reach s3a://kit/denied: ")
    assert "ACCESS_DENIED" in denied
    assert SECRET_KEY not in denied
