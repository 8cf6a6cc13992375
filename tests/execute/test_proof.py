"""No commit stays whose content was not compared, whatever comes in between."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import (
    RunCancelled,
    RunFailedError,
    UnsupportedTableError,
    VerificationError,
)
from compaction_kit.execute import Progress, proof
from compaction_kit.execute.commits import restore
from tests import folders, handmade
from tests.execute.meanwhile import clustered_table, once, once_rewriting, wait_until
from tests.folders import data_files

pytestmark = pytest.mark.spark


def paths_of(table: Path) -> list[str]:
    """The live files."""
    return sorted(open_table(table).files().to_arrow()["path"].to_pylist())


def interrupted(error: type[BaseException], act: Callable[[], object] = bool) -> Callable[[Progress], None]:
    """Do something when the comparison begins, and raise."""

    def stop() -> None:
        act()
        raise error

    return once("Comparing", stop)


def spoil(table: Path, before: set[Path]) -> None:
    """Change a value in a file that is new."""
    file = min(data_files(table) - before)
    rows = pq.ParquetFile(file).read()
    rows = rows.set_column(0, "id", pc.add(rows["id"], 1))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)  # as Spark writes them


@pytest.mark.works("local disk", "proof")
@pytest.mark.parametrize("strategy", [pytest.param("optimize", marks=pytest.mark.nightly), "rewrite"])
def test_content_that_changes_is_noticed_and_undone(
    spark: SparkSession, changed: Path, strategy: str
) -> None:
    table = open_table(changed)
    plan = table.plan_compaction()
    before, paths = data_files(changed), paths_of(changed)
    progress = once("Comparing", lambda: spoil(changed, before))
    with pytest.raises(
        VerificationError, match=r"The content differs: the 21 files .* have 1,050 rows"
    ) as caught:
        plan.run(strategy=strategy, progress=progress)
    assert "\n" not in str(caught.value)
    assert "the table was restored to version 4, as version 6: report this" in str(caught.value)
    assert paths_of(changed) == paths


@pytest.mark.nightly
def test_content_that_changes_is_noticed_in_a_clustered_table(spark: SparkSession, tmp_path: Path) -> None:
    table = clustered_table(tmp_path / "table")
    plan = open_table(table).plan_compaction()
    before, paths = data_files(table), paths_of(table)
    with pytest.raises(VerificationError, match=r"The content differs: the 18 files .* have 540 rows"):
        plan.run(progress=once("Comparing", lambda: spoil(table, before)))
    assert paths_of(table) == paths


def test_content_that_changes_under_pyarrow_is_not_committed(spark: SparkSession, changed: Path) -> None:
    before, plan = data_files(changed), open_table(changed).plan_compaction()
    with pytest.raises(
        VerificationError, match=r"The content differs: the 21 files .* as it was: report this\.$"
    ):
        plan.run(strategy="arrow", progress=once("Comparing", lambda: spoil(changed, before)))
    assert (open_table(changed).version, data_files(changed)) == (4, before)


def test_content_that_changes_is_not_undone_where_another_writer_has_committed(
    spark: SparkSession, changed: Path
) -> None:
    plan = open_table(changed).plan_compaction()
    before = data_files(changed)

    def act() -> None:
        handmade.write_commit(changed, 6, [{"commitInfo": {"operation": "WRITE"}}])
        spoil(changed, before)

    with pytest.raises(
        VerificationError,
        match=r"up to version 6, so nothing was undone: version 5 is .* go back with RESTORE to version 4",
    ):
        plan.run(strategy="optimize", progress=once("Comparing", act))
    assert open_table(changed).version == 6


def unreadable(folder: Path, names: list[str], **options: Any) -> Path:
    """A table of a column `a`, of two files that pyarrow reads and Spark doesn't."""
    rows = pa.table([pa.array(range(10), pa.int64())] * len(names), names)
    adds = [handmade.write_data(folder, f"{name}.parquet", rows) for name in "xy"]
    for name in "xy":
        pq.write_table(rows, folder / f"{name}.parquet", **options)
    for add in adds:
        add["add"]["size"] = (folder / add["add"]["path"]).stat().st_size
    return handmade.write_log(folder, [handmade.metadata({"a": "long"}), *adds])


@pytest.mark.parametrize(
    ("names", "options", "told"),
    [
        (["a", "A"], {}, "a file has the column A where the table has a"),
        (["a"], {"compression": "brotli"}, "a file is compressed with BROTLI"),
    ],
    ids=["a and A", "Brotli"],
)
def test_what_spark_can_not_read_is_not_rewritten(
    spark: SparkSession, tmp_path: Path, names: list[str], options: dict[str, Any], told: str
) -> None:
    folder = unreadable(tmp_path / "table", names, **options)
    before = folders.listing(folder).keys()
    with pytest.raises(UnsupportedTableError, match=told) as caught:
        open_table(folder).plan_compaction().run(strategy="arrow")
    assert "\n" not in str(caught.value)
    assert folders.listing(folder).keys() == before


def test_where_that_would_undo_more_the_comparison_is_done_after_all(
    spark: SparkSession, changed: Path
) -> None:
    def act() -> None:
        handmade.write_commit(changed, 6, [{"commitInfo": {"operation": "WRITE"}}])

    told = "cancelled: the compaction is committed, as version 5, and its content is the same"
    with pytest.raises(RunCancelled, match=told):
        open_table(changed).plan_compaction().run(strategy="optimize", progress=interrupted(OSError, act))
    assert open_table(changed).version == 6


@pytest.mark.nightly
def test_outputs_that_can_not_be_read_are_undone(spark: SparkSession, changed: Path) -> None:
    before, paths = data_files(changed), paths_of(changed)

    def lose_one() -> None:
        min(data_files(changed) - before).unlink()

    with pytest.raises(
        RunFailedError,
        match=r"The run failed, the table was restored to version 4, .*(?i:not.exist)",
    ):
        open_table(changed).plan_compaction().run(strategy="optimize", progress=once("Comparing", lose_one))
    assert paths_of(changed) == paths


def test_what_can_be_neither_proved_nor_undone_is_told(spark: SparkSession, changed: Path) -> None:
    """As when somebody vacuums with no retention."""
    plan = open_table(changed).plan_compaction()
    first = changed / plan.files["path"].to_pylist()[0]

    def vacuum() -> None:
        wait_until(handmade.commit_path(changed, 5).exists)
        first.unlink()

    with pytest.raises(
        RunFailedError,
        match=r"restoring version 4 failed .*: version 5 is committed and not proved: go back with RESTORE",
    ) as caught:
        plan.run(strategy="optimize", progress=once_rewriting(vacuum))
    assert "\n" not in str(caught.value)
    assert open_table(changed).version == 5


def restore_by_hand(spark: SparkSession, table: Path, version: int) -> None:
    """What RESTORE commits, for much less."""
    last = open_table(table).version
    adds = {
        add["path"]: {"add": add} for v in range(last + 1) for add in handmade.actions_of(table, v, "add")
    }
    now, then = (set(open_table(table).files(v).to_arrow()["path"].to_pylist()) for v in (last, version))
    actions = [*map(handmade.remove, sorted(now - then)), *(adds[path] for path in sorted(then - now))]
    info: handmade.Action = {"operation": "RESTORE", "readVersion": last}
    info["userMetadata"] = spark.conf.get("spark.databricks.delta.commitInfo.userMetadata")
    handmade.write_commit(table, last + 1, [{"commitInfo": info}, *actions])


@pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_what_another_writer_commits_as_a_run_is_undone_is_brought_back(
    spark: SparkSession, changed: Path, monkeypatch: pytest.MonkeyPatch, by_spark: bool
) -> None:
    before, restored = data_files(changed), list[int]()
    rows = pq.ParquetFile(min(before)).read()
    appended = handmade.write_data(changed, "part=p0000/appended.parquet", rows, {"part": "p0000"})
    before = data_files(changed)

    def restore_late(spark: SparkSession, table: str, version: int) -> None:
        if not restored:
            handmade.write_commit(changed, 6, [appended])
        restored.append(version)
        if by_spark:
            restore(spark, table, version)
        else:
            restore_by_hand(spark, changed, version)

    monkeypatch.setattr(proof, "restore", restore_late)
    plan, progress = open_table(changed).plan_compaction(), once("Comparing", lambda: spoil(changed, before))
    with pytest.raises(
        VerificationError, match="up to version 6, as the table was restored to version 4, so "
    ):
        plan.run(strategy="optimize", progress=progress)
    assert (restored, open_table(changed).version) == ([4, 6], 8)
    assert open_table(changed).diff(6, 8).same_content_by == "identical files"
    assert spark.read.format("delta").load(str(changed)).count() == 1_050 + 50


@pytest.mark.works("local disk", "proof")
@pytest.mark.nightly
def test_batches_of_optimize_are_compared_though_the_run_is_cancelled(
    spark: SparkSession, changed: Path
) -> None:
    paths, plan = paths_of(changed), open_table(changed).plan_compaction(batch_size=1)
    assert plan.num_batches == 3

    def spoil_first_batch() -> None:
        wait_until(handmade.commit_path(changed, 5).exists)
        (add,) = handmade.actions_of(changed, 5, "add")
        spoil(changed, data_files(changed) - {changed / add["path"]})
        raise RuntimeError

    with pytest.raises((RunCancelled, VerificationError), match="The content differs") as caught:
        plan.run(strategy="optimize", progress=once_rewriting(spoil_first_batch))
    assert "the table was restored to version 4, as version" in str(caught.value)
    assert paths_of(changed) == paths
