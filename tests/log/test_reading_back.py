"""Every way that Delta lays its log out, read as Delta reads it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import CorruptLogError
from compaction_kit.log import TransactionLog
from compaction_kit.log.listing import Kind, list_log
from compaction_kit.storage import open_store
from tests import deltas_view, handmade
from tests.releases import since_delta

pytestmark = pytest.mark.spark

SetConf = Callable[[str, str], None]
PARQUET = "checkpoint.parquet"


def live_files(table: Path, version: int | None = None) -> dict[str, int]:
    files = open_table(table).files(version).to_arrow()
    return dict(zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True))


@pytest.fixture
def life(copy_of: Callable[[Path], Path], lived: Path) -> Path:
    """A copy of `lived` to add a checkpoint to."""
    return copy_of(lived)


@pytest.fixture(scope="module")
def records(lived: Path) -> dict[str, int | None]:
    """Records in each live file, as the commits have them."""
    files = open_table(lived).files().to_arrow()
    return dict(zip(files["path"].to_pylist(), files["num_records"].to_pylist(), strict=True))


def counted(table: Path) -> dict[str, int | None]:
    files = open_table(table).files().to_arrow()
    return dict(zip(files["path"].to_pylist(), files["num_records"].to_pylist(), strict=True))


def test_every_version_holds_the_files_that_delta_says(spark: SparkSession, lived: Path) -> None:
    states = deltas_view.states(spark, lived, range(5))
    assert list(states) == list(range(5))
    for version, state in states.items():
        assert live_files(lived, version) == {path: size for (path, _), (size, *_) in state.live.items()}
    assert live_files(lived) == deltas_view.live_files(spark, lived)


def test_a_checkpoint_of_delta_says_the_same_as_the_commits(
    spark: SparkSession, life: Path, records: dict[str, int | None]
) -> None:
    expected = live_files(life)
    deltas_view.checkpoint(spark, life)
    handmade.remove_commits(life, 0, 1, 2, 3, 4)
    assert [file.kind for file in TransactionLog(life).segment().checkpoint] == [Kind.CHECKPOINT]
    assert live_files(life) == expected
    assert counted(life) == records
    tombstones = TransactionLog(life).snapshot().tombstones
    assert tombstones.num_rows == TransactionLog(life).snapshot(4).tombstones.num_rows > 0


def test_a_checkpoint_in_parts_is_read_and_passed_over_when_one_is_missing(
    spark: SparkSession, life: Path, confs: SetConf, records: dict[str, int | None]
) -> None:
    expected = live_files(life)
    confs("spark.databricks.delta.checkpoint.partSize", "3")
    deltas_view.checkpoint(spark, life)
    assert len(TransactionLog(life).segment().checkpoint) > 1
    assert live_files(life) == expected
    assert counted(life) == records
    TransactionLog(life)
    part = next(file for file in list_log(open_store(str(life))) if file.kind is Kind.CHECKPOINT_PART)
    (life / "_delta_log" / part.name).unlink()
    assert TransactionLog(life).segment().checkpoint == ()
    assert live_files(life) == expected
    handmade.remove_commits(life, 0)
    with pytest.raises(CorruptLogError, match="lacks the commit of version 0 and no complete checkpoint"):
        live_files(life)


@pytest.mark.parametrize("top_level", [pytest.param("json", marks=pytest.mark.nightly), "parquet"])
def test_a_v2_checkpoint_with_sidecars_is_read(
    spark: SparkSession, life: Path, confs: SetConf, records: dict[str, int | None], top_level: str
) -> None:
    confs("spark.databricks.delta.checkpointV2.topLevelFileFormat", top_level)
    spark.sql(f"ALTER TABLE delta.`{life}` SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    expected = live_files(life)
    deltas_view.checkpoint(spark, life)
    handmade.remove_commits(life, *range(6))
    (file,) = TransactionLog(life).segment().checkpoint
    assert (file.kind, Path(file.name).suffix) == (Kind.V2_CHECKPOINT, f".{top_level}")
    assert any(file.kind is Kind.SIDECAR for file in list_log(open_store(str(life))))
    snapshot = TransactionLog(life).snapshot()
    assert snapshot.metadata.configuration["delta.checkpointPolicy"] == "v2"
    assert snapshot.metadata.partition_columns == ("p",)
    assert live_files(life) == expected
    assert counted(life) == records
    shutil.rmtree(life / "_delta_log" / "_sidecars")
    with pytest.raises(CorruptLogError, match=r"log file .*\.parquet can't be read"):
        live_files(life)


@since_delta("4.1")
def test_counts_come_from_parsed_statistics_where_there_is_no_text(
    spark: SparkSession, life: Path, records: dict[str, int | None]
) -> None:
    spark.sql(
        f"ALTER TABLE delta.`{life}` SET TBLPROPERTIES ('delta.checkpoint.writeStatsAsJson' = 'false', "
        "'delta.checkpoint.writeStatsAsStruct' = 'true')"
    )
    deltas_view.checkpoint(spark, life)
    handmade.remove_commits(life, *range(6))
    assert counted(life) == records
