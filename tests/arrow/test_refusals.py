"""What pyarrow can't rewrite as Delta does is left to OPTIMIZE, by the log alone."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.arrow.refusals import refuse_changes, refuse_table
from tests import handmade
from tests.releases import since_delta

NAMES = ("materializedRowIdColumnName", "materializedRowCommitVersionColumnName")
TRACKED = {"delta.enableRowTracking": "true", **{f"delta.rowTracking.{name}": f"_{name}" for name in NAMES}}


def table_of(folder: Path, **metadata: Any) -> Path:
    adds = [handmade.add(f"{name}.parquet") for name in "ab"]
    return handmade.write_log(folder, [handmade.metadata(**metadata), *adds])


@pytest.mark.parametrize(
    ("metadata", "zorder_by", "told"),
    [
        ({"configuration": {"delta.columnMapping.mode": "id"}}, None, "columns are found by their field ids"),
        ({"columns": {"v": "variant"}}, None, "Column v is of type variant, which pyarrow can't rewrite"),
        ({}, "id", "Z-ordering needs Spark"),
    ],
    ids=["field ids", "variant", "Z-order"],
)
def test_some_tables_and_plans_are_refused(
    tmp_path: Path, metadata: dict[str, Any], zorder_by: str | None, told: str
) -> None:
    plan = open_table(table_of(tmp_path, **metadata)).plan_compaction(zorder_by=zorder_by)
    assert told in str(refuse_table(None, plan))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "properties", "told"),
    [
        ({"id": "long", "more": "string"}, {}, None),
        ({"id": "integer"}, {}, "the column id is of another type now"),
        ({"id": "long"}, TRACKED, "row tracking was switched on or off"),
        pytest.param(
            {"id": "long"},
            {"delta.writePartitionColumnsToParquet": "false"},
            "data files are to be without the partition columns now",
            marks=since_delta("4.4"),
        ),
    ],
    ids=["a column more", "type", "row tracking", "partition columns"],
)
def test_some_changes_meanwhile_leave_no_place_for_what_was_written(
    spark: SparkSession, tmp_path: Path, columns: dict[str, str], properties: dict[str, str], told: str | None
) -> None:
    table = table_of(tmp_path)
    handmade.write_commit(table, 1, [handmade.metadata(columns, configuration=properties)])
    log = open_table(table).log
    assert refuse_changes(spark, log.snapshot(0), log.snapshot(1)) == told
