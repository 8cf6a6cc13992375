"""Rows keep their ids and their versions where a table tracks them."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import ConflictError
from tests import folders
from tests.conftest import CopyOf
from tests.execute.meanwhile import changed_metadata, once_rewriting
from tests.handmade import actions_of, commit_path, write_commit

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture(scope="module")
def tracked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partitioned table whose files have ids of their own for all rows, for some, and for none.

    By MERGE, which changes rows in both partitions and adds rows to one.
    """
    folder = tmp_path_factory.mktemp("tracked") / "table"
    name = f"delta.`{folder}`"
    rows = spark.range(0, 60, 1, 3).selectExpr("id", "CAST(id % 2 AS STRING) p", "CAST(id AS STRING) s")
    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"}
    rows.write.format("delta").partitionBy("p").options(**properties).save(str(folder))
    source = "SELECT EXPLODE(SEQUENCE(50L, 69L)) id"
    spark.sql(
        f"MERGE INTO {name} t USING ({source}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = 'both' "
        "WHEN NOT MATCHED THEN INSERT (id, p, s) VALUES (s.id, '1', 'merged')"
    )
    spark.sql(f"DELETE FROM {name} WHERE id % 10 = 7")
    return folder


def ids_of(spark: SparkSession, table: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(str(table))
    return sorted(map(tuple, rows.select("*", "_metadata.row_id", "_metadata.row_commit_version").collect()))


def what_delta_keeps(table: Path, version: int) -> Any:
    """What a commit says of row ids, but for the names and sizes of new files."""
    (info,) = actions_of(table, version, "commitInfo")
    keys = ("path", "baseRowId", "defaultRowCommitVersion")
    removes = sorted(str([remove[key] for key in keys]) for remove in actions_of(table, version, "remove"))
    adds = actions_of(table, version, "add")
    ids = sorted((add["baseRowId"], add["defaultRowCommitVersion"]) for add in adds)
    return info["tags"], removes, actions_of(table, version, "domainMetadata"), len(ids), ids[0]


def test_rows_keep_their_ids_and_versions(spark: SparkSession, copy_of: CopyOf, tracked: Path) -> None:
    table = copy_of(tracked)
    other = folders.copy(tracked, table.parent / "other")
    before = ids_of(spark, table)
    assert len({row[-1] for row in before}) == 2
    assert len({row[-2] for row in before}) == len(before)
    result = open_table(table).plan_compaction().run(strategy="arrow")
    assert (result.strategy, result.refusals, result.as_planned) == ("arrow", {}, True)
    assert result.verified is True
    assert ids_of(spark, table) == before
    assert open_table(other).plan_compaction().run(strategy="optimize").verified is True
    (version,) = result.versions
    assert what_delta_keeps(table, version) == what_delta_keeps(other, version)
    columns = [
        sorted(pq.read_schema(folder / add["path"]).names)
        for folder in (table, other)
        for add in actions_of(folder, version, "add")
    ]
    assert all(names == columns[0] for names in columns)


@pytest.mark.nightly
def test_new_rows_get_other_ids_than_compacted_ones(
    spark: SparkSession, copy_of: CopyOf, tracked: Path
) -> None:
    table = copy_of(tracked)
    before = len(ids_of(spark, table))
    open_table(table).plan_compaction().run(strategy="arrow")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (100, '0', 'x'), (101, '0', 'y')")
    more = ids_of(spark, table)
    assert len({row[-2] for row in more}) == len(more) == before + 2
    open_table(table).plan_compaction().run(strategy="arrow")
    assert ids_of(spark, table) == more


def test_row_tracking_switched_on_is_a_conflict(copy_of: CopyOf, tracked: Path) -> None:
    table = copy_of(tracked)
    plan = open_table(table).plan_compaction()
    names = actions_of(table, 0, "metaData")[0]["configuration"]
    other = {name: value.replace("_row", "_new") for name, value in names.items() if "materialized" in name}
    change = changed_metadata(table, configuration={**names, **other})
    during = once_rewriting(lambda: write_commit(table, plan.version + 1, [change]))
    with pytest.raises(ConflictError, match="row tracking was switched on or off"):
        plan.run(strategy="arrow", verify=False, progress=during)
    assert not commit_path(table, plan.version + 2).exists()
