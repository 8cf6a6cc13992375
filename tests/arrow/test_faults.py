"""Failures during a run: the files that they leave behind, and the errors that are raised."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import errors, open_table
from compaction_kit.arrow import job
from compaction_kit.arrow.worker import rewrite_bins
from compaction_kit.datasets import shaped_table
from compaction_kit.execute import CompactionResult, Progress
from tests import deltas_view, folders, handmade
from tests.chance import nightly
from tests.execute.meanwhile import once
from tests.folders import data_files
from tests.refusals import refused
from tests.rows import on_disk
from tests.stores import SECRET_KEY, Server

pytestmark = pytest.mark.usefixtures("spark")


def live_files(table: Path, version: int | None = None) -> set[Path]:
    """Return the live files; each must be on disk and listed only once."""
    paths = {table / path for path in folders.live(table, version)}
    assert len(paths) == open_table(table).files(version).num_files
    assert paths <= data_files(table)
    return paths


def orphans(table: Path) -> set[Path]:
    """Return the files that VACUUM will delete and that no version has ever named."""
    vacuum = open_table(table).plan_vacuum(at=datetime.now(UTC) + timedelta(days=8))
    return {table / file["path"] for file in vacuum.files.to_pylist() if file["reason"] == "orphan"}


@pytest.fixture
def one_bin(tmp_path: Path) -> Path:
    """A table of one partition, at version 2."""
    return Path(shaped_table(tmp_path / "table", partitions=0, files=6, rows=50, commits=2))


def test_tasks_that_are_done_twice_commit_once(one_bin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark repeats a task if its worker dies before it has answered."""

    def rewriting(*args: Any) -> Iterator[tuple[Any, ...]]:
        shares = list(args[0])
        assert list(rewrite_bins(shares, *args[1:]))
        return rewrite_bins(shares, *args[1:])

    # As small as possible, so that a small bin is divided too.
    for name, value in (("rewrite_bins", rewriting), ("LEAST_PART", 1)):
        monkeypatch.setattr(job, name, value)
    plan = open_table(one_bin).plan_compaction()
    assert plan.run(strategy="arrow").versions == (3,)
    # Version 3 holds the rows of version 2 in one file, and the files of the first tries are gone.
    assert on_disk(one_bin, 3) == on_disk(one_bin, 2)
    (output,) = live_files(one_bin)
    assert b"org.apache.spark.version" in pq.read_metadata(output).metadata
    # Rows are in the plan's order, in whichever order the parts were written.
    rows = [pq.read_table(one_bin / path, columns=["id"]) for path in plan.files["path"].to_pylist()]
    assert pq.read_table(output, columns=["id"]).equals(pa.concat_tables(rows))
    assert data_files(one_bin) == live_files(one_bin) | live_files(one_bin, 2)
    assert not list(one_bin.glob("compaction-kit-*"))


def test_a_dead_task_leaves_nothing(one_bin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a local session no task is tried again."""

    def dying(*args: Any) -> Iterator[tuple[Any, ...]]:
        for _ in rewrite_bins(*args):
            os._exit(1)
        yield ()

    monkeypatch.setattr(job, "rewrite_bins", dying)
    before = folders.listing(one_bin)
    with pytest.raises(errors.RunFailedError, match=r"A Python worker died.* nothing was committed"):
        open_table(one_bin).plan_compaction().run(strategy="arrow")
    assert folders.listing(one_bin).keys() == before.keys()


def test_a_refused_bin_that_optimize_can_t_read_is_not_among_those_that_are_committed(tmp_path: Path) -> None:
    codecs, rows = {"a": "snappy", "b": "snappy", "c": "brotli"}, pa.table({"id": [1]})
    adds = [
        handmade.write_data(tmp_path, f"{partition}{i}", rows, {"p": partition}, compression=codec)
        for partition, codec in codecs.items()
        for i in range(2)
    ]
    head = handmade.metadata({"id": "long", "p": "string"}, ["p"])
    plan = open_table(handmade.write_log(tmp_path, [head, *adds])).plan_compaction()
    told = "2 of 3 bins are committed, as version 1; make a new plan for the rest"
    refused(plan.run, errors.RunFailedError, told)


def test_a_new_plan_does_what_a_run_has_left_in_its_second_batch(
    spark: SparkSession, changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is like a table after its process was killed: nothing was cleaned up in it."""
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
    told = "1 of 3 bins is committed, as version 5; make a new plan for the rest"
    with pytest.raises(errors.RunCancelled, match=told):
        plan.run(strategy="arrow", verify=False, progress=stop)
    monkeypatch.undo()
    # Move the copy to the path of the original table.
    shutil.rmtree(changed)
    left.rename(changed)
    deltas_view.forget(spark)
    rows, committed = on_disk(changed, 4), live_files(changed)
    # The first batch is committed; the second one has left files that no version names.
    assert (open_table(changed).version, on_disk(changed)) == (5, rows)
    lost = data_files(changed) - live_files(changed, 4) - committed
    assert lost
    plan = open_table(changed, spark).plan_compaction(batch_size=1)
    result = plan.run(strategy="arrow")
    assert (result.versions, result.as_planned, result.verified) == ((6, 7), True, True)
    assert result.batches["version"].to_pylist() == [6, 7]
    assert all(dict(metrics)["numAddedFiles"] == "1" for metrics in result.batches["metrics"].to_pylist())
    assert len(live_files(changed)) == plan.num_files_after == 3
    assert on_disk(changed) == rows
    assert lost <= orphans(changed)


@pytest.mark.parametrize("other", ["arrow", *nightly("optimize")])
def test_of_two_runs_of_a_plan_at_once_one_wins(spark: SparkSession, changed: Path, other: str) -> None:
    rows = on_disk(changed)
    plan, both = open_table(changed, spark).plan_compaction(), Barrier(2, timeout=60)

    def run(strategy: str) -> CompactionResult | errors.ConflictError:
        try:
            return plan.run(strategy=strategy, progress=once("", both.wait))
        except errors.ConflictError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, ["arrow", other]))
    results = [one for one in found if isinstance(one, CompactionResult)]
    # If OPTIMIZE comes second, it finds nothing left to do and commits nothing.
    assert [result.versions for result in results if result.versions] == [(5,)]
    assert len(results) == 1 or other == "optimize"
    assert on_disk(changed) == rows
    assert len(live_files(changed)) == 3
    assert not orphans(changed) or other == "optimize"


@contextmanager
def disk_in(folder: Path) -> Iterator[Path]:
    """Mount a disk of 8 MiB; needs root."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], check=True, capture_output=True)
    try:
        yield disk
    finally:
        # Lazily, because the JVM may have a file open.
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(disk_in(tmp_path))
        except (FileNotFoundError, subprocess.CalledProcessError):
            pytest.skip("only root may mount a disk")
        yield disk


def fill(disk: Path, free_bytes: int) -> None:
    """Fill the disk until only `free_bytes` are free."""
    status = os.statvfs(disk)
    ballast = status.f_bavail * status.f_frsize - free_bytes
    with (disk / f"ballast-{free_bytes}").open("wb") as file:
        file.write(bytes(ballast))


@pytest.mark.parametrize("strategy", ["arrow", *nightly("optimize", "rewrite")])
def test_a_full_disk_is_told(small_disk: Path, strategy: str) -> None:
    """There is room for the outputs of small partitions but not of the largest; then none for the commit."""
    folder = Path(shaped_table(small_disk / "table", partitions=4, files=6, rows=1_000, skew=2.0, commits=2))
    plan, live = open_table(folder).plan_compaction(), live_files(folder)
    sizes = sorted(plan.bins["bytes_added"].to_pylist())

    def fill_for_the_commit(progress: Progress) -> None:
        if progress.bins_done == plan.num_bins and not (small_disk / "ballast-0").exists():
            fill(small_disk, 0)

    def fails(**options: Any) -> int:
        """Return how many new files the failed run left."""
        before, told = data_files(folder), f"The disk of {folder} is full: free space and run the plan again"
        words = told, "; nothing was committed, the table"
        error = refused(plan.run, errors.RunFailedError, *words, **options)
        left = len(data_files(folder) - before)
        assert (f"; {left} new " in str(error)) == bool(left)
        assert (live_files(folder), open_table(folder).version) == (live, plan.version)
        for ballast in small_disk.glob("ballast-*"):
            ballast.unlink()
        return left

    fill(small_disk, (sizes[-2] + sizes[-1]) // 2)
    left = fails(strategy=strategy, verify=False)
    if strategy == "arrow":
        assert left == 0
        # After an error the commit may exist nevertheless, so no file that it names is deleted.
        assert fails(strategy="arrow", progress=fill_for_the_commit) == plan.num_bins == len(orphans(folder))
    assert plan.run(strategy=strategy, verify=False).versions == (plan.version + 1,)


def test_plans_of_a_table_that_was_created_again_at_the_same_version_are_refused(changed: Path) -> None:
    """The new files may have the same names as the old ones."""
    table, names = open_table(changed), live_files(changed)
    plan, restore = table.plan_compaction(), table.plan_restore(1)
    shutil.rmtree(changed)
    shaped_table(changed, partitions=3, files=7, rows=60, skew=1.0, commits=4, seed=1)
    assert (open_table(changed).version, live_files(changed)) == (plan.version, names)
    before = folders.listing(changed)
    told = "was created again since ", ": make a new plan; nothing was changed"
    for strategy in ("arrow", "optimize", "rewrite"):
        refused(plan.run, errors.StalePlanError, *told, strategy=strategy)
    refused(restore.run, errors.StalePlanError, *told)
    assert folders.listing(changed) == before


@pytest.mark.filterwarnings("ignore:On S3 Delta coordinates only")
def test_a_store_keeps_no_outputs_of_tasks_that_failed_or_were_repeated(
    spark: SparkSession, on_s3: Server, shaped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For files that can't be read, see worker/test_files.py."""
    table = open_table(on_s3.upload(shaped, tmp_path.name), spark)
    before, plan = on_s3.names(tmp_path.name), table.plan_compaction()
    denied = (403, "AccessDenied")
    on_s3.fault = lambda method, path: denied if method == "PUT" and "/part-" in path else None
    told = "may not be read or written to (", "): get permission"
    assert SECRET_KEY not in str(refused(plan.run, errors.ReadOnlyTableError, *told, strategy="arrow"))
    on_s3.fault = None
    assert on_s3.names(tmp_path.name) == before

    def twice(*args: Any) -> Iterator[tuple[Any, ...]]:
        list(rewrite_bins(*args))
        return rewrite_bins(*args)

    monkeypatch.setattr(job, "rewrite_bins", twice)
    on_s3.requests.clear()
    result = plan.run(strategy="arrow")
    # No reason means that DuckDB read the files.
    assert (result.as_planned, result.verified, result.proof_reason) == (True, True, "")
    written = {one.path for one in on_s3.requests if one.method == "PUT" and "/part-" in one.path}
    assert len(written) == 6
    live, names = folders.live(table.location), on_s3.names(tmp_path.name)
    assert {name for name in names - before if not name.startswith("_delta_log/")} == live
    # Files stay in the folders of their partitions.
    assert len({name.rpartition("/")[0] for name in live}) == 3
