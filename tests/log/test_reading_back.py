"""Every way that Delta lays its log out, read as Delta reads it."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import CorruptLogError
from compaction_kit.log import TransactionLog
from compaction_kit.log.listing import Kind, list_log
from compaction_kit.storage import open_store
from tests import deltas_view, handmade
from tests.conftest import CopyOf, SetConf
from tests.releases import since_delta

pytestmark = pytest.mark.spark

V2 = {"delta.checkpointPolicy": "v2"}
PARSED = {"delta.checkpoint.writeStatsAsJson": "false", "delta.checkpoint.writeStatsAsStruct": "true"}


def files_of(table: Path, version: int | None = None) -> dict[str, tuple[int, int | None]]:
    """The size of each live file, and its records."""
    columns = open_table(table).files(version).to_arrow().select(["path", "size_bytes", "num_records"])
    rows = zip(*columns.to_pydict().values(), strict=True)
    return {path: (size, records) for path, size, records in rows}


@pytest.fixture
def life(copy_of: CopyOf, lived: Path) -> Path:
    """A copy of `lived` to add a checkpoint to."""
    return copy_of(lived)


@pytest.mark.parametrize(
    ("properties", "suffix"),
    [
        ({}, "parquet"),
        pytest.param(PARSED, "parquet", marks=[since_delta("4.1"), pytest.mark.nightly]),
        (V2, "parquet"),
        pytest.param(V2, "json", marks=pytest.mark.nightly),
    ],
    ids=["classic", "parsed statistics alone", "V2", "V2 in JSON"],
)
def test_a_checkpoint_of_delta_says_the_same_as_the_commits(
    spark: SparkSession, life: Path, confs: SetConf, properties: dict[str, str], suffix: str
) -> None:
    confs("spark.databricks.delta.checkpointV2.topLevelFileFormat", suffix)
    for name, value in properties.items():
        spark.sql(f"ALTER TABLE delta.`{life}` SET TBLPROPERTIES ('{name}' = '{value}')")
    expected, before = files_of(life), TransactionLog(life).snapshot()
    deltas_view.checkpoint(spark, life)
    handmade.remove_commits(life, *range(before.version + 1))
    (file,) = TransactionLog(life).segment().checkpoint
    is_v2 = properties == V2
    assert file.kind is (Kind.V2_CHECKPOINT if is_v2 else Kind.CHECKPOINT)
    assert file.name.endswith(f".{suffix}")
    snapshot = TransactionLog(life).snapshot()
    assert properties.items() <= snapshot.metadata.configuration.items()
    assert snapshot.metadata.partition_columns == ("p",)
    assert files_of(life) == expected
    assert snapshot.tombstones.num_rows == before.tombstones.num_rows > 0
    assert any(file.kind is Kind.SIDECAR for file in list_log(open_store(str(life)))) == is_v2
    if is_v2:
        shutil.rmtree(life / "_delta_log" / "_sidecars")
        with pytest.raises(CorruptLogError, match=r"log file .*\.parquet can't be read"):
            files_of(life)


@pytest.mark.nightly
def test_a_checkpoint_lacking_a_part_is_passed_over(spark: SparkSession, life: Path, confs: SetConf) -> None:
    expected = files_of(life)
    confs("spark.databricks.delta.checkpoint.partSize", "3")
    deltas_view.checkpoint(spark, life)
    assert len(TransactionLog(life).segment().checkpoint) > 1
    assert files_of(life) == expected
    part = next(file for file in list_log(open_store(str(life))) if file.kind is Kind.CHECKPOINT_PART)
    (life / "_delta_log" / part.name).unlink()
    assert TransactionLog(life).segment().checkpoint == ()
    assert files_of(life) == expected
    handmade.remove_commits(life, 0)
    with pytest.raises(CorruptLogError, match="lacks the commit of version 0 and no complete checkpoint"):
        files_of(life)
