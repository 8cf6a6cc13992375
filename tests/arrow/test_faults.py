"""Bad moments of a run: what they leave behind, and what is said of them."""

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession

from compaction_kit import open_table
from compaction_kit.arrow import job
from compaction_kit.arrow.worker import rewrite_bins
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import (
    CompactionKitError,
    ConflictError,
    RunCancelled,
    RunFailedError,
    StalePlanError,
    UnsupportedTableError,
)
from compaction_kit.execute import CompactionResult, Progress
from compaction_kit.execute.jobs import session_confs
from tests import deltas_view, folders, handmade
from tests.conftest import CopyOf

pytestmark = pytest.mark.spark

STRATEGIES = ["arrow", "optimize", "rewrite"]


def rows_of(table: Path, version: int | None = None) -> pa.Table:
    """The rows in their order, as a reader has them that isn't Spark."""
    rows = DeltaTable(str(table), version=version).to_pyarrow_table()
    return rows.select(sorted(rows.column_names)).sort_by("id")


def data_files(table: Path) -> set[str]:
    return {str(path.relative_to(table)) for path in folders.data_files(table)}


def live_files(table: Path, version: int | None = None) -> set[str]:
    """The paths of the live files, each of which is there, once."""
    paths = open_table(table).files(version).to_arrow()["path"].to_pylist()
    assert len(set(paths)) == len(paths)
    assert set(paths) <= data_files(table)
    return set(paths)


def orphans(table: Path) -> set[str]:
    """What VACUUM will delete that no version has ever named."""
    vacuum = open_table(table).plan_vacuum(at=datetime.now(UTC) + timedelta(days=8))
    return {file["path"] for file in vacuum.files.to_pylist() if file["reason"] == "orphan"}


@pytest.fixture
def one_bin(tmp_path: Path) -> Path:
    """A table of one partition, at version 2."""
    return Path(shaped_table(tmp_path / "table", partitions=0, files=6, rows=50, commits=2))


def assert_first_tries_are_gone(table: Path) -> None:
    """Version 3 holds the rows of version 2 in one file, and what the first tries wrote is gone."""
    assert open_table(table).version == 3
    assert rows_of(table) == rows_of(table, 2)
    (live,) = live_files(table)
    assert data_files(table) - live_files(table, 2) == {live}
    assert not list(table.glob("compaction-kit-*"))


def test_tasks_that_are_done_twice_commit_once_and_the_first_tries_are_gone(
    spark: SparkSession, one_bin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark does them again when a worker dies before it has answered."""

    def rewriting(*args: Any) -> Iterator[tuple[Any, ...]]:
        shares = list(args[0])
        assert list(rewrite_bins(shares, *args[1:]))
        return rewrite_bins(shares, *args[1:])

    # The least, so that a small bin is divided too.
    for name, value in (("rewrite_bins", rewriting), ("LEAST_PART", 1)):
        monkeypatch.setattr(job, name, value)
    assert open_table(one_bin).plan_compaction().run(strategy="arrow").versions == (3,)
    assert_first_tries_are_gone(one_bin)


def test_a_task_that_dies_for_good_leaves_nothing(
    spark: SparkSession, one_bin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a local session no task is tried again."""

    def dying(*args: Any) -> Iterator[tuple[Any, ...]]:
        for _ in rewrite_bins(*args):
            os._exit(1)
        yield ()

    monkeypatch.setattr(job, "rewrite_bins", dying)
    before = folders.listing(one_bin)
    with pytest.raises(RunFailedError, match=r"A Python worker died.* nothing was committed"):
        open_table(one_bin).plan_compaction().run(strategy="arrow")
    assert folders.listing(one_bin).keys() == before.keys()


def assert_is_finished(spark: SparkSession, table: Path) -> None:
    """A run ended in its second batch; a new plan does the rest."""
    rows, committed = rows_of(table, 4), live_files(table)
    # Its first batch is committed, and of the next one are files that no version names.
    assert (open_table(table).version, rows_of(table)) == (5, rows)
    left = data_files(table) - live_files(table, 4) - committed
    assert left
    plan = open_table(table, spark).plan_compaction(batch_size=1)
    result = plan.run(strategy="arrow")
    assert result.as_planned
    assert (result.verified, len(live_files(table))) == (True, plan.num_files_after)
    assert rows_of(table) == rows
    assert left <= orphans(table)


def test_a_new_plan_does_what_a_run_has_left_in_its_second_batch(
    spark: SparkSession, changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is when a process is killed: nothing has been swept in the copy."""
    plan = open_table(changed, spark).plan_compaction(batch_size=1)
    commit = handmade.commit_path(changed, 5)
    hangs, left, over = (tmp_path / name for name in ("hangs", "left", "over"))

    def hanging(*args: Any) -> Iterator[tuple[Any, ...]]:
        for one in rewrite_bins(*args):
            if commit.exists():
                hangs.touch()
                while not over.exists():
                    time.sleep(0.01)
            yield one

    def stop(_: Progress) -> None:
        if hangs.exists():
            folders.copy(changed, left)
            over.touch()
            raise KeyboardInterrupt

    monkeypatch.setattr(job, "rewrite_bins", hanging)
    with pytest.raises(RunCancelled, match=f"1 of {plan.num_batches} batches are committed"):
        plan.run(strategy="arrow", verify=False, progress=stop)
    monkeypatch.undo()
    # In the plan's own place.
    shutil.rmtree(changed)
    left.rename(changed)
    deltas_view.forget(spark)
    assert_is_finished(spark, changed)


@pytest.mark.parametrize("other", ["arrow", "optimize"])
def test_of_two_runs_at_once_one_wins(spark: SparkSession, changed: Path, other: str) -> None:
    rows = rows_of(changed)
    plans = [open_table(changed, spark).plan_compaction() for _ in range(2)]
    both = Barrier(2, timeout=60)

    def run(strategy: str) -> CompactionResult | CompactionKitError:
        waited: list[bool] = []

        def wait(progress: Progress) -> None:
            if not waited:
                waited.append(True)
                both.wait()

        try:
            return plans.pop().run(strategy=strategy, progress=wait)
        except ConflictError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, ["arrow", other]))
    results = [one for one in found if isinstance(one, CompactionResult)]
    # OPTIMIZE that comes second finds nothing left to do, and says so by committing nothing.
    assert [result.versions for result in results if result.versions] == [(5,)]
    assert len(results) == 1 or other == "optimize"
    assert rows_of(changed) == rows
    assert len(live_files(changed)) == 3
    assert not orphans(changed) or other == "optimize"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root may mount a disk")
    try:
        yield folder
    finally:
        # Lazily, for the JVM may have a file open.
        subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path, free_bytes: int) -> None:
    """Leave so many bytes free."""
    status = os.statvfs(disk)
    ballast = status.f_bavail * status.f_frsize - free_bytes
    with (disk / f"ballast-{free_bytes}").open("wb") as file:
        file.write(bytes(ballast))


def assert_full_disk_is_told(table: Path, run: Callable[[], CompactionResult]) -> None:
    before, log = live_files(table), folders.listing(table / "_delta_log")
    files = data_files(table)
    with pytest.raises(RunFailedError) as caught:
        run()
    left = len(data_files(table) - files)
    told, _, about_left = str(caught.value).rstrip(".").partition(f"; {left} new")
    assert told == (
        f"The disk of {table} is full: free space and run the plan again; nothing was committed, the "
        "table is as it was"
    )
    assert bool(about_left) == bool(left)
    assert live_files(table) == before
    commits = {name for name in folders.listing(table / "_delta_log") if name.endswith(".json")}
    assert commits == {name for name in log if name.endswith(".json")}


@pytest.mark.parametrize(
    "strategy", ["arrow", *(pytest.param(s, marks=pytest.mark.nightly) for s in ("optimize", "rewrite"))]
)
def test_a_full_disk_is_told(spark: SparkSession, small_disk: Path, strategy: str) -> None:
    """There is room for the outputs of small partitions, and not for that of the first."""
    folder = Path(shaped_table(small_disk / "table", partitions=4, files=6, rows=1_000, skew=2.0, commits=2))
    plan = open_table(folder).plan_compaction()
    sizes = sorted(plan.bins["bytes_added"].to_pylist())
    fill(small_disk, (sizes[-2] + sizes[-1]) // 2)
    before = data_files(folder)
    assert_full_disk_is_told(folder, lambda: plan.run(strategy=strategy, verify=False))
    if strategy == "arrow":
        assert data_files(folder) == before
    for ballast in small_disk.glob("ballast-*"):
        ballast.unlink()
    assert plan.run(strategy=strategy, verify=False).versions == (plan.version + 1,)


def test_a_disk_that_is_full_for_the_commit_is_told(spark: SparkSession, small_disk: Path) -> None:
    folder = Path(shaped_table(small_disk / "table", partitions=2, files=3, rows=50, commits=2))
    plan = open_table(folder).plan_compaction()

    def fill_when_written(progress: Progress) -> None:
        if progress.bins_done == plan.num_bins and not (small_disk / "ballast-0").exists():
            fill(small_disk, 0)

    assert_full_disk_is_told(folder, lambda: plan.run(strategy="arrow", progress=fill_when_written))
    # Whether a commit stands isn't certain after an error: what it names is never deleted.
    assert len(orphans(folder)) == plan.num_bins


@pytest.fixture(scope="module")
def of_two_codecs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions: of three files that Spark compressed with snappy, and of three with LZ4."""
    folder = tmp_path_factory.mktemp("codecs") / "table"
    for codec in ("snappy", "lz4"):
        rows = spark.range(0, 300, 1, 3).selectExpr("id", f"'{codec}' p")
        with session_confs(spark, {"spark.sql.parquet.compression.codec": codec}):
            rows.write.format("delta").mode("append").partitionBy("p").save(str(folder))
    return folder


@pytest.fixture
def lz4(copy_of: CopyOf, of_two_codecs: Path) -> Path:
    """A copy to change."""
    return copy_of(of_two_codecs)


def assert_has_its_rows(spark: SparkSession, lz4: Path) -> None:
    """By Spark: nobody else reads LZ4 in Hadoop's frames."""
    rows = spark.read.format("delta").load(str(lz4)).collect()
    assert Counter(rows) == Counter(Row(id=id_, p=codec) for codec in ("snappy", "lz4") for id_ in range(300))


def test_where_all_is_of_such_a_codec_arrow_is_refused_and_auto_is_optimize(
    spark: SparkSession, lz4: Path
) -> None:
    before = folders.listing(lz4)
    plan = open_table(lz4).plan_compaction("p = 'lz4'")
    with pytest.raises(UnsupportedTableError, match=r"Hadoop-framed LZ4, .*: run it with"):
        plan.run(strategy="arrow")
    assert data_files(lz4) == {path for path in before if path.endswith(".parquet")}
    result = plan.run()
    assert (result.strategy, result.verified, result.refusals) == ("optimize", True, {})
    assert "optimize, because a file is compressed with Hadoop-framed LZ4" in result.reason
    assert_has_its_rows(spark, lz4)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_table_made_anew_at_the_same_version_is_refused(
    spark: SparkSession, changed: Path, strategy: str
) -> None:
    """Its files may have the very names of the former ones."""
    plan = open_table(changed).plan_compaction()
    names = live_files(changed)
    shutil.rmtree(changed)
    shaped_table(changed, partitions=3, files=7, rows=60, skew=1.0, commits=4, seed=1)
    assert (open_table(changed).version, live_files(changed)) == (plan.version, names)
    before = folders.listing(changed)
    with pytest.raises(StalePlanError, match=r"was made anew since .*: make a new plan; nothing") as caught:
        plan.run(strategy=strategy)
    assert "\n" not in str(caught.value)
    assert folders.listing(changed) == before
