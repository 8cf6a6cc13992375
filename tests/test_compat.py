"""What hides the differences between releases; `make compat` runs the rest of the tests on the older ones."""

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compaction_kit.compat import check_pair, repartition_by_id
from compaction_kit.errors import SessionError


@pytest.mark.spark
@pytest.mark.parametrize("num_tasks", [1, 2, 7, 300])
@pytest.mark.parametrize("has_method", [True, False], ids=["as now", "as before Spark 4.1"])
def test_each_row_goes_to_the_task_of_its_number(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, num_tasks: int, has_method: bool
) -> None:
    rows = spark.range(3 * num_tasks).select("id", F.expr(f"CAST(id % {num_tasks} AS INT) task"))
    if not has_method:
        for owner in (DataFrame, type(rows)):
            monkeypatch.delattr(owner, "repartitionById", raising=False)
    sent = repartition_by_id(rows, num_tasks, "task").select("id", F.spark_partition_id().alias("went"))
    assert sent.columns == ["id", "went"]
    assert {row["id"]: row["went"] for row in sent.collect()} == {
        number: number % num_tasks for number in range(3 * num_tasks)
    }


def test_delta_40_is_for_spark_40(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "delta_spark-4.0.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: delta-spark\nVersion: 4.0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(pyspark, "__version__", "4.2.0")
    with pytest.raises(SessionError, match=r"Delta 4\.0\.1 runs on Spark 4\.0 only, and pyspark 4\.2\.0"):
        check_pair()
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    check_pair()
