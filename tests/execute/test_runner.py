import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import (
    ConflictError,
    InvalidArgumentError,
    ReadOnlyTableError,
    RunCancelled,
    RunFailedError,
    SessionError,
    StalePlanError,
    VerificationError,
)
from compaction_kit.execute import Progress, run_plan
from tests import folders, handmade
from tests.execute.meanwhile import commit_behind, once, once_rewriting, wait_until
from tests.folders import data_files

pytestmark = pytest.mark.spark

SetConf = Callable[[str, str], None]
CONF = "spark.databricks.delta.optimize"
NOBODY = 65534


class Stop(Exception):
    pass


def stop_at(step: str) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        if progress.step.startswith(step):
            raise Stop(step)

    return report


@pytest.fixture
def many_bins(tmp_path: Path) -> Path:
    """12 partitions of 3 files, which is time enough between the first bin and the commit."""
    folder = tmp_path / "table"
    return Path(shaped_table(folder, partitions=12, files=3, rows=30, commits=2))


def test_progress_never_goes_back_and_ends_at_one_and_settings_come_back(
    spark: SparkSession, changed: Path, confs: SetConf
) -> None:
    confs(f"{CONF}.minFileSize", "123456")
    assert spark.conf.get(f"{CONF}.maxFileSize", None) is None
    seen: list[Progress] = []
    plan = open_table(changed).plan_compaction(min_file_size="1 MiB", max_file_size="2 MiB")
    result = plan.run(strategy="optimize", progress=seen.append)
    assert result.verified is True
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    steps = list(dict.fromkeys(progress.step for progress in seen))
    assert steps == ["Rewriting", "Comparing the content", "Done"]
    assert (seen[-1].bytes_done, seen[-1].size_bytes) == (plan.bytes_removed, plan.bytes_removed)
    assert {progress.num_bins for progress in seen} == {plan.num_bins}
    assert seen[-1].bins_done == plan.num_bins
    assert result.seconds >= seen[-1].seconds > 0
    assert spark.conf.get(f"{CONF}.minFileSize") == "123456"
    assert spark.conf.get(f"{CONF}.maxFileSize", None) is None
    assert spark.conf.get(f"{CONF}.batchSize", None) is None


def test_a_run_without_proof_ends_at_one_too_and_a_late_cancellation_is_ignored(
    spark: SparkSession, changed: Path
) -> None:
    seen: list[float] = []

    def report(progress: Progress) -> None:
        seen.append(progress.fraction)
        if progress.step == "Done":
            raise Stop

    result = open_table(changed).plan_compaction().run(strategy="optimize", verify=False, progress=report)
    assert result.versions == (5,)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.parametrize("strategy", ["optimize", "arrow"])
def test_a_cancelled_run_changes_nothing(
    spark: SparkSession, many_bins: Path, confs: SetConf, strategy: str
) -> None:
    confs(f"{CONF}.maxFileSize", "777777")
    table = open_table(many_bins)
    before = table.files().to_arrow()
    log_before, files_before = folders.listing(many_bins / "_delta_log"), data_files(many_bins)

    def stop_when_a_bin_is_written() -> None:
        wait_until(lambda: data_files(many_bins) > files_before)
        raise Stop

    progress = once_rewriting(stop_when_a_bin_is_written)
    with pytest.raises(RunCancelled, match="nothing was committed, the table is as it was") as caught:
        table.plan_compaction().run(strategy=strategy, verify=False, progress=progress)
    assert isinstance(caught.value.__cause__, Stop)
    assert folders.listing(many_bins / "_delta_log") == log_before
    assert table.files().to_arrow() == before
    assert data_files(many_bins) >= files_before
    assert spark.conf.get(f"{CONF}.maxFileSize") == "777777"
    assert spark.conf.get(f"{CONF}.minFileSize", None) is None


def test_a_run_cancelled_during_the_comparison_says_that_it_is_committed(
    spark: SparkSession, changed: Path
) -> None:
    table = open_table(changed)
    with pytest.raises(RunCancelled, match="is committed, as version 5, its content was not"):
        table.plan_compaction().run(strategy="optimize", progress=stop_at("Comparing"))
    assert table.version == 5


@pytest.mark.parametrize("strategy", ["optimize", "arrow"])
def test_what_another_writer_removes_is_left_out_and_the_rest_is_done(
    spark: SparkSession, many_bins: Path, strategy: str
) -> None:
    table = open_table(many_bins)
    plan = table.plan_compaction()
    removed = plan.files["path"].to_pylist()[0]
    act = commit_behind(many_bins, plan.version + 1, [handmade.remove(removed, int(time.time() * 1000))])
    result = plan.run(strategy=strategy, progress=once_rewriting(act))
    assert result.verified is True
    assert result.num_files_removed == plan.num_files_removed - 1
    assert not result.as_planned
    assert len(result.conflicts) == 1
    assert sum(result.batches["conflicts"].to_pylist()) == 1
    assert "1 with other writers" in result.summary()
    # Each of 12 partitions is one file now.
    files = table.files()
    assert (files.num_files, removed in files.to_arrow()["path"].to_pylist()) == (12, False)
    if strategy == "arrow":
        # What was written of the other 11 bins is committed, and not written anew.
        assert result.batches["num_files_added"].to_pylist() == [11, 1]


@pytest.mark.parametrize("strategy", ["optimize", "arrow"])
def test_a_writer_who_takes_everything_wins(spark: SparkSession, changed: Path, strategy: str) -> None:
    table = open_table(changed)
    plan = table.plan_compaction()
    now = int(time.time() * 1000)
    removals = [handmade.remove(path, now) for path in plan.source.to_arrow()["path"].to_pylist()]
    act = commit_behind(changed, plan.version + 1, removals)
    with pytest.raises(ConflictError, match="make a new plan; nothing was committed") as caught:
        plan.run(strategy=strategy, verify=False, progress=once_rewriting(act))
    assert "\n" not in str(caught.value)
    assert (table.version, table.files().num_files) == (plan.version + 1, 0)


@pytest.mark.parametrize("strategy", ["optimize", "arrow"])
def test_rows_appended_meanwhile_are_kept_and_the_content_is_still_proved(
    spark: SparkSession, many_bins: Path, strategy: str
) -> None:
    table = open_table(many_bins)
    plan = table.plan_compaction()
    source = plan.files["path"].to_pylist()[0]
    rows = pq.ParquetFile(many_bins / source).read()
    appended = handmade.write_data(many_bins, f"{source}-more.parquet", rows, {"part": "p0000"})
    act = commit_behind(many_bins, plan.version + 1, [appended])
    result = plan.run(strategy=strategy, progress=once_rewriting(act))
    assert result.verified is True
    assert result.versions == (plan.version + 2,)
    assert (result.as_planned, result.conflicts) == (True, ())
    # What was appended was not touched, and is not compared.
    assert result.fingerprint is not None
    assert result.fingerprint.num_rows == 12 * 3 * 30
    assert table.files().num_files == 12 + 1


def spoil(table: Path, before: set[Path]) -> None:
    """Change a value in a file that is new."""
    file = min(data_files(table) - before)
    rows = pq.ParquetFile(file).read()
    rows = rows.set_column(0, "id", pc.add(rows["id"], 1))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)  # as Spark writes them


@pytest.mark.parametrize("strategy", ["optimize", "arrow"])
def test_content_that_changes_is_noticed_and_undone(
    spark: SparkSession, changed: Path, strategy: str
) -> None:
    table = open_table(changed)
    plan = table.plan_compaction()
    before, rows = data_files(changed), table.files().to_arrow()["path"].to_pylist()
    progress = once("Comparing", lambda: spoil(changed, before))
    with pytest.raises(
        VerificationError, match=r"The content differs: the 21 files .* have 1,050 rows"
    ) as caught:
        plan.run(strategy=strategy, progress=progress)
    assert "\n" not in str(caught.value)
    assert "the table was restored to version 4, as version 6" in str(caught.value)
    assert sorted(table.files().to_arrow()["path"].to_pylist()) == sorted(rows)


def test_content_that_changes_is_not_undone_where_another_writer_has_committed(
    spark: SparkSession, changed: Path
) -> None:
    plan = open_table(changed).plan_compaction()
    before = data_files(changed)

    def act() -> None:
        handmade.write_commit(changed, 6, [{"commitInfo": {"operation": "WRITE"}}])
        spoil(changed, before)

    with pytest.raises(
        VerificationError, match="up to version 6, so nothing was undone: go back with RESTORE"
    ):
        plan.run(progress=once("Comparing", act))
    assert open_table(changed).version == 6


def test_a_data_file_that_is_gone_is_told_in_one_sentence(spark: SparkSession, changed: Path) -> None:
    table = open_table(changed)
    plan = table.plan_compaction()
    (changed / plan.files["path"].to_pylist()[0]).unlink()
    with pytest.raises(RunFailedError, match=r"the table is as it was: .*FILE_NOT_EXIST") as caught:
        plan.run(strategy="optimize", verify=False)
    assert "\n" not in str(caught.value)
    assert table.version == 4


def test_files_without_rows_are_left_as_optimize_leaves_them(spark: SparkSession, tmp_path: Path) -> None:
    nothing = pa.table({"id": pa.array([], pa.int64())})
    adds = [handmade.write_data(tmp_path, f"{name}.parquet", nothing) for name in "ab"]
    table = open_table(handmade.write_log(tmp_path, adds))
    plan = table.plan_compaction()
    result = plan.run(strategy="optimize")
    assert (result.versions, result.num_files_removed, result.verified) == ((), 0, None)
    row = spark.sql(f"OPTIMIZE delta.`{tmp_path}`").collect()[0]["metrics"].asDict(recursive=True)
    assert plan.metrics == {name: row[name] for name in plan.metrics}
    assert table.version == 0


def test_a_run_that_commits_nothing_does_not_claim_to_be_as_planned(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The log doesn't say that the files have no rows."""
    nothing = pa.table({"id": pa.array([], pa.int64())})
    adds = [handmade.write_data(tmp_path, f"{name}.parquet", nothing) for name in "ab"]
    for add in adds:
        del add["add"]["stats"]
    table = open_table(handmade.write_log(tmp_path, adds))
    result = table.plan_compaction().run(strategy="optimize")
    assert (result.versions, result.num_files_removed, result.verified) == ((), 0, None)
    assert not result.as_planned
    assert table.version == 0


def test_a_plan_of_an_older_state_does_not_run(spark: SparkSession, changed: Path) -> None:
    table = open_table(changed)
    plan = table.plan_compaction()
    handmade.write_commit(changed, 5, [{"commitInfo": {"operation": "WRITE"}}])
    before = folders.listing(changed)
    with pytest.raises(StalePlanError, match="made at version 4 and the table is at 5: make a new plan"):
        plan.run()
    assert folders.listing(changed) == before


@pytest.mark.parametrize("strategy", ["fastest", ""])
def test_an_unknown_strategy_is_refused_by_name(spark: SparkSession, shaped: Path, strategy: str) -> None:
    before = folders.listing(shaped)
    with pytest.raises(
        InvalidArgumentError, match=f'strategy="{strategy}" is unknown: use one of '
    ) as caught:
        open_table(shaped).plan_compaction().run(strategy=strategy)
    assert "optimize" in str(caught.value)
    assert folders.listing(shaped) == before


def test_without_a_jvm_nothing_is_begun(shaped: Path) -> None:
    before, table = folders.listing(shaped), open_table(shaped)
    with pytest.raises(SessionError, match="has no JVM in reach"):
        run_plan(table.path, table.log, lambda: object(), table.plan_compaction())  # type: ignore[arg-type, return-value]
    assert folders.listing(shaped) == before


@contextmanager
def no_permission(folder: Path, *places: Path) -> Iterator[None]:
    """As a user who may read the folder and not write to these places; root may write anywhere."""
    is_root = os.geteuid() == 0
    modes = {path: path.stat().st_mode & 0o7777 for path in [*places, *folder.parents[:4]]}
    try:
        for path in folder.parents[:4] if is_root else places:
            path.chmod(0o755 if is_root else 0o555)
        if is_root:
            os.seteuid(NOBODY)
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)


@pytest.mark.parametrize("strategy", ["arrow", "optimize", "rewrite"])
def test_a_table_without_write_permission_is_refused_before_anything_happens(
    spark: SparkSession, changed: Path, strategy: str
) -> None:
    plan = open_table(changed).plan_compaction()
    before = folders.listing(changed)
    with no_permission(changed, changed, changed / "_delta_log"):
        with pytest.raises(ReadOnlyTableError, match="can't be written to: get write permission") as caught:
            plan.run(strategy=strategy)
        # Planning and looking need no permission.
        assert open_table(changed).files().num_files == plan.source.num_files
    assert str(changed) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, PermissionError)
    assert folders.listing(changed) == before
