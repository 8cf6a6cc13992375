"""Purges are proved and can be cancelled; random ones are beside those of OPTIMIZE, on random tables."""

import warnings
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError, RunCancelled, StorageError
from compaction_kit.verdict import Verdict
from tests import handmade
from tests.execute.test_run import stop_at

pytestmark = pytest.mark.spark


def test_a_purge_is_proved_and_can_be_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}`"
    rows = spark.range(0, 3_000, 1, 1).selectExpr(
        "id", "id % 3 p", "NAMED_STRUCT('x', id, 'Y', STRING(id)) n", "CONCAT('s', id) s"
    )
    properties = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    rows.write.format("delta").partitionBy("p").options(**properties).mode("append").save(str(tmp_path))
    spark.sql(f"DELETE FROM {name} WHERE id IN (1, 4, 6)")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN n.Y")
    table = open_table(tmp_path, spark)
    compaction, plan, part = table.plan_compaction(), table.plan_purge(), table.plan_purge("p = 1")
    assert compaction.is_empty
    assert "3 deleted rows in 2 files stay on disk" in str(Verdict.of(compaction.source, compaction))
    assert (part.num_files_removed, part.num_deleted_rows) == (1, 2)
    assert (plan.num_files_removed, plan.num_deleted_rows, plan.dropped_columns.num_rows) == (3, 3, 3)
    dropped = sum(plan.dropped_columns["size_bytes"].to_pylist())
    assert 0 < dropped < plan.bytes_removed - plan.bytes_added < plan.bytes_removed
    assert "without 3 deleted rows and dropped columns in 3 files (" in plan.explain()
    assert plan.steps["reason"].to_pylist() == ["dropped columns", "deleted rows", "deleted rows"]
    # A line for a minimum of 0 bytes would be at minus infinity.
    with warnings.catch_warnings(action="error"):
        plan.plot()
    with pytest.raises(RunCancelled, match="nothing was committed"):
        plan.run(progress=stop_at("", KeyboardInterrupt))
    shares: list[float] = []
    result = plan.run(progress=lambda progress: shares.append(progress.fraction))
    assert (result.strategy, result.verified, result.as_planned) == ("reorg", True, True)
    assert result.fingerprint is not None
    assert (result.fingerprint.num_rows, shares[-1]) == (2_997, 1)
    assert result.bytes_added == pytest.approx(plan.bytes_added, rel=0.2)
    again = open_table(tmp_path, spark).plan_purge()
    assert again.is_empty
    assert again.explain().endswith("So there is nothing to do.")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN s")
    Path(tmp_path, table.files().to_arrow()["path"][0].as_py()).unlink()
    with pytest.raises(StorageError, match=r"The footer of .* can't be read"):
        open_table(tmp_path, spark).plan_purge()


def test_what_a_purge_has_no_use_for_is_refused(tmp_path: Path) -> None:
    vectors = [handmade.add(f"f{i}.parquet", 10 + i, vector=handmade.inline_vector([0, i])) for i in (1, 2)]
    columns = [handmade.protocol(features=["deletionVectors"]), handmade.metadata()]
    handmade.write_log(tmp_path, [*columns, *vectors])
    plan = open_table(tmp_path).plan_purge()
    assert (plan.num_bins, plan.num_deleted_rows, plan.dropped_columns.num_rows) == (1, 4, 0)
    with pytest.raises(InvalidArgumentError, match='strategy="arrow" is unknown: use one of auto, reorg'):
        plan.run(strategy="arrow")
    with pytest.raises(InvalidArgumentError, match="A purge has no other order"):
        plan.compare()
    with pytest.raises(InvalidArgumentError, match="the table is not partitioned"):
        open_table(tmp_path).plan_purge(where="p = 1")
